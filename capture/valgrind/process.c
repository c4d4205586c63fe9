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
#include "edges.h"
#include "process.h"
#include "stream.h"

/* The client's heap; part of Valgrind's core library. */
extern Addr VG_(brk_base);
extern Addr VG_(brk_limit);

#define MAP_PRIVATE 0x02
#define MAP_SHARED 0x01
#define MAP_ANONYMOUS 0x20
#define MAP_GROWSDOWN 0x100
#define PR_SET_PDEATHSIG 1

const HChar* pl_socket_path = NULL;
Int pl_follow_one_in = 1;
Int pl_follow_from = 0;
Int pl_recorder_pid = 0;

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
/* In a forked child: who forked it. */
static Int fork_parent_pid = 0;
/* Between the start of execve and its failure. What is recorded there is sent at once, since success leaves no
   moment to do so. */
static Bool in_exec = False;
static Bool exit_called = False;
static Int exit_code = 0;
static Addr last_brk = 0;
static SizeT detaching_bytes = 0;
/* Of threads whose system call under way gives a file another length: the one that it has. By thread, as others may run meanwhile;
   one that shares its place with another's is left out. */
#define TRUNCATIONS 256
static struct {
   ThreadId thread;
   ULong from;
} truncations[TRUNCATIONS];

/* Code of a process that a signal killed; the encoder learns which signal from whoever waits for it. */
#define EXIT_BY_SIGNAL 0x7fffffff

static void run_as(ThreadId tid)
{
   if (tid == current || tid == VG_INVALID_THREADID)
      return;
   current = tid;
   pl_allocations_run_as(tid);
   pl_begin(PL_SWITCH, 4);
   pl_put32(tid);
   pl_end();
}

void pl_process_hello(UInt how)
{
   if (how == 0)
      is_first = VG_(getppid)() == pl_recorder_pid;
   if (!pl_stream_connect(pl_socket_path)) {
      VG_(umsg)("pagelab: cannot reach the encoder at %s; the program is ended\n", pl_socket_path);
      pl_system_call(__NR_kill, (ULong)VG_(getpid)(), VKI_SIGKILL, 0, 0, 0, 0);
   }
   pl_begin(PL_HELLO, 64 + PL_STRING_MAX);
   pl_put32(PL_PROTOCOL_VERSION);
   pl_put32(how);
   pl_put32((UInt)VG_(getpid)());
   pl_put32((UInt)(how == 0 ? VG_(getppid)() : fork_parent_pid));
   pl_put_string(VG_(args_the_exename));
   pl_end();
   pl_stream_flush();
}

/* ---- mappings ---- */

static void send_mapping(Addr address, SizeT length, UInt protection, UInt flags, ULong offset, const HChar* file)
{
   pl_begin(PL_MMAP, 40 + PL_STRING_MAX);
   pl_put64(address);
   pl_put64(length);
   pl_put32(protection);
   pl_put32(flags);
   pl_put64(offset);
   pl_put_string(file);
   pl_end();
   pl_allocations_unmapped(address, length);
   if (protection & VKI_PROT_EXEC)
      pl_allocations_mapped(address, length, offset, file);
}

static UInt protection_of(const NSegment* segment)
{
   return (segment->hasR ? 1 : 0) | (segment->hasW ? 2 : 0) | (segment->hasX ? 4 : 0);
}

static void send_brk(Addr end)
{
   if (end == last_brk)
      return;
   last_brk = end;
   pl_begin(PL_BRK, 16);
   pl_put64(VG_(brk_base));
   pl_put64(end);
   pl_end();
}

static void send_kernel_access(Bool writes, Addr address, SizeT length)
{
   if (length == 0)
      return;
   pl_begin(PL_KERNEL_ACCESS, 20);
   pl_put32(writes ? 1 : 0);
   pl_put64(address);
   pl_put64(length);
   pl_end();
   if (in_exec)
      pl_stream_flush();
}

