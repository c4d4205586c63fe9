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

/* Registers whose values may make an address: 16 general ones, the two that hold what flags are made of, 16 of vectors. */
#define REGISTERS 34

/* Loads of a superblock that are followed. One beyond comes from nothing that is known: the encoder's reach is shorter. */
#define LOADS 256

/* Where a value comes from: loads of the superblock, by number, and registers at the superblock's entry, a bit each. */
typedef struct {
   ULong loads[LOADS / 64];
   ULong registers;
} Origin;

/* One load stands for an origin, or registers do: see pl_waited_for. */
typedef struct {
   Int load;        /* NO_LOAD if it is registers */
   Bool at_once;    /* the load's address is known without any other */
   ULong registers; /* at the superblock's entry, or that of a segment */
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
extern Bool pl_register_has_changed(UInt number);
extern Origin pl_origin_of_register(UInt number);
/* These registers at the superblock's entry as those at the entry of the open segment that hold the same. */
extern ULong pl_registers_at_entry(ULong registers);
extern void pl_origins_end_segment(void);

#endif
