/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_SECCOMP_H
#define PAGELAB_SECCOMP_H

/* The system calls by which a program installs filters of its system calls, and what the filters decide. */

#include "pub_tool_basics.h"

#include "core.h"

extern void pl_seccomp_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                              UWord* flags);

/* The functions of a call that filters decide on, instead of `entry`, those of Valgrind; `entry` itself if there are no
   filters. NULL: Valgrind does not have the call. */
extern SyscallTableEntry* pl_seccomp_filtered(SyscallTableEntry* entry, UInt number);

#endif
