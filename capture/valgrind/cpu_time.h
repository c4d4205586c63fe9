/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_CPU_TIME_H
#define PAGELAB_CPU_TIME_H

/* The program's limit of CPU time. */

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"

/* As the log has been opened. `text` is what the image before it has left, "soft:hard"; NULL in the first one. */
extern void pl_cpu_time_begin(const HChar* text);
/* The kernel's limit of the process (0 is this one) becomes what it is to be for this one of the program. */
extern void pl_cpu_time_extend(Int pid, const struct vki_rlimit* program);
extern const struct vki_rlimit* pl_cpu_time_limit(void);
/* setrlimit; 0, or what it fails with. */
extern UWord pl_cpu_time_set(const struct vki_rlimit* asked);
/* The kernel's limit becomes the program's, from now on, as what is executed will run natively. */
extern void pl_cpu_time_tell_kernel(void);

#endif
