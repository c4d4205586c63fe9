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

/* What is followed is values, not memory: a value that is stored and loaded again comes from the load. Of the guest
   state, the stack pointer, the program counter, segment bases and the x87 stack are left out: they are known early, or
   make no address. */

#define GENERAL_N 16
#define FLAGS 16
#define VECTORS 17
#define VECTOR_BYTES 32

#define OFFSET(field) ((Int)offsetof(VexGuestAMD64State, field))

#define WORDS (LOADS / 64)

const Origin pl_no_origin;

static Origin* temporaries;
static UInt temporaries_room;
static Origin ancestors[LOADS];     /* by load, all that its address comes from, and what that comes from, and so on */
static UInt followed;               /* no load of the superblock so far has this number or a greater one */
/* Flags are made of two values, of which the second one has a place beyond the registers. Whoever reads flags waits for
   both. */
#define SECOND_OF_FLAGS REGISTERS
static Origin registers[REGISTERS + 1]; /* as they are by now */
static Origin known[REGISTERS];         /* as they were at the end of the last segment */
/* Registers, a bit each, that may be other than `known`, and those of which `known` may be other than at the entry.
   Most code sets few, so that only these are looked at. */
static ULong set_since;
static ULong set_before;

/* The load of the least number, from this one on; LOADS if there is none. */
static UInt next_load(const Origin* origin, UInt from)
{
   UInt word = from / 64;
   ULong left;

   if (from >= LOADS)
      return LOADS;
   left = origin->loads[word] >> (from % 64) << (from % 64);
   while (left == 0) {
      if (++word == WORDS)
         return LOADS;
      left = origin->loads[word];
   }
   return word * 64 + (UInt)__builtin_ctzll(left);
}

Origin pl_of_both(Origin one, Origin other)
{
   UInt i;

   for (i = 0; i < WORDS; i++)
      one.loads[i] |= other.loads[i];
   one.registers |= other.registers;
   return one;
}

Origin pl_loaded(UInt number, Origin address)
{
   Origin origin = pl_no_origin, all = address;
   UInt i;

   if (number >= LOADS)
      return origin;
   origin.loads[number / 64] = 1ULL << (number % 64);
   /* What a load's address comes from has lower numbers, and ancestors have theirs. */
   for (i = next_load(&address, 0); i < number; i = next_load(&address, i + 1))
      all = pl_of_both(all, ancestors[i]);
   ancestors[number] = all;
   followed = number + 1;
   return origin;
}

static Bool same(Origin one, Origin other)
{
   UInt i;

   for (i = 0; i < WORDS; i++)
      if (one.loads[i] != other.loads[i])
         return False;
   return one.registers == other.registers;
}

/* Whether all of `some` is in `all`. */
static Bool is_within(Origin some, Origin all)
{
   return same(pl_of_both(some, all), all);
}

/* Whether no other load issues later: one whose address comes from all that this one's does, and from more. */
static Bool is_last(const Origin* origin, UInt number)
{
   UInt other;

   for (other = next_load(origin, 0); other < followed; other = next_load(origin, other + 1))
      if (other != number && is_within(ancestors[number], ancestors[other])
          && !same(ancestors[number], ancestors[other]))
         return False;
   return True;
}

/* Of the loads that no other issues after the youngest. What was loaded in the superblock is younger than what its
   entry's registers hold, but for a load at an address that is known at once, in a stack frame or a global variable:
   that is there early, and the encoder chooses between it and the registers. */
Waited pl_waited_for(Origin origin)
{
   Waited waited = {NO_LOAD, False, origin.registers};
   UInt number;

   for (number = next_load(&origin, 0); number < followed; number = next_load(&origin, number + 1)) {
      if (is_last(&origin, number)) {
         waited.load = (Int)number;
         waited.at_once = same(ancestors[number], pl_no_origin);
      }
   }
   if (waited.load != NO_LOAD && !waited.at_once)
      waited.registers = 0;
   return waited;
}

