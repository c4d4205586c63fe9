/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Valgrind gives a program the addresses below 64 GiB, keeps those up to 128 GiB for itself, and refuses all others.
   That suits Memcheck's shadow memory, which this tool does not have. Here the program may use nearly all 128 TiB that
   Linux gives a process, and Valgrind's own memory moves to the top:

      64 MiB           the program, its heap, ld.so (as before)
      1.75 GiB         the tool's code (Valgrind's would be at 1.4 GiB, where SBCL wants its own)
      ...
      MAPPINGS_END     the program's mappings, downwards from here, as natively
      STACK_END        the program's first stack, downwards from here
      VALGRIND_START   Valgrind's own memory, upwards from here
      SPACE_END        above lie the tool's own stack, and vdso

   Sanitizers need the middle for their shadow memory, and the program's mappings at the top: AddressSanitizer maps
   everything from 2 GiB to 16 TiB, ThreadSanitizer all but 0 to 512 GiB, 85 TiB and the upper 1.5 TiB. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"

#include "address_space.h"
#include "core.h"

#define SPACE_END 0x7ff000000000UL
#define VALGRIND_START 0x7fe000000000UL
#define STACK_END VALGRIND_START
/* A stack has at most 16 GiB (image.c). */
#define MAPPINGS_END (STACK_END - (17UL << 30))
/* Where mappings end in Valgrind's own layout. */
#define NARROW_MAPPINGS_END 0x1000000000UL

#define ALL_KINDS (SkAnonC | SkAnonV | SkFileC | SkFileV | SkShmC | SkFree | SkResvn)

static Bool wide = False;
/* As the process started. */
static Addr own_stack = 0;

/* Valgrind reserves what the program may not use. Other segments there, such as the tool's own stack, stay. */
static void free_reservations(Addr start, Addr end)
{
   while (start < end) {
      const NSegment* segment = VG_(am_find_nsegment)(start);
      Addr next;
      if (segment == NULL)
         return;
      next = segment->end < end - 1 ? segment->end + 1 : end;
      if (segment->kind == SkResvn)
         VG_(am_notify_munmap)(start, next - start);
      start = next;
   }
}

static void widen(void)
{
   Addr old_end, old_start;

   /* The variables are out of reach, or this kernel has put the tool's stack into the middle. */
   if (wide || &aspacem_maxAddr == NULL || &aspacem_vStart == NULL || own_stack < SPACE_END)
      return;
   wide = True;
   old_end = aspacem_maxAddr + 1;
   old_start = aspacem_vStart;
   aspacem_maxAddr = SPACE_END - 1;
   aspacem_vStart = VALGRIND_START;
   free_reservations(old_end, SPACE_END);
   /* A page at the start of its own memory, so that a gap begins there, where Valgrind looks first. */
   VG_(am_notify_munmap)(old_start, PAGE_BYTES);
   VG_(am_create_reservation)(VALGRIND_START, PAGE_BYTES, SmFixed, 0);
}

extern Addr __real_vgPlain_am_startup(Addr stack);
extern Addr __wrap_vgPlain_am_startup(Addr stack);
extern SysRes __real_vgPlain_am_mmap_anon_float_valgrind(SizeT length);
extern SysRes __wrap_vgPlain_am_mmap_anon_float_valgrind(SizeT length);

/* Sets up the table of segments. Returns the last byte of the program's stack. */
Addr __wrap_vgPlain_am_startup(Addr stack)
{
   Addr stack_end;

   own_stack = stack;
   stack_end = __real_vgPlain_am_startup(stack);
   widen();
   return wide ? STACK_END - 1 : stack_end;
}

/* Valgrind's own memory. Since 3.27 it allocates some while it sets up, when the table is complete. */
SysRes __wrap_vgPlain_am_mmap_anon_float_valgrind(SizeT length)
{
   widen();
   return __real_vgPlain_am_mmap_anon_float_valgrind(length);
}

Addr pl_mappings_end(void)
{
   return wide ? MAPPINGS_END : NARROW_MAPPINGS_END;
}

/* Valgrind ends a program that has more segments than it can keep. Before that, calls that may make more fail as the
   kernel's do at vm.max_map_count. */
#define MOST_SEGMENTS (PL_SEGMENTS - 1000)

Bool pl_segments_are_left(void)
{
   static Int calls_until_full = 0;
   static Bool warned = False;
   Addr none;
   Int n;

   if (calls_until_full > 0) {
      calls_until_full--;
      return True;
   }
   n = VG_(am_get_segment_starts)(ALL_KINDS, &none, 1);
   n = n < 0 ? -n : n;
   /* A call splits a segment into three at most. */
   calls_until_full = (MOST_SEGMENTS - n) / 2;
   if (calls_until_full > 0)
      return True;
   calls_until_full = 0;
   if (!warned)
      VG_(umsg)("pagelab: it had more than %d mappings, which is more than Valgrind can keep; calls for more failed with "
                "ENOMEM\n", MOST_SEGMENTS);
   warned = True;
   return False;
}
