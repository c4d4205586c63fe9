/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* How far the program's heap grows. Valgrind leaves it 8 MiB; then brk fails. C libraries make mappings instead, but
   programs that call brk themselves run out of memory. The linker is told (--wrap) to call these functions instead of
   Valgrind's. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "memory_limits.h"
#include "stream.h"

/* The heap ends below Valgrind's tool. */
#define LARGEST_HEAP (1UL << 30)
#define NO_ADDRESS (1UL << 47)

extern struct vki_rlimit VG_(client_rlimit_data);

extern Bool __real_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode, SSizeT extra);
extern Bool __wrap_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode, SSizeT extra);

/* How far it may grow. */
static SizeT room = 0;

/* Room for the heap is kept free by a reservation that shrinks from below. */
Bool __wrap_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode, SSizeT extra)
{
   SizeT most;

   for (most = LARGEST_HEAP; mode == SmLower && most > length; most /= 2) {
      room = most;
      if (VG_(client_rlimit_data).rlim_cur >= most && __real_vgPlain_am_create_reservation(start, most, mode, extra))
         return True;
   }
   if (mode == SmLower)
      room = length;
   return __real_vgPlain_am_create_reservation(start, length, mode, extra);
}

/* Whether the kernel would give the program so much more, as far as is known: it refuses what exceeds all memory. */
static Bool kernel_has_memory(SizeT length)
{
   Long start = pl_system_call(__NR_mmap, 0, length, VKI_PROT_READ | VKI_PROT_WRITE,
                               VKI_MAP_PRIVATE | VKI_MAP_ANONYMOUS, (ULong)-1, 0);

   if (start < 0 && start > -4096)
      return False;
   pl_system_call(__NR_munmap, (ULong)start, length, 0, 0, 0, 0);
   return True;
}

extern Before __real_vgSysWrap_generic_sys_brk_before, __wrap_vgSysWrap_generic_sys_brk_before;

void __wrap_vgSysWrap_generic_sys_brk_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                             SyscallStatus* status, UWord* flags)
{
   static Bool warned = False;
   Addr end = arguments->arg1;

   if (!pl_memory_heap_may_end(end)) {
      status->what = SsComplete;
      status->sres = VG_(mk_SysRes_Success)(VG_(brk_limit));
      return;
   }
   __real_vgSysWrap_generic_sys_brk_before(tid, layout, arguments, status, flags);
   /* In its room it may be the kernel that has no memory for it, as natively. */
   if (warned || end <= VG_(brk_limit) || end >= NO_ADDRESS || end - VG_(brk_base) < room
       || !kernel_has_memory(end - VG_(brk_limit)))
      return;
   warned = True;
   VG_(umsg)("pagelab: its heap (brk) could not grow to %lu MiB: Valgrind leaves it %lu MiB at most\n",
             (end - VG_(brk_base)) >> 20, room >> 20);
}
