/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_DEBUGGING_H
#define PAGELAB_DEBUGGING_H

#include "core.h"

/* The tool is about to stop the program's thread for its debugger, which sees its registers until it goes on. */
extern void pl_debugging_stops(ThreadId tid);
extern void pl_debugging_goes_on(void);

/* Valgrind's entry for ptrace, changed for recorded processes that are debugged. */
extern SyscallTableEntry* pl_ptrace_entry(const SyscallTableEntry* valgrinds);

#endif
