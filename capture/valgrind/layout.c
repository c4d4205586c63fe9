/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Where mappings go that the program leaves to the kernel. Valgrind takes the lowest gap, the kernel the highest. That
   decides how much of a mapping can be large pages: a C library puts a header of 16 bytes before a large array, so the
   mapping is a page longer than the array. Stacked downwards, arrays of whole large pages are aligned; stacked upwards,
   each loses one. The linker is told (--wrap) to call these functions instead of Valgrind's. They ask for the kernel's
   place; Valgrind still refuses what is not free, and then takes its own. Linux 6.18: mm/mmap.c
   (arch_get_unmapped_area_topdown, __get_unmapped_area), mm/huge_memory.c (__thp_get_unmapped_area). */

#include "pub_tool_basics.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"

#include "address_space.h"
#include "core.h"
#include "layout.h"
#include "memory_limits.h"
#include "memory_locks.h"

#define LARGE_PAGE_BYTES (2UL << 20)

#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_32BIT 0x40
#define MAP_HUGETLB 0x40000
#define MAP_FIXED_NOREPLACE 0x100000

#define ALL_KINDS (SkAnonC | SkAnonV | SkFileC | SkFileV | SkShmC | SkResvn)

extern SysRes __real_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord addr, UWord length, UWord protection,
                                                        UWord flags, UWord fd, Off64T offset);
extern SysRes __wrap_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord addr, UWord length, UWord protection,
                                                        UWord flags, UWord fd, Off64T offset);
extern Addr __real_vgPlain_am_get_advisory_client_simple(Addr start, SizeT length, Bool* ok);
extern Addr __wrap_vgPlain_am_get_advisory_client_simple(Addr start, SizeT length, Bool* ok);

/* The last search ended at a gap below the mapping at this address (0: none). Above it no gap is longer than that. */
static Addr below = 0;
static SizeT longest_above = 0;

/* Start of the last `length` bytes of a gap that ends at `end`; 0 if it is too short, which is noted. */
static Addr fit(Addr start, Addr end, SizeT length)
{
   if (end - start >= length) {
      below = end == pl_mappings_end() ? 0 : end;
      return end - length;
   }
   if (end - start > longest_above)
      longest_above = end - start;
   return 0;
}

/* From the top. Segments cover all addresses, so each ends where the next one begins. To ask for each segment by its
   address would be a search for each. */
static Addr highest_of_all_gaps(SizeT length)
{
   static Addr starts[PL_SEGMENTS], used[PL_SEGMENTS];
   Int n = VG_(am_get_segment_starts)(ALL_KINDS | SkFree, starts, PL_SEGMENTS);
   Int used_n = VG_(am_get_segment_starts)(ALL_KINDS, used, PL_SEGMENTS);
   Addr top = pl_mappings_end(), end = top;

   below = longest_above = 0;
   while (--n >= 0) {
      Bool is_free = used_n == 0 || used[used_n - 1] != starts[n];
      Addr place;
      if (!is_free)
         used_n--;
      if (starts[n] >= top)
         continue;
      place = is_free ? fit(starts[n], end, length) : 0;
      if (place != 0)
         return place;
      end = starts[n];
   }
   return 0;
}

/* From where the last search ended, as mappings are mostly stacked. The segments are an array. */
static Addr highest_gap_below(const NSegment* segment, SizeT length)
{
   while (segment->start > 0) {
      const NSegment* next = segment - 1;
      Addr place = next->kind == SkFree ? fit(next->start, segment->start, length) : 0;
      if (place != 0)
         return place;
      segment = next;
   }
   return 0;
}

/* Start of the highest gap's last `length` bytes; 0 if no gap below the end of mappings is long enough. */
static Addr highest_gap(SizeT length)
{
   const NSegment* segment = below != 0 && length > longest_above ? VG_(am_find_nsegment)(below) : NULL;

   return segment != NULL ? highest_gap_below(segment, length) : highest_of_all_gaps(length);
}

void pl_layout_unmapped(Addr start, SizeT length)
{
   const NSegment* above;

   if (below == 0 || start + length <= below)
      return;
   /* What is above the new gap is as it was; unless it is another gap, which has become longer. */
   above = VG_(am_find_nsegment)(start + length);
   below = above == NULL || start + length >= pl_mappings_end() ? 0 : start + length;
}

