/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* System calls that Valgrind's core lacks, or refuses. The linker is told (--wrap) to call the functions below instead
   of the core's. What still cannot be done is said in the log, and so in the trace. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "address_space.h"
#include "core.h"
#include "debugging.h"
#include "memory.h"
#include "memory_limits.h"
#include "memory_locks.h"
#include "mmap_flags.h"
#include "newer_calls.h"
#include "own_thread.h"
#include "process.h"
#include "seccomp.h"
#include "stream.h"
#include "text_busy.h"

#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define CACHESTAT_BYTES 40
#define NR_CLONE3 435
#define CLONE_ARGS_BYTES 64

static void fail(SyscallStatus* status, UWord error)
{
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Error)(error);
}

static void succeed(SyscallStatus* status, UWord value)
{
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Success)(value);
}

/* ---- calls that the kernel makes as they are ---- */

static Before may_block;
static void may_block(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                      UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)arguments;
   (void)status;
   *flags |= SfMayBlock;
}

extern After vgSysWrap_linux_sys_io_getevents_after;

static After after_cachestat;
static void after_cachestat(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   if (sr_isError(status->sres))
      return;
   pl_process_run_as(tid);
   pl_memory_kernel_access(True, arguments->arg3, CACHESTAT_BYTES);
}

/* ---- sandboxes of files ---- */

#define NR_LANDLOCK_RESTRICT_SELF 446
/* All threads are to have the sandbox: LANDLOCK_RESTRICT_SELF_TSYNC. */
#define OF_ALL_THREADS 8

/* Sets the sandbox up for a thread that ends then. */
static Long try_sandbox(const void* given)
{
   const SyscallArgs* arguments = given;
   ULong flags = arguments->arg2 & ~(UWord)OF_ALL_THREADS;

   return pl_system_call(NR_LANDLOCK_RESTRICT_SELF, arguments->arg1, flags, 0, 0, 0, 0);
}

static Before before_landlock_restrict_self;
static void before_landlock_restrict_self(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                          SyscallStatus* status, UWord* flags)
{
   Long result;

   (void)tid;
   (void)layout;
   (void)flags;
   if (pl_ask_in_thread(try_sandbox, arguments, &result) && result < 0) {
      fail(status, (UWord)-result);
      return;
   }
   VG_(umsg)("pagelab: it asked for a sandbox of files (landlock), which was not set up: Valgrind's own files lie "
             "outside\n");
   succeed(status, 0);
}

/* ---- calls that block ---- */

extern Before __real_vgSysWrap_linux_sys_io_uring_enter_before, __wrap_vgSysWrap_linux_sys_io_uring_enter_before;

/* Valgrind lets no other thread run meanwhile, though one of them may have to write what this one waits for. */
void __wrap_vgSysWrap_linux_sys_io_uring_enter_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                      SyscallStatus* status, UWord* flags)
{
   __real_vgSysWrap_linux_sys_io_uring_enter_before(tid, layout, arguments, status, flags);
   *flags |= SfMayBlock;
}

/* ---- calls whose arguments Valgrind reads before it looks whether they are readable ---- */

#define PERF_ATTRIBUTES_BYTES 64
#define BPF_ATTRIBUTES_BYTES 8

extern Before __real_vgSysWrap_linux_sys_perf_event_open_before, __wrap_vgSysWrap_linux_sys_perf_event_open_before;
extern Before __real_vgSysWrap_linux_sys_bpf_before, __wrap_vgSysWrap_linux_sys_bpf_before;
extern Before __real_vgSysWrap_linux_sys_open_by_handle_at_before, __wrap_vgSysWrap_linux_sys_open_by_handle_at_before;

