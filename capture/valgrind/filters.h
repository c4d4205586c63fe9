/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_FILTERS_H
#define PAGELAB_FILTERS_H

/* Filters of system calls (seccomp) that the program has installed. */

#include "pub_tool_basics.h"

/* Verdicts, the upper half of what a filter returns (linux/seccomp.h). */
#define PL_FILTER_KILL_PROCESS 0x80000000u
#define PL_FILTER_KILL_THREAD 0x00000000u
#define PL_FILTER_TRAP 0x00030000u
#define PL_FILTER_ERRNO 0x00050000u
#define PL_FILTER_USER_NOTIF 0x7fc00000u
#define PL_FILTER_TRACE 0x7ff00000u
#define PL_FILTER_LOG 0x7ffc0000u
#define PL_FILTER_ALLOW 0x7fff0000u
#define PL_FILTER_ACTION 0xffff0000u
#define PL_FILTER_DATA 0x0000ffffu

/* What the filters see of a call (struct seccomp_data). */
typedef struct {
   Int number;
   UInt architecture;
   ULong instruction;
   ULong arguments[6];
} PL_Call;

/* Installs the filter that the program describes at `description` (struct sock_fprog), for the thread or for all.
   Returns 0 or an error number. */
extern UWord pl_filters_install(ThreadId tid, Addr description, Bool all_threads);
/* Whether the thread has a filter. */
extern Bool pl_filters_are_on(ThreadId tid);
extern UInt pl_filters_verdict(ThreadId tid, const PL_Call* call);

extern void pl_filters_thread_made(ThreadId tid, ThreadId child);

/* A descriptor of memory with the thread's filters, for the next program image, which reads them; -1 if there are
   none. */
extern Int pl_filters_save(ThreadId tid);
extern void pl_filters_load(Int descriptor);

#endif
