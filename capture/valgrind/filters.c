/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Filters of system calls, in the kernel's classic BPF. The kernel would apply them to the tool's own system calls too,
   and end it. So they are not given to the kernel: the tool runs them itself for each call of the program. Linux 6.18:
   kernel/seccomp.c (seccomp_check_filter, seccomp_run_filters), net/core/filter.c (bpf_check_classic). */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "filters.h"
#include "stream.h"

#define MOST_INSTRUCTIONS 4096
#define SCRATCH_WORDS 16

typedef struct {
   UShort code;
   UChar if_true, if_false;
   UInt k;
} Instruction;

/* struct sock_fprog */
typedef struct {
   UShort count;
   const Instruction* instructions;
} Description;

typedef struct Filter {
   /* The filter that was installed before. */
   struct Filter* older;
   UInt count;
   Instruction instructions[];
} Filter;

static Filter** newest_of_thread = NULL;
static UInt threads_n = 0;

static Filter** newest(ThreadId tid)
{
   if (tid >= threads_n) {
      UInt n = tid + 16;
      newest_of_thread = VG_(realloc)("pagelab.filters", newest_of_thread, n * sizeof(Filter*));
      VG_(memset)(newest_of_thread + threads_n, 0, (n - threads_n) * sizeof(Filter*));
      threads_n = n;
   }
   return &newest_of_thread[tid];
}

Bool pl_filters_are_on(ThreadId tid)
{
   return tid < threads_n && newest_of_thread[tid] != NULL;
}

void pl_filters_thread_made(ThreadId tid, ThreadId child)
{
   Filter* filter = pl_filters_are_on(tid) ? *newest(tid) : NULL;

   /* The image's first thread, which has the filters of the image before. */
   if (tid == VG_INVALID_THREADID)
      return;
   if (filter != NULL || pl_filters_are_on(child))
      *newest(child) = filter;
}

/* ---- instructions ---- */

enum {
   LOAD_WORD = 0x20,      /* of the call */
   LOAD_LENGTH = 0x80,
   LOAD_CONSTANT = 0x00,
   LOAD_SCRATCH = 0x60,
   LOAD_X_LENGTH = 0x81,
   LOAD_X_CONSTANT = 0x01,
   LOAD_X_SCRATCH = 0x61,
   STORE = 0x02,
   STORE_X = 0x03,
   TO_X = 0x07,
   FROM_X = 0x87,
   RETURN_CONSTANT = 0x06,
   RETURN_A = 0x16,
   JUMP = 0x05,
   ALU_CLASS = 0x04,
   JUMP_CLASS = 0x05,
   CLASS = 0x07,
   OPERATION = 0xf0,
   OPERAND_IS_X = 0x08
};

enum { ADD = 0x00, SUB = 0x10, MUL = 0x20, DIV = 0x30, OR = 0x40, AND = 0x50, SHIFT_LEFT = 0x60, SHIFT_RIGHT = 0x70,
       NEGATE = 0x80, XOR = 0xa0 };
enum { IF_EQUAL = 0x10, IF_GREATER = 0x20, IF_GREATER_OR_EQUAL = 0x30, IF_BITS = 0x40 };

static Bool is_valid_arithmetic(const Instruction* at)
{
   Bool constant = !(at->code & OPERAND_IS_X);

   switch (at->code & OPERATION) {
   case ADD: case SUB: case MUL: case OR: case AND: case XOR: return True;
   case DIV: return !(constant && at->k == 0);
   case SHIFT_LEFT: case SHIFT_RIGHT: return !(constant && at->k >= 32);
   case NEGATE: return constant;
   default: return False;
   }
}

static Bool is_valid(const Instruction* at, UInt left)
{
   switch (at->code) {
   case LOAD_WORD: return at->k % 4 == 0 && at->k < sizeof(PL_Call);
   case LOAD_SCRATCH: case LOAD_X_SCRATCH: case STORE: case STORE_X: return at->k < SCRATCH_WORDS;
   case JUMP: return at->k < left;
   case LOAD_LENGTH: case LOAD_CONSTANT: case LOAD_X_LENGTH: case LOAD_X_CONSTANT: case TO_X: case FROM_X:
   case RETURN_CONSTANT: case RETURN_A: return True;
   default: break;
   }
   if (at->code > 0xff)
      return False;
   if ((at->code & CLASS) == ALU_CLASS)
      return is_valid_arithmetic(at);
   return (at->code & CLASS) == JUMP_CLASS && (at->code & OPERATION) >= IF_EQUAL && (at->code & OPERATION) <= IF_BITS
          && at->if_true < left && at->if_false < left;
}

static Bool is_valid_program(const Instruction* instructions, UInt count)
{
   UInt i;

   for (i = 0; i < count; i++) {
      if (!is_valid(&instructions[i], count - i - 1))
         return False;
   }
   return instructions[count - 1].code == RETURN_CONSTANT || instructions[count - 1].code == RETURN_A;
}

static Bool arithmetic(UInt operation, UInt* a, UInt b)
{
   switch (operation) {
   case ADD: *a += b; break;
   case SUB: *a -= b; break;
   case MUL: *a *= b; break;
   case DIV:
      if (b == 0)
         return False;
      *a /= b;
      break;
   case OR: *a |= b; break;
   case AND: *a &= b; break;
   case SHIFT_LEFT: *a <<= b & 31; break;
   case SHIFT_RIGHT: *a >>= b & 31; break;
   case NEGATE: *a = -*a; break;
   default: *a ^= b; break;
   }
   return True;
}

