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
#define FLAG_TF (1UL << 8)
#define FLAG_AC (1UL << 18)

static void tell_of(const HChar* flag, Bool* warned)
{
   if (!*warned)
      VG_(umsg)("pagelab note: it sets the flag %s (popf), which Valgrind ignores\n", flag);
   *warned = True;
}

static VG_REGPARM(1) void look_at_flags(Addr stack_pointer)
{
   static Bool warned_of_steps = False, warned_of_alignment = False;
   ULong flags;

   if (!VG_(am_is_valid_for_client)(stack_pointer, sizeof flags, VKI_PROT_READ))
      return;
   flags = *(const ULong*)stack_pointer;
   if (flags & FLAG_TF)
      tell_of("TF for single steps", &warned_of_steps);
   if (flags & FLAG_AC)
      tell_of("AC for alignment checks", &warned_of_alignment);
}

/* With a prefix that changes nothing (REX), or none. Valgrind does not know the one that pops 16 bits. */
static Bool is_popf(const UChar* code, UInt length)
{
   return code[length - 1] == POPF && (length == 1 || (length == 2 && (code[0] & 0xf0) == 0x40));
}

void pl_popf_instruction(IRSB* out, Addr pc, UInt length)
{
   IRTemp stack_pointer;

   if (length == 0 || !is_popf((const UChar*)pc, length))
      return;
   stack_pointer = newIRTemp(out->tyenv, Ity_I64);
   addStmtToIRSB(out, IRStmt_WrTmp(stack_pointer, IRExpr_Get(offsetof(VexGuestAMD64State, guest_RSP), Ity_I64)));
   addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(1, "pl_look_at_flags", VG_(fnptr_to_fnentry)(look_at_flags),
                                                     mkIRExprVec_1(IRExpr_RdTmp(stack_pointer)))));
}
