/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_EDGES_H
#define PAGELAB_EDGES_H

/* What lets a thread go on that had to wait for another: the edges of the order "happens before" that the program makes
   itself by system calls. A wake is sent where its thread begins the call, a woken where the waiting call has
   returned. */

#include "pub_tool_basics.h"

/* What futex_waitv waits for (struct futex_waitv). */
typedef struct {
   ULong value;
   Addr address;
   UInt flags, reserved;
} PL_FutexWaiter;

/* Before and after a system call of a thread, which is the one whose records are being written. */
extern void pl_edges_before_call(ThreadId tid, UInt number, const UWord* args);
extern void pl_edges_after_call(ThreadId tid, UInt number, const UWord* args, SysRes result);

/* A thread makes another one; that one is about to run its first instruction; it is about to end. */
extern void pl_edges_thread_made(ThreadId tid, ThreadId child);
extern void pl_edges_thread_begins(ThreadId tid);
extern void pl_edges_thread_ends(ThreadId tid);

/* In a forked child: only this thread is left. */
extern void pl_edges_forked(ThreadId tid);

#endif
