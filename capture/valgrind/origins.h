/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_ORIGINS_H
#define PAGELAB_ORIGINS_H

/* Which loads the values of a superblock come from, found out when it is translated. */

#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

#define NO_LOAD (-1)

/* Registers whose values may make an address: 16 general ones, the flags, 16 of vectors. */
#define REGISTERS 33

/* At most this many loads of a superblock are followed; values from later ones count as known. Few superblocks have
   more. */
#define LOADS 256

/* Where a value comes from: loads of the superblock, by number, and registers at the superblock's entry, a bit each. */
typedef struct {
   ULong loads[LOADS / 64];
   ULong registers;
} Origin;

/* What stands for an origin: one load, registers, or both if the load is at an address that is known at once. See
   pl_waited_for. */
typedef struct {
   Int load;        /* NO_LOAD without any */
   Bool at_once;    /* its address comes from the stack pointer, the program counter and constants alone, as far as the superblock tells */
   ULong registers; /* at the superblock's entry */
} Waited;

extern const Origin pl_no_origin;

/* What was loaded by the access of this number, from an address of this origin. */
extern Origin pl_loaded(UInt number, Origin address);
extern Origin pl_of_both(Origin one, Origin other);
extern Origin pl_origin_of(const IRExpr* value);
/* The load that the value is there last by, as far as that is known before anything runs. */
extern Waited pl_waited_for(Origin origin);

/* A superblock begins, with so many temporaries. */
extern void pl_origins_begin(UInt temporaries_n);
extern void pl_set_temporary(IRTemp temporary, Origin origin);
/* The guest state at this offset is set. */
extern void pl_set_register(Int offset, SizeT bytes, Origin origin);
/* A helper may have written registers; what it returns comes from its arguments and what it has `read`. */
extern void pl_helper_was_called(const IRDirty* dirty, Origin read);
/* The kernel sets the result and clobbers two registers. */
extern void pl_kernel_was_called(void);

/* The registers as the encoder knows them are those at the end of the last segment. */
extern ULong pl_registers_that_have_changed(void); /* a bit each */
extern Origin pl_origin_of_register(UInt number);
/* The registers of an origin as those at the entry of the open segment that hold the same. */
extern ULong pl_registers_at_entry(Origin origin);
extern void pl_origins_end_segment(void);

#endif
