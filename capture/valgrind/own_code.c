/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* A superblock runs the code that it was translated from. An instruction of it may rewrite those that follow; the
   processor then runs the new ones. Valgrind compares code with its translation only where a superblock begins. So code
   that may be written is translated such that each store looks whether it hits the superblock's own code. If it does,
   the superblock is left after that instruction, and the next one begins with what was written. Registers are exact
   there (translate.c). */

#include "libvex.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_tooliface.h"

#include "own_code.h"
#include "stream.h"
#include "translate.h"

static const VexGuestExtents* own = NULL;
/* Whether the instruction being instrumented has hit the superblock's code; NULL if it cannot have. */
static IRExpr* hit = NULL;

void pl_own_code_begin_superblock(const VexGuestExtents* extents)
{
   own = pl_translate_may_be_written(extents) ? extents : NULL;
   hit = NULL;
}

static IRExpr* assign(IRSB* out, IRType type, IRExpr* value)
{
   IRTemp temporary = newIRTemp(out->tyenv, type);

   addStmtToIRSB(out, IRStmt_WrTmp(temporary, value));
   return IRExpr_RdTmp(temporary);
}

static IRExpr* u64(ULong value)
{
   return IRExpr_Const(IRConst_U64(value));
}

void pl_own_code_stores(IRSB* out, IRExpr* address, SizeT size, IRExpr* guard)
{
   UInt i;

   if (own == NULL)
      return;
   for (i = 0; i < own->n_used; i++) {
      /* The store overlaps the code if it begins less than its size before it, or in it. */
      Addr first = own->base[i] - (size - 1);
      ULong places = own->len[i] + size - 1;
      IRExpr *distance, *overlaps;
      if (address->tag == Iex_Const && address->Iex.Const.con->Ico.U64 - first >= places)
         continue;
      distance = assign(out, Ity_I64, IRExpr_Binop(Iop_Sub64, address, u64(first)));
      overlaps = assign(out, Ity_I1, IRExpr_Binop(Iop_CmpLT64U, distance, u64(places)));
      if (guard != NULL)
         overlaps = assign(out, Ity_I1, IRExpr_Binop(Iop_And1, guard, overlaps));
      hit = hit == NULL ? overlaps : assign(out, Ity_I1, IRExpr_Binop(Iop_Or1, hit, overlaps));
   }
}

/* Sends what the segment has written so far: it will not reach its end. */
static VG_REGPARM(1) void send_left(Addr pc)
{
   static UChar record[2048];

   VG_(memcpy)(record, pl_pos, sizeof record);
   pl_begin(PL_LEFT, 8 + sizeof record);
   pl_put64(pc);
   pl_put_bytes(record, sizeof record);
   pl_end();
}

void pl_own_code_leave(IRSB* out, Addr pc, Addr next, Bool in_segment)
{
   if (hit == NULL)
      return;
   if (in_segment) {
      IRDirty* send = unsafeIRDirty_0_N(1, "pl_send_left", VG_(fnptr_to_fnentry)(send_left), mkIRExprVec_1(u64(pc)));
      send->guard = hit;
      addStmtToIRSB(out, IRStmt_Dirty(send));
   }
   addStmtToIRSB(out, IRStmt_Exit(hit, Ijk_Boring, IRConst_U64(next), out->offsIP));
   hit = NULL;
}
