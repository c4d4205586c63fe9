/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* vfork, and clone with CLONE_VFORK. The child borrows its parent's memory, and the parent waits until the child
   executes another program or ends. Programs rely on both: posix_spawn learns so why its child could not execute a
   program.

   Valgrind forks instead, with memory of its own for the child. So the child leaves a copy of the pages that it wrote
   in a file in memory, and its parent takes them over. When the child has executed a program or has ended, the kernel
   closes its end of a pipe, which the parent waits for. */

#include <stddef.h>

#include "libvex_guest_amd64.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcsignal.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "memory.h"
#include "stream.h"
#include "vfork.h"

#define MFD_CLOEXEC 1
#define O_CLOEXEC 02000000

/* Bits of /proc/self/pagemap. After a fork a page is mapped by one process once that one has written it. */
#define PAGE_PRESENT (1ULL << 63)
#define PAGE_OF_FILE (1ULL << 61)
#define PAGE_MAPPED_ONCE (1ULL << 56)
#define PAGES_AT_ONCE 4096

/* What the child leaves for each page that it wrote. */
typedef struct {
   Addr address;
   UChar bytes[PAGE_BYTES];
} Written;

static Int written_fd = -1;
/* The parent reads from it, and gets the end of the file once the child has closed its own end. */
static Int parent_end = -1;
static Int child_end = -1;
/* The child's /proc/self/pagemap, opened before the child may change its root. */
static Int page_map = -1;
/* This process is such a child, and its memory is its parent's. */
static Bool borrows = False;

static void close_fd(Int* descriptor)
{
   if (*descriptor >= 0)
      VG_(close)(*descriptor);
   *descriptor = -1;
}

void pl_vfork_forget(void)
{
   close_fd(&written_fd);
   close_fd(&parent_end);
   close_fd(&child_end);
   close_fd(&page_map);
   borrows = False;
}

void pl_vfork_begins(void)
{
   Int ends[2];
   Long memory;

   pl_vfork_forget();
   memory = pl_system_call(__NR_memfd_create, (ULong)(Addr) "pagelab-vfork", MFD_CLOEXEC, 0, 0, 0, 0);
   if (memory < 0)
      return;
   written_fd = VG_(safe_fd)((Int)memory);
   if (pl_system_call(__NR_pipe2, (ULong)(Addr)ends, O_CLOEXEC, 0, 0, 0, 0) < 0) {
      pl_vfork_forget();
      return;
   }
   parent_end = VG_(safe_fd)(ends[0]);
   child_end = VG_(safe_fd)(ends[1]);
}

void pl_vfork_in_child(Bool shares)
{
   SysRes opened;

   close_fd(&parent_end);
   borrows = shares;
   if (!borrows)
      return;
   opened = VG_(open)("/proc/self/pagemap", VKI_O_RDONLY, 0);
   if (!sr_isError(opened))
      page_map = VG_(safe_fd)((Int)sr_Res(opened));
}

/* Copies the pages from `start` on that `entries` of the page map say are this process's alone. */
static void give_pages(Addr start, const ULong* entries, SizeT entries_n)
{
   static Written page;
   SizeT i;

   for (i = 0; i < entries_n; i++) {
      if ((entries[i] & (PAGE_PRESENT | PAGE_MAPPED_ONCE | PAGE_OF_FILE)) != (PAGE_PRESENT | PAGE_MAPPED_ONCE))
         continue;
      page.address = start + i * PAGE_BYTES;
      VG_(memcpy)(page.bytes, (const void*)page.address, PAGE_BYTES);
      VG_(write)(written_fd, &page, sizeof page);
   }
}

static void give_range(Addr start, Addr end)
{
   static ULong entries[PAGES_AT_ONCE];
   Addr at = start;

   while (at < end) {
      SizeT pages = (end - at) / PAGE_BYTES;
      Long length;
      if (pages > PAGES_AT_ONCE)
         pages = PAGES_AT_ONCE;
      length = pl_system_call(__NR_pread64, page_map, (ULong)(Addr)entries, pages * sizeof(ULong),
                              at / PAGE_BYTES * sizeof(ULong), 0, 0);
      if (length <= 0)
         return;
      give_pages(at, entries, (SizeT)length / sizeof(ULong));
      at += (SizeT)length / sizeof(ULong) * PAGE_BYTES;
   }
}