/* What execve maps below the first stack pointer (setup_arg_pages). */
#define EXEC_STACK_BYTES (128u << 10)

/* The mappings with which the program begins: its own image, the dynamic linker, stack and heap. Valgrind hides the
   kernel's vdso, so there is none. */
static void send_initial_mappings(ThreadId tid)
{
   Addr starts[256];
   Int n = VG_(am_get_segment_starts)(SkFileC | SkAnonC | SkShmC, starts, 256), i;
   Addr stack_pointer = VG_(get_SP)(tid);

   for (i = 0; i < n; i++) {
      const NSegment* segment = VG_(am_find_nsegment)(starts[i]);
      Addr start = segment->start;
      if (segment->isCH)
         continue;
      if (segment->start <= stack_pointer && stack_pointer <= segment->end) {
         /* As execve leaves it, before it grows. Valgrind's own is shorter, with room reserved below. */
         start = (stack_pointer & ~(Addr)4095) - EXEC_STACK_BYTES;
         send_mapping(start, segment->end + 1 - start, protection_of(segment),
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, 0, "[stack]");
         /* The kernel wrote arguments, environment and auxiliary vector there. */
         send_kernel_access(True, stack_pointer, segment->end + 1 - stack_pointer);
      } else if (segment->kind == SkFileC) {
         send_mapping(start, segment->end + 1 - start, protection_of(segment), MAP_PRIVATE,
                      (ULong)segment->offset, VG_(am_get_filename)(segment));
      } else {
         send_mapping(start, segment->end + 1 - start, protection_of(segment), MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL);
      }
   }
   send_brk(VG_(brk_limit));
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
      send_initial_mappings(tid);
   }
}

static void on_thread_made(ThreadId tid, ThreadId child)
{
   run_as(tid);
   pl_edges_thread_made(tid, child);
}

static void on_thread_exit(ThreadId tid)
{
   run_as(tid);
   pl_edges_thread_ends(tid);
   pl_begin(PL_THREAD_EXIT, 4);
   pl_put32(tid);
   pl_end();
   if (current == tid)
      current = VG_INVALID_THREADID;
}

static void on_start_client_code(ThreadId tid, ULong blocks)
{
   (void)blocks;
   run_as(tid);
}

/* A signal that the program's own access raised: the segment was left in the middle, and its record is still
   behind pl_pos. The encoder knows which of its accesses came before the faulting instruction. */
static void on_signal(ThreadId tid, Int signal, Bool alternate_stack)
{
   static UChar record[2048];

   (void)alternate_stack;
   run_as(tid);
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
   fork_parent_pid = VG_(getpid)();
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
   pl_stream_forget();
   if (!recording) {
      /* The encoder is ending the program and takes no more life lines: this child lives as long as its parent. */
      pl_system_call(__NR_prctl, PR_SET_PDEATHSIG, VKI_SIGKILL, 0, 0, 0, 0);
      return;
   }
   pl_process_hello(1);
   pl_edges_forked(tid);
   current = VG_INVALID_THREADID;
   pl_begin(PL_THREAD_START, 8);
   pl_put32(tid);
   pl_put32((UInt)VG_(gettid)());
   pl_end();
   run_as(tid);
   pl_stream_flush();
}

/* ---- accesses of the kernel ---- */

static void on_kernel_read(CorePart part, ThreadId tid, const HChar* what, Addr address, SizeT length)
{
   (void)what;
   if (part != Vg_CoreSysCall && part != Vg_CoreSignal)
      return;
   run_as(tid);
   /* A bad pointer makes the call fail before anything is read. */
   if (VG_(am_is_valid_for_client)(address, length > 0 ? length : 1, VKI_PROT_READ))
      send_kernel_access(False, address, length);
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
   run_as(tid);
   send_kernel_access(True, address, length);
}

/* ---- system calls ---- */

