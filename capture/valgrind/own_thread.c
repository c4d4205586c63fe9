/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* A thread for which the kernel keeps descriptors and rights (kernel/cred.c) apart: what it does with them changes
   none of the program's. There can be none after unshare(CLONE_NEWPID), or at a limit of processes (kernel/fork.c:
   copy_process). */

#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_libcsignal.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "own_thread.h"
#include "stream.h"

/* How often it is asked whether a thread has ended: at once, and then every millisecond. */
#define MOST_YIELDS 1000
#define MOST_TRIES 3000

typedef struct {
   Long (*asked)(const void*);
   const void* argument;
   Long answer;
} Question;

static void answer(Question* question)
{
   question->answer = question->asked(question->argument);
}

/* The thread wakes this one before it closes its descriptors and leaves the process (kernel/exit.c: exit_mm, then
   exit_files and exit_notify): the program would find descriptors open, or could not unshare its user namespace. */
static void wait_for_end(Long thread)
{
   struct vki_timespec pause = {0, 1000000};
   UInt tries;

   for (tries = 0; tries < MOST_TRIES; tries++) {
      if (pl_system_call(__NR_tgkill, (ULong)VG_(getpid)(), (ULong)thread, 0, 0, 0, 0) == -VKI_ESRCH)
         break;
      if (tries < MOST_YIELDS)
         pl_system_call(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
      else
         pl_system_call(__NR_nanosleep, (ULong)(Addr)&pause, 0, 0, 0, 0, 0);
   }
}

/* Starts the thread, and waits until it has answered. Returns its number or an error. */
static Long start(Question* question)
{
   static UChar stack[32768] __attribute__((aligned(16)));
   register void (*function)(Question*) __asm__("r12") = answer;
   register Question* given __asm__("r13") = question;
   Long result;

   __asm__ volatile("syscall\n\t"
                    "test %%rax, %%rax\n\t"
                    "jnz 1f\n\t"
                    "mov %%r13, %%rdi\n\t"
                    "call *%%r12\n\t"
                    "xor %%edi, %%edi\n\t"
                    "mov %[leave], %%eax\n\t"
                    "syscall\n"
                    "1:"
                    : "=a"(result)
                    : "0"((ULong)__NR_clone),
                      "D"((ULong)(VKI_CLONE_VM | VKI_CLONE_FS | VKI_CLONE_SIGHAND | VKI_CLONE_THREAD | VKI_CLONE_VFORK
                                  | VKI_CLONE_UNTRACED)),
                      "S"(stack + sizeof stack), "r"(function), "r"(given), [leave] "i"(__NR_exit)
                    : "rcx", "r11", "memory");
   return result;
}

Bool pl_ask_in_thread(Long (*asked)(const void*), const void* argument, Long* answered)
{
   Question question = {asked, argument, 0};
   vki_sigset_t all, before;
   Long thread;

   VG_(sigfillset)(&all);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &all, &before);
   thread = start(&question);
   if (thread >= 0)
      wait_for_end(thread);
   VG_(sigprocmask)(VKI_SIG_SETMASK, &before, NULL);
   *answered = question.answer;
   return thread >= 0;
}
