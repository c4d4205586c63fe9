/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_ALLOCATIONS_H
#define PAGELAB_ALLOCATIONS_H

/* Which blocks of memory the program allocates and frees: calls of the allocator's functions, found by their names in
   the symbol tables of what the program maps. */

#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

/* Whether calls, returns and allocations are told. Without it nothing here does anything. */
extern Bool pl_stacks;

/* Code of a file was mapped, in which there may be an allocator's functions. */
extern void pl_allocations_mapped(Addr address, SizeT length, ULong offset, const HChar* file);
/* What was mapped there is gone. */
extern void pl_allocations_unmapped(Addr address, SizeT length);
/* The thread whose code runs from here on. */
extern void pl_allocations_run_as(ThreadId tid);

/* Added to a superblock that begins at `pc`, before anything else. */
extern void pl_allocations_instrument_entry(IRSB* out, Addr pc);
/* Added to a superblock that ends with a return, the instruction at `pc`, after everything else. */
extern void pl_allocations_instrument_return(IRSB* out, Addr pc);

#endif