static SizeT page_round_up(SizeT bytes)
{
   return (bytes + 4095) & ~(SizeT)4095;
}

/* Opened for its name and status alone: this neither blocks nor takes locks away when it is closed. */
#define OPEN_PATH 010000000

/* The descriptor's regular file is about to get another length. */
static void before_truncation(ThreadId tid, Int descriptor)
{
   struct vg_stat status;

   truncations[tid % TRUNCATIONS].thread = VG_INVALID_THREADID;
   if (descriptor < 0 || VG_(fstat)(descriptor, &status) != 0 || !VKI_S_ISREG(status.mode))
      return;
   truncations[tid % TRUNCATIONS].thread = tid;
   truncations[tid % TRUNCATIONS].from = (ULong)status.size;
}

static void after_truncation(ThreadId tid, Int descriptor, ULong length)
{
   static HChar file[PL_STRING_MAX];
   HChar link[40];
   SSizeT bytes;

   if (descriptor < 0 || truncations[tid % TRUNCATIONS].thread != tid)
      return;
   VG_(sprintf)(link, "/proc/self/fd/%d", descriptor);
   bytes = VG_(readlink)(link, file, sizeof(file) - 1);
   if (bytes <= 0)
      return;
   file[bytes] = '\0';
   pl_begin(PL_TRUNCATE, 20 + PL_STRING_MAX);
   pl_put64(truncations[tid % TRUNCATIONS].from);
   pl_put64(length);
   pl_put_string(file);
   pl_end();
}

/* A descriptor of a path's file; -1 without one. */
static Int open_path(Addr path)
{
   SysRes opened;

   if (!VG_(am_is_valid_for_client)(path, 1, VKI_PROT_READ))
      return -1;
   opened = VG_(open)((const HChar*)path, OPEN_PATH, 0);
   return sr_isError(opened) ? -1 : (Int)sr_Res(opened);
}

static void close_path(Int descriptor)
{
   if (descriptor >= 0)
      VG_(close)(descriptor);
}

static void after_msync(UWord* args)
{
   pl_begin(PL_MSYNC, 20);
   pl_put64(args[0]);
   pl_put64(page_round_up(args[1]));
   pl_put32((UInt)args[2]);
   pl_end();
}

