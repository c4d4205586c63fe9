/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_TEXT_BUSY_H
#define PAGELAB_TEXT_BUSY_H

/* Files that run are not written, and files that are written do not run (ETXTBSY). */

#include "pub_tool_basics.h"

#include "core.h"

/* The program's file is known: no recorded program may write to it from now on. */
extern void pl_text_busy_begins(void);
/* Whether somebody has the file, of which this is a descriptor, open for writing. */
extern Bool pl_text_is_written(Int file);
/* Whether the call would open a program that runs for writing; then it has failed. */
extern Bool pl_text_refuses(Int folder, Addr path, UWord flags, SyscallStatus* status);
extern Before pl_openat2_before;

#endif