static Origin entry_value(UInt number)
{
   Origin origin = pl_no_origin;

   origin.registers = 1ULL << number;
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
      return SECOND_OF_FLAGS;
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
   followed = 0;
   set_since = set_before = 0;
   for (i = 0; i < temporaries_n; i++)
      temporaries[i] = pl_no_origin;
   for (i = 0; i < REGISTERS; i++)
      registers[i] = known[i] = entry_value(i);
   registers[SECOND_OF_FLAGS] = entry_value(FLAGS);
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
         origin = pl_of_both(origin, pl_origin_of(*values));
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
   case Iex_Binop: return pl_of_both(pl_origin_of(value->Iex.Binop.arg1), pl_origin_of(value->Iex.Binop.arg2));
   case Iex_Triop: {
      const IRTriop* op = value->Iex.Triop.details;
      return pl_of_both(pl_origin_of(op->arg2), pl_origin_of(op->arg3));
   }
   case Iex_Qop: {
      const IRQop* op = value->Iex.Qop.details;
      return pl_of_both(pl_of_both(pl_origin_of(op->arg2), pl_origin_of(op->arg3)), pl_origin_of(op->arg4));
   }
   case Iex_ITE:
      return pl_of_both(pl_origin_of(value->Iex.ITE.cond),
                         pl_of_both(pl_origin_of(value->Iex.ITE.iftrue), pl_origin_of(value->Iex.ITE.iffalse)));
   case Iex_CCall: return origin_of_all(value->Iex.CCall.args);
   default: return pl_no_origin;
   }
}

/* The register of this number is set. */
static void set(Int number, Origin origin)
{
   registers[number] = origin;
   set_since |= 1ULL << (number == SECOND_OF_FLAGS ? FLAGS : number);
}

/* A part of a register leaves the rest, but for the lower part of a vector's: most instructions clear what is above
   it. */
void pl_set_register(Int offset, SizeT bytes, Origin origin)
{
   Int number = register_at(offset);
   Bool whole;

   if (number < 0)
      return;
   whole = offset < OFFSET(guest_YMM0) ? bytes == 8 : (offset - OFFSET(guest_YMM0)) % VECTOR_BYTES == 0;
   set(number, whole ? origin : pl_of_both(registers[number], origin));
}

void pl_helper_was_called(const IRDirty* dirty, Origin read)
{
   Int i;

   for (i = 0; i < dirty->nFxState; i++) {
      Int number = register_at(dirty->fxState[i].offset);
      if (dirty->fxState[i].fx != Ifx_Read && number >= 0)
         set(number, pl_no_origin);
   }
   if (dirty->tmp != IRTemp_INVALID)
      pl_set_temporary(dirty->tmp, pl_of_both(read, origin_of_all(dirty->args)));
}

void pl_kernel_was_called(void)
{
   static const Int offsets[] = {OFFSET(guest_RAX), OFFSET(guest_RCX), OFFSET(guest_R11)};
   UInt i;

   for (i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
      set(register_at(offsets[i]), pl_no_origin);
}

ULong pl_registers_that_have_changed(void)
{
   ULong changed = 0, left;

   for (left = set_since; left != 0; left &= left - 1) {
      UInt number = (UInt)__builtin_ctzll(left);
      if (!same(pl_origin_of_register(number), known[number]))
         changed |= 1ULL << number;
   }
   return changed;
}

Origin pl_origin_of_register(UInt number)
{
   return number == FLAGS ? pl_of_both(registers[FLAGS], registers[SECOND_OF_FLAGS]) : registers[number];
}

/* A register that holds at the entry of the open segment what `number` held at the superblock's, or what comes from
   that and from nothing that `origin` does not come from; -1 if there is none. */
static Int holder(UInt number, Origin origin)
{
   Int derived = -1;
   ULong left;

   /* The others hold themselves and nothing else. */
   for (left = set_before | 1ULL << number; left != 0; left &= left - 1) {
      UInt i = (UInt)__builtin_ctzll(left);
      if (same(known[i], entry_value(number)))
         return (Int)i;
      if ((known[i].registers >> number & 1) != 0 && is_within(known[i], origin))
         derived = (Int)i;
   }
   return derived;
}

ULong pl_registers_at_entry(Origin origin)
{
   ULong at_entry = 0, left = origin.registers;

   if (set_before == 0)
      return left;
   for (; left != 0; left &= left - 1) {
      Int held = holder((UInt)__builtin_ctzll(left), origin);
      if (held >= 0)
         at_entry |= 1ULL << held;
   }
   return at_entry;
}

void pl_origins_end_segment(void)
{
   for (; set_since != 0; set_since &= set_since - 1) {
      UInt i = (UInt)__builtin_ctzll(set_since);
      known[i] = pl_origin_of_register(i);
      set_before |= 1ULL << i;
   }
}
