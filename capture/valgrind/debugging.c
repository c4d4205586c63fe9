/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* A recorded program that debugs another recorded one (ptrace). Registers and system calls that it sees are Valgrind's;
   and single steps would be Valgrind's, thousands for one of the program's: such a process goes on until a signal stops
   it. Its memory is its own. A process that runs natively, as one does that has executed a program while it was
   debugged (exec.c), has all. */

#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"

#include "core.h"
#include "debugging.h"
#include "image.h"

#define PTRACE_TRACEME 0
#define PTRACE_PEEKUSER 3
#define PTRACE_POKEUSER 6
#define PTRACE_CONT 7
#define PTRACE_SINGLESTEP 9
#define PTRACE_GETREGS 12
#define PTRACE_SETREGS 13
#define PTRACE_GETFPREGS 14
#define PTRACE_SETFPREGS 15
#define PTRACE_SYSCALL 24
#define PTRACE_ARCH_PRCTL 30
#define PTRACE_SYSEMU 31
#define PTRACE_SYSEMU_SINGLESTEP 32
#define PTRACE_SINGLEBLOCK 33
#define PTRACE_GETREGSET 0x4204
#define PTRACE_SETREGSET 0x4205
#define PTRACE_GET_SYSCALL_INFO 0x420e

static Bool is_step(UWord request)
{
   return request == PTRACE_SINGLESTEP || request == PTRACE_SYSEMU || request == PTRACE_SYSEMU_SINGLESTEP
          || request == PTRACE_SINGLEBLOCK;
}

/* What it tells or changes is Valgrind's. */
static Bool is_about_valgrind(UWord request)
{
   switch (request) {
   case PTRACE_SYSCALL:
   case PTRACE_PEEKUSER:
   case PTRACE_POKEUSER:
   case PTRACE_GETREGS:
   case PTRACE_SETREGS:
   case PTRACE_GETFPREGS:
   case PTRACE_SETFPREGS:
   case PTRACE_ARCH_PRCTL:
   case PTRACE_GETREGSET:
   case PTRACE_SETREGSET:
   case PTRACE_GET_SYSCALL_INFO: return True;
   default: return is_step(request);
   }
}

static SyscallTableEntry of_valgrind;

static void before_ptrace(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                          UWord* flags)
{
   static Bool warned = False;

   if (is_about_valgrind(arguments->arg1) && pl_image_is_recorded((Int)arguments->arg2)) {
      if (!warned)
         VG_(umsg)("pagelab: it debugs a process that is recorded (ptrace): the system calls and registers that it saw were "
                   "Valgrind's, and single steps went on to the next signal\n");
      warned = True;
      if (is_step(arguments->arg1))
         arguments->arg1 = PTRACE_CONT;
   }
   of_valgrind.before(tid, layout, arguments, status, flags);
}

/* Valgrind notes that another process debugs this one, and then stops it where a signal would end it, for good. */
static void after_ptrace(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   if (arguments->arg1 != PTRACE_TRACEME)
      of_valgrind.after(tid, arguments, status);
}

SyscallTableEntry* pl_ptrace_entry(const SyscallTableEntry* valgrinds)
{
   static SyscallTableEntry entry;

   of_valgrind = *valgrinds;
   entry.before = before_ptrace;
   entry.after = after_ptrace;
   return &entry;
}
