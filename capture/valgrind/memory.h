/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_MEMORY_H
#define PAGELAB_MEMORY_H

/* What happens to the process's mappings. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"

/* The mappings with which an image begins, as its first thread is about to run. */
extern void pl_memory_begins(ThreadId tid);

extern void pl_memory_before_call(ThreadId tid, UInt number, const UWord* args);
extern void pl_memory_after_call(ThreadId tid, UInt number, UWord* args, UWord value);
/* Calls that fail may have done some of their work. */
extern void pl_memory_after_failure(UInt number, UWord* args, UWord error);

/* The kernel reads or writes memory of the program for the thread that runs. */
extern void pl_memory_kernel_access(Bool writes, Addr address, SizeT length);

/* The same of another process, or of this one. */
extern void pl_memory_of_process(Int pid, Bool writes, Addr address, SizeT length);
/* The program has given the kernel advice on a range. */
extern void pl_memory_advised(Addr address, SizeT length, UInt advice);
/* Of a range for which the advice has failed, the parts that the kernel has worked on. */
extern void pl_memory_advice_failed(Addr start, SizeT length, UInt advice);
/* Whether a part of the range is mapped shared. */
extern Bool pl_memory_is_shared(Addr address, SizeT length);
/* How much of the range is. */
extern SizeT pl_memory_shared_bytes(Addr address, SizeT length);

/* What execve maps below the first stack pointer (setup_arg_pages), and where it begins; 0 until the program runs. */
#define PL_EXEC_STACK_BYTES (128u << 10)
extern Addr pl_memory_stack_start(void);

/* The protection of whole pages has changed. */
extern void pl_memory_protected(Addr start, SizeT length, UWord protection);

/* The first one of an array of all segments. */
extern const NSegment* pl_memory_first_segment(void);
/* The one after it; NULL after the last, which ends with the last address. */
extern const NSegment* pl_memory_next_segment(const NSegment* segment);
extern Bool pl_memory_is_programs(const NSegment* segment);
/* False if the call has stopped there. */
typedef Bool PlOfPart(const NSegment* segment, Addr start, SizeT length, UInt argument);
/* Calls `of_part` for the parts of the range that the program has mapped, until it says stop; if `stop_at_hole`, until
   the first hole. False if it has stopped, or if the range ends in a hole. */
extern Bool pl_memory_for_parts(Addr start, SizeT length, Bool stop_at_hole, PlOfPart* of_part, UInt argument);

#endif