void __wrap_vgSysWrap_linux_sys_perf_event_open_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                       SyscallStatus* status, UWord* flags)
{
   if (VG_(am_is_valid_for_client)(arguments->arg1, PERF_ATTRIBUTES_BYTES, VKI_PROT_READ))
      __real_vgSysWrap_linux_sys_perf_event_open_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_linux_sys_bpf_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                           SyscallStatus* status, UWord* flags)
{
   SizeT length = arguments->arg3 < BPF_ATTRIBUTES_BYTES ? BPF_ATTRIBUTES_BYTES : arguments->arg3;

   if (VG_(am_is_valid_for_client)(arguments->arg2, length, VKI_PROT_READ))
      __real_vgSysWrap_linux_sys_bpf_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_linux_sys_open_by_handle_at_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                         SyscallStatus* status, UWord* flags)
{
   if (VG_(am_is_valid_for_client)(arguments->arg2, 2 * sizeof(Int), VKI_PROT_READ))
      __real_vgSysWrap_linux_sys_open_by_handle_at_before(tid, layout, arguments, status, flags);
}

/* ---- counts that the kernel refuses before it reads anything: Valgrind looks at each element first ---- */

extern Int VG_(fd_soft_limit);
extern Before __real_vgSysWrap_generic_sys_poll_before, __wrap_vgSysWrap_generic_sys_poll_before;
extern Before __real_vgSysWrap_linux_sys_ppoll_before, __wrap_vgSysWrap_linux_sys_ppoll_before;

void __wrap_vgSysWrap_generic_sys_poll_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                              SyscallStatus* status, UWord* flags)
{
   if ((UInt)arguments->arg2 > (UInt)VG_(fd_soft_limit))
      fail(status, VKI_EINVAL);
   else
      __real_vgSysWrap_generic_sys_poll_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_linux_sys_ppoll_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                             SyscallStatus* status, UWord* flags)
{
   if ((UInt)arguments->arg2 > (UInt)VG_(fd_soft_limit))
      fail(status, VKI_EINVAL);
   else
      __real_vgSysWrap_linux_sys_ppoll_before(tid, layout, arguments, status, flags);
}

/* ---- the table ---- */

typedef struct {
   UInt number;
   const HChar* name;
   /* No function: the program gets ENOSYS. */
   SyscallTableEntry entry;
} Added;

static Added added[] = {
   {134, "uselib", {NULL, NULL}},
   {154, "modify_ldt", {NULL, NULL}},
   {171, "setdomainname", {may_block, NULL}},
   {216, "remap_file_pages", {may_block, NULL}},
   {256, "migrate_pages", {NULL, NULL}},
   {317, "seccomp", {pl_seccomp_before, NULL}},
   /* A thread that waits for another one to serve its fault would keep that one from running. */
   {323, "userfaultfd", {NULL, NULL}},
   {325, "mlock2", {may_block, NULL}},
   {333, "io_pgetevents", {pl_io_pgetevents_before, vgSysWrap_linux_sys_io_getevents_after}},
   {424, "pidfd_send_signal", {may_block, NULL}},
   {428, "open_tree", {may_block, NULL}},
   {429, "move_mount", {may_block, NULL}},
   {430, "fsopen", {may_block, NULL}},
   {431, "fsconfig", {may_block, NULL}},
   {432, "fsmount", {may_block, NULL}},
   {433, "fspick", {may_block, NULL}},
   {434, "pidfd_open", {may_block, NULL}},
   {437, "openat2", {pl_openat2_before, NULL}},
   {438, "pidfd_getfd", {may_block, NULL}},
   {440, "process_madvise", {pl_process_madvise_before, pl_process_madvise_after}},
   {441, "epoll_pwait2", {pl_epoll_pwait2_before, pl_epoll_pwait2_after}},
   {442, "mount_setattr", {may_block, NULL}},
   {443, "quotactl_fd", {NULL, NULL}},
   {444, "landlock_create_ruleset", {may_block, NULL}},
   {445, "landlock_add_rule", {may_block, NULL}},
   {446, "landlock_restrict_self", {before_landlock_restrict_self, NULL}},
   {447, "memfd_secret", {may_block, NULL}},
   {448, "process_mrelease", {may_block, NULL}},
   {449, "futex_waitv", {pl_futex_waitv_before, NULL}},
   {450, "set_mempolicy_home_node", {may_block, NULL}},
   {451, "cachestat", {may_block, after_cachestat}},
   {452, "fchmodat2", {may_block, NULL}},
   {453, "map_shadow_stack", {NULL, NULL}},
   {454, "futex_wake", {may_block, NULL}},
   {455, "futex_wait", {pl_futex_wait_before, NULL}},
   {456, "futex_requeue", {pl_futex_requeue_before, NULL}},
   {457, "statmount", {may_block, pl_newer_call_after}},
   {458, "listmount", {may_block, pl_newer_call_after}},
   {460, "lsm_set_self_attr", {may_block, NULL}},
   {462, "mseal", {may_block, NULL}},
   {463, "setxattrat", {may_block, NULL}},
   {464, "getxattrat", {may_block, pl_newer_call_after}},
   {465, "listxattrat", {may_block, pl_newer_call_after}},
   {466, "removexattrat", {may_block, NULL}},
   {467, "open_tree_attr", {may_block, NULL}},
   {468, "file_getattr", {may_block, pl_newer_call_after}},
   {469, "file_setattr", {may_block, NULL}},
};

