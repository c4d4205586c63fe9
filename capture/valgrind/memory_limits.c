/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* The program's limits of memory: of its address space (RLIMIT_AS), and of private writable memory (RLIMIT_DATA).
   The kernel's would hold for Valgrind's own memory, too. So they are kept away from it, and the program's mappings
   are counted here. A call that would exceed a limit fails as Linux lets it fail. Linux 6.12: mm/mmap.c
   (may_expand_vm), mm/mprotect.c (mprotect_fixup), mm/mremap.c (vma_to_resize).

   The values of RLIMIT_STACK and RLIMIT_DATA are Valgrind's affair. But Valgrind forgets them when the process
   executes another program, and does not let root raise a hard limit. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "limits.h"
#include "memory.h"
#include "memory_limits.h"
#include "memory_locks.h"
#include "stream.h"

#define NO_LIMIT (~0UL)
#define ALL_ADDRESSES (1UL << 47)
#define MAP_TYPE 0x0f
#define MAP_PRIVATE 0x02
#define MAP_FIXED 0x10
#define MAP_GROWSDOWN 0x100
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define IPC_STAT 2
#define SHM_EXEC 0x8000
#define CAPABILITY_VERSION_3 0x20080522
#define CAP_SYS_RESOURCE 24

extern struct vki_rlimit VG_(client_rlimit_data);
extern const UChar VG_(trampoline_stuff_start);
extern struct vki_rlimit VG_(client_rlimit_stack);
extern UWord VG_(clstk_end);

static struct vki_rlimit address_space = {NO_LIMIT, NO_LIMIT};

static const UWord resources[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK};
static struct vki_rlimit* const limits[] = {&address_space, &VG_(client_rlimit_data), &VG_(client_rlimit_stack)};
#define LIMITS_N 3

/* ---- the limits ---- */

/* Hard limits that only root may raise: they hold for Valgrind's own memory, too. */
static Bool is_shared[LIMITS_N];

/* Valgrind's own memory gets as much as may be had. */
static void lift_kernel_limit(UInt i)
{
   const struct vki_rlimit none = {NO_LIMIT, NO_LIMIT}, soft = {limits[i]->rlim_max, limits[i]->rlim_max};

   if (limits[i]->rlim_cur == NO_LIMIT || pl_kernel_limit(resources[i], &none, NULL))
      return;
   pl_kernel_limit(resources[i], &soft, NULL);
   is_shared[i] = limits[i]->rlim_max != NO_LIMIT;
}

/* Code and data that the kernel maps into each process, of which Valgrind unmaps the code before the program begins. */
static SizeT vdso_bytes = 0;

static void find_vdso(void)
{
   static HChar text[65536];
   HChar* line = text;
   SysRes file;
   Int n, length = 0;

   file = VG_(open)("/proc/self/maps", VKI_O_RDONLY, 0);
   if (sr_isError(file))
      return;
   /* These mappings are the last ones. */
   while ((n = VG_(read)((Int)sr_Res(file), text + length, (Int)sizeof text - 1 - length)) > 0) {
      length += n;
      if (length > (Int)sizeof text / 2) {
         VG_(memmove)(text, text + length - sizeof text / 4, sizeof text / 4);
         length = sizeof text / 4;
      }
   }
   VG_(close)((Int)sr_Res(file));
   text[length] = '\0';
   while (line != NULL && *line != '\0') {
      HChar *end = VG_(strchr)(line, '\n'), *rest;
      if (end != NULL)
         *end++ = '\0';
      if (VG_(strstr)(line, "[vdso]") != NULL || VG_(strstr)(line, "[vvar") != NULL) {
         Addr start = VG_(strtoull16)(line, &rest);
         vdso_bytes += VG_(strtoull16)(rest + 1, NULL) - start;
      }
      line = end;
   }
}

