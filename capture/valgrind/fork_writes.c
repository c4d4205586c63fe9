/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* When a process forks, the kernel writes the child's thread id to a word of the child (CLONE_CHILD_SETTID), and for
   both processes, when they run next, the processor's number to the area that the thread has registered by rseq(2).
   After a fork each of these writes copies a page. Valgrind reports the first one in the parent, and makes rseq fail,
   so that the C library goes on without; the areas are those that it has asked for. */

#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "fork_writes.h"
#include "memory.h"

#define NR_RSEQ 334
/* The flag of rseq that ends a registration, and the bytes that the kernel writes first: the processor's number,
   twice. */
#define RSEQ_UNREGISTER 1
#define RSEQ_FIRST_BYTES 8

static Addr* areas = NULL;
static UInt areas_n = 0;
/* The word of the child that the clone under way makes; 0 without one. */
static Addr childs_word = 0;

static void set_area(ThreadId tid, Addr area)
{
   if (tid >= areas_n) {
      UInt n = 2 * tid + 16;
      areas = VG_(realloc)("pagelab.fork-writes", areas, n * sizeof(Addr));
      VG_(memset)(areas + areas_n, 0, (n - areas_n) * sizeof(Addr));
      areas_n = n;
   }
   areas[tid] = area;
}

void pl_fork_writes_before_call(ThreadId tid, UInt number, const UWord* args)
{
   switch (number) {
   case NR_RSEQ: set_area(tid, args[2] & RSEQ_UNREGISTER ? 0 : args[0]); break;
   case __NR_fork:
   case __NR_vfork: childs_word = 0; break;
   case __NR_clone:
      childs_word = (args[0] & VKI_CLONE_CHILD_SETTID) && !(args[0] & VKI_CLONE_THREAD) ? args[3] : 0;
      break;
   default: break;
   }
}

void pl_fork_writes_thread_ends(ThreadId tid)
{
   if (tid < areas_n)
      areas[tid] = 0;
}

static void write_area(ThreadId tid)
{
   if (tid < areas_n && areas[tid] != 0)
      pl_memory_kernel_access(True, areas[tid], RSEQ_FIRST_BYTES);
}

void pl_fork_writes_in_parent(ThreadId tid)
{
   write_area(tid);
}

void pl_fork_writes_in_child(ThreadId tid)
{
   Addr area = tid < areas_n ? areas[tid] : 0;

   if (areas_n > 0)
      VG_(memset)(areas, 0, areas_n * sizeof(Addr));
   if (area != 0)
      set_area(tid, area);
   if (childs_word != 0)
      pl_memory_kernel_access(True, childs_word, sizeof(Int));
   write_area(tid);
}

Bool pl_fork_writes_is_childs_word(Addr address)
{
   return childs_word != 0 && address == childs_word;
}