/* Whether a part of the mapping that is not at its ends is a large page of the file. */
static Bool holds_large_page(SizeT length, ULong offset)
{
   ULong first = (offset + LARGE_PAGE_BYTES - 1) & ~(LARGE_PAGE_BYTES - 1);
   return offset + length >= first + LARGE_PAGE_BYTES;
}

/* As highest_gap, such that address and file offset are alike within a large page. */
static Addr highest_aligned_gap(SizeT length, ULong offset)
{
   Addr start = highest_gap(length + LARGE_PAGE_BYTES);
   Addr up = (offset - start) & (LARGE_PAGE_BYTES - 1);

   if (start == 0)
      return highest_gap(length);
   return start + (up == 0 ? LARGE_PAGE_BYTES : up);
}

SysRes __wrap_vgModuleLocal_generic_PRE_sys_mmap(ThreadId tid, UWord addr, UWord length, UWord protection, UWord flags,
                                                 UWord fd, Off64T offset)
{
   SizeT whole = pl_whole_pages(length);
   Bool placed = addr == 0 && whole > 0 && !(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_HUGETLB));
   SysRes result;

   if (pl_locks_refuse(whole))
      return VG_(mk_SysRes_Error)(VKI_EAGAIN);
   if (!pl_segments_are_left() || !pl_memory_may_map(addr, whole, protection, flags))
      return VG_(mk_SysRes_Error)(VKI_ENOMEM);
   if (placed && whole < pl_mappings_end()) {
      Bool aligned = flags & MAP_ANONYMOUS ? whole % LARGE_PAGE_BYTES == 0 : holds_large_page(whole, (ULong)offset);
      addr = aligned ? highest_aligned_gap(whole, flags & MAP_ANONYMOUS ? 0 : (ULong)offset) : highest_gap(whole);
   }
   result = __real_vgModuleLocal_generic_PRE_sys_mmap(tid, addr, length, protection, pl_locks_kernel_flags(flags), fd,
                                                      offset);
   if (placed && addr == 0 && sr_isError(result)) {
      /* Valgrind would say EINVAL. */
      VG_(umsg)("pagelab: its call for a mapping of %lu GiB failed with ENOMEM: Valgrind leaves a program %lu GiB\n",
                (whole + (1UL << 30) - 1) >> 30, pl_mappings_end() >> 30);
      return VG_(mk_SysRes_Error)(VKI_ENOMEM);
   }
   if (!sr_isError(result))
      pl_locks_made(sr_Res(result), whole);
   return result;
}

/* mremap and shmat; and before the program runs, the loader, which looks for a place for the heap if there is none
   after the program. There it begins at the same place of a large page as after the program. A mapping that moves may
   be one of a file; it is placed as anonymous memory then, too. */
Addr __wrap_vgPlain_am_get_advisory_client_simple(Addr start, SizeT length, Bool* ok)
{
   SizeT whole = pl_whole_pages(length);

   if (start == 0 && VG_(get_running_tid)() == VG_INVALID_THREADID) {
      Addr lowest = __real_vgPlain_am_get_advisory_client_simple(0, length, ok);
      start = lowest + ((VG_(brk_base) - lowest) & (LARGE_PAGE_BYTES - 1));
   } else if (start == 0 && whole > 0 && whole < pl_mappings_end()) {
      start = whole % LARGE_PAGE_BYTES == 0 ? highest_aligned_gap(whole, 0) : highest_gap(whole);
   }
   return __real_vgPlain_am_get_advisory_client_simple(start, length, ok);
}

extern Addr __real_vgPlain_am_get_advisory(const MapRequest* request, Bool for_client, Bool* ok);
extern Addr __wrap_vgPlain_am_get_advisory(const MapRequest* request, Bool for_client, Bool* ok);

/* Before the program runs, this is ld.so's place. The kernel puts it among the mappings, Valgrind in the heap's way. */
Addr __wrap_vgPlain_am_get_advisory(const MapRequest* request, Bool for_client, Bool* ok)
{
   MapRequest high = {MHint, 0, request->len};

   if (for_client && request->rkind == MAny && VG_(get_running_tid)() == VG_INVALID_THREADID)
      high.start = highest_gap(pl_whole_pages(request->len));
   return __real_vgPlain_am_get_advisory(high.start != 0 ? &high : request, for_client, ok);
}