static void before_system_call(ThreadId tid, UInt number, UWord* args, UInt args_n)
{
   (void)args_n;
   run_as(tid);
   pl_edges_before_call(tid, number, args);
   switch (number) {
   case __NR_fork: fork_shares = False; break;
   case __NR_vfork: fork_shares = True; break;
   case __NR_clone: fork_shares = (args[0] & VKI_CLONE_VM) != 0; break;
   case __NR_execve:
   case __NR_execveat: {
      const HChar* path = (const HChar*)args[number == __NR_execve ? 0 : 1];
      if (!VG_(am_is_valid_for_client)((Addr)path, 1, VKI_PROT_READ))
         path = "";
      pl_begin(PL_EXEC_BEGIN, 4 + PL_STRING_MAX);
      pl_put_string(path);
      pl_end();
      pl_stream_flush();
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
   case __NR_ftruncate: before_truncation(tid, (Int)args[0]); break;
   case __NR_truncate: {
      Int descriptor = open_path(args[0]);
      before_truncation(tid, descriptor);
      close_path(descriptor);
      break;
   }
   case __NR_shmdt: {
      const NSegment* segment = VG_(am_find_nsegment)(args[0]);
      detaching_bytes = segment != NULL && segment->start == args[0] ? segment->end + 1 - segment->start : 0;
      break;
   }
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

static void send_address_length(PlControl kind, Addr address, SizeT length)
{
   pl_begin(kind, 24);
   pl_put64(address);
   pl_put64(page_round_up(length));
   pl_end();
}

static void after_mmap(UWord* args, Addr address)
{
   const HChar* file = NULL;
   if (!(args[3] & MAP_ANONYMOUS)) {
      const NSegment* segment = VG_(am_find_nsegment)(address);
      if (segment != NULL)
         file = VG_(am_get_filename)(segment);
   }
   send_mapping(address, page_round_up(args[1]), (UInt)args[2], (UInt)args[3], args[5], file);
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
   run_as(tid);
   pl_edges_after_call(tid, number, args, result);
   if (forked) {
      forked = False;
      pl_begin(PL_FORK, 8);
      pl_put32((UInt)value);
      pl_put32(fork_shares);
      pl_end();
      pl_stream_flush();
   }
   if (sr_isError(result)) {
      if (number == __NR_execve || number == __NR_execveat) {
         in_exec = False;
         pl_begin(PL_EXEC_FAILED, 0);
         pl_end();
      }
      /* Parts of the range are not mapped; the others are synced. */
      if (number == __NR_msync && sr_Err(result) == VKI_ENOMEM)
         after_msync(args);
      return;
   }
   switch (number) {
   case __NR_mmap: after_mmap(args, value); break;
   case __NR_munmap:
      send_address_length(PL_MUNMAP, args[0], args[1]);
      pl_allocations_unmapped(args[0], page_round_up(args[1]));
      break;
   case __NR_mprotect:
   case __NR_pkey_mprotect:
      pl_begin(PL_MPROTECT, 20);
      pl_put64(args[0]);
      pl_put64(page_round_up(args[1]));
      pl_put32((UInt)args[2]);
      pl_end();
      break;
   case __NR_mremap:
      pl_begin(PL_MREMAP, 32);
      pl_put64(args[0]);
      pl_put64(page_round_up(args[1]));
      pl_put64(value);
      pl_put64(page_round_up(args[2]));
      pl_end();
      break;
   case __NR_madvise:
      pl_begin(PL_MADVISE, 20);
      pl_put64(args[0]);
      pl_put64(page_round_up(args[1]));
      pl_put32((UInt)args[2]);
      pl_end();
      break;
   case __NR_msync: after_msync(args); break;
   case __NR_ftruncate: after_truncation(tid, (Int)args[0], args[1]); break;
   case __NR_truncate: {
      Int descriptor = open_path(args[0]);
      after_truncation(tid, descriptor, args[1]);
      close_path(descriptor);
      break;
   }
   case __NR_brk: send_brk(value); break;
   case __NR_shmat: {
      const NSegment* segment = VG_(am_find_nsegment)(value);
      if (segment != NULL && segment->start == value)
         send_mapping(value, segment->end + 1 - segment->start, protection_of(segment), MAP_SHARED | MAP_ANONYMOUS,
                      0, NULL);
      break;
   }
   case __NR_shmdt:
      if (detaching_bytes > 0)
         send_address_length(PL_MUNMAP, args[0], detaching_bytes);
      break;
   case __NR_wait4: {
      UInt status = args[1] != 0 ? *(const UInt*)args[1] : WAIT_STATUS_UNKNOWN;
      /* A status with the low byte 0x7f, or 0xffff, says stopped or continued. */
      if ((Int)value > 0 && (status == WAIT_STATUS_UNKNOWN || ((status & 0xff) != 0x7f && status != 0xffff)))
         after_wait((Int)value, status);
      break;
   }
   case __NR_waitid: {
      /* Words of siginfo_t for SIGCHLD: 2 si_code (1 to 3: exited, killed, dumped), 3 si_pid, 5 si_status. Option
         WNOWAIT (0x01000000) leaves the child waitable. */
      const UInt* information = (const UInt*)args[2];
      if (information != NULL && !(args[3] & 0x01000000) && information[3] != 0 && information[2] >= 1
          && information[2] <= 3)
         after_wait((Int)information[3],
                    information[2] == 1 ? (information[5] & 0xff) << 8 : information[5] & 0x7f);
      break;
   }
   default:
      break;
   }
}

void pl_process_exit(Int code)
{
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
