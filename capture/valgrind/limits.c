/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* The limit of descriptors. Valgrind raises the kernel's, and keeps the descriptors above the program's limit for
   itself: too few for this tool, which has more. The kernel's limit stays when the program lowers its own, so an
   executed program would get a higher one. And Valgrind lets no program lower its hard limit.

   The limit of file sizes would hold for what the tool writes, too: it has no effect, and the trace says so. The
   kernel's is lifted at the start. But the program sees the value that it has set or inherited, and what it executes
   natively gets it. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "cpu_time.h"
#include "limits.h"
#include "memory_limits.h"
#include "other_limits.h"
#include "stream.h"

#define RLIMIT_CPU 0
#define RLIMIT_FSIZE 1
#define RLIMIT_NOFILE 7

#define NO_LIMIT (~0UL)
#define CAP_SYS_RESOURCE 24

extern ThreadId VG_(lwpid_to_vgtid)(Int thread_of_system);
extern Int VG_(fd_soft_limit);
extern Int VG_(fd_hard_limit);

/* Descriptors of the tool beyond those that Valgrind itself needs. */
#define MORE 16

const HChar* pl_descriptors_text = NULL;
/* The hard limit of descriptors that the first image began with. */
static Int first_hard_limit;
static struct vki_rlimit file_size = {NO_LIMIT, NO_LIMIT};

Bool pl_kernel_limit_of(Int pid, UWord resource, const struct vki_rlimit* limit, struct vki_rlimit* old)
{
   return pl_system_call(__NR_prlimit64, (ULong)pid, resource, (ULong)(Addr)limit, (ULong)(Addr)old, 0, 0) >= 0;
}

Bool pl_kernel_limit(UWord resource, const struct vki_rlimit* limit, struct vki_rlimit* old)
{
   return pl_kernel_limit_of(0, resource, limit, old);
}

void pl_limits_make_room(void)
{
   struct vki_rlimit limit;

   if (!pl_kernel_limit(RLIMIT_NOFILE, NULL, &limit))
      return;
   limit.rlim_cur += MORE;
   if (limit.rlim_max < limit.rlim_cur)
      limit.rlim_max = limit.rlim_cur;
   if (pl_kernel_limit(RLIMIT_NOFILE, &limit, NULL))
      return;
   VG_(fd_soft_limit) -= MORE;
   VG_(fd_hard_limit) -= MORE;
}

static void lift_file_size(void)
{
   const struct vki_rlimit none = {NO_LIMIT, NO_LIMIT};
   struct vki_rlimit highest;

   if (!pl_kernel_limit(RLIMIT_FSIZE, NULL, &file_size))
      return;
   highest.rlim_cur = highest.rlim_max = file_size.rlim_max;
   if (file_size.rlim_cur == NO_LIMIT)
      return;
   /* Only root may raise the hard limit. */
   if (!pl_kernel_limit(RLIMIT_FSIZE, &none, NULL))
      pl_kernel_limit(RLIMIT_FSIZE, &highest, NULL);
   pl_file_size_tell_user(&file_size);
}

static void take_over_limits(void)
{
   HChar* end;
   Long soft, hard;

   soft = VG_(strtoll10)(pl_descriptors_text, &end);
   hard = VG_(strtoll10)(end + 1, &end);
   pl_cpu_time_begin(end + 1);
   end = VG_(strchr)(end + 1, ',');
   file_size.rlim_cur = VG_(strtoull10)(end + 1, &end);
   file_size.rlim_max = VG_(strtoull10)(end + 1, &end);
   first_hard_limit = (Int)VG_(strtoll10)(end + 1, NULL);
   if (hard < VG_(fd_hard_limit))
      VG_(fd_hard_limit) = (Int)hard;
   VG_(fd_soft_limit) = soft < VG_(fd_hard_limit) ? (Int)soft : VG_(fd_hard_limit);
}

volatile Bool pl_limits_are_known = False;

void pl_limits_begin(void)
{
   pl_memory_limits_tell_user();
   if (pl_descriptors_text == NULL) {
      pl_cpu_time_begin(NULL);
      lift_file_size();
      first_hard_limit = VG_(fd_hard_limit);
   } else {
      take_over_limits();
   }
   pl_limits_are_known = True;
}

const HChar* pl_limits_text(void)
{
   static HChar text[140];

   pl_limits_are_known = False;
   VG_(sprintf)(text, "%d:%d,%lu:%lu,%lu:%lu,%d", VG_(fd_soft_limit), VG_(fd_hard_limit), pl_cpu_time_limit()->rlim_cur,
                pl_cpu_time_limit()->rlim_max, file_size.rlim_cur, file_size.rlim_max, first_hard_limit);
   return text;
}

/* ---- a program is executed that will run natively ---- */

static Bool kernel_is_to_be_told = False;

static void tell_kernel(void)
{
   struct vki_rlimit limit;

   pl_memory_limits_tell_kernel();
   pl_cpu_time_tell_kernel();
   pl_kernel_limit(RLIMIT_FSIZE, &file_size, NULL);
   if (!pl_kernel_limit(RLIMIT_NOFILE, NULL, &limit))
      return;
   limit.rlim_cur = (UWord)VG_(fd_soft_limit);
   /* The kernel's is higher than the first one. */
   if (VG_(fd_hard_limit) < first_hard_limit)
      limit.rlim_max = (UWord)VG_(fd_hard_limit);
   pl_kernel_limit(RLIMIT_NOFILE, &limit, NULL);
}

void pl_limits_exec_begins(void)
{
   kernel_is_to_be_told = True;
}

void pl_limits_exec_failed(void)
{
   kernel_is_to_be_told = False;
   pl_limits_are_known = True;
}

