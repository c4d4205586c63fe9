/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* What the program's handlers see: which signals are blocked, and why an address could not be executed. With
   SA_NODEFER Valgrind blocks none; the kernel blocks those of sa_mask, and only leaves the signal itself. Programs rely
   on it: a handler of SBCL's ends the program otherwise. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "debugging.h"
#include "proc_self.h"
#include "signals.h"
#include "stream.h"

#define SA_NODEFER 0x40000000

extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t* new_action, vki_sigaction_fromK_t* old_action);
extern SysRes VG_(do_sys_sigprocmask)(ThreadId tid, Int how, vki_sigset_t* set, vki_sigset_t* old_set);

/* Signals of the C library: for cancelled threads, and for changed user ids. */
#define SIGNAL_CANCEL 32
#define SIGNAL_SETXID 33

/* As a number of 64 bits: bit N - 1 is signal N. */
const HChar* pl_ignored_signals = NULL;

/* The program inherits which signals are ignored. Python, which runs the recorder, ignores the first of these for
   itself. posix_spawn, which starts Valgrind, ignores the others in the new process; the recorder knows whether they
   were ignored before. */
void pl_signals_begin(void)
{
   static const Int signals[] = {VKI_SIGXFSZ, SIGNAL_CANCEL, SIGNAL_SETXID};
   ULong ignored = pl_ignored_signals != NULL ? VG_(strtoull16)(pl_ignored_signals, NULL) : 0;
   vki_sigaction_toK_t action = {.ksa_handler = VKI_SIG_DFL};
   UInt i;

   for (i = 0; i < sizeof signals / sizeof signals[0]; i++)
      if (!(ignored >> (signals[i] - 1) & 1))
         VG_(do_sys_sigaction)(signals[i], &action, NULL);
}

extern void VG_(synth_fault_mapping)(ThreadId tid, Addr address);
extern void VG_(poll_signals)(ThreadId tid);
extern void __real_vgPlain_synth_fault_mapping(ThreadId tid, Addr address);
extern void __wrap_vgPlain_synth_fault_mapping(ThreadId tid, Addr address);
extern void __real_vgPlain_synth_sigill(ThreadId tid, Addr address);
extern void __wrap_vgPlain_synth_sigill(ThreadId tid, Addr address);
extern void __real_vgPlain_synth_sigtrap(ThreadId tid);
extern void __wrap_vgPlain_synth_sigtrap(ThreadId tid);
extern void __real_vgPlain_synth_fault_perms(ThreadId tid, Addr address);
extern void __wrap_vgPlain_synth_fault_perms(ThreadId tid, Addr address);

/* Valgrind delivers the signal of an instruction that it cannot run by itself. The kernel knows nothing of it, so a
   debugger would not see it before the handler. The process therefore sends the signal to itself: the kernel stops it,
   and it gets the signal if the debugger passes it on. Otherwise it comes to the instruction again. si_code is that of
   a signal that was sent, since for any other Valgrind would take the fault for its own. */
static Bool raised_for_debugger(ThreadId tid, Int signal, Addr address)
{
   vki_siginfo_t info;
   vki_sigset_t mask;
   Bool raised;

   if (!pl_proc_self_is_debugged())
      return False;
   /* A blocked one ends the process. */
   if (sr_isError(VG_(do_sys_sigprocmask)(tid, VKI_SIG_BLOCK, NULL, &mask))
       || (mask.sig[0] >> (signal - 1) & 1))
      return False;
   VG_(memset)(&info, 0, sizeof info);
   info.si_signo = signal;
   info.si_code = VKI_SI_TKILL;
   info._sifields._sigfault._addr = (void*)address;
   /* In the same place; Valgrind takes 0 for a signal whose siginfo the kernel has lost, and gives up. */
   if (info._sifields._kill._pid == 0)
      info._sifields._kill._pid = VG_(getpid)();
   pl_debugging_stops(tid);
   raised = pl_system_call(__NR_rt_tgsigqueueinfo, (ULong)VG_(getpid)(), (ULong)VG_(gettid)(), (ULong)signal,
                           (ULong)&info, 0, 0) >= 0;
   if (raised)
      VG_(poll_signals)(tid);
   pl_debugging_goes_on();
   return raised;
}

void __wrap_vgPlain_synth_fault_mapping(ThreadId tid, Addr address)
{
   if (!raised_for_debugger(tid, VKI_SIGSEGV, address))
      __real_vgPlain_synth_fault_mapping(tid, address);
}

void __wrap_vgPlain_synth_sigill(ThreadId tid, Addr address)
{
   if (!raised_for_debugger(tid, VKI_SIGILL, address))
      __real_vgPlain_synth_sigill(tid, address);
}

/* The program counter is already behind the `int3`: without the signal the program goes on there, as natively. */
void __wrap_vgPlain_synth_sigtrap(ThreadId tid)
{
   if (!raised_for_debugger(tid, VKI_SIGTRAP, 0))
      __real_vgPlain_synth_sigtrap(tid);
}

/* The program has jumped to where no code may be. For Valgrind its own memory, and what it has reserved, is mapped; for
   the program it is not. */
void __wrap_vgPlain_synth_fault_perms(ThreadId tid, Addr address)
{
   const NSegment* segment = VG_(am_find_nsegment)(address);

   if (raised_for_debugger(tid, VKI_SIGSEGV, address))
      return;
   if (segment != NULL && (segment->kind == SkAnonC || segment->kind == SkFileC || segment->kind == SkShmC))
      __real_vgPlain_synth_fault_perms(tid, address);
   else
      VG_(synth_fault_mapping)(tid, address);
}

/* The thread that a signal is being delivered to, and what its handler's mask blocks. */
static ThreadId receiver = VG_INVALID_THREADID;
static vki_sigset_t blocked;

void pl_signals_before_delivery(ThreadId tid, Int signal)
{
   vki_sigaction_fromK_t action;

   if (sr_isError(VG_(do_sys_sigaction)(signal, NULL, &action)) || !(action.sa_flags & SA_NODEFER))
      return;
   receiver = tid;
   blocked = action.sa_mask;
}

void pl_signals_goes_on(ThreadId tid)
{
   if (tid != receiver)
      return;
   receiver = VG_INVALID_THREADID;
   VG_(do_sys_sigprocmask)(tid, VKI_SIG_BLOCK, &blocked, NULL);
}
