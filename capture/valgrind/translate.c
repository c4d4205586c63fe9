/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* How code is translated beyond what Valgrind does by itself.

   Registers. Between the accesses of a superblock Valgrind keeps registers in those of the processor; of the program's
   own only stack pointer, frame pointer and program counter are exact when an access faults. A handler that repairs the
   fault and returns, as garbage collectors and virtual machines have, then goes on with old values. So once the program
   handles faults, all registers are exact. That costs time, so other programs do without.

   Code that changes. Valgrind compares code with its translation before it runs only if no file is mapped there. Code
   of files changes, too: it is written through another mapping, or by write(2). Shared mappings and those of memory
   files are compared as well, and private ones that may be written and executed. Code in memory that may be written can
   also rewrite what follows in its own superblock (own_code.c); there all registers are exact at each instruction. */

#include "libvex.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"

#include "core.h"
#include "ranges.h"
#include "translate.h"

static Bool exact = False;
static Bool exact_at_divisions = False;
static Ranges mutable_code;
static UInt (*valgrinds_check)(void*, VexRegisterUpdates*, const VexGuestExtents*);

void pl_translate_exactly(void)
{
   if (exact)
      return;
   exact = True;
   VG_(discard_translations)(0, 1ULL << 47, "pagelab: exact registers");
}

void pl_translate_divisions_exactly(void)
{
   if (exact_at_divisions)
      return;
   exact_at_divisions = True;
   VG_(discard_translations)(0, 1ULL << 47, "pagelab: exact registers");
}

void pl_translate_mutable(Addr start, SizeT length)
{
   pl_ranges_add(&mutable_code, start, length);
   VG_(discard_translations)(start, length, "pagelab: code that changes");
}

void pl_translate_forget(Addr start, SizeT length)
{
   pl_ranges_remove(&mutable_code, start, length);
}

void pl_translate_moved(Addr old_start, SizeT old_length, Addr new_start, SizeT new_length)
{
   pl_ranges_move(&mutable_code, old_start, old_length, new_start, new_length);
   VG_(discard_translations)(new_start, new_length, "pagelab: code that moved");
}

/* Whether code may hold DIV or IDIV: opcode F6 or F7, extended by 6 or 7 in the byte behind it. Other instructions may
   hold the same bytes; then the code is only slower. */
static Bool may_divide(const UChar* code, SizeT length)
{
   SizeT i;

   for (i = 0; i + 1 < length; i++) {
      if ((code[i] & 0xfe) == 0xf6 && (code[i + 1] & 0x30) == 0x30)
         return True;
   }
   return False;
}

Bool pl_translate_may_be_written(const VexGuestExtents* extents)
{
   UInt i;

   for (i = 0; i < extents->n_used; i++) {
      const NSegment* segment = VG_(am_find_nsegment)(extents->base[i]);
      if (segment != NULL && segment->hasW)
         return True;
   }
   return False;
}

static UInt needs_check(void* closure, VexRegisterUpdates* updates, const VexGuestExtents* extents)
{
   UInt checked = valgrinds_check(closure, updates, extents), i;

   for (i = 0; i < extents->n_used; i++) {
      if (pl_ranges_touch(&mutable_code, extents->base[i], extents->len[i]))
         checked |= 1u << i;
   }
   if (exact && *updates < VexRegUpdAllregsAtMemAccess)
      *updates = VexRegUpdAllregsAtMemAccess;
   if (pl_translate_may_be_written(extents))
      *updates = VexRegUpdAllregsAtEachInsn;
   for (i = 0; exact_at_divisions && i < extents->n_used; i++) {
      if (may_divide((const UChar*)extents->base[i], extents->len[i]))
         *updates = VexRegUpdAllregsAtEachInsn;
   }
   return checked;
}

extern VexTranslateResult __real_LibVEX_Translate(VexTranslateArgs* arguments);
extern VexTranslateResult __wrap_LibVEX_Translate(VexTranslateArgs* arguments);

VexTranslateResult __wrap_LibVEX_Translate(VexTranslateArgs* arguments)
{
   valgrinds_check = arguments->needs_self_check;
   arguments->needs_self_check = needs_check;
   return __real_LibVEX_Translate(arguments);
}
