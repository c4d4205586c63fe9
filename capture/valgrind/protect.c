/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* mprotect of several mappings. Linux changes one after another, up to one that must not be changed, or to a hole; then
   the call fails, and what came before stays changed. Valgrind asks the kernel once for all of them, and if that fails,
   it takes them as they were. Linux 6.12: mm/mprotect.c (do_mprotect_pkey). */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "address_space.h"
#include "core.h"
#include "memory.h"
#include "memory_limits.h"
#include "stream.h"

#define PROT_GROWSDOWN 0x01000000
#define PROT_GROWSUP 0x02000000

extern void vgModuleLocal_notify_core_and_tool_of_mprotect(Addr start, SizeT length, Int protection);

static void complete(SyscallStatus* status, UWord error)
{
   status->what = SsComplete;
   status->sres = error != 0 ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0);
}

/* The part of a range of whole pages that lies in one mapping: where it ends; `start` itself if there is a hole. */
static Addr end_of_part(Addr start, Addr end)
{
   const NSegment* segment = VG_(am_find_nsegment)(start);

   if (segment == NULL || !pl_memory_is_programs(segment))
      return start;
   return segment->end < end - 1 ? segment->end + 1 : end;
}

/* Returns how far it got. */
static Addr protect_parts(Addr start, Addr end, UWord protection, UWord* error)
{
   while (start < end) {
      Addr to = end_of_part(start, end);
      Long result;
      *error = VKI_ENOMEM;
      if (to == start || !pl_memory_may_protect(start, to - start, protection))
         return start;
      result = pl_system_call(__NR_mprotect, start, to - start, protection, 0, 0, 0);
      *error = (UWord)-result;
      if (result != 0)
         return start;
      vgModuleLocal_notify_core_and_tool_of_mprotect(start, to - start, (Int)protection);
      start = to;
   }
   return start;
}

/* True if the call is done. */
static Bool protect(const SyscallArgs* arguments, SyscallStatus* status)
{
   Addr start = arguments->arg1, reached;
   SizeT length = pl_whole_pages(arguments->arg2);
   UWord protection = arguments->arg3, error = 0;

   if (start % PAGE_BYTES != 0) {
      complete(status, VKI_EINVAL);
      return True;
   }
   if ((protection & (PROT_GROWSDOWN | PROT_GROWSUP)) || length == 0)
      return False;
   if (!pl_segments_are_left() || start + length <= start) {
      complete(status, VKI_ENOMEM);
      return True;
   }
   if (end_of_part(start, start + length) == start + length && pl_memory_may_protect(start, length, protection))
      return False;
   reached = protect_parts(start, start + length, protection, &error);
   if (reached < start + length)
      pl_memory_protected(start, reached - start, protection);
   complete(status, error);
   return True;
}

extern Before __real_vgSysWrap_generic_sys_mprotect_before, __wrap_vgSysWrap_generic_sys_mprotect_before;
extern Before __real_vgSysWrap_linux_sys_pkey_mprotect_before, __wrap_vgSysWrap_linux_sys_pkey_mprotect_before;

void __wrap_vgSysWrap_generic_sys_mprotect_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                  SyscallStatus* status, UWord* flags)
{
   if (!protect(arguments, status))
      __real_vgSysWrap_generic_sys_mprotect_before(tid, layout, arguments, status, flags);
}

/* Without a key it is mprotect. */
void __wrap_vgSysWrap_linux_sys_pkey_mprotect_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                     SyscallStatus* status, UWord* flags)
{
   if ((Int)arguments->arg4 != -1 || !protect(arguments, status))
      __real_vgSysWrap_linux_sys_pkey_mprotect_before(tid, layout, arguments, status, flags);
}
