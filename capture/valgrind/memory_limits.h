/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_MEMORY_LIMITS_H
#define PAGELAB_MEMORY_LIMITS_H

#include "pub_tool_basics.h"

#include "core.h"

#define RLIMIT_DATA 2
#define RLIMIT_STACK 3
#define RLIMIT_AS 9

/* Before the image is loaded. `text` is what the image before it has left (--memory=), NULL in the first one. */
extern void pl_memory_limits_begin(const HChar* text);
/* As the log has been opened. */
extern void pl_memory_limits_tell_user(void);
extern const HChar* pl_memory_limits_text(void);
/* The kernel's limits become the program's, as what is executed will run natively. */
extern void pl_memory_limits_tell_kernel(void);

/* setrlimit and prlimit64 of the process itself: `asked` may be NULL, and `old` too. True if nothing is left to do. */
extern Bool pl_memory_limits_call(UWord resource, const struct vki_rlimit* asked, struct vki_rlimit* old,
                                  SyscallStatus* status);

extern const struct vki_rlimit* pl_memory_limit_of_address_space(void);

/* How much address space the program has, how much of it is private, writable and no stack, and how much is stack. */
typedef struct {
   SizeT all;
   SizeT data;
   SizeT stack;
} PlUsage;
extern PlUsage pl_memory_usage(void);

/* Whether the process has one of the kernel's capabilities (CAP_*). */
extern Bool pl_may_use(UInt capability);

/* Whether the program's limits let it have so much more address space. */
extern Bool pl_memory_may_grow(SizeT bytes, Bool is_data);
extern Bool pl_memory_may_map(Addr address, SizeT length, UWord protection, UWord flags);
extern Bool pl_memory_may_protect(Addr address, SizeT length, UWord protection);
extern Bool pl_memory_may_remap(const SyscallArgs* arguments);
extern Bool pl_memory_heap_may_end(Addr end);

#endif