/* linux/fs.h: PAGEMAP_SCAN, since Linux 6.7. Finds ranges of present pages, and passes over holes of terabytes at
   once. */
#define PAGEMAP_SCAN 0xc0606610
#define PAGE_IS_PRESENT (1 << 3)
#define RANGES_AT_ONCE 256
/* What an older kernel is asked for, page by page. */
#define LARGEST_SEGMENT (64UL << 30)

typedef struct {
   ULong start, end, categories;
} PresentRange;

typedef struct {
   ULong size, flags, start, end, walk_end, ranges, ranges_n, most_pages;
   ULong inverted, all_of, any_of, returned;
} Scan;

static void give_segment(const NSegment* segment)
{
   static PresentRange ranges[RANGES_AT_ONCE];
   Scan scan = {.size = sizeof scan, .start = segment->start, .end = segment->end + 1, .ranges = (Addr)ranges,
                .ranges_n = RANGES_AT_ONCE, .all_of = PAGE_IS_PRESENT, .returned = PAGE_IS_PRESENT};
   Long n, i;

   while (scan.start < scan.end) {
      n = pl_system_call(__NR_ioctl, (ULong)page_map, PAGEMAP_SCAN, (ULong)(Addr)&scan, 0, 0, 0);
      if (n < 0)
         break;
      for (i = 0; i < n; i++)
         give_range(ranges[i].start, ranges[i].end);
      scan.start = scan.walk_end;
   }
   if (scan.start >= scan.end)
      return;
   if (scan.end - scan.start <= LARGEST_SEGMENT)
      give_range(scan.start, scan.end);
   else
      VG_(umsg)("pagelab: what it wrote to %lu GiB of its parent's memory after vfork was not looked for, so its parent "
                "has not got it\n", (UWord)(scan.end - scan.start) >> 30);
}

void pl_vfork_give_back(void)
{
   UInt kinds = SkAnonC | SkFileC;
   Addr none, *starts;
   Int n, i;

   if (!borrows || written_fd < 0)
      return;
   if (page_map < 0) {
      VG_(umsg)("pagelab: it could not see what it wrote to its parent's memory after vfork, so its parent has not "
                "got it\n");
      return;
   }
   n = VG_(am_get_segment_starts)(kinds, &none, 1);
   n = n < 0 ? -n : n;
   starts = VG_(malloc)("pagelab.vfork", (SizeT)n * sizeof(Addr));
   n = VG_(am_get_segment_starts)(kinds, starts, n);
   for (i = 0; i < n; i++) {
      const NSegment* segment = VG_(am_find_nsegment)(starts[i]);
      if (segment->hasR && segment->hasW)
         give_segment(segment);
   }
   VG_(free)(starts);
}

static void take_over(void)
{
   static Written page;

   VG_(lseek)(written_fd, 0, VKI_SEEK_SET);
   while (VG_(read)(written_fd, &page, sizeof page) == sizeof page) {
      if (VG_(am_is_valid_for_client)(page.address, PAGE_BYTES, VKI_PROT_READ | VKI_PROT_WRITE))
         VG_(memcpy)((void*)page.address, page.bytes, PAGE_BYTES);
   }
}

void pl_vfork_wait(void)
{
   UChar byte;

   if (parent_end < 0)
      return;
   close_fd(&child_end);
   while (pl_system_call(__NR_read, parent_end, (ULong)(Addr)&byte, 1, 0, 0, 0) == -VKI_EINTR) {
   }
   take_over();
   pl_vfork_forget();
}

/* ---- clone ---- */

extern Before __real_vgSysWrap_linux_sys_clone_before, __wrap_vgSysWrap_linux_sys_clone_before;

#define OF_VFORK (VKI_CLONE_VFORK | VKI_CLONE_VM)
#define OF_THREADS (VKI_CLONE_VM | VKI_CLONE_FS | VKI_CLONE_FILES)
/* What Valgrind refuses of a child that is no thread: it shares the parent's folders, or has thread-local storage of
   its own. */
#define REFUSED (VKI_CLONE_FS | VKI_CLONE_SETTLS)
#define WRITE_PARENTS_WORD (VKI_CLONE_PARENT_SETTID | VKI_CLONE_PIDFD)
#define WRITE_CHILDS_WORD (VKI_CLONE_CHILD_SETTID | VKI_CLONE_CHILD_CLEARTID)

