/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* The kernel locks what the program has mapped and counts it, and so holds to the limit. But mlockall would lock
   Valgrind's own memory, too, and count it. So each of the program's mappings is locked on its own. Linux 6.12:
   mm/mlock.c (do_mlock, apply_mlockall_flags), mm/mmap.c (mlock_future_ok), mm/mprotect.c (mprotect_fixup), mm/gup.c
   (populate_vma_page_range). */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"
#include "pub_tool_xarray.h"

#include "core.h"
#include "memory.h"
#include "memory_limits.h"
#include "memory_locks.h"
#include "ranges.h"
#include "stream.h"

#define RLIMIT_MEMLOCK 8
#define NR_MLOCK2 325
#define MAP_LOCKED 0x2000
#define MAP_POPULATE 0x8000
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#define MCL_CURRENT 1
#define MCL_FUTURE 2
#define MCL_ONFAULT 4
#define MLOCK_ONFAULT 1
#define CAP_IPC_LOCK 14
#define ALL_ADDRESSES (1UL << 47)
#define ERROR_NO_CALL 38

/* Locked mappings that are populated as they grow or become writable, and those that are locked as they fault. */
static Ranges locked, locked_on_fault;
/* What the program maps from now on is locked, as it faults (MCL_ONFAULT) or at once. */
static Bool locks_future = False, locks_future_on_fault = False;

typedef struct {
   Addr start;
   SizeT length;
} Part;

/* Parts of the range of an mprotect that will be populated. */
static XArray* parts = NULL;

/* ---- the limit ---- */

static SizeT limit_of_locked(void)
{
   struct vki_rlimit limit = {0, 0};

   if (pl_may_use(CAP_IPC_LOCK))
      return ~0UL;
   pl_system_call(__NR_prlimit64, 0, RLIMIT_MEMLOCK, 0, (ULong)(Addr)&limit, 0, 0);
   return limit.rlim_cur;
}

/* The file may be long: it has all groups of the process. */
static SizeT locked_bytes(void)
{
   static HChar text[4096];
   const HChar* field = NULL;
   SysRes file = VG_(open)("/proc/self/status", VKI_O_RDONLY, 0);
   Int length, kept = 0;

   if (sr_isError(file))
      return 0;
   while ((length = VG_(read)((Int)sr_Res(file), text + kept, (Int)sizeof text - 1 - kept)) > 0) {
      kept += length;
      text[kept] = '\0';
      field = VG_(strstr)(text, "\nVmLck:\t");
      if (field != NULL && VG_(strstr)(field, " kB") != NULL)
         break;
      if (kept > (Int)sizeof text / 2) {
         VG_(memmove)(text, text + kept - 64, 64);
         kept = 64;
      }
   }
   VG_(close)((Int)sr_Res(file));
   return field == NULL ? 0 : VG_(strtoull10)(field + 8, NULL) << 10;
}

static Bool exceeds_limit(SizeT bytes)
{
   SizeT limit = limit_of_locked();

   return limit != ~0UL && (locked_bytes() + bytes) / PAGE_BYTES > limit / PAGE_BYTES;
}

Bool pl_locks_refuse(SizeT bytes)
{
   return locks_future && exceeds_limit(bytes);
}

/* ---- what is locked, and populated ---- */

SizeT pl_locks_bytes_before(Addr start, SizeT length)
{
   SizeT free = 0, end = length / PAGE_BYTES + 1;

   /* The first `free` pages are not locked, the first `end` are not all free. */
   while (end - free > 1) {
      SizeT middle = free + (end - free) / 2;
      if (pl_ranges_touch(&locked, start, middle * PAGE_BYTES)
          || pl_ranges_touch(&locked_on_fault, start, middle * PAGE_BYTES))
         end = middle;
      else
         free = middle;
   }
   return free * PAGE_BYTES;
}

static void note(Addr start, SizeT length, Bool is_locked, Bool on_fault)
{
   pl_ranges_remove(&locked, start, length);
   pl_ranges_remove(&locked_on_fault, start, length);
   if (is_locked)
      pl_ranges_add(on_fault ? &locked_on_fault : &locked, start, length);
}

