/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* The limit of CPU time (RLIMIT_CPU) is that of the process, which Valgrind makes slower by a factor of 30 to 150. To
   count what the program would have taken is impossible. So the kernel's limit is a hundred times the program's: a
   program that ends natively gets about as far, and one that never ends is ended. The trace says so. */

#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "cpu_time.h"
#include "limits.h"
#include "memory_limits.h"
#include "stream.h"

#define RLIMIT_CPU 0
#define CAP_SYS_RESOURCE 24
#define NO_LIMIT (~0UL)
#define FACTOR 100

static struct vki_rlimit limit = {NO_LIMIT, NO_LIMIT};

static UWord extended(UWord seconds)
{
   return seconds > NO_LIMIT / FACTOR ? NO_LIMIT : seconds * FACTOR;
}

static UWord least(UWord a, UWord b)
{
   return a < b ? a : b;
}

void pl_cpu_time_extend(Int pid, const struct vki_rlimit* program)
{
   struct vki_rlimit asked = {extended(program->rlim_cur), extended(program->rlim_max)}, now;
   static Bool warned = False;

   /* Only root may raise the hard limit with which the recorder was started. */
   if (!pl_kernel_limit_of(pid, RLIMIT_CPU, &asked, NULL) && pl_kernel_limit_of(pid, RLIMIT_CPU, NULL, &now)) {
      asked.rlim_max = now.rlim_max;
      asked.rlim_cur = least(asked.rlim_cur, now.rlim_max);
      pl_kernel_limit_of(pid, RLIMIT_CPU, &asked, NULL);
   }
   /* A hard limit is never below the soft one, so there is none alone. */
   if (program->rlim_cur == NO_LIMIT || warned)
      return;
   warned = True;
   if (asked.rlim_cur == program->rlim_cur)
      VG_(umsg)("pagelab note: its limit of CPU time (ulimit -t) of %lu s holds for Valgrind, which takes longer: only "
                "root may raise it\n", program->rlim_cur);
   else
      VG_(umsg)("pagelab note: its limit of CPU time (ulimit -t) of %lu s was one of %lu s, as Valgrind takes longer\n",
                program->rlim_cur, asked.rlim_cur);
}

void pl_cpu_time_begin(const HChar* text)
{
   HChar* end;

   if (text != NULL) {
      limit.rlim_cur = VG_(strtoull10)(text, &end);
      limit.rlim_max = VG_(strtoull10)(end + 1, NULL);
   } else if (pl_kernel_limit(RLIMIT_CPU, NULL, &limit) && (limit.rlim_cur != NO_LIMIT || limit.rlim_max != NO_LIMIT)) {
      pl_cpu_time_extend(0, &limit);
   }
}

const struct vki_rlimit* pl_cpu_time_limit(void)
{
   return &limit;
}

UWord pl_cpu_time_set(const struct vki_rlimit* asked)
{
   if (asked->rlim_cur > asked->rlim_max)
      return VKI_EINVAL;
   if (asked->rlim_max > limit.rlim_max && !pl_may_use(CAP_SYS_RESOURCE))
      return VKI_EPERM;
   limit = *asked;
   pl_cpu_time_extend(0, &limit);
   return 0;
}

/* What Valgrind has taken stays the process's. */
void pl_cpu_time_tell_kernel(void)
{
   struct vki_timeval times[18];
   struct vki_rlimit asked = limit;
   UWord used;

   if (limit.rlim_cur == NO_LIMIT && limit.rlim_max == NO_LIMIT)
      return;
   /* struct rusage begins with the times in user and in kernel mode. */
   VG_(memset)(times, 0, sizeof times);
   pl_system_call(__NR_getrusage, 0, (ULong)(Addr)times, 0, 0, 0, 0);
   used = (UWord)(times[0].tv_sec + times[1].tv_sec) + 1;
   asked.rlim_cur = limit.rlim_cur == NO_LIMIT ? NO_LIMIT : limit.rlim_cur + used;
   asked.rlim_max = limit.rlim_max == NO_LIMIT ? NO_LIMIT : limit.rlim_max + used;
   pl_kernel_limit(RLIMIT_CPU, &asked, NULL);
}
