/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_LIMITS_H
#define PAGELAB_LIMITS_H

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"

/* A limit of the kernel, which is set if `limit` is not NULL; of another process than this one, if `pid` is not 0. */
extern Bool pl_kernel_limit_of(Int pid, UWord resource, const struct vki_rlimit* limit, struct vki_rlimit* old);
extern Bool pl_kernel_limit(UWord resource, const struct vki_rlimit* limit, struct vki_rlimit* old);

/* Before the tool opens any: keeps descriptors for it. */
extern void pl_limits_make_room(void);
/* What an image leaves the next one (--descriptors=): its limits of descriptors, of CPU time and of file sizes, and
   the first hard limit of descriptors, "soft:hard,soft:hard,soft:hard,hard"; NULL in the first one. */
extern const HChar* pl_descriptors_text;
extern const HChar* pl_limits_text(void);
/* The limit of file sizes that the program sees, and a word on it if it is one. */
extern const struct vki_rlimit* pl_limit_of_file_size(void);
extern void pl_file_size_tell_user(const struct vki_rlimit* limit);
/* Whether the limits are the program's. Not yet as an image begins, and no more once it has left them to the next. */
extern volatile Bool pl_limits_are_known;
/* As options have been read. */
extern void pl_limits_begin(void);
/* What is executed will run natively: the kernel's limits become the program's, once Valgrind needs no more memory. */
extern void pl_limits_exec_begins(void);
extern void pl_limits_exec_failed(void);

#endif
