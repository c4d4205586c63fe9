/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_MEMORY_LOCKS_H
#define PAGELAB_MEMORY_LOCKS_H

/* Memory that is locked (mlock), what is populated for that, and its limit (RLIMIT_MEMLOCK). */

#include "pub_tool_basics.h"

/* Whether new mappings are locked (MCL_FUTURE), and their number of bytes is more than may be. */
extern Bool pl_locks_refuse(SizeT bytes);
/* The same of a mapping that grows, if it is locked. */
extern Bool pl_locks_refuse_growth(Addr start, SizeT bytes);
/* The flags of a new mapping for the kernel: it must not populate what is locked as it faults. */
extern UWord pl_locks_kernel_flags(UWord flags);
/* How much of the range comes before its first locked page. */
extern SizeT pl_locks_bytes_before(Addr start, SizeT length);
/* New memory is there; the kernel is to lock it, if new mappings are locked. */
extern void pl_locks_made(Addr start, SizeT length);

/* Whether a new mapping with these flags is populated. */
extern Bool pl_locks_populates(UInt flags);
/* There is a new mapping. Returns the flags with which it is recorded: without those that populate it if `alone`. */
extern UInt pl_locks_mapped(Addr start, SizeT length, UInt protection, UInt flags, Bool alone);
extern void pl_locks_unmapped(Addr start, SizeT length);
extern void pl_locks_moved(Addr old_start, SizeT old_length, Addr start, SizeT length);
extern void pl_locks_heap_grew(Addr start, Addr end);

/* mprotect: locked memory that becomes writable is populated. */
extern void pl_locks_before_protect(Addr start, SizeT length, UWord protection);
extern void pl_locks_protected(Addr start, SizeT length);

/* mlock, mlock2, munlock, mlockall, munlockall; and the first two have failed with ENOMEM. */
extern void pl_locks_after_call(UInt number, const UWord* args);
extern void pl_locks_failed(UInt number, const UWord* args);

/* A forked child has no memory locked. */
extern void pl_locks_forked(void);

#endif
