/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_IO_URING_H
#define PAGELAB_IO_URING_H

/* What the kernel reads and writes for operations of io_uring. */

#include "pub_tool_basics.h"

extern void pl_io_uring_made(Int descriptor, Addr parameters);
/* The program has mapped a part of a ring, if the descriptor is one of a ring. */
extern void pl_io_uring_mapped(Int descriptor, ULong offset, Addr address);
extern void pl_io_uring_before_enter(Int descriptor, UInt submitted);
extern void pl_io_uring_after_enter(Int descriptor);
extern void pl_io_uring_registered(UInt operation, Addr vectors, UInt n);

#endif
