/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* `popf` can set the flags TF, with which the processor raises SIGTRAP after each instruction, and AC, with which it
   raises SIGBUS at unaligned accesses. Under Valgrind they have no effect; the trace says so. */

#include "libvex.h"
#include "libvex_guest_amd64.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"

#include "popf.h"

#define POPF 0x9d
#define OPERAND_SIZE_PREFIX 0x66
#define REX_W 0x08
#define FLAG_TF (1UL << 8)
#define FLAG_AC (1UL << 18)

static void tell_of(const HChar* flag, Bool* warned)
{
   if (!*warned)
      VG_(umsg)("pagelab note: it sets the flag %s (popf), which Valgrind ignores\n", flag);
   *warned = True;
}

static VG_REGPARM(2) void look_at_flags(Addr stack_pointer, ULong bytes)
{
   static Bool warned_of_steps = False, warned_of_alignment = False;
   ULong flags;

   if (!VG_(am_is_valid_for_client)(stack_pointer, bytes, VKI_PROT_READ))
      return;
   flags = bytes == sizeof(UShort) ? *(const UShort*)stack_pointer : *(const ULong*)stack_pointer;
   if (flags & FLAG_TF)
      tell_of("TF for single steps", &warned_of_steps);
   if (flags & FLAG_AC)
      tell_of("AC for alignment checks", &warned_of_alignment);
}

/* How many bytes the instruction pops, if it is popf, with prefixes or not; else 0. With REX.W it pops 64 bits. */
static UInt popped_bytes(const UChar* code, UInt length)
{
   UInt bytes = sizeof(ULong), i;

   if (code[length - 1] != POPF)
      return 0;
   for (i = 0; i + 1 < length; i++) {
      Bool is_rex = i + 2 == length && (code[i] & 0xf0) == 0x40;
      if (code[i] == OPERAND_SIZE_PREFIX)
         bytes = sizeof(UShort);
      else if (!is_rex)
         return 0;
      else if (code[i] & REX_W)
         bytes = sizeof(ULong);
   }
   return bytes;
}

void pl_popf_instruction(IRSB* out, Addr pc, UInt length)
{
   UInt bytes = length == 0 ? 0 : popped_bytes((const UChar*)pc, length);
   IRTemp stack_pointer;

   if (bytes == 0)
      return;
   stack_pointer = newIRTemp(out->tyenv, Ity_I64);
   addStmtToIRSB(out, IRStmt_WrTmp(stack_pointer, IRExpr_Get(offsetof(VexGuestAMD64State, guest_RSP), Ity_I64)));
   addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(
                         2, "pl_look_at_flags", VG_(fnptr_to_fnentry)(look_at_flags),
                         mkIRExprVec_2(IRExpr_RdTmp(stack_pointer), mkIRExpr_HWord(bytes)))));
}
