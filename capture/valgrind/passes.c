/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Passes of Valgrind's translator that would change nothing. After a tool has added its code, the translator propagates
   constants once more and removes what nobody reads. What instrument.c adds has no such code, and what it is added to
   has been through both passes already. Three times, too, it checks that intermediate code is well typed. That is for
   those who work on the tool, who ask for it with Valgrind's option --sanity-level=2.

   The linker tells only calls from other object files (--wrap): the optimiser's own of these passes stay. */

#include "libvex_ir.h"
#include "pub_tool_basics.h"

#include "core.h"

extern void __real_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool must_be_flat, IRType guest_word);
extern void __wrap_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool must_be_flat, IRType guest_word);
extern void __wrap_do_deadcode_BB(IRSB* block);
extern IRSB* __wrap_cprop_BB(IRSB* block);

void __wrap_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool must_be_flat, IRType guest_word)
{
   if (VG_(clo_sanity_level) > 1)
      __real_sanityCheckIRSB(block, caller, must_be_flat, guest_word);
}

void __wrap_do_deadcode_BB(IRSB* block)
{
   (void)block;
}

IRSB* __wrap_cprop_BB(IRSB* block)
{
   return block;
}
