/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* What the limits of a recorded process are is in its tool's memory: the kernel's hold for Valgrind. The same tool has
   them at the same addresses in each process, since it is linked for fixed ones. So another recorded process reads and
   writes them there. Where the kernel does not let it, a limit that is set has no effect, since it would hold for
   Valgrind. Linux 6.12: kernel/sys.c (do_prlimit), mm/process_vm_access.c. */

#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "cpu_time.h"
#include "image.h"
#include "limits.h"
#include "memory_limits.h"
#include "other_limits.h"
#include "stream.h"

#define RLIMIT_CPU 0
#define RLIMIT_FSIZE 1
#define RLIMIT_DATA 2
#define RLIMIT_STACK 3
#define RLIMIT_NOFILE 7
#define RLIMIT_AS 9
#define CAP_SYS_RESOURCE 24

/* Milliseconds. */
#define MOST_WAITS 1000

extern struct vki_rlimit VG_(client_rlimit_data);
extern struct vki_rlimit VG_(client_rlimit_stack);
extern Int VG_(fd_soft_limit);
extern Int VG_(fd_hard_limit);

/* Where each tool has the limit; NULL if the kernel's is the program's. */
static const struct vki_rlimit* place_of(UWord resource)
{
   switch (resource) {
   case RLIMIT_CPU: return pl_cpu_time_limit();
   case RLIMIT_FSIZE: return pl_limit_of_file_size();
   case RLIMIT_DATA: return &VG_(client_rlimit_data);
   case RLIMIT_STACK: return &VG_(client_rlimit_stack);
   case RLIMIT_AS: return pl_memory_limit_of_address_space();
   default: return NULL;
   }
}

static Bool copy(Int pid, Bool writes, void* own, const void* other, SizeT bytes)
{
   struct vki_iovec here = {own, bytes}, there = {(void*)other, bytes};
   ULong call = writes ? __NR_process_vm_writev : __NR_process_vm_readv;

   return pl_system_call(call, (ULong)pid, (ULong)(Addr)&here, 1, (ULong)(Addr)&there, 1, 0) == (Long)bytes;
}

/* Waits until the process, which may be executing a program, has its limits. False if they cannot be read. */
static Bool has_limits(Int pid)
{
   struct vki_timespec pause = {0, 1000000};
   Bool known;
   UInt tries;

   for (tries = 0; tries < MOST_WAITS && pl_image_is_recorded(pid); tries++) {
      if (!copy(pid, False, &known, (const void*)&pl_limits_are_known, sizeof known))
         return False;
      if (known)
         return True;
      pl_system_call(__NR_nanosleep, (ULong)(Addr)&pause, 0, 0, 0, 0, 0);
   }
   return False;
}

static Bool get(Int pid, UWord resource, struct vki_rlimit* limit)
{
   Int soft, hard;

   if (resource != RLIMIT_NOFILE)
      return copy(pid, False, limit, place_of(resource), sizeof *limit);
   if (!copy(pid, False, &soft, &VG_(fd_soft_limit), sizeof soft)
       || !copy(pid, False, &hard, &VG_(fd_hard_limit), sizeof hard))
      return False;
   limit->rlim_cur = (UWord)soft;
   limit->rlim_max = (UWord)hard;
   return True;
}

static Bool set(Int pid, UWord resource, const struct vki_rlimit* limit)
{
   struct vki_rlimit asked = *limit;
   Int soft = (Int)limit->rlim_cur, hard = (Int)limit->rlim_max;

   if (resource == RLIMIT_NOFILE)
      return copy(pid, True, &soft, &VG_(fd_soft_limit), sizeof soft)
             && copy(pid, True, &hard, &VG_(fd_hard_limit), sizeof hard);
   if (!copy(pid, True, &asked, place_of(resource), sizeof asked))
      return False;
   if (resource == RLIMIT_CPU)
      pl_cpu_time_extend(pid, limit);
   if (resource == RLIMIT_FSIZE)
      pl_file_size_tell_user(limit);
   return True;
}

static void tell_user(Bool sets)
{
   static Bool warned[2] = {False, False};

   if (!warned[sets] && sets)
      VG_(umsg)("pagelab: the limits that it set for another process (prlimit) had no effect: the kernel gives it no access "
                "to that process's memory\n");
   else if (!warned[sets])
      VG_(umsg)("pagelab: the limits that it read of another process (prlimit) may be Valgrind's: the kernel gives it no "
                "access to that process's memory\n");
   warned[sets] = True;
}

Bool pl_other_limits_call(Int pid, UWord resource, const struct vki_rlimit* asked, struct vki_rlimit* old,
                          SyscallStatus* status)
{
   struct vki_rlimit before;
   Long allowed;
   Bool in_reach;
   UWord error = 0;

   if ((place_of(resource) == NULL && resource != RLIMIT_NOFILE) || !pl_image_may_be_recorded(pid))
      return False;
   /* The kernel knows whether this process may. */
   allowed = pl_system_call(__NR_prlimit64, (ULong)pid, resource, 0, (ULong)(Addr)&before, 0, 0);
   in_reach = allowed == 0 && has_limits(pid) && get(pid, resource, &before);
   /* It may run another program by now, natively. */
   if (allowed == 0 && !in_reach && !pl_image_may_be_recorded(pid))
      return False;
   if (allowed == 0 && !in_reach && asked == NULL) {
      tell_user(False);
      return False;
   }
   if (allowed != 0)
      error = (UWord)-allowed;
   else if (asked != NULL && asked->rlim_cur > asked->rlim_max)
      error = VKI_EINVAL;
   else if (asked != NULL && asked->rlim_max > before.rlim_max
            && (resource == RLIMIT_NOFILE || !pl_may_use(CAP_SYS_RESOURCE)))
      error = VKI_EPERM;
   else if (asked != NULL && !(in_reach && set(pid, resource, asked)))
      tell_user(True);
   status->what = SsComplete;
   status->sres = error != 0 ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0);
   if (error == 0 && old != NULL)
      *old = before;
   return True;
}
