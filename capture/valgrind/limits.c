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

   The limit of file sizes would hold for what the tool writes, too: it has no effect, and the trace says so. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "cpu_time.h"
#include "limits.h"
#include "memory_limits.h"
#include "stream.h"

#define RLIMIT_CPU 0
#define RLIMIT_FSIZE 1
#define RLIMIT_NOFILE 7

extern Int VG_(fd_soft_limit);
extern Int VG_(fd_hard_limit);

/* Descriptors of the tool beyond those that Valgrind itself needs. */
#define MORE 16

const HChar* pl_descriptors_text = NULL;
static Bool has_lowered_hard_limit = False;

Bool pl_kernel_limit(UWord resource, const struct vki_rlimit* limit, struct vki_rlimit* old)
{
   return pl_system_call(__NR_prlimit64, 0, resource, (ULong)(Addr)limit, (ULong)(Addr)old, 0, 0) >= 0;
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

void pl_limits_begin(void)
{
   HChar* end;
   Long soft, hard;

   pl_memory_limits_tell_user();
   if (pl_descriptors_text == NULL) {
      pl_cpu_time_begin(NULL);
      return;
   }
   soft = VG_(strtoll10)(pl_descriptors_text, &end);
   hard = VG_(strtoll10)(end + 1, &end);
   pl_cpu_time_begin(end + 1);
   if (hard < VG_(fd_hard_limit))
      VG_(fd_hard_limit) = (Int)hard;
   VG_(fd_soft_limit) = soft < VG_(fd_hard_limit) ? (Int)soft : VG_(fd_hard_limit);
}

const HChar* pl_limits_text(void)
{
   static HChar text[80];

   VG_(sprintf)(text, "%d:%d,%lu:%lu", VG_(fd_soft_limit), VG_(fd_hard_limit), pl_cpu_time_limit()->rlim_cur,
                pl_cpu_time_limit()->rlim_max);
   return text;
}

/* ---- a program is executed that will run natively ---- */

static Bool kernel_is_to_be_told = False;

static void tell_kernel(void)
{
   struct vki_rlimit limit;

   pl_memory_limits_tell_kernel();
   pl_cpu_time_tell_kernel();
   if (!pl_kernel_limit(RLIMIT_NOFILE, NULL, &limit))
      return;
   limit.rlim_cur = (UWord)VG_(fd_soft_limit);
   if (has_lowered_hard_limit)
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

/* Valgrind checks the limit that the program asks for, and keeps it. */
static void ask_for_descriptors(const struct vki_rlimit* asked)
{
   if (asked->rlim_max >= (UWord)VG_(fd_hard_limit) || asked->rlim_cur > asked->rlim_max)
      return;
   has_lowered_hard_limit = True;
   VG_(fd_hard_limit) = (Int)asked->rlim_max;
}

static void pretend_file_size(SyscallStatus* status)
{
   static Bool warned = False;

   if (!warned)
      VG_(umsg)("pagelab: its limit of file sizes (ulimit -f) had no effect: it would hold for the recorder's memory\n");
   warned = True;
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Success)(0);
}

static void change_cpu_time(const struct vki_rlimit* asked, struct vki_rlimit* old, SyscallStatus* status)
{
   struct vki_rlimit before = *pl_cpu_time_limit();
   UWord error = asked == NULL ? 0 : pl_cpu_time_set(asked);

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
   if (resource == RLIMIT_CPU) {
      change_cpu_time(asked, (struct vki_rlimit*)old_address, status);
      return True;
   }
   if (asked != NULL && resource == RLIMIT_NOFILE)
      ask_for_descriptors(asked);
   if (asked == NULL || resource != RLIMIT_FSIZE || asked->rlim_cur == ~0UL)
      return False;
   pretend_file_size(status);
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
   Bool of_itself = arguments->arg1 == 0 || arguments->arg1 == (UWord)VG_(getpid)();

   if (!of_itself || !change_limit(arguments->arg2, arguments->arg3, arguments->arg4, status))
      __real_vgSysWrap_linux_sys_prlimit64_before(tid, layout, arguments, status, flags);
}
