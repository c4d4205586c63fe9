/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Which signals are blocked in a handler. With SA_NODEFER Valgrind blocks none; the kernel blocks those of sa_mask, and
   only leaves the signal itself. Programs rely on it: a handler of SBCL's ends the program otherwise. */

#include "pub_tool_basics.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"

#include "signals.h"

#define SA_NODEFER 0x40000000

extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t* new_action, vki_sigaction_fromK_t* old_action);
extern SysRes VG_(do_sys_sigprocmask)(ThreadId tid, Int how, vki_sigset_t* set, vki_sigset_t* old_set);

/* The program inherits which signals are ignored. Python, which runs the recorder, ignores this one for itself. */
void pl_signals_begin(void)
{
   vki_sigaction_toK_t action = {.ksa_handler = VKI_SIG_DFL};

   VG_(do_sys_sigaction)(VKI_SIGXFSZ, &action, NULL);
}

/* The thread that a signal is being delivered to, and what its handler's mask blocks. */
static ThreadId receiver = VG_INVALID_THREADID;
static vki_sigset_t blocked;

void pl_signals_before_delivery(ThreadId tid, Int signal)
{
   vki_sigaction_fromK_t action;

   if (sr_isError(VG_(do_sys_sigaction)(signal, NULL, &action)) || !(action.sa_flags & SA_NODEFER))
      return;
   receiver = tid;
   blocked = action.sa_mask;
}

void pl_signals_goes_on(ThreadId tid)
{
   if (tid != receiver)
      return;
   receiver = VG_INVALID_THREADID;
   VG_(do_sys_sigprocmask)(tid, VKI_SIG_BLOCK, &blocked, NULL);
}
