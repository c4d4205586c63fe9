/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Valgrind computes with 64 bits, rounds to nearest, keeps denormal numbers, and reports no exceptions, whatever the
   program asks for. The trace says what it has asked for. Helper functions of VEX carry these instructions out, so they
   are known by the helpers' names. */

#include "libvex.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_tooliface.h"

#include "floating_point.h"

/* MXCSR (Intel's manual, volume 1, section 10.2.3). */
#define MXCSR_FLAGS 0x3f
#define MXCSR_DENORMALS_ARE_ZEROS 0x40
#define MXCSR_MASKS 0x1f80
#define MXCSR_ROUNDING 0x6000
#define MXCSR_FLUSH_TO_ZERO 0x8000

/* A few temporaries of the superblock, the latest ones. */
#define TEMPORARIES 16
typedef struct {
   IRTemp members[TEMPORARIES];
   UInt n;
} Temporaries;

/* Those with what MXCSR holds, perhaps with other bits; and those that hold no other bits than where MXCSR has its
   flags. */
static Temporaries of_mxcsr, of_flags;
/* An address: a temporary and a constant. */
typedef struct {
   IRTemp base;
   ULong offset;
} Place;

/* The latest temporaries that are such sums. */
static struct {
   IRTemp sum;
   Place place;
} sums[TEMPORARIES];
static UInt sums_n;
/* Where the superblock has stored MXCSR, since only a store reads it. */
static Place stored_at;
static Bool is_stored;

typedef enum { LONG_DOUBLE, ROUNDING, DENORMALS, TRAPS, FLAGS } Lack;

static const HChar* const texts[] = {
   [LONG_DOUBLE] = "it computes with `long double` (x87), of which Valgrind keeps 64 bits; its results may differ",
   [ROUNDING] = "it sets a rounding mode other than to nearest (MXCSR), which Valgrind ignores in arithmetic; its results "
                "may differ",
   [DENORMALS] = "it sets denormal numbers to be taken as zero (MXCSR), which Valgrind ignores; its results may differ",
   [TRAPS] = "it asks for SIGFPE at floating-point exceptions (MXCSR), which Valgrind does not send",
   [FLAGS] = "it asks which floating-point exceptions have occurred (MXCSR); under Valgrind none ever have",
};

static void tell_of(Lack lack)
{
   static Bool warned[sizeof texts / sizeof texts[0]];

   if (!warned[lack])
      VG_(umsg)("pagelab note: %s\n", texts[lack]);
   warned[lack] = True;
}

/* The program loads MXCSR. */
static VG_REGPARM(1) void look_at_mxcsr(ULong mxcsr)
{
   if (mxcsr & MXCSR_ROUNDING)
      tell_of(ROUNDING);
   if (mxcsr & (MXCSR_DENORMALS_ARE_ZEROS | MXCSR_FLUSH_TO_ZERO))
      tell_of(DENORMALS);
   if (~mxcsr & MXCSR_MASKS)
      tell_of(TRAPS);
}

static void add(Temporaries* set, IRTemp temporary)
{
   set->members[set->n++ % TEMPORARIES] = temporary;
}

static Bool is_in(const Temporaries* set, const IRExpr* value)
{
   UInt n = set->n < TEMPORARIES ? set->n : TEMPORARIES, i;

   if (value->tag != Iex_RdTmp)
      return False;
   for (i = 0; i < n; i++) {
      if (set->members[i] == value->Iex.RdTmp.tmp)
         return True;
   }
   return False;
}

static ULong bits_of(const IRConst* constant)
{
   switch (constant->tag) {
   case Ico_U8: return constant->Ico.U8;
   case Ico_U16: return constant->Ico.U16;
   case Ico_U32: return constant->Ico.U32;
   case Ico_U64: return constant->Ico.U64;
   default: return 0;
   }
}

static Bool is_mask_of_flags(const IRExpr* value)
{
   ULong bits;

   if (value->tag != Iex_Const)
      return is_in(&of_flags, value);
   bits = bits_of(value->Iex.Const.con);
   return bits != 0 && (bits & ~(ULong)MXCSR_FLAGS) == 0;
}

static Place place_of(const IRExpr* address)
{
   Place place = {IRTemp_INVALID, 0};
   UInt n = sums_n < TEMPORARIES ? sums_n : TEMPORARIES, i;

   if (address->tag == Iex_Const) {
      place.offset = bits_of(address->Iex.Const.con);
      return place;
   }
   place.base = address->Iex.RdTmp.tmp;
   for (i = 0; i < n; i++) {
      if (sums[i].sum == place.base)
         return sums[i].place;
   }
   return place;
}

