/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_POPF_H
#define PAGELAB_POPF_H

/* Flags that a program pops, and that Valgrind ignores. */

#include "libvex.h"
#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

/* The instruction begins here in the superblock. */
extern void pl_popf_instruction(IRSB* out, Addr pc, UInt length);

#endif
