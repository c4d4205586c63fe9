/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Calls that touch only a part of their buffers. Valgrind 3.19 tells its tools of the entire buffers, so pages that the
   kernel has not touched would count. How much it has touched is in the result of the call. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_vki.h"

#include "core.h"
#include "memory.h"
#include "process.h"

#define IOVEC_MAX 1024
#define PAGES_AT_A_TIME 16

static UWord at_most(UWord length, const SyscallStatus* status)
{
   UWord filled = sr_isError(status->sres) ? 0 : sr_Res(status->sres);

   return length < filled ? length : filled;
}

extern After __real_vgSysWrap_linux_sys_recvfrom_after, __wrap_vgSysWrap_linux_sys_recvfrom_after;

/* Of a longer message, the result may be its length (MSG_TRUNC). */
void __wrap_vgSysWrap_linux_sys_recvfrom_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   SyscallArgs filled = *arguments;

   filled.arg3 = at_most(filled.arg3, status);
   __real_vgSysWrap_linux_sys_recvfrom_after(tid, &filled, status);
}

extern After __real_vgSysWrap_linux_sys_sched_getaffinity_after, __wrap_vgSysWrap_linux_sys_sched_getaffinity_after;

void __wrap_vgSysWrap_linux_sys_sched_getaffinity_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   SyscallArgs filled = *arguments;

   filled.arg2 = at_most(filled.arg2, status);
   __real_vgSysWrap_linux_sys_sched_getaffinity_after(tid, &filled, status);
}

extern After __real_vgSysWrap_linux_sys_syslog_after, __wrap_vgSysWrap_linux_sys_syslog_after;

void __wrap_vgSysWrap_linux_sys_syslog_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   SyscallArgs filled = *arguments;

   filled.arg3 = at_most(filled.arg3, status);
   __real_vgSysWrap_linux_sys_syslog_after(tid, &filled, status);
}

extern After __real_vgSysWrap_linux_sys_getrandom_after, __wrap_vgSysWrap_linux_sys_getrandom_after;

/* A signal may end it early. */
void __wrap_vgSysWrap_linux_sys_getrandom_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   SyscallArgs filled = *arguments;

   filled.arg2 = at_most(filled.arg2, status);
   __real_vgSysWrap_linux_sys_getrandom_after(tid, &filled, status);
}

extern Before __real_vgSysWrap_linux_sys_vmsplice_before, __wrap_vgSysWrap_linux_sys_vmsplice_before;
extern After __real_vgSysWrap_linux_sys_vmsplice_after, __wrap_vgSysWrap_linux_sys_vmsplice_after;

/* Valgrind would tell of all parts before the call; the pipe may have no room for them. */
void __wrap_vgSysWrap_linux_sys_vmsplice_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                SyscallStatus* status, UWord* flags)
{
   SizeT list = arguments->arg3 * sizeof(struct vki_iovec);
   SyscallArgs without_parts = *arguments;

   if (arguments->arg3 <= IOVEC_MAX && VG_(am_is_valid_for_client)(arguments->arg2, list, VKI_PROT_READ))
      pl_memory_kernel_access(False, arguments->arg2, list);
   without_parts.arg3 = 0;
   __real_vgSysWrap_linux_sys_vmsplice_before(tid, layout, &without_parts, status, flags);
}

/* Bytes from an address on, up to memory that must not be read. */
static SizeT readable(Addr start, SizeT length)
{
   Addr at = start;

   while (at < start + length && VG_(am_is_valid_for_client)(at, 1, VKI_PROT_READ))
      at = (at & ~(PAGE_BYTES - 1)) + PAGE_BYTES;
   return at < start + length ? at - start : length;
}

/* Pages become the pipe's. The kernel takes up to 16 pages of a part at a time, before it looks whether the pipe has
   room for them. Linux 6.18: fs/splice.c (iter_to_pipe), lib/iov_iter.c. */
static void after_splice_to_pipe(const struct vki_iovec* parts, UWord count, UWord taken)
{
   UWord n;

   for (n = 0; n < count; n++) {
      Addr at = (Addr)parts[n].iov_base, end = at + parts[n].iov_len;
      while (at < end) {
         SizeT length = PAGES_AT_A_TIME * PAGE_BYTES - at % PAGE_BYTES;
         if (length > end - at)
            length = end - at;
         if (length > taken) {
            pl_memory_kernel_access(False, at, readable(at, length));
            return;
         }
         pl_memory_kernel_access(False, at, length);
         taken -= length;
         at += length;
      }
   }
}

void __wrap_vgSysWrap_linux_sys_vmsplice_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   static struct vki_iovec parts[IOVEC_MAX];
   const struct vki_iovec* asked = (const struct vki_iovec*)arguments->arg2;
   SyscallArgs filled = *arguments;
   UWord left = at_most(~0UL, status), n;

   if ((VG_(fcntl)((Int)arguments->arg1, VKI_F_GETFL, 0) & VKI_O_ACCMODE) != VKI_O_RDONLY) {
      pl_process_run_as(tid);
      after_splice_to_pipe(asked, arguments->arg3, left);
      return;
   }
   for (n = 0; n < arguments->arg3 && n < IOVEC_MAX && left > 0; n++) {
      parts[n] = asked[n];
      if (parts[n].iov_len > left)
         parts[n].iov_len = left;
      left -= parts[n].iov_len;
   }
   filled.arg2 = (UWord)parts;
   filled.arg3 = n;
   __real_vgSysWrap_linux_sys_vmsplice_after(tid, &filled, status);
}