static void note_sum(IRTemp result, const IRExpr* first, const IRExpr* second)
{
   UInt at = sums_n++ % TEMPORARIES;

   sums[at].sum = result;
   sums[at].place.base = first->Iex.RdTmp.tmp;
   sums[at].place.offset = bits_of(second->Iex.Const.con);
}

static void follow_binary(IRTemp result, const IRExpr* value)
{
   const IRExpr *first = value->Iex.Binop.arg1, *second = value->Iex.Binop.arg2;
   Bool is_mxcsr = is_in(&of_mxcsr, first) || is_in(&of_mxcsr, second);

   switch (value->Iex.Binop.op) {
   case Iop_Add64:
      if (first->tag == Iex_RdTmp && second->tag == Iex_Const)
         note_sum(result, first, second);
      break;
   case Iop_Or8:
   case Iop_Or16:
   case Iop_Or32:
   case Iop_Or64:
      if (is_mxcsr)
         add(&of_mxcsr, result);
      break;
   case Iop_And8:
   case Iop_And16:
   case Iop_And32:
   case Iop_And64:
      if (is_mask_of_flags(first) || is_mask_of_flags(second)) {
         /* As fetestexcept does. Functions that save MXCSR, or look at the rounding mode, keep other bits. */
         if (is_mxcsr)
            tell_of(FLAGS);
         add(&of_flags, result);
      } else if (is_mxcsr && second->tag != Iex_Const) {
         /* Some bits, which are not known yet. */
         add(&of_mxcsr, result);
      }
      break;
   default: break;
   }
}

static void follow_load(IRTemp result, const IRExpr* address)
{
   Place place = place_of(address);

   if (is_stored && place.base == stored_at.base && place.offset == stored_at.offset)
      add(&of_mxcsr, result);
}

/* Conversions and copies. */
static void follow_unary(IRTemp result, const IRExpr* argument)
{
   if (is_in(&of_mxcsr, argument))
      add(&of_mxcsr, result);
   if (is_in(&of_flags, argument))
      add(&of_flags, result);
}

static void look_at_call(IRSB* out, IRTemp result, const IRExpr* call)
{
   const HChar* name = call->Iex.CCall.cee->name;

   if (VG_(strcmp)(name, "amd64g_create_mxcsr") == 0) {
      add(&of_mxcsr, result);
   } else if (VG_(strcmp)(name, "amd64g_check_ldmxcsr") == 0) {
      IRExpr** arguments = mkIRExprVec_1(call->Iex.CCall.args[0]);
      addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(1, "pl_look_at_mxcsr", VG_(fnptr_to_fnentry)(look_at_mxcsr),
                                                        arguments)));
   }
}

void pl_floating_point_begin_superblock(void)
{
   of_mxcsr.n = of_flags.n = sums_n = 0;
   is_stored = False;
}

void pl_floating_point_statement(IRSB* out, const IRStmt* statement)
{
   const IRExpr* value;

   switch (statement->tag) {
   case Ist_Dirty:
      /* The helpers that load and store numbers of 80 bits. */
      if (VG_(strstr)(statement->Ist.Dirty.details->cee->name, "F80le") != NULL)
         tell_of(LONG_DOUBLE);
      break;
   case Ist_Store:
      if (is_in(&of_mxcsr, statement->Ist.Store.data)) {
         stored_at = place_of(statement->Ist.Store.addr);
         is_stored = True;
      }
      break;
   case Ist_WrTmp:
      value = statement->Ist.WrTmp.data;
      if (value->tag == Iex_CCall)
         look_at_call(out, statement->Ist.WrTmp.tmp, value);
      else if (value->tag == Iex_Unop)
         follow_unary(statement->Ist.WrTmp.tmp, value->Iex.Unop.arg);
      else if (value->tag == Iex_RdTmp)
         follow_unary(statement->Ist.WrTmp.tmp, value);
      else if (value->tag == Iex_Binop)
         follow_binary(statement->Ist.WrTmp.tmp, value);
      else if (value->tag == Iex_Load)
         follow_load(statement->Ist.WrTmp.tmp, value->Iex.Load.addr);
      break;
   default: break;
   }
}