extern SyscallTableEntry* __real_vgModuleLocal_get_linux_syscall_entry(UInt number);
extern SyscallTableEntry* __wrap_vgModuleLocal_get_linux_syscall_entry(UInt number);

/* Whether the kernel has the call. No call does anything with these arguments. */
static Bool kernel_has(UInt number)
{
   return pl_system_call(number, -1, -1, -1, -1, -1, -1) != -VKI_ENOSYS;
}

/* Tells once of each call that the program got ENOSYS, unless it gets that natively. */
static void tell_of_missing(UInt number, const HChar* name)
{
   static ULong warned[16];

   if (number / 64 < 16) {
      if (warned[number / 64] >> (number % 64) & 1)
         return;
      warned[number / 64] |= 1ULL << (number % 64);
   }
   if (!kernel_has(number))
      return;
   VG_(umsg)("pagelab: its system call %s (%u) failed with ENOSYS, since Valgrind does not have it\n", name, number);
}

/* C libraries try clone3 for threads and posix_spawn, and have a fallback. Other programs may not. */
static Before before_clone3;
static void before_clone3(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                          UWord* flags)
{
   (void)tid;
   (void)layout;
   (void)flags;
   if (arguments->arg2 >= CLONE_ARGS_BYTES
       && VG_(am_is_valid_for_client)(arguments->arg1, CLONE_ARGS_BYTES, VKI_PROT_READ)
       && !(*(const ULong*)arguments->arg1 & VKI_CLONE_VM))
      tell_of_missing(NR_CLONE3, "clone3");
   fail(status, VKI_ENOSYS);
}

static SyscallTableEntry* find(UInt number)
{
   static SyscallTableEntry clone3 = {before_clone3, NULL};

   SyscallTableEntry* entry = __real_vgModuleLocal_get_linux_syscall_entry(number);
   const HChar* name = "of number";
   UInt i;

   if (number == NR_CLONE3)
      return &clone3;
   if (entry != NULL && number == __NR_ptrace)
      return pl_ptrace_entry(entry);
   if (entry != NULL)
      return number == __NR_mmap ? pl_mmap_entry(entry) : entry;
   for (i = 0; i < sizeof added / sizeof added[0]; i++) {
      if (added[i].number != number)
         continue;
      if (added[i].entry.before != NULL)
         return &added[i].entry;
      name = added[i].name;
   }
   tell_of_missing(number, name);
   return NULL;
}

SyscallTableEntry* __wrap_vgModuleLocal_get_linux_syscall_entry(UInt number)
{
   return pl_seccomp_filtered(find(number), number);
}

/* ---- mappings ---- */

extern Before __real_vgSysWrap_generic_sys_mremap_before, __wrap_vgSysWrap_generic_sys_mremap_before;

/* mremap with MREMAP_DONTUNMAP: moves the mapping, and makes a new one in its place. That of private memory is empty.
   Of shared memory, an old length of 0 makes a second mapping. */
