/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_EXEC_CHECK_H
#define PAGELAB_EXEC_CHECK_H

/* What an execve fails with, asked before it is made. All functions return an errno, or 0. */

#include "pub_tool_basics.h"

/* Linux looks for an interpreter in so many bytes (BINPRM_BUF_SIZE). */
#define PL_HEAD_BYTES 256

/* Number of bytes read from the file's begin; -1 if it cannot be read. */
extern Int pl_exec_read_head(const HChar* path, HChar* head);
/* Cuts the interpreter's path out of a first line `#! path argument`; NULL if there is none. */
extern const HChar* pl_exec_interpreter(HChar* head, Int length);
/* An ELF file for another architecture. */
extern Bool pl_exec_is_foreign(const HChar* head);

/* Finds the file, and checks that it may be executed. If it is found, `file` becomes a descriptor to be closed. */
extern UWord pl_exec_find(Int directory, const HChar* path, UWord flags, Int* file);
/* Whether the lists are readable and not too long. `arguments_n` becomes the number of arguments. */
extern UWord pl_exec_check_lists(Addr arguments, Addr environment, SizeT own_bytes, UWord* arguments_n);
/* Whether the kernel has a way to run the file. */
extern UWord pl_exec_check_format(const HChar* path);

#endif
