/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* seccomp(2). Filters decide on each call of the program before Valgrind makes it. A call that a filter forbids fails,
   sends SIGSYS, or ends the process, as natively. Not as natively: a filter that kills one thread ends the process, and
   /proc/self/status shows no filter. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "filters.h"
#include "process.h"
#include "seccomp.h"
#include "stream.h"

#define PR_GET_SECCOMP 21
#define PR_SET_SECCOMP 22
#define PR_GET_NO_NEW_PRIVS 39
#define SECCOMP_SET_MODE_STRICT 0
#define SECCOMP_SET_MODE_FILTER 1
#define FLAG_TSYNC 1
#define FLAG_LOG 2
#define FLAG_SPEC_ALLOW 4
#define MODE_STRICT 1
#define MODE_FILTER 2
#define ARCHITECTURE_X86_64 0xc000003eu
#define CAPABILITY_VERSION_3 0x20080522u
#define CAP_SYS_ADMIN 21
#define SYS_SECCOMP 1
#define MOST_ERRNO 4095


static Bool strict = False;
/* A thread has filters, or the strict mode is on. */
static Bool any = False;

static void finish(SyscallStatus* status, UWord error)
{
   status->what = SsComplete;
   status->sres = error == 0 ? VG_(mk_SysRes_Success)(0) : VG_(mk_SysRes_Error)(error);
}

/* ---- installing ---- */

static Bool may_install(void)
{
   UInt header[2] = {CAPABILITY_VERSION_3, 0}, sets[6] = {0};

   if (pl_system_call(__NR_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1)
      return True;
   return pl_system_call(__NR_capget, (ULong)(Addr)header, (ULong)(Addr)sets, 0, 0, 0, 0) == 0
          && (sets[0] >> CAP_SYS_ADMIN & 1);
}

static UWord install(ThreadId tid, UWord mode, UWord flags, Addr description)
{
   UWord error;

   if (mode == SECCOMP_SET_MODE_STRICT) {
      if (flags != 0 || description != 0 || pl_filters_are_on(tid))
         return VKI_EINVAL;
      strict = any = True;
      return 0;
   }
   /* Other flags: a listener, whose process would have to be told of calls by the tool. */
   if ((flags & ~(UWord)(FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW)) || strict)
      return VKI_EINVAL;
   if (!may_install())
      return VKI_EACCES;
   error = pl_filters_install(tid, description, flags & FLAG_TSYNC);
   any |= error == 0;
   return error;
}

void pl_seccomp_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                       UWord* flags)
{
   (void)layout;
   (void)flags;
   if (arguments->arg1 == SECCOMP_SET_MODE_STRICT || arguments->arg1 == SECCOMP_SET_MODE_FILTER)
      finish(status, install(tid, arguments->arg1, arguments->arg2, arguments->arg3));
}

extern Before __real_vgSysWrap_linux_sys_prctl_before, __wrap_vgSysWrap_linux_sys_prctl_before;

void __wrap_vgSysWrap_linux_sys_prctl_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                             SyscallStatus* status, UWord* flags)
{
   if (arguments->arg1 == PR_SET_SECCOMP && arguments->arg2 == MODE_STRICT)
      finish(status, install(tid, SECCOMP_SET_MODE_STRICT, 0, 0));
   else if (arguments->arg1 == PR_SET_SECCOMP && arguments->arg2 == MODE_FILTER)
      finish(status, install(tid, SECCOMP_SET_MODE_FILTER, 0, arguments->arg3));
   else if (arguments->arg1 == PR_GET_SECCOMP) {
      finish(status, 0);
      status->sres = VG_(mk_SysRes_Success)(pl_filters_are_on(tid) ? MODE_FILTER : 0);
   } else
      __real_vgSysWrap_linux_sys_prctl_before(tid, layout, arguments, status, flags);
}

/* ---- deciding ---- */

