/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_PROC_SELF_H
#define PAGELAB_PROC_SELF_H

/* What files below /proc tell of the process. */

#include "pub_tool_basics.h"

/* As the image's first thread is about to run, `stack_pointer` its first one. */
extern void pl_proc_self_begins(Addr stack_pointer);
/* In the child of a fork. */
extern void pl_proc_self_forked(void);
/* The heap ends at VG_(brk_limit) now. */
extern void pl_proc_self_heap_moved(void);
/* A process of this recording debugs this one. */
extern Bool pl_proc_self_is_debugged(void);

#endif
