/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "allocations.h"
#include "core.h"
#include "edges.h"
#include "filters.h"
#include "fork_writes.h"
#include "image.h"
#include "limits.h"
#include "memory.h"
#include "memory_locks.h"
#include "proc_self.h"
#include "process.h"
#include "signals.h"
#include "stream.h"
#include "text_busy.h"
#include "translate.h"
#include "vfork.h"

#define PR_SET_PDEATHSIG 1

const HChar* pl_socket_path = NULL;
Int pl_follow_one_in = 1;
Int pl_follow_from = 0;
Int pl_recorder_pid = 0;
const HChar* pl_key_text = NULL;
/* What tells this process from all others of the recording. */
static ULong key = 0;
/* Of the child that is being forked. */
static ULong child_key = 0;
static UInt forks_n = 0;

/* This process image is that of the recording's first program. */
static Bool is_first = False;
/* Children that the first program has made; of a child, and of those that it forks, its number. */
static UInt children_n = 0;
/* This process descends from the first program by forks alone. */
static Bool is_forked_from_first = False;

/* Thread whose records are being written. */
static ThreadId current = VG_INVALID_THREADID;
/* A fork has succeeded and is not yet reported. */
static Bool forked = False;
/* The system call under way makes a child that shares the program's memory. Valgrind gives it memory of its own. */
static Bool fork_shares = False;
/* And the parent waits until the child executes another program or ends. */
static Bool fork_waits = False;
/* Between the start of execve and its failure. What is recorded there is sent at once, since success leaves no
   moment to do so. */
static Bool in_exec = False;
static Bool exit_called = False;
static Int exit_code = 0;
/* Code of a process that a signal killed; the encoder learns which signal from whoever waits for it. */
#define EXIT_BY_SIGNAL 0x7fffffff

void pl_process_run_as(ThreadId tid)
{
   if (tid == current || tid == VG_INVALID_THREADID)
      return;
   current = tid;
   pl_allocations_run_as(tid);
   pl_begin(PL_SWITCH, 4);
   pl_put32(tid);
   pl_end();
}

static void connect_and_greet(UInt how)
{
   if (!pl_stream_connect(pl_socket_path)) {
      VG_(umsg)("pagelab: it could not reach the recorder, and was ended\n");
      pl_system_call(__NR_kill, (ULong)VG_(getpid)(), VKI_SIGKILL, 0, 0, 0, 0);
   }
   pl_begin(PL_HELLO, 64 + PL_STRING_MAX);
   pl_put32(PL_PROTOCOL_VERSION);
   pl_put32(how);
   pl_put64(key);
   pl_put32((UInt)VG_(getpid)());
   pl_put_string(pl_image_path());
   pl_end();
   pl_stream_flush();
}

void pl_process_hello(void)
{
   if (pl_recorder_pid == 0)
      pl_recorder_pid = VG_(getppid)();
   is_first = VG_(getppid)() == pl_recorder_pid;
   key = pl_key_text != NULL ? VG_(strtoull10)(pl_key_text, NULL) : (ULong)VG_(getpid)();
   connect_and_greet(0);
}

Bool pl_process_is_in_exec(void)
{
   return in_exec;
}

ULong pl_process_key(void)
{
   return key;
}

/* ---- threads ---- */

static void on_first_instruction(ThreadId tid)
{
   static Bool begun = False;

   pl_begin(PL_THREAD_START, 8);
   pl_put32(tid);
   pl_put32((UInt)VG_(gettid)());
   pl_end();
   current = tid;
   pl_allocations_run_as(tid);
   pl_edges_thread_begins(tid);
   if (!begun) {
      begun = True;
      if (pl_door < 0)
         pl_signals_begin();
      pl_text_busy_begins();
      pl_memory_begins(tid);
   }
}

static void on_thread_made(ThreadId tid, ThreadId child)
{
   pl_process_run_as(tid);
   pl_filters_thread_made(tid, child);
   pl_edges_thread_made(tid, child);
}

static void on_thread_exit(ThreadId tid)
{
   pl_process_run_as(tid);
   pl_edges_thread_ends(tid);
   pl_fork_writes_thread_ends(tid);
   pl_begin(PL_THREAD_EXIT, 4);
   pl_put32(tid);
   pl_end();
   if (current == tid)
      current = VG_INVALID_THREADID;
}

static void on_start_client_code(ThreadId tid, ULong blocks)
{
   (void)blocks;
   pl_process_run_as(tid);
   pl_signals_goes_on(tid);
}

/* A signal that the program's own access raised: the segment was left in the middle, and its record is still
   behind pl_pos. The encoder knows which of its accesses came before the faulting instruction. */