static Bool condition(UInt operation, UInt a, UInt b)
{
   switch (operation) {
   case IF_EQUAL: return a == b;
   case IF_GREATER: return a > b;
   case IF_GREATER_OR_EQUAL: return a >= b;
   default: return (a & b) != 0;
   }
}

static UInt run(const Filter* filter, const PL_Call* call)
{
   UInt scratch[SCRATCH_WORDS] = {0}, a = 0, x = 0, i;

   for (i = 0; i < filter->count; i++) {
      const Instruction* at = &filter->instructions[i];
      UInt operand = at->code & OPERAND_IS_X ? x : at->k;
      switch (at->code) {
      case LOAD_WORD: a = ((const UInt*)call)[at->k / 4]; break;
      case LOAD_LENGTH: a = sizeof *call; break;
      case LOAD_CONSTANT: a = at->k; break;
      case LOAD_SCRATCH: a = scratch[at->k]; break;
      case LOAD_X_LENGTH: x = sizeof *call; break;
      case LOAD_X_CONSTANT: x = at->k; break;
      case LOAD_X_SCRATCH: x = scratch[at->k]; break;
      case STORE: scratch[at->k] = a; break;
      case STORE_X: scratch[at->k] = x; break;
      case TO_X: x = a; break;
      case FROM_X: a = x; break;
      case RETURN_CONSTANT: return at->k;
      case RETURN_A: return a;
      case JUMP: i += at->k; break;
      default:
         if ((at->code & CLASS) == JUMP_CLASS)
            i += condition(at->code & OPERATION, a, operand) ? at->if_true : at->if_false;
         else if (!arithmetic(at->code & OPERATION, &a, operand))
            return PL_FILTER_KILL_THREAD;
      }
   }
   return PL_FILTER_KILL_THREAD;
}

/* All filters run; of their actions the lowest one as a signed number holds, of equal ones that of the newest. */
UInt pl_filters_verdict(ThreadId tid, const PL_Call* call)
{
   UInt verdict = PL_FILTER_ALLOW;
   const Filter* filter;

   for (filter = *newest(tid); filter != NULL; filter = filter->older) {
      UInt other = run(filter, call);
      if ((Int)(other & PL_FILTER_ACTION) < (Int)(verdict & PL_FILTER_ACTION))
         verdict = other;
   }
   return verdict;
}

/* ---- installing ---- */

static Filter* add(Filter* older, const Instruction* instructions, UInt count)
{
   Filter* filter = VG_(malloc)("pagelab.filter", sizeof(Filter) + count * sizeof(Instruction));

   filter->older = older;
   filter->count = count;
   VG_(memcpy)(filter->instructions, instructions, count * sizeof(Instruction));
   return filter;
}

UWord pl_filters_install(ThreadId tid, Addr description, Bool all_threads)
{
   const Description* given = (const Description*)description;
   UInt i;

   if (!VG_(am_is_valid_for_client)(description, sizeof *given, VKI_PROT_READ))
      return VKI_EFAULT;
   if (given->instructions == NULL || given->count == 0 || given->count > MOST_INSTRUCTIONS)
      return VKI_EINVAL;
   if (!VG_(am_is_valid_for_client)((Addr)given->instructions, given->count * sizeof(Instruction), VKI_PROT_READ))
      return VKI_EFAULT;
   if (!is_valid_program(given->instructions, given->count))
      return VKI_EINVAL;
   *newest(tid) = add(*newest(tid), given->instructions, given->count);
   newest(VG_N_THREADS - 1);
   for (i = 0; all_threads && i < threads_n; i++)
      newest_of_thread[i] = newest_of_thread[tid];
   return 0;
}

/* ---- the next program image ---- */

/* From the newest filter to the oldest: u32 count, instructions. */
Int pl_filters_save(ThreadId tid)
{
   const Filter* filter = pl_filters_are_on(tid) ? *newest(tid) : NULL;
   Long descriptor;

   if (filter == NULL)
      return -1;
   descriptor = pl_system_call(__NR_memfd_create, (ULong)(Addr) "pagelab-filters", 0, 0, 0, 0, 0);
   if (descriptor < 0)
      return -1;
   descriptor = VG_(safe_fd)((Int)descriptor);
   for (; filter != NULL; filter = filter->older) {
      VG_(write)((Int)descriptor, &filter->count, sizeof filter->count);
      VG_(write)((Int)descriptor, filter->instructions, filter->count * sizeof(Instruction));
   }
   return (Int)descriptor;
}

void pl_filters_load(Int descriptor)
{
   static Instruction instructions[MOST_INSTRUCTIONS];
   Filter** older;
   UInt count;

   /* The program's first thread. */
   older = newest(1);
   VG_(lseek)(descriptor, 0, VKI_SEEK_SET);
   while (VG_(read)(descriptor, &count, sizeof count) == sizeof count && count <= MOST_INSTRUCTIONS
          && VG_(read)(descriptor, instructions, count * sizeof(Instruction)) == (Int)(count * sizeof(Instruction))) {
      *older = add(NULL, instructions, count);
      older = &(*older)->older;
   }
   VG_(close)(descriptor);
}