void pl_memory_limits_begin(const HChar* text)
{
   UInt i;

   find_vdso();
   for (i = 0; i < LIMITS_N; i++) {
      HChar* end;
      if (text == NULL) {
         if (pl_kernel_limit(resources[i], NULL, limits[i]) && resources[i] != RLIMIT_STACK)
            lift_kernel_limit(i);
         continue;
      }
      limits[i]->rlim_cur = VG_(strtoull10)(text, &end);
      limits[i]->rlim_max = VG_(strtoull10)(end + 1, &end);
      text = *end == '\0' ? end : end + 1;
   }
}

void pl_memory_limits_tell_user(void)
{
   UInt i;

   for (i = 0; i < LIMITS_N; i++) {
      if (is_shared[i])
         VG_(umsg)("pagelab note: the limit of %s holds for Valgrind's own memory, too, as its hard limit is %lu MiB\n",
                   resources[i] == RLIMIT_AS ? "address space (ulimit -v)" : "data (ulimit -d)",
                   limits[i]->rlim_max >> 20);
   }
}

const HChar* pl_memory_limits_text(void)
{
   static HChar text[LIMITS_N * 42];
   UInt i, length = 0;

   for (i = 0; i < LIMITS_N; i++)
      length += VG_(sprintf)(text + length, "%s%lu:%lu", i == 0 ? "" : ",", limits[i]->rlim_cur, limits[i]->rlim_max);
   return text;
}

void pl_memory_limits_tell_kernel(void)
{
   UInt i;

   for (i = 0; i < LIMITS_N; i++)
      pl_kernel_limit(resources[i], limits[i], NULL);
}

/* The kernel asks for the capability in the first user namespace (capable()). In another one each process has all. */
static Bool is_in_first_user_namespace(void)
{
   static const HChar first[] = "user:[4026531837]"; /* PROC_USER_INIT_INO */
   HChar name[64];
   SSizeT length = VG_(readlink)("/proc/self/ns/user", name, sizeof name);

   return length < 0 || ((SizeT)length == sizeof first - 1 && VG_(strncmp)(name, first, sizeof first - 1) == 0);
}

Bool pl_may_use(UInt capability)
{
   struct {
      UInt version;
      Int pid;
   } header = {CAPABILITY_VERSION_3, 0};
   UInt sets[6] = {0};

   return pl_system_call(__NR_capget, (ULong)(Addr)&header, (ULong)(Addr)sets, 0, 0, 0, 0) == 0
          && (sets[0] >> capability & 1) && is_in_first_user_namespace();
}

Bool pl_memory_limits_call(UWord resource, const struct vki_rlimit* asked, struct vki_rlimit* old,
                           SyscallStatus* status)
{
   struct vki_rlimit before = address_space;

   if (asked != NULL && asked->rlim_cur <= asked->rlim_max) {
      UInt i;
      for (i = 0; i < LIMITS_N; i++) {
         if (resources[i] == resource && asked->rlim_max > limits[i]->rlim_max && pl_may_use(CAP_SYS_RESOURCE))
            limits[i]->rlim_max = asked->rlim_max;
      }
   }
   if (resource != RLIMIT_AS)
      return False;
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Success)(0);
   if (asked != NULL && asked->rlim_cur > asked->rlim_max)
      status->sres = VG_(mk_SysRes_Error)(VKI_EINVAL);
   else if (asked != NULL && asked->rlim_max > address_space.rlim_max)
      status->sres = VG_(mk_SysRes_Error)(VKI_EPERM);
   else if (asked != NULL)
      address_space = *asked;
   if (old != NULL && !sr_isError(status->sres))
      *old = before;
   return True;
}

const struct vki_rlimit* pl_memory_limit_of_address_space(void)
{
   return &address_space;
}

/* ---- what the program has ---- */

/* The program's part of the range. Of the heap Valgrind maps a page more than there is, and keeps what brk gives back;
   of the stack it has less than execve maps. */