static Bool is_word_for_client(Addr address)
{
   return VG_(am_is_valid_for_client)(address, sizeof(Int), VKI_PROT_WRITE);
}

static void begin_child(ThreadId tid, const SyscallArgs* arguments)
{
   if (arguments->arg2 != 0)
      VG_(set_SP)(tid, arguments->arg2);
   if (arguments->arg1 & VKI_CLONE_SETTLS)
      VG_(set_shadow_regs_area)(tid, 0, offsetof(VexGuestAMD64State, guest_FS_CONST), sizeof(Addr),
                                (const UChar*)&arguments->arg5);
   VG_(do_atfork_child)(tid);
}

/* A child with memory of its own, as Valgrind makes them (do_fork_clone), with the flags that it refuses. */
static SysRes fork_with_refused_flags(ThreadId tid, const SyscallArgs* arguments)
{
   UWord flags = arguments->arg1 & ~(UWord)(OF_VFORK | VKI_CLONE_FILES | VKI_CLONE_SETTLS);
   vki_sigset_t all, before;
   Long child;

   if (((arguments->arg1 & WRITE_PARENTS_WORD) && !is_word_for_client(arguments->arg3))
       || ((arguments->arg1 & WRITE_CHILDS_WORD) && !is_word_for_client(arguments->arg4)))
      return VG_(mk_SysRes_Error)(VKI_EFAULT);
   VG_(memset)(&all, 0xff, sizeof all);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &all, &before);
   VG_(do_atfork_pre)(tid);
   child = pl_system_call(__NR_clone, flags, 0, arguments->arg3, arguments->arg4, 0, 0);
   if (child == 0)
      begin_child(tid, arguments);
   else if (child > 0)
      VG_(do_atfork_parent)(tid);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &before, NULL);
   if (child < 0)
      return VG_(mk_SysRes_Error)((UWord)-child);
   if (child > 0 && (arguments->arg1 & WRITE_PARENTS_WORD))
      pl_memory_kernel_access(True, arguments->arg3, sizeof(Int));
   return VG_(mk_SysRes_Success)((UWord)child);
}

static void refuse(SyscallStatus* status, Bool stops_parent)
{
   VG_(umsg)("pagelab: its call for a child that shares its memory (clone with CLONE_VM) failed with EINVAL: "
             "Valgrind cannot make one%s\n",
             stops_parent ? "; LeakSanitizer is turned off by detect_leaks=0 in ASAN_OPTIONS or LSAN_OPTIONS" : "");
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Error)(VKI_EINVAL);
}

/* Valgrind makes threads, and processes that share nothing; at other flags it ends the program. The parent tells the
   encoder of the fork before it waits for its child, so it waits in pl_vfork_wait and not in the kernel. */
void __wrap_vgSysWrap_linux_sys_clone_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                             SyscallStatus* status, UWord* flags)
{
   SyscallArgs asked = *arguments;
   UWord shared = asked.arg1 & (OF_VFORK | OF_THREADS);
   /* LeakSanitizer stops the program from such a child. As a thread it would stop itself, too. */
   Bool stops_parent = (asked.arg1 & VKI_CLONE_UNTRACED) && !(asked.arg1 & VKI_CLONE_THREAD);

   if ((shared != OF_THREADS || stops_parent) && (shared & OF_VFORK) == VKI_CLONE_VM) {
      refuse(status, stops_parent);
      return;
   }
   if (shared == OF_THREADS) {
      __real_vgSysWrap_linux_sys_clone_before(tid, layout, arguments, status, flags);
      return;
   }
   if (shared & VKI_CLONE_FILES)
      VG_(umsg)("pagelab: its child has descriptors of its own, which it was to share (clone with CLONE_FILES)\n");
   if (asked.arg1 & REFUSED) {
      status->what = SsComplete;
      status->sres = fork_with_refused_flags(tid, arguments);
      *flags |= SfYieldAfter;
      return;
   }
   arguments->arg1 &= ~(UWord)(OF_VFORK | OF_THREADS);
   __real_vgSysWrap_linux_sys_clone_before(tid, layout, arguments, status, flags);
   /* Valgrind wants a call that it has made itself to be as the program made it. */
   *arguments = asked;
}
