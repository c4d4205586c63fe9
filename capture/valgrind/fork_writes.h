/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_FORK_WRITES_H
#define PAGELAB_FORK_WRITES_H

/* What the kernel writes to a program's memory when a process forks. */

#include "pub_tool_basics.h"

extern void pl_fork_writes_before_call(ThreadId tid, UInt number, const UWord* args);
/* The thread is about to end. */
extern void pl_fork_writes_thread_ends(ThreadId tid);
/* In the parent, and in the child: its thread of this number is the one that has called fork. */
extern void pl_fork_writes_in_parent(ThreadId tid);
extern void pl_fork_writes_in_child(ThreadId tid);
/* Whether Valgrind reports, in the parent, the write of the child's word. */
extern Bool pl_fork_writes_is_childs_word(Addr address);

#endif