/* Ends the process by a signal that it can neither handle nor block. */
static void end_by(Int signal)
{
   ULong action[4] = {0}, set = 1ULL << (signal - 1);

   pl_process_exit(0);
   pl_system_call(__NR_rt_sigaction, (ULong)signal, (ULong)(Addr)action, 0, sizeof set, 0, 0);
   pl_system_call(__NR_rt_sigprocmask, VKI_SIG_UNBLOCK, (ULong)(Addr)&set, 0, sizeof set, 0, 0);
   pl_system_call(__NR_kill, (ULong)VG_(getpid)(), (ULong)signal, 0, 0, 0, 0);
}

/* Sends SIGSYS as the kernel does: with the call's address and number; a handler may set the call's result. */
static void send_sigsys(const PL_Call* call, UInt data)
{
   UInt information[32] = {VKI_SIGSYS, data, SYS_SECCOMP};
   ULong set = 1ULL << (VKI_SIGSYS - 1);

   /* Valgrind wants to fetch signals between the program's instructions, and leaves this one unblocked. */
   pl_system_call(__NR_rt_sigprocmask, VKI_SIG_BLOCK, (ULong)(Addr)&set, 0, sizeof set, 0, 0);
   *(ULong*)&information[4] = call->instruction;
   information[6] = (UInt)call->number;
   information[7] = call->architecture;
   pl_system_call(__NR_rt_tgsigqueueinfo, (ULong)VG_(getpid)(), (ULong)VG_(gettid)(), VKI_SIGSYS,
                  (ULong)(Addr)information, 0, 0);
}

static UInt verdict_on(ThreadId tid, const PL_Call* call)
{
   if (!strict)
      return pl_filters_are_on(tid) ? pl_filters_verdict(tid, call) : PL_FILTER_ALLOW;
   switch (call->number) {
   case __NR_read: case __NR_write: case __NR_exit: case __NR_rt_sigreturn: return PL_FILTER_ALLOW;
   default: return PL_FILTER_KILL_PROCESS;
   }
}

/* Whether the call may be made. If not, `status` says what it returns. */
static Bool is_allowed(ThreadId tid, const SyscallArgs* arguments, SyscallStatus* status, UWord* flags)
{
   PL_Call call = {(Int)arguments->number, ARCHITECTURE_X86_64, VG_(get_IP)(tid),
                   {arguments->arg1, arguments->arg2, arguments->arg3, arguments->arg4, arguments->arg5,
                    arguments->arg6}};
   UInt verdict = verdict_on(tid, &call), data = verdict & PL_FILTER_DATA;

   switch (verdict & PL_FILTER_ACTION) {
   case PL_FILTER_ALLOW:
   case PL_FILTER_LOG:
      return True;
   case PL_FILTER_ERRNO:
      finish(status, data < MOST_ERRNO ? data : MOST_ERRNO);
      return False;
   case PL_FILTER_TRAP:
      send_sigsys(&call, data);
      finish(status, 0);
      status->sres = VG_(mk_SysRes_Success)((UWord)call.number);
      *flags |= SfPollAfter;
      return False;
   /* Nobody traces or listens. */
   case PL_FILTER_TRACE:
   case PL_FILTER_USER_NOTIF:
      finish(status, VKI_ENOSYS);
      return False;
   default:
      end_by(strict ? VKI_SIGKILL : VKI_SIGSYS);
      return False;
   }
}

/* By number: Valgrind's functions of calls that filters have decided on. */
#define NUMBERS 1024
static SyscallTableEntry* entries[NUMBERS];

static Before before_filtered;
static void before_filtered(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                            UWord* flags)
{
   SyscallTableEntry* entry = entries[arguments->number];

   if (!is_allowed(tid, arguments, status, flags))
      return;
   if (entry == NULL)
      finish(status, VKI_ENOSYS);
   else
      entry->before(tid, layout, arguments, status, flags);
}

static After after_filtered;
static void after_filtered(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   SyscallTableEntry* entry = entries[arguments->number];

   if (entry != NULL && entry->after != NULL)
      entry->after(tid, arguments, status);
}

SyscallTableEntry* pl_seccomp_filtered(SyscallTableEntry* entry, UInt number)
{
   static SyscallTableEntry filtered = {before_filtered, after_filtered};

   any |= pl_filters_are_on(VG_(get_running_tid)());
   if (!any || number >= NUMBERS)
      return entry;
   entries[number] = entry;
   return &filtered;
}