static PlUsage usage_in(Addr start, Addr end)
{
   PlUsage usage = {0, 0, 0};
   Addr heap_end = pl_whole_pages(VG_(brk_limit));
   Addr stack_start = pl_memory_stack_start(), first_stack_page = stack_start + PL_EXEC_STACK_BYTES;
   const NSegment* segment = pl_memory_first_segment();

   for (; segment != NULL && segment->start < end; segment = pl_memory_next_segment(segment)) {
      Addr from = segment->start, to = segment->end + 1;
      Bool is_stack = stack_start != 0 && from <= first_stack_page && first_stack_page < to;
      /* Code of the tool that runs as the program's. */
      Bool is_tools = from <= (Addr)&VG_(trampoline_stuff_start) && (Addr)&VG_(trampoline_stuff_start) < to;
      if (!pl_memory_is_programs(segment) || is_tools)
         continue;
      if (is_stack && from > stack_start)
         from = stack_start;
      if (from <= VG_(brk_base) && VG_(brk_base) < to && heap_end < to)
         to = heap_end;
      from = from > start ? from : start;
      to = to < end ? to : end;
      if (from >= to)
         continue;
      usage.all += to - from;
      usage.stack += is_stack ? to - from : 0;
      if (segment->hasW && !is_stack)
         usage.data += to - from - pl_memory_shared_bytes(from, to - from);
   }
   return usage;
}

PlUsage pl_memory_usage(void)
{
   PlUsage usage = usage_in(0, ALL_ADDRESSES);

   usage.all += vdso_bytes;
   return usage;
}

/* ---- whether it may have more ---- */

static Bool is_unlimited(void)
{
   return address_space.rlim_cur == NO_LIMIT && VG_(client_rlimit_data).rlim_cur == NO_LIMIT;
}

static Bool data_may_grow(const PlUsage* usage, SizeT bytes)
{
   SizeT pages = (usage->data + bytes) / PAGE_BYTES;

   if (pages <= VG_(client_rlimit_data).rlim_cur / PAGE_BYTES)
      return True;
   /* Linux makes an exception for older versions of Valgrind. */
   return VG_(client_rlimit_data).rlim_cur == 0 && pages <= VG_(client_rlimit_data).rlim_max / PAGE_BYTES;
}

Bool pl_memory_may_grow(SizeT bytes, Bool is_data)
{
   PlUsage usage;

   if (is_unlimited())
      return True;
   usage = pl_memory_usage();
   return (usage.all + bytes) / PAGE_BYTES <= address_space.rlim_cur / PAGE_BYTES
          && (!is_data || data_may_grow(&usage, bytes));
}

Bool pl_memory_may_map(Addr address, SizeT length, UWord protection, UWord flags)
{
   Bool is_data = (protection & VKI_PROT_WRITE) && (flags & MAP_TYPE) == MAP_PRIVATE && !(flags & MAP_GROWSDOWN);
   SizeT replaced = 0;

   if (is_unlimited() || length == 0)
      return True;
   if (flags & MAP_FIXED)
      replaced = usage_in(address, address + length).all;
   return pl_memory_may_grow(length - replaced, is_data);
}

/* Private memory that becomes writable counts as data from then on. */
Bool pl_memory_may_protect(Addr address, SizeT length, UWord protection)
{
   PlUsage part, usage;

   if (is_unlimited() || !(protection & VKI_PROT_WRITE) || length == 0)
      return True;
   part = usage_in(address, address + length);
   usage = pl_memory_usage();
   /* Linux asks whether the pages could be mapped as they are, too, and where they could not, it lets them be. */
   if ((usage.all + part.all) / PAGE_BYTES > address_space.rlim_cur / PAGE_BYTES)
      return True;
   return data_may_grow(&usage, part.all - pl_memory_shared_bytes(address, length) - part.data);
}

Bool pl_memory_may_remap(const SyscallArgs* arguments)
{
   SizeT old_length = pl_whole_pages(arguments->arg2), length = pl_whole_pages(arguments->arg3), replaced = 0, more;
   const NSegment* segment = VG_(am_find_nsegment)(arguments->arg1);

   if (is_unlimited() || segment == NULL || !pl_memory_is_programs(segment))
      return True;
   more = arguments->arg4 & MREMAP_DONTUNMAP ? length : length > old_length ? length - old_length : 0;
   if (arguments->arg4 & MREMAP_FIXED)
      replaced = usage_in(arguments->arg5, arguments->arg5 + length).all;
   return more <= replaced
          || pl_memory_may_grow(more - replaced, segment->hasW && !pl_memory_is_shared(arguments->arg1, 1));
}

