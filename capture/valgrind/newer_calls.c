/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_vki.h"

#include "core.h"
#include "edges.h"
#include "memory.h"
#include "newer_calls.h"
#include "process.h"

/* Numbers that stand for the calling process instead of a descriptor (linux/pidfd.h). */
#define PIDFD_SELF_THREAD (-10000)
#define PIDFD_SELF_THREAD_GROUP (-10001)

#define EPOLL_EVENT_BYTES 12
#define NR_STATMOUNT 457
#define NR_LISTMOUNT 458
#define NR_GETXATTRAT 464
#define NR_LISTXATTRAT 465
#define NR_FILE_GETATTR 468
#define FUTEX_WAITERS_MAX 128
#define SIGNAL_MASK_BYTES 8
#define IO_PGETEVENTS_MASK_BYTES 16

/* The call reads so much; a bad pointer makes it fail. */
static void reads(Addr address, SizeT length)
{
   if (address != 0 && length > 0 && VG_(am_is_valid_for_client)(address, length, VKI_PROT_READ))
      pl_memory_kernel_access(False, address, length);
}

void pl_epoll_pwait2_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                            UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)status;
   reads(arguments->arg4, sizeof(struct vki_timespec));
   reads(arguments->arg5, SIGNAL_MASK_BYTES);
   *flags |= SfMayBlock;
}

void pl_epoll_pwait2_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   pl_process_run_as(tid);
   pl_memory_kernel_access(True, arguments->arg2, sr_Res(status->sres) * EPOLL_EVENT_BYTES);
}

void pl_futex_waitv_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                           UWord* flags)
{
   Addr waiters = arguments->arg1;
   UWord n = (UInt)arguments->arg2, i;

   (void)tid;
   (void)layout;
   (void)status;
   if (n <= FUTEX_WAITERS_MAX && VG_(am_is_valid_for_client)(waiters, n * sizeof(PL_FutexWaiter), VKI_PROT_READ)) {
      reads(waiters, n * sizeof(PL_FutexWaiter));
      for (i = 0; i < n; i++)
         reads(((const PL_FutexWaiter*)waiters)[i].address, sizeof(Int));
   }
   reads(arguments->arg4, sizeof(struct vki_timespec));
   *flags |= SfMayBlock;
}

/* The word, and the timeout. */
void pl_futex_wait_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                          UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)status;
   reads(arguments->arg1, sizeof(Int));
   reads(arguments->arg5, sizeof(struct vki_timespec));
   *flags |= SfMayBlock;
}

/* Two futexes; the word of the first is compared. */
void pl_futex_requeue_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                             UWord* flags)
{
   const PL_FutexWaiter* both = (const PL_FutexWaiter*)arguments->arg1;

   (void)tid;
   (void)layout;
   (void)status;
   (void)flags;
   if (!VG_(am_is_valid_for_client)(arguments->arg1, 2 * sizeof *both, VKI_PROT_READ))
      return;
   reads(arguments->arg1, 2 * sizeof *both);
   reads(both[0].address, sizeof(Int));
}

/* What it returns is as of io_getevents, whose function does the rest. */
void pl_io_pgetevents_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                             UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)status;
   reads(arguments->arg5, sizeof(struct vki_timespec));
   reads(arguments->arg6, IO_PGETEVENTS_MASK_BYTES);
   *flags |= SfMayBlock;
}

/* ---- process_madvise ---- */

void pl_process_madvise_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                               UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)status;
   reads(arguments->arg2, arguments->arg3 * sizeof(struct vki_iovec));
   *flags |= SfMayBlock | SfPostOnFail;
}

/* Whether the descriptor is of this process. */
static Bool is_own_process(Int descriptor)
{
   HChar path[48], text[512];
   const HChar* pid;
   SysRes opened;
   Int length;

   if (descriptor == PIDFD_SELF_THREAD || descriptor == PIDFD_SELF_THREAD_GROUP)
      return True;
   VG_(sprintf)(path, "/proc/self/fdinfo/%d", descriptor);
   opened = VG_(open)(path, VKI_O_RDONLY, 0);
   if (sr_isError(opened))
      return False;
   length = VG_(read)((Int)sr_Res(opened), text, sizeof text - 1);
   VG_(close)((Int)sr_Res(opened));
   text[length > 0 ? length : 0] = '\0';
   pid = VG_(strstr)(text, "\nPid:");
   return pid != NULL && VG_(strtoll10)(pid + 5, NULL) == VG_(getpid)();
}

void pl_process_madvise_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   const struct vki_iovec* vectors = (const struct vki_iovec*)arguments->arg2;
   UWord bytes = sr_isError(status->sres) ? 0 : sr_Res(status->sres), i;

   if (sr_isError(status->sres) && sr_Err(status->sres) != VKI_ENOMEM)
      return;
   pl_process_run_as(tid);
   if (!is_own_process((Int)arguments->arg1)) {
      VG_(umsg)("pagelab: its advice on the memory of another process (process_madvise) is not recorded\n");
      return;
   }
   for (i = 0; i < arguments->arg3 && bytes > 0; i++) {
      SizeT length = vectors[i].iov_len < bytes ? vectors[i].iov_len : bytes;
      if (length > 0)
         pl_memory_advised((Addr)vectors[i].iov_base, length, (UInt)arguments->arg4);
      bytes -= length;
   }
   /* The next range has failed, because of a hole for instance. */
   if (i < arguments->arg3)
      pl_memory_advice_failed((Addr)vectors[i].iov_base, pl_whole_pages(vectors[i].iov_len), (UInt)arguments->arg4);
}

/* ---- calls that write to memory, and do nothing else to it ---- */

static UInt number_at(Addr address)
{
   return VG_(am_is_valid_for_client)(address, sizeof(UInt), VKI_PROT_READ) ? *(const UInt*)address : 0;
}

void pl_newer_call_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   UWord result = sr_Res(status->sres);

   pl_process_run_as(tid);
   switch (arguments->number) {
   /* The first word of what statmount writes is its length. */
   case NR_STATMOUNT: pl_memory_kernel_access(True, arguments->arg2, number_at(arguments->arg2)); break;
   case NR_LISTMOUNT: pl_memory_kernel_access(True, arguments->arg2, result * sizeof(ULong)); break;
   case NR_LISTXATTRAT:
      if (arguments->arg5 > 0)
         pl_memory_kernel_access(True, arguments->arg4, result);
      break;
   /* The fifth argument begins with the buffer's address and length. */
   case NR_GETXATTRAT:
      if (number_at(arguments->arg5 + sizeof(Addr)) > 0)
         pl_memory_kernel_access(True, *(const Addr*)arguments->arg5, result);
      break;
   case NR_FILE_GETATTR: pl_memory_kernel_access(True, arguments->arg3, arguments->arg4); break;
   default:
      break;
   }
}
