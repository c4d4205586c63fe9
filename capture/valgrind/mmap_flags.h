/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_MMAP_FLAGS_H
#define PAGELAB_MMAP_FLAGS_H

#include "core.h"

/* What handles mmap instead of Valgrind's own entry, and calls that. */
extern SyscallTableEntry* pl_mmap_entry(const SyscallTableEntry* valgrinds);

#endif