Bool pl_memory_heap_may_end(Addr end)
{
   SizeT now = pl_whole_pages(VG_(brk_limit)), then = pl_whole_pages(end);

   if (end <= VG_(brk_limit))
      return True;
   return end - VG_(brk_base) <= VG_(client_rlimit_data).rlim_cur
          && (then <= now || (pl_memory_may_grow(then - now, True) && !pl_locks_refuse(then - now)));
}

/* ---- what has no call of its own ---- */

extern const NSegment* __real_vgPlain_am_extend_into_adjacent_reservation_client(Addr start, SSizeT delta, Bool* full);
extern const NSegment* __wrap_vgPlain_am_extend_into_adjacent_reservation_client(Addr start, SSizeT delta, Bool* full);

/* Whether the first stack would exceed its limit, as it is now. */
static Bool stack_exceeds(Addr start, Addr then)
{
   const NSegment* segment = VG_(am_find_nsegment)(start);

   return segment != NULL && segment->start <= VG_(clstk_end) && VG_(clstk_end) <= segment->end
          && VG_(clstk_end) + 1 - then > VG_(client_rlimit_stack).rlim_cur;
}

/* Heap and stack grow so; the heap has been asked about. A stack that must not grow is a SIGSEGV. */
const NSegment* __wrap_vgPlain_am_extend_into_adjacent_reservation_client(Addr start, SSizeT delta, Bool* full)
{
   Addr stack_start = pl_memory_stack_start(), now = stack_start != 0 && stack_start < start ? stack_start : start;
   Addr then = start + (Addr)delta;

   if (delta < 0 && then < now && (stack_exceeds(start, then) || !pl_memory_may_grow(now - then, False))) {
      *full = False;
      return NULL;
   }
   return __real_vgPlain_am_extend_into_adjacent_reservation_client(start, delta, full);
}

extern Before __real_vgSysWrap_linux_sys_shmat_before, __wrap_vgSysWrap_linux_sys_shmat_before;

void __wrap_vgSysWrap_linux_sys_shmat_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                             SyscallStatus* status, UWord* flags)
{
   struct {
      UChar permissions[48];
      SizeT bytes;
      UChar rest[256];
   } facts;

   UWord error = 0;

   facts.bytes = 0;
   if (pl_system_call(__NR_shmctl, arguments->arg1, IPC_STAT, (ULong)(Addr)&facts, 0, 0, 0) == 0) {
      if (pl_locks_refuse(pl_whole_pages(facts.bytes)))
         error = VKI_EAGAIN;
      else if (!is_unlimited() && !pl_memory_may_grow(pl_whole_pages(facts.bytes), False))
         error = VKI_ENOMEM;
   }
   if (error != 0) {
      status->what = SsComplete;
      status->sres = VG_(mk_SysRes_Error)(error);
      return;
   }
   __real_vgSysWrap_linux_sys_shmat_before(tid, layout, arguments, status, flags);
}

extern After __real_vgSysWrap_linux_sys_shmat_after, __wrap_vgSysWrap_linux_sys_shmat_after;

/* Valgrind does not know that the segment may hold code (SHM_EXEC). */
void __wrap_vgSysWrap_linux_sys_shmat_after(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   const NSegment* segment;

   __real_vgSysWrap_linux_sys_shmat_after(tid, arguments, status);
   if (sr_isError(status->sres) || !(arguments->arg3 & SHM_EXEC))
      return;
   segment = VG_(am_find_nsegment)(sr_Res(status->sres));
   if (segment != NULL)
      VG_(am_notify_mprotect)(segment->start, segment->end + 1 - segment->start,
                              VKI_PROT_READ | VKI_PROT_EXEC | (segment->hasW ? VKI_PROT_WRITE : 0));
}
