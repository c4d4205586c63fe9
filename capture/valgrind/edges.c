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
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "edges.h"
#include "stream.h"

/* Newer than Valgrind's headers. */
#define FUTEX_LOCK_PI2 13
#define NR_FUTEX_WAITV 449
#define NR_FUTEX_WAKE 454
#define NR_FUTEX_WAIT 455
#define NR_FUTEX_REQUEUE 456
#define ANY_BIT 0xffffffffu

/* Where threads stand in futex calls and what they began with. Which wake a wait that returned 0 was woken by is found
   out from the order of calls: it was under way at some time while the wait was, on the same address, with bits in
   common, and has threads left to wake. Of several the oldest is taken: the kernel wakes in the order in which threads
   wait, and an older wake can have woken fewer of those that wait still. A wake counts from before its call, not from
   its return: threads that it wakes may run first.

   Addresses stand for futexes. So one that processes share, or that is mapped twice, is matched within a process and a
   mapping, and a wake from elsewhere leaves no edge. */

typedef struct {
   UInt number;
   /* Who is in the call; VG_INVALID_THREADID for the end of a thread, which does not return. */
   ThreadId by;
   Addr address;
   UInt bits;
   /* Threads that it may still have woken. */
   ULong left;
   /* When its call returned; 0 before. */
   ULong ended;
} Wake;

typedef struct {
   /* The wait under way: its futex, the one that it may have been moved to, and when it began; 0 without one. */
   Addr address;
   Addr moved_to;
   UInt bits;
   ULong began;
   /* The kernel clears this word and wakes one when the thread ends; 0 if not. */
   Addr clears;
   /* Number of the wake that is the thread's creation; 0 if that was not seen. */
   UInt made_by;
} Thread;

/* More calls under way, or returned and not matched, than a program has in practice; the oldest makes room. */
#define WAKES 1024
static Wake wakes[WAKES];
static UInt wakes_n = 0;
static UInt last_number = 0;
/* Counts calls as they begin and return. */
static ULong now = 0;

static Thread* threads = NULL;
static UInt threads_n = 0;
static UInt alive = 0;

/* The word of the thread that a clone under way makes. */
static Addr cleared_by_child = 0;

static Thread* thread(ThreadId tid)
{
   if (tid >= threads_n) {
      UInt n = 2 * tid + 16;
      threads = VG_(realloc)("pagelab.edges", threads, n * sizeof(Thread));
      VG_(memset)(threads + threads_n, 0, (n - threads_n) * sizeof(Thread));
      threads_n = n;
   }
   return &threads[tid];
}

static void send(PlControl kind, UInt number)
{
   pl_begin(kind, 4);
   pl_put32(number);
   pl_end();
}

static void forget_wake(UInt at)
{
   wakes_n--;
   VG_(memmove)(&wakes[at], &wakes[at + 1], (wakes_n - at) * sizeof(Wake));
}

static void add_wake(ThreadId by, Addr address, UInt bits, UWord count)
{
   Wake* wake;

   if (wakes_n == WAKES)
      forget_wake(0);
   wake = &wakes[wakes_n++];
   wake->number = last_number;
   wake->by = by;
   wake->address = address;
   wake->bits = bits;
   /* The kernel wakes one before it counts. */
   wake->left = (Int)count < 1 ? 1 : (ULong)(Int)count;
   wake->ended = 0;
}

static void begin_wake(ThreadId by, Addr address, UInt bits, UWord count)
{
   send(PL_WAKE, ++last_number);
   add_wake(by, address, bits, count);
}

/* The thread's wakes under way have returned; `woken` threads were woken, or moved to another futex. */
static void end_wakes(ThreadId by, ULong woken)
{
   UInt i = 0;

   while (i < wakes_n) {
      Wake* wake = &wakes[i];
      if (wake->by == by && wake->ended == 0) {
         wake->ended = now;
         if (wake->left > woken)
            wake->left = woken;
      }
      if (wake->left == 0)
         forget_wake(i);
      else
         i++;
   }
}

static void begin_wait(ThreadId tid, Addr address, Addr moved_to, UInt bits)
{
   Thread* waiter = thread(tid);

   waiter->address = address;
   waiter->moved_to = moved_to;
   waiter->bits = bits;
   waiter->began = now;
}

static void end_wait(ThreadId tid, Bool was_woken)
{
   Thread* waiter = thread(tid);
   ULong began = waiter->began;
   UInt i;

   waiter->began = 0;
   if (!was_woken || began == 0)
      return;
   for (i = 0; i < wakes_n; i++) {
      Wake* wake = &wakes[i];
      if ((wake->address == waiter->address || wake->address == waiter->moved_to) && (wake->bits & waiter->bits) != 0
          && (wake->ended == 0 || wake->ended > began) && wake->by != tid) {
         send(PL_WOKEN, wake->number);
         if (--wake->left == 0)
            forget_wake(i);
         return;
      }
   }
}

/* It returns which of its futexes was woken. */
static void end_wait_of_many(ThreadId tid, const UWord* args, SysRes result)
{
   if (!sr_isError(result)) {
      Addr address = ((const PL_FutexWaiter*)args[0])[sr_Res(result)].address;
      thread(tid)->address = thread(tid)->moved_to = address;
   }
   end_wait(tid, !sr_isError(result));
}

/* Whoever waits at `from` may be waiting at `to` from now on. */
static void move_waits(Addr from, Addr to)
{
   UInt i;

   for (i = 0; i < threads_n; i++)
      if (threads[i].began != 0 && threads[i].address == from)
         threads[i].moved_to = to;
}

