/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_FLOATING_POINT_H
#define PAGELAB_FLOATING_POINT_H

/* What Valgrind's floating-point arithmetic lacks, if the program asks for it. */

#include "libvex.h"

extern void pl_floating_point_begin_superblock(void);
/* Looks at a statement of the superblock that is being instrumented, before it is added to `out`. */
extern void pl_floating_point_statement(IRSB* out, const IRStmt* statement);

#endif