static void on_signal(ThreadId tid, Int signal, Bool alternate_stack)
{
   static UChar record[2048];

   (void)alternate_stack;
   pl_process_run_as(tid);
   pl_signals_before_delivery(tid, signal);
   if (signal != VKI_SIGSEGV && signal != VKI_SIGBUS && signal != VKI_SIGFPE && signal != VKI_SIGILL
       && signal != VKI_SIGTRAP)
      return;
   VG_(memcpy)(record, pl_pos, sizeof record);
   pl_begin(PL_FAULT, 8 + sizeof record);
   pl_put64(VG_(get_IP)(tid));
   pl_put_bytes(record, sizeof record);
   pl_end();
}

/* ---- children ---- */

static void before_fork(ThreadId tid)
{
   (void)tid;
   if (is_first)
      children_n++;
   pl_stream_flush();
   if (fork_waits)
      pl_vfork_begins();
   /* Process ids do not tell processes of several PID namespaces apart. */
   forks_n++;
   if (pl_system_call(__NR_getrandom, (ULong)(Addr)&child_key, sizeof child_key, 0, 0, 0, 0) != sizeof child_key)
      child_key = key * 0x9e3779b97f4a7c15ULL + forks_n;
}

static void after_fork_in_parent(ThreadId tid)
{
   (void)tid;
   forked = True;
}

static void after_fork_in_child(ThreadId tid)
{
   Bool recording = pl_stream_alive();

   is_forked_from_first |= is_first;
   is_first = False;
   pl_proc_self_forked();
   if (fork_waits)
      pl_vfork_in_child(fork_shares);
   else
      pl_vfork_forget();
   pl_stream_forget();
   if (!recording) {
      /* The encoder is ending the program and takes no more life lines: this child lives as long as its parent. */
      pl_system_call(__NR_prctl, PR_SET_PDEATHSIG, VKI_SIGKILL, 0, 0, 0, 0);
      return;
   }
   key = child_key;
   pl_locks_forked();
   connect_and_greet(1);
   pl_edges_forked(tid);
   current = VG_INVALID_THREADID;
   pl_begin(PL_THREAD_START, 8);
   pl_put32(tid);
   pl_put32((UInt)VG_(gettid)());
   pl_end();
   pl_process_run_as(tid);
   if (!fork_shares)
      pl_fork_writes_in_child(tid);
   pl_stream_flush();
}

/* ---- accesses of the kernel ---- */

static void on_kernel_read(CorePart part, ThreadId tid, const HChar* what, Addr address, SizeT length)
{
   (void)what;
   if (part != Vg_CoreSysCall && part != Vg_CoreSignal)
      return;
   pl_process_run_as(tid);
   /* A bad pointer makes the call fail before anything is read. */
   if (VG_(am_is_valid_for_client)(address, length > 0 ? length : 1, VKI_PROT_READ))
      pl_memory_kernel_access(False, address, length);
}

static void on_kernel_read_string(CorePart part, ThreadId tid, const HChar* what, Addr address)
{
   Addr end = address;

   for (;;) {
      Addr page_end = (end | 4095) + 1;
      if (!VG_(am_is_valid_for_client)(end, 1, VKI_PROT_READ))
         return;
      while (end < page_end && *(const HChar*)end != 0)
         end++;
      if (end < page_end)
         break;
   }
   on_kernel_read(part, tid, what, address, end + 1 - address);
}

static void on_kernel_write(CorePart part, ThreadId tid, Addr address, SizeT length)
{
   if (part != Vg_CoreSysCall && part != Vg_CoreSignal)
      return;
   if (forked && pl_fork_writes_is_childs_word(address))
      return;
   pl_process_run_as(tid);
   pl_memory_kernel_access(True, address, length);
}

/* ---- system calls ---- */

static void before_system_call(ThreadId tid, UInt number, UWord* args, UInt args_n)
{
   (void)args_n;
   pl_process_run_as(tid);
   pl_edges_before_call(tid, number, args);
   pl_fork_writes_before_call(tid, number, args);
   pl_memory_before_call(tid, number, args);
   switch (number) {
   case __NR_fork: fork_shares = fork_waits = False; break;
   case __NR_vfork: fork_shares = fork_waits = True; break;
   case __NR_clone:
      fork_shares = (args[0] & VKI_CLONE_VM) != 0;
      fork_waits = (args[0] & VKI_CLONE_VFORK) != 0;
      break;
   case __NR_execve:
   case __NR_execveat: {
      const HChar* path = (const HChar*)args[number == __NR_execve ? 0 : 1];
      if (!VG_(am_is_valid_for_client)((Addr)path, 1, VKI_PROT_READ))
         path = "";
      pl_begin(PL_EXEC_BEGIN, 4 + PL_STRING_MAX);
      pl_put_string(path);
      pl_end();
      pl_stream_flush();
      pl_vfork_give_back();
      in_exec = True;
      break;
   }
   case __NR_exit_group:
   case __NR_exit:
      exit_called = True;
      exit_code = (Int)(args[0] & 0xff);
      break;
   case __NR_wait4:
   case __NR_waitid:
      /* It may block for long; what came before must not be late. */
      pl_stream_flush();
      break;
   default:
      break;
   }
}