/* Linux before 4.4 has no mlock2. */
static void lock_in_kernel(Addr start, SizeT length, Bool on_fault)
{
   if (on_fault)
      pl_system_call(NR_MLOCK2, start, length, MLOCK_ONFAULT, 0, 0, 0);
   else
      pl_system_call(__NR_mlock, start, length, 0, 0, 0, 0);
}

static void populate(const NSegment* segment, Addr start, SizeT length)
{
   Bool writes = segment->hasW && !pl_memory_is_shared(start, length);

   pl_memory_advised(start, length, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* Private writable memory is populated by writes, and other memory by reads. */
static Bool populate_part(const NSegment* segment, Addr start, SizeT length, UInt goes_on)
{
   if (!segment->hasR && !segment->hasW && !segment->hasX)
      return goes_on;
   populate(segment, start, length);
   return True;
}

static Bool is_mapped(const NSegment* segment, Addr start, SizeT length, UInt unused)
{
   (void)segment;
   (void)start;
   (void)length;
   (void)unused;
   return True;
}

static Bool is_accessible(const NSegment* segment, Addr start, SizeT length, UInt unused)
{
   (void)start;
   (void)length;
   (void)unused;
   return segment->hasR || segment->hasW || segment->hasX;
}

static Bool lock_part(const NSegment* segment, Addr start, SizeT length, UInt on_fault)
{
   (void)segment;
   lock_in_kernel(start, length, on_fault);
   note(start, length, True, on_fault);
   return True;
}

UWord pl_locks_kernel_flags(UWord flags)
{
   return locks_future_on_fault ? flags & ~(UWord)MAP_POPULATE : flags;
}

void pl_locks_made(Addr start, SizeT length)
{
   if (locks_future)
      lock_in_kernel(start, length, locks_future_on_fault);
}

Bool pl_locks_populates(UInt flags)
{
   return !locks_future_on_fault && (locks_future || (flags & (MAP_LOCKED | MAP_POPULATE)));
}

UInt pl_locks_mapped(Addr start, SizeT length, UInt protection, UInt flags, Bool alone)
{
   note(start, length, locks_future || (flags & MAP_LOCKED), locks_future_on_fault);
   if (alone || locks_future_on_fault)
      return flags & ~(UInt)(MAP_LOCKED | MAP_POPULATE);
   return locks_future && protection != 0 ? flags | MAP_LOCKED : flags;
}

void pl_locks_unmapped(Addr start, SizeT length)
{
   note(start, length, False, False);
}

void pl_locks_moved(Addr old_start, SizeT old_length, Addr start, SizeT length)
{
   Bool was_locked = pl_ranges_touch(&locked, old_start, old_length);

   pl_ranges_move(&locked, old_start, old_length, start, length);
   pl_ranges_move(&locked_on_fault, old_start, old_length, start, length);
   if (was_locked && length > old_length)
      pl_memory_for_parts(start + old_length, length - old_length, False, populate_part, True);
}

void pl_locks_heap_grew(Addr start, Addr end)
{
   if (!locks_future)
      return;
   lock_part(NULL, start & ~(PAGE_BYTES - 1), end - (start & ~(PAGE_BYTES - 1)), locks_future_on_fault);
   if (!locks_future_on_fault)
      pl_memory_advised(start, end - start, MADV_POPULATE_WRITE);
}

Bool pl_locks_refuse_growth(Addr start, SizeT bytes)
{
   return (pl_ranges_touch(&locked, start, 1) || pl_ranges_touch(&locked_on_fault, start, 1)) && exceeds_limit(bytes);
}

/* ---- mprotect ---- */

static Bool note_part(const NSegment* segment, Addr start, SizeT length, UInt unused)
{
   Part part = {start, length};

   (void)unused;
   if (!segment->hasW && pl_ranges_touch(&locked, start, length) && !pl_memory_is_shared(start, length))
      VG_(addToXA)(parts, &part);
   return True;
}

void pl_locks_before_protect(Addr start, SizeT length, UWord protection)
{
   if (parts == NULL)
      parts = VG_(newXA)(VG_(malloc), "pagelab.locks", VG_(free), sizeof(Part));
   VG_(dropTailXA)(parts, VG_(sizeXA)(parts));
   if ((protection & VKI_PROT_WRITE) && pl_ranges_touch(&locked, start, length))
      pl_memory_for_parts(start, length, True, note_part, 0);
}

void pl_locks_protected(Addr start, SizeT length)
{
   Word i, n = parts == NULL ? 0 : VG_(sizeXA)(parts);

   for (i = 0; i < n; i++) {
      const Part* part = VG_(indexXA)(parts, i);
      if (start <= part->start && part->start + part->length <= start + length)
         pl_memory_advised(part->start, part->length, MADV_POPULATE_WRITE);
   }
}

/* ---- calls ---- */

static void after_mlock(Addr start, SizeT length, Bool on_fault)
{
   note(start, length, True, on_fault);
   if (!on_fault)
      pl_memory_for_parts(start, length, True, populate_part, False);
}

static Addr page_start(Addr address)
{
   return address & ~(PAGE_BYTES - 1);
}

/* The whole pages that the bytes touch. */
static SizeT whole_pages(Addr address, SizeT length)
{
   return page_start(address + length + PAGE_BYTES - 1) - page_start(address);
}

static void after_mlockall(UWord flags)
{
   if (!(flags & MCL_CURRENT) || (flags & MCL_ONFAULT))
      return;
   pl_memory_for_parts(0, ALL_ADDRESSES, False, populate_part, True);
   if (pl_memory_stack_start() != 0)
      pl_memory_advised(pl_memory_stack_start(), PL_EXEC_STACK_BYTES, MADV_POPULATE_WRITE);
}

void pl_locks_after_call(UInt number, const UWord* args)
{
   switch (number) {
   case __NR_mlock: after_mlock(page_start(args[0]), whole_pages(args[0], args[1]), False); break;
   case NR_MLOCK2:
      after_mlock(page_start(args[0]), whole_pages(args[0], args[1]), (args[2] & MLOCK_ONFAULT) != 0);
      break;
   case __NR_munlock: note(page_start(args[0]), whole_pages(args[0], args[1]), False, False); break;
   case __NR_mlockall: after_mlockall(args[0]); break;
   case __NR_munlockall:
      locks_future = locks_future_on_fault = False;
      note(0, ALL_ADDRESSES, False, False);
      break;
   default: break;
   }
}

/* At its limit mlock does nothing. Over a hole it locks what comes before, and populates nothing. Else it locks all and
   populates, up to memory that must not be accessed. */
void pl_locks_failed(UInt number, const UWord* args)
{
   Addr start = page_start(args[0]);
   SizeT length = whole_pages(args[0], args[1]);

   if (!pl_memory_for_parts(start, length, True, is_mapped, 0)
       || pl_memory_for_parts(start, length, True, is_accessible, 0))
      return;
   after_mlock(start, length, number == NR_MLOCK2 && (args[2] & MLOCK_ONFAULT));
}

extern Before __real_vgSysWrap_generic_sys_mlockall_before, __wrap_vgSysWrap_generic_sys_mlockall_before;

void __wrap_vgSysWrap_generic_sys_mlockall_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                  SyscallStatus* status, UWord* flags)
{
   UWord asked = arguments->arg1, error = 0;
   SizeT limit = limit_of_locked();

   (void)tid;
   (void)layout;
   (void)flags;
   if (asked == 0 || asked == MCL_ONFAULT || (asked & ~(UWord)(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)))
      error = VKI_EINVAL;
   else if ((asked & MCL_ONFAULT) && pl_system_call(NR_MLOCK2, 0, 0, MLOCK_ONFAULT, 0, 0, 0) == -ERROR_NO_CALL)
      error = VKI_EINVAL; /* the flag and the call came together */
   else if (limit == 0)
      error = VKI_EPERM;
   else if ((asked & MCL_CURRENT) && pl_memory_usage().all / PAGE_BYTES > limit / PAGE_BYTES)
      error = VKI_ENOMEM;
   status->what = SsComplete;
   status->sres = error != 0 ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0);
   if (error != 0)
      return;
   locks_future = (asked & MCL_FUTURE) != 0;
   locks_future_on_fault = locks_future && (asked & MCL_ONFAULT);
   if (asked & MCL_CURRENT)
      pl_memory_for_parts(0, ALL_ADDRESSES, False, lock_part, (asked & MCL_ONFAULT) != 0);
}

void pl_locks_forked(void)
{
   locks_future = locks_future_on_fault = False;
   note(0, ALL_ADDRESSES, False, False);
}
