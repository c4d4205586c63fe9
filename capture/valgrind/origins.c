/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_tooliface.h"

#include "libvex_guest_amd64.h"

#include "origins.h"

/* What is followed is values, not memory: a value that is stored and loaded again comes from the load. Of the guest state, the
   stack pointer, the program counter, segment bases and the x87 stack are left out: they are known early, or make no
   address. */

#define GENERAL_N 16
#define FLAGS 16
#define VECTORS 18
#define VECTOR_BYTES 32

#define OFFSET(field) ((Int)offsetof(VexGuestAMD64State, field))

const Origin pl_no_origin = {NO_LOAD, 0};

static Origin* temporaries;
static UInt temporaries_room;
static Origin registers[REGISTERS]; /* as they are by now */
static Origin known[REGISTERS];     /* as they were at the end of the last segment */

Origin pl_loaded(UInt number)
{
   Origin origin = {(Int)number, 0};
   return origin;
}

/* What was loaded in the superblock is younger than what its entry's registers hold. */
Origin pl_youngest(Origin one, Origin other)
{
   if (one.load == NO_LOAD && other.load == NO_LOAD)
      one.registers |= other.registers;
   else if (other.load > one.load)
      one = other;
   return one;
}

static Bool same(Origin one, Origin other)
{
   return one.load == other.load && one.registers == other.registers;
}

static Origin entry_value(UInt number)
{
   Origin origin = {NO_LOAD, 1ULL << number};
   return origin;
}

/* Number of the register at this offset of the guest state; -1 if it is none that counts. */
static Int register_at(Int offset)
{
   Int general = (offset - OFFSET(guest_RAX)) / 8;
   Int vector = (offset - OFFSET(guest_YMM0)) / VECTOR_BYTES;

   if (offset >= OFFSET(guest_RAX) && general < GENERAL_N)
      return general == (OFFSET(guest_RSP) - OFFSET(guest_RAX)) / 8 ? -1 : general;
   if (offset == OFFSET(guest_CC_DEP1))
      return FLAGS;
   if (offset == OFFSET(guest_CC_DEP2))
      return FLAGS + 1;
   if (offset >= OFFSET(guest_YMM0) && vector < REGISTERS - VECTORS)
      return VECTORS + vector;
   return -1;
}

void pl_origins_begin(UInt temporaries_n)
{
   UInt i;

   if (temporaries_n > temporaries_room) {
      VG_(free)(temporaries);
      temporaries = VG_(malloc)("pagelab.origins", temporaries_n * sizeof(Origin));
      temporaries_room = temporaries_n;
   }
   for (i = 0; i < temporaries_n; i++)
      temporaries[i] = pl_no_origin;
   for (i = 0; i < REGISTERS; i++)
      registers[i] = known[i] = entry_value(i);
}

void pl_set_temporary(IRTemp temporary, Origin origin)
{
   tl_assert(temporary < temporaries_room);
   temporaries[temporary] = origin;
}

/* Origin of all of them; they end with NULL. */
static Origin origin_of_all(IRExpr* const* values)
{
   Origin origin = pl_no_origin;

   for (; *values != NULL; values++)
      if (!is_IRExpr_VECRET_or_GSPTR(*values))
         origin = pl_youngest(origin, pl_origin_of(*values));
   return origin;
}

Origin pl_origin_of(const IRExpr* value)
{
   Int number;

   switch (value->tag) {
   case Iex_RdTmp: return temporaries[value->Iex.RdTmp.tmp];
   case Iex_Get:
      number = register_at(value->Iex.Get.offset);
      return number < 0 ? pl_no_origin : registers[number];
   case Iex_Unop: return pl_origin_of(value->Iex.Unop.arg);
   case Iex_Binop: return pl_youngest(pl_origin_of(value->Iex.Binop.arg1), pl_origin_of(value->Iex.Binop.arg2));
   case Iex_Triop: {
      const IRTriop* op = value->Iex.Triop.details;
      return pl_youngest(pl_origin_of(op->arg2), pl_origin_of(op->arg3));
   }
   case Iex_Qop: {
      const IRQop* op = value->Iex.Qop.details;
      return pl_youngest(pl_youngest(pl_origin_of(op->arg2), pl_origin_of(op->arg3)), pl_origin_of(op->arg4));
   }
   case Iex_ITE:
      return pl_youngest(pl_origin_of(value->Iex.ITE.cond),
                         pl_youngest(pl_origin_of(value->Iex.ITE.iftrue), pl_origin_of(value->Iex.ITE.iffalse)));
   case Iex_CCall: return origin_of_all(value->Iex.CCall.args);
   default: return pl_no_origin;
   }
}

/* A part of a register leaves the rest, but for the lower part of a vector's: most instructions clear what is above it. */
void pl_set_register(Int offset, SizeT bytes, Origin origin)
{
   Int number = register_at(offset);
   Bool whole;

   if (number < 0)
      return;
   whole = number < VECTORS ? bytes == 8 : (offset - OFFSET(guest_YMM0)) % VECTOR_BYTES == 0;
   registers[number] = whole ? origin : pl_youngest(registers[number], origin);
}

void pl_helper_was_called(const IRDirty* dirty, Origin read)
{
   Int i;

   for (i = 0; i < dirty->nFxState; i++) {
      Int number = register_at(dirty->fxState[i].offset);
      if (dirty->fxState[i].fx != Ifx_Read && number >= 0)
         registers[number] = pl_no_origin;
   }
   if (dirty->tmp != IRTemp_INVALID)
      pl_set_temporary(dirty->tmp, pl_youngest(read, origin_of_all(dirty->args)));
}

void pl_kernel_was_called(void)
{
   static const Int offsets[] = {OFFSET(guest_RAX), OFFSET(guest_RCX), OFFSET(guest_R11)};
   UInt i;

   for (i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
      registers[register_at(offsets[i])] = pl_no_origin;
}

Bool pl_register_has_changed(UInt number)
{
   return !same(registers[number], known[number]);
}

Origin pl_origin_of_register(UInt number)
{
   return registers[number];
}

/* The register that still holds what `number` held at the superblock's entry; -1 if none does. */
static Int holder(UInt number)
{
   UInt i;

   if (same(known[number], entry_value(number)))
      return (Int)number;
   for (i = 0; i < REGISTERS; i++)
      if (same(known[i], entry_value(number)))
         return (Int)i;
   return -1;
}

Origin pl_origin_at_entry(Origin origin)
{
   ULong left = origin.registers;
   UInt number;

   origin.registers = 0;
   for (number = 0; left != 0; number++, left >>= 1) {
      Int held = (left & 1) != 0 ? holder(number) : -1;
      if (held >= 0)
         origin.registers |= 1ULL << held;
   }
   return origin;
}

void pl_origins_end_segment(void)
{
   UInt i;

   for (i = 0; i < REGISTERS; i++)
      known[i] = registers[i];
}
