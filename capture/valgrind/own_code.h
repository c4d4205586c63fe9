/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_OWN_CODE_H
#define PAGELAB_OWN_CODE_H

/* Instructions that rewrite others of their own superblock. */

#include "libvex.h"
#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

/* A superblock is being instrumented. */
extern void pl_own_code_begin_superblock(const VexGuestExtents* extents);
/* The instruction being instrumented stores there; `guard` is the condition, or NULL. */
extern void pl_own_code_stores(IRSB* out, IRExpr* address, SizeT size, IRExpr* guard);
/* Between two instructions: leaves the superblock if the first one, at `pc`, has rewritten it. `in_segment` says
   whether a segment is open. */
extern void pl_own_code_leave(IRSB* out, Addr pc, Addr next, Bool in_segment);

#endif
