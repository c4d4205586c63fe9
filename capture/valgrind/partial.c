/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Calls that fill only a part of their buffer. Valgrind 3.19 tells its tools of the entire buffer, so that pages that
   the kernel has not touched would count as written. What the kernel has filled is in the result of the call. */

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"

#include "core.h"
#include "newer_calls.h"

#define IOVEC_MAX 1024

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

extern After __real_vgSysWrap_linux_sys_vmsplice_after, __wrap_vgSysWrap_linux_sys_vmsplice_after;

/* From a pipe to memory. */
void __wrap_vgSysWrap_linux_sys_vmsplice_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   static struct vki_iovec parts[IOVEC_MAX];
   const struct vki_iovec* asked = (const struct vki_iovec*)arguments->arg2;
   SyscallArgs filled = *arguments;
   UWord left = at_most(~0UL, status), n;

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
