/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_OTHER_LIMITS_H
#define PAGELAB_OTHER_LIMITS_H

/* Limits of other processes that are recorded (prlimit). */

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"

#include "core.h"

/* prlimit on another process. True if nothing is left to do. The addresses are valid, or 0. */
extern Bool pl_other_limits_call(Int pid, UWord resource, const struct vki_rlimit* asked, struct vki_rlimit* old,
                                 SyscallStatus* status);

#endif