static void before_futex(ThreadId tid, const UWord* args)
{
   Addr address = args[0], other = args[4];

   switch ((UInt)args[1] & ~(UInt)(VKI_FUTEX_PRIVATE_FLAG | VKI_FUTEX_CLOCK_REALTIME)) {
   case VKI_FUTEX_WAIT:
   case VKI_FUTEX_LOCK_PI:
   case FUTEX_LOCK_PI2: begin_wait(tid, address, address, ANY_BIT); break;
   case VKI_FUTEX_WAIT_BITSET: begin_wait(tid, address, address, (UInt)args[5]); break;
   case VKI_FUTEX_WAIT_REQUEUE_PI: begin_wait(tid, address, other, ANY_BIT); break;
   case VKI_FUTEX_WAKE: begin_wake(tid, address, ANY_BIT, args[2]); break;
   case VKI_FUTEX_WAKE_BITSET: begin_wake(tid, address, (UInt)args[5], args[2]); break;
   case VKI_FUTEX_UNLOCK_PI: begin_wake(tid, address, ANY_BIT, 1); break;
   case VKI_FUTEX_WAKE_OP:
      begin_wake(tid, address, ANY_BIT, args[2]);
      add_wake(tid, other, ANY_BIT, args[3]);
      break;
   case VKI_FUTEX_REQUEUE:
   case VKI_FUTEX_CMP_REQUEUE:
   case VKI_FUTEX_CMP_REQUEUE_PI:
      begin_wake(tid, address, ANY_BIT, args[2]);
      move_waits(address, other);
      break;
   default: break;
   }
}

void pl_edges_before_call(ThreadId tid, UInt number, const UWord* args)
{
   UInt i;

   switch (number) {
   case __NR_futex:
      now++;
      before_futex(tid, args);
      break;
   case NR_FUTEX_WAITV:
      now++;
      begin_wait(tid, 0, 0, ANY_BIT);
      break;
   case NR_FUTEX_WAIT:
      now++;
      begin_wait(tid, args[0], args[0], (UInt)args[2]);
      break;
   case NR_FUTEX_WAKE:
      now++;
      begin_wake(tid, args[0], (UInt)args[1], args[2]);
      break;
   case NR_FUTEX_REQUEUE: {
      const PL_FutexWaiter* both = (const PL_FutexWaiter*)args[0];
      now++;
      if (VG_(am_is_valid_for_client)(args[0], 2 * sizeof *both, VKI_PROT_READ)) {
         begin_wake(tid, both[0].address, ANY_BIT, args[2]);
         move_waits(both[0].address, both[1].address);
      }
      break;
   }
   case __NR_set_tid_address: thread(tid)->clears = args[0]; break;
   case __NR_clone:
      cleared_by_child = args[0] & VKI_CLONE_CHILD_CLEARTID ? args[3] : 0;
      /* The word is another thread's from now on. */
      for (i = wakes_n; i > 0 && cleared_by_child != 0; i--)
         if (wakes[i - 1].by == VG_INVALID_THREADID && wakes[i - 1].address == cleared_by_child)
            forget_wake(i - 1);
      break;
   default: break;
   }
}

void pl_edges_after_call(ThreadId tid, UInt number, const UWord* args, SysRes result)
{
   switch (number) {
   case __NR_futex: now++; break;
   case NR_FUTEX_WAITV:
      now++;
      end_wait_of_many(tid, args, result);
      return;
   case NR_FUTEX_WAIT:
      now++;
      end_wait(tid, !sr_isError(result));
      return;
   case NR_FUTEX_WAKE:
   case NR_FUTEX_REQUEUE:
      now++;
      end_wakes(tid, sr_isError(result) ? 0 : sr_Res(result));
      return;
   default: return;
   }
   switch ((UInt)args[1] & ~(UInt)(VKI_FUTEX_PRIVATE_FLAG | VKI_FUTEX_CLOCK_REALTIME)) {
   case VKI_FUTEX_WAIT:
   case VKI_FUTEX_LOCK_PI:
   case FUTEX_LOCK_PI2:
   case VKI_FUTEX_WAIT_BITSET:
   case VKI_FUTEX_WAIT_REQUEUE_PI: end_wait(tid, !sr_isError(result) && sr_Res(result) == 0); break;
   /* Returns 0 whether or not somebody has waited. */
   case VKI_FUTEX_UNLOCK_PI: end_wakes(tid, sr_isError(result) ? 0 : 1); break;
   default: end_wakes(tid, sr_isError(result) ? 0 : sr_Res(result)); break;
   }
}

void pl_edges_thread_made(ThreadId tid, ThreadId child)
{
   Thread* made;

   if (tid == VG_INVALID_THREADID)
      return;
   made = thread(child);
   VG_(memset)(made, 0, sizeof *made);
   made->clears = cleared_by_child;
   made->made_by = ++last_number;
   send(PL_WAKE, last_number);
}

void pl_edges_thread_begins(ThreadId tid)
{
   alive++;
   if (thread(tid)->made_by != 0)
      send(PL_WOKEN, thread(tid)->made_by);
}

void pl_edges_thread_ends(ThreadId tid)
{
   Addr clears = thread(tid)->clears;

   alive--;
   if (clears != 0 && alive > 0)
      begin_wake(VG_INVALID_THREADID, clears, ANY_BIT, 1);
   VG_(memset)(thread(tid), 0, sizeof(Thread));
}

void pl_edges_forked(ThreadId tid)
{
   Addr clears = thread(tid)->clears;

   VG_(memset)(threads, 0, threads_n * sizeof(Thread));
   thread(tid)->clears = clears;
   wakes_n = 0;
   alive = 1;
}