extern Int __real_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* information);
extern Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* information);

/* Valgrind takes the signals that are pending away just before it makes the execve, and needs no memory any more. */
Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* information)
{
   if (kernel_is_to_be_told)
      tell_kernel();
   kernel_is_to_be_told = False;
   return __real_vgPlain_sigtimedwait_zero(set, information);
}

/* ---- calls ---- */

static UWord set_descriptors(const struct vki_rlimit* asked)
{
   if (asked->rlim_cur > asked->rlim_max)
      return VKI_EINVAL;
   if (asked->rlim_max > (UWord)VG_(fd_hard_limit))
      return VKI_EPERM;
   VG_(fd_soft_limit) = (Int)asked->rlim_cur;
   VG_(fd_hard_limit) = (Int)asked->rlim_max;
   return 0;
}

const struct vki_rlimit* pl_limit_of_file_size(void)
{
   return &file_size;
}

void pl_file_size_tell_user(const struct vki_rlimit* limit)
{
   static Bool warned = False;

   if (!warned && limit->rlim_cur != NO_LIMIT)
      VG_(umsg)("pagelab: its limit of file sizes (ulimit -f) had no effect: it would hold for the recorder's memory\n");
   warned |= limit->rlim_cur != NO_LIMIT;
}

static UWord set_file_size(const struct vki_rlimit* asked)
{
   if (asked->rlim_cur > asked->rlim_max)
      return VKI_EINVAL;
   if (asked->rlim_max > file_size.rlim_max && !pl_may_use(CAP_SYS_RESOURCE))
      return VKI_EPERM;
   file_size = *asked;
   pl_file_size_tell_user(asked);
   return 0;
}

/* The limits that are kept here: of descriptors, CPU time, and file sizes. */
static void change(UWord resource, const struct vki_rlimit* asked, struct vki_rlimit* old, SyscallStatus* status)
{
   const struct vki_rlimit descriptors = {(UWord)VG_(fd_soft_limit), (UWord)VG_(fd_hard_limit)};
   struct vki_rlimit before = resource == RLIMIT_CPU     ? *pl_cpu_time_limit()
                              : resource == RLIMIT_FSIZE ? file_size
                                                         : descriptors;
   UWord error = 0;

   if (asked != NULL)
      error = resource == RLIMIT_CPU     ? pl_cpu_time_set(asked)
              : resource == RLIMIT_FSIZE ? set_file_size(asked)
                                         : set_descriptors(asked);
   status->what = SsComplete;
   status->sres = error != 0 ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0);
   if (error == 0 && old != NULL)
      *old = before;
}

static Bool is_bad(Addr address, UInt protection, SyscallStatus* status)
{
   if (address == 0 || VG_(am_is_valid_for_client)(address, sizeof(struct vki_rlimit), protection))
      return False;
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Error)(VKI_EFAULT);
   return True;
}

/* Either address may be 0. True if nothing is left to do. */
static Bool change_limit(UWord resource, Addr new_address, Addr old_address, SyscallStatus* status)
{
   const struct vki_rlimit* asked = (const struct vki_rlimit*)new_address;

   if (is_bad(new_address, VKI_PROT_READ, status) || is_bad(old_address, VKI_PROT_WRITE, status)
       || pl_memory_limits_call(resource, asked, (struct vki_rlimit*)old_address, status))
      return True;
   if (resource != RLIMIT_CPU && resource != RLIMIT_FSIZE && resource != RLIMIT_NOFILE)
      return False;
   change(resource, asked, (struct vki_rlimit*)old_address, status);
   return True;
}

extern Before __real_vgSysWrap_generic_sys_setrlimit_before, __wrap_vgSysWrap_generic_sys_setrlimit_before;
extern Before __real_vgSysWrap_generic_sys_getrlimit_before, __wrap_vgSysWrap_generic_sys_getrlimit_before;
extern Before __real_vgSysWrap_linux_sys_prlimit64_before, __wrap_vgSysWrap_linux_sys_prlimit64_before;

void __wrap_vgSysWrap_generic_sys_setrlimit_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                   SyscallStatus* status, UWord* flags)
{
   if (arguments->arg2 == 0 || !change_limit(arguments->arg1, arguments->arg2, 0, status))
      __real_vgSysWrap_generic_sys_setrlimit_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_generic_sys_getrlimit_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                   SyscallStatus* status, UWord* flags)
{
   if (arguments->arg2 == 0 || !change_limit(arguments->arg1, 0, arguments->arg2, status))
      __real_vgSysWrap_generic_sys_getrlimit_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_linux_sys_prlimit64_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                 SyscallStatus* status, UWord* flags)
{
   UWord as_given = arguments->arg1;
   Int pid = (Int)as_given;
   Bool of_itself = pid == 0 || pid == VG_(getpid)() || VG_(lwpid_to_vgtid)(pid) != VG_INVALID_THREADID;

   if (of_itself ? change_limit(arguments->arg2, arguments->arg3, arguments->arg4, status)
                 : is_bad(arguments->arg3, VKI_PROT_READ, status) || is_bad(arguments->arg4, VKI_PROT_WRITE, status)
                      || pl_other_limits_call(pid, arguments->arg2, (const struct vki_rlimit*)arguments->arg3,
                                              (struct vki_rlimit*)arguments->arg4, status))
      return;
   /* Valgrind knows this process by no thread's number. But a call that it makes itself must stay as it was. */
   if (of_itself)
      arguments->arg1 = 0;
   __real_vgSysWrap_linux_sys_prlimit64_before(tid, layout, arguments, status, flags);
   if (status->what == SsComplete)
      arguments->arg1 = as_given;
}