Bool pl_process_is_followed(void)
{
   return !is_forked_from_first || (children_n - 1) % (UInt)pl_follow_one_in == (UInt)pl_follow_from;
}

void pl_process_runs_natively(const HChar* reason)
{
   pl_begin(PL_EXEC_NATIVE, 4 + PL_STRING_MAX);
   pl_put_string(reason);
   pl_end();
   pl_stream_flush();
}

#define SIG_IGN 1

/* The program may handle faults of its accesses, or of its divisions, from now on. */
static void after_sigaction(UWord* args)
{
   const UWord* action = (const UWord*)args[1];

   if (action == NULL || action[0] <= SIG_IGN)
      return;
   if (args[0] == VKI_SIGSEGV || args[0] == VKI_SIGBUS)
      pl_translate_exactly();
   if (args[0] == VKI_SIGFPE)
      pl_translate_divisions_exactly();
}

/* `status` as wait4 reports it, WAIT_STATUS_UNKNOWN if the program did not ask for it. */
#define WAIT_STATUS_UNKNOWN 0xffffffffu

static void after_wait(Int pid, UInt status)
{
   pl_begin(PL_WAITED, 8);
   pl_put32((UInt)pid);
   pl_put32(status);
   pl_end();
   pl_stream_flush();
}

static void after_system_call(ThreadId tid, UInt number, UWord* args, UInt args_n, SysRes result)
{
   UWord value = sr_Res(result);

   (void)args_n;
   pl_process_run_as(tid);
   pl_edges_after_call(tid, number, args, result);
   if (forked) {
      forked = False;
      pl_begin(PL_FORK, 16);
      pl_put32((UInt)value);
      pl_put64(child_key);
      pl_put32(fork_shares);
      pl_end();
      if (!fork_shares)
         pl_fork_writes_in_parent(tid);
      pl_stream_flush();
      pl_vfork_wait();
   }
   /* An execveat that only asks whether a file could be executed succeeds and returns, too. */
   if (number == __NR_execve || number == __NR_execveat) {
      in_exec = False;
      pl_limits_exec_failed();
      pl_begin(PL_EXEC_FAILED, 0);
      pl_end();
   }
   if (sr_isError(result)) {
      pl_memory_after_failure(number, args, sr_Err(result));
      return;
   }
   pl_memory_after_call(tid, number, args, value);
   switch (number) {
   case __NR_rt_sigaction: after_sigaction(args); break;
   case __NR_wait4: {
      UInt status = args[1] != 0 ? *(const UInt*)args[1] : WAIT_STATUS_UNKNOWN;
      /* A status with the low byte 0x7f, or 0xffff, says stopped or continued. */
      if ((Int)value > 0 && (status == WAIT_STATUS_UNKNOWN || ((status & 0xff) != 0x7f && status != 0xffff)))
         after_wait((Int)value, status);
      break;
   }
   case __NR_waitid: {
      /* Words of siginfo_t for SIGCHLD: 2 si_code (1 to 3: exited, killed, dumped), 4 si_pid, 6 si_status. Option
         WNOWAIT (0x01000000) leaves the child waitable. */
      const UInt* information = (const UInt*)args[2];
      if (information != NULL && !(args[3] & 0x01000000) && information[4] != 0 && information[2] >= 1
          && information[2] <= 3)
         after_wait((Int)information[4],
                    information[2] == 1 ? (information[6] & 0xff) << 8 : information[6] & 0x7f);
      break;
   }
   default:
      break;
   }
}

void pl_process_exit(Int code)
{
   pl_vfork_give_back();
   pl_begin(PL_EXIT, 4);
   pl_put32((UInt)(exit_called ? exit_code : code != 0 ? code : EXIT_BY_SIGNAL));
   pl_end();
   pl_stream_close();
}

void pl_process_init(void)
{
   VG_(track_pre_thread_ll_create)(on_thread_made);
   VG_(track_pre_thread_first_insn)(on_first_instruction);
   VG_(track_pre_thread_ll_exit)(on_thread_exit);
   VG_(track_start_client_code)(on_start_client_code);
   VG_(track_pre_deliver_signal)(on_signal);
   VG_(track_pre_mem_read)(on_kernel_read);
   VG_(track_pre_mem_read_asciiz)(on_kernel_read_string);
   VG_(track_post_mem_write)(on_kernel_write);
   VG_(needs_syscall_wrapper)(before_system_call, after_system_call);
   VG_(atfork)(before_fork, after_fork_in_parent, after_fork_in_child);
}
