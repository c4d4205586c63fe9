/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Calls of mmap that Valgrind takes for others: with MAP_FIXED_NOREPLACE, for which it looks for another place; and
   those of a process with the personality READ_IMPLIES_EXEC, whose code lies in mappings that may be read. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "mmap_flags.h"
#include "stream.h"

#define MAP_FIXED 0x10
#define MAP_FIXED_NOREPLACE 0x100000
#define READ_IMPLIES_EXEC 0x0400000
#define ASK_PERSONALITY 0xffffffffUL

static Bool is_program_memory(Addr start, SizeT length)
{
   Addr at;

   for (at = start; at < start + length; at += PAGE_BYTES) {
      const NSegment* segment = VG_(am_find_nsegment)(at);
      if (segment == NULL)
         continue;
      if (segment->kind == SkAnonC || segment->kind == SkFileC || segment->kind == SkShmC)
         return True;
      at = segment->end + 1 - PAGE_BYTES;
   }
   return False;
}

static SyscallTableEntry of_valgrind;

static void before_mmap(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                        UWord* flags)
{
   SyscallArgs asked = *arguments;

   if ((asked.arg3 & VKI_PROT_READ)
       && (pl_system_call(__NR_personality, ASK_PERSONALITY, 0, 0, 0, 0, 0) & READ_IMPLIES_EXEC))
      arguments->arg3 |= VKI_PROT_EXEC;
   if ((asked.arg4 & MAP_FIXED_NOREPLACE) && !(asked.arg4 & MAP_FIXED)) {
      if (asked.arg1 % PAGE_BYTES == 0 && is_program_memory(asked.arg1, asked.arg2)) {
         status->what = SsComplete;
         status->sres = VG_(mk_SysRes_Error)(VKI_EEXIST);
         return;
      }
      arguments->arg4 = (asked.arg4 & ~(UWord)MAP_FIXED_NOREPLACE) | MAP_FIXED;
   }
   of_valgrind.before(tid, layout, arguments, status, flags);
   /* Valgrind wants a call that it has made itself to be as the program made it. */
   *arguments = asked;
}

SyscallTableEntry* pl_mmap_entry(const SyscallTableEntry* valgrinds)
{
   static SyscallTableEntry entry;

   of_valgrind = *valgrinds;
   entry.before = before_mmap;
   entry.after = valgrinds->after;
   return &entry;
}