static void move_and_keep(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                          UWord* flags)
{
   SyscallArgs asked = *arguments;
   Addr old = arguments->arg1;
   SizeT length = pl_whole_pages(arguments->arg2);
   const NSegment* segment = VG_(am_find_nsegment)(old);
   UInt protection;
   Bool ok = True, shared;
   Long again;

   if (segment == NULL || length == 0 || arguments->arg2 != arguments->arg3 || !(arguments->arg4 & MREMAP_MAYMOVE)) {
      fail(status, VKI_EINVAL);
      return;
   }
   shared = pl_memory_is_shared(old, 1);
   if (!shared && segment->kind != SkAnonC) {
      VG_(umsg)("pagelab: its mremap of a private mapping of a file with MREMAP_DONTUNMAP failed with EINVAL, since "
                "Valgrind does not have it\n");
      fail(status, VKI_EINVAL);
      return;
   }
   protection = (segment->hasR ? VKI_PROT_READ : 0) | (segment->hasW ? VKI_PROT_WRITE : 0)
                | (segment->hasX ? VKI_PROT_EXEC : 0);
   if (!(arguments->arg4 & MREMAP_FIXED))
      arguments->arg5 = VG_(am_get_advisory_client_simple)(0, length, &ok);
   if (!ok) {
      fail(status, VKI_ENOMEM);
      return;
   }
   arguments->arg4 = MREMAP_MAYMOVE | MREMAP_FIXED;
   __real_vgSysWrap_generic_sys_mremap_before(tid, layout, arguments, status, flags);
   /* Valgrind wants a call that it has made itself to be as the program made it. */
   *arguments = asked;
   if (sr_isError(status->sres))
      return;
   if (!shared) {
      if (sr_isError(VG_(am_mmap_anon_fixed_client)(old, length, protection)))
         fail(status, VKI_ENOMEM);
      return;
   }
   again = pl_system_call(__NR_mremap, sr_Res(status->sres), 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, old, 0);
   if (again != (Long)old)
      fail(status, VKI_ENOMEM);
   else
      VG_(am_notify_client_mmap)(old, length, protection, VKI_MAP_SHARED | VKI_MAP_ANONYMOUS, -1, 0);
}

/* mremap of shared memory with a length of 0: a second mapping of it, in addition to the old one. */
static void map_again(const SyscallArgs* arguments, SyscallStatus* status)
{
   Addr old = arguments->arg1, place = arguments->arg4 & MREMAP_FIXED ? arguments->arg5 : 0, free_place;
   SizeT length = pl_whole_pages(arguments->arg3);
   const NSegment* segment = VG_(am_find_nsegment)(old);
   UInt protection;
   Bool ok = False;
   Long result;

   if (segment == NULL || old % PAGE_BYTES != 0 || place % PAGE_BYTES != 0 || length == 0
       || !(arguments->arg4 & MREMAP_MAYMOVE) || !pl_memory_is_shared(old, 1)) {
      fail(status, VKI_EINVAL);
      return;
   }
   free_place = VG_(am_get_advisory_client_simple)(place, length, &ok);
   if (!ok || (place != 0 && free_place != place)) {
      fail(status, VKI_ENOMEM);
      return;
   }
   protection = (segment->hasR ? VKI_PROT_READ : 0) | (segment->hasW ? VKI_PROT_WRITE : 0)
                | (segment->hasX ? VKI_PROT_EXEC : 0);
   result = pl_system_call(__NR_mremap, old, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, free_place, 0);
   if (result < 0 && result > -4096) {
      fail(status, (UWord)-result);
      return;
   }
   VG_(am_notify_client_mmap)((Addr)result, length, protection, VKI_MAP_SHARED | VKI_MAP_ANONYMOUS, -1, 0);
   VG_(discard_translations)((Addr)result, length, "pagelab: mapped again");
   succeed(status, (UWord)result);
}

void __wrap_vgSysWrap_generic_sys_mremap_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                SyscallStatus* status, UWord* flags)
{
   SizeT old_length = pl_whole_pages(arguments->arg2);
   SizeT length = pl_whole_pages(arguments->arg3);

   if (length > old_length && pl_locks_refuse_growth(arguments->arg1, length - old_length))
      fail(status, VKI_EAGAIN);
   else if (!pl_segments_are_left() || !pl_memory_may_remap(arguments))
      fail(status, VKI_ENOMEM);
   else if (arguments->arg4 & MREMAP_DONTUNMAP)
      move_and_keep(tid, layout, arguments, status, flags);
   else if (arguments->arg2 == 0)
      map_again(arguments, status);
   else
      __real_vgSysWrap_generic_sys_mremap_before(tid, layout, arguments, status, flags);
}
