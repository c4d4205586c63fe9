/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* A recorded program that debugs another recorded one (ptrace). Its memory is its own. So are the registers where its
   tool has stopped it for the debugger (signals.c): the same tool keeps them at the same address in each process, where
   this one reads them. Elsewhere, registers and system calls are Valgrind's; and single steps would be Valgrind's,
   thousands for one of the program's: such a process goes on until a signal stops it. A process that runs natively, as
   one does that has executed a program while it was debugged (exec.c), has all. */

#include "pub_tool_basics.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"
#include "libvex_guest_amd64.h"

#include "core.h"
#include "debugging.h"
#include "image.h"
#include "stream.h"

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

/* ---- registers of the program ---- */

/* The general registers of GETREGSET. */
#define NT_PRSTATUS 1
#define REGISTERS (sizeof(struct vki_user_regs_struct) / sizeof(UWord))

typedef struct {
   /* That the tool has stopped; 0 for none. */
   Int thread;
   struct vki_user_regs_struct registers;
} Stopped;

static Stopped own_thread, other_thread;

void pl_debugging_stops(ThreadId tid)
{
   VexGuestAMD64State state;
   struct vki_user_regs_struct* to = &own_thread.registers;

   VG_(get_shadow_regs_area)(tid, (UChar*)&state, 0, 0, sizeof state);
   *to = (struct vki_user_regs_struct){
      .r15 = state.guest_R15, .r14 = state.guest_R14, .r13 = state.guest_R13, .r12 = state.guest_R12,
      .rbp = state.guest_RBP, .rbx = state.guest_RBX, .r11 = state.guest_R11, .r10 = state.guest_R10,
      .r9 = state.guest_R9, .r8 = state.guest_R8, .rax = state.guest_RAX, .rcx = state.guest_RCX,
      .rdx = state.guest_RDX, .rsi = state.guest_RSI, .rdi = state.guest_RDI, .rsp = state.guest_RSP,
      .rip = state.guest_RIP, .eflags = LibVEX_GuestAMD64_get_rflags(&state), .fs_base = state.guest_FS_CONST,
      .gs_base = state.guest_GS_CONST,
      /* It makes no system call. */
      .orig_rax = ~0UL};
   own_thread.thread = VG_(gettid)();
}

void pl_debugging_goes_on(void)
{
   own_thread.thread = 0;
}

static Bool reads_registers(const SyscallArgs* arguments)
{
   return arguments->arg1 == PTRACE_GETREGS || (arguments->arg1 == PTRACE_GETREGSET && arguments->arg3 == NT_PRSTATUS)
          || (arguments->arg1 == PTRACE_PEEKUSER && arguments->arg3 < REGISTERS * sizeof(UWord));
}

/* Whether the tool of a recorded process has stopped this thread; then its registers are known. */
static Bool is_stopped_by_tool(Int thread)
{
   struct vki_iovec here = {&other_thread, sizeof other_thread}, there = {&own_thread, sizeof own_thread};

   return pl_system_call(__NR_process_vm_readv, (ULong)thread, (ULong)(Addr)&here, 1, (ULong)(Addr)&there, 1, 0)
             == (Long)sizeof other_thread
          && other_thread.thread == thread;
}

/* Writes the registers from number `first` on over those of Valgrind. Segment registers are the same. */
static void replace(UWord* to, UWord first, UWord count)
{
   const UWord* registers = (const UWord*)&other_thread.registers;
   UWord i;

   for (i = first; i < first + count && i < REGISTERS; i++) {
      switch (i * sizeof(UWord)) {
      case offsetof(struct vki_user_regs_struct, cs):
      case offsetof(struct vki_user_regs_struct, ss):
      case offsetof(struct vki_user_regs_struct, ds):
      case offsetof(struct vki_user_regs_struct, es):
      case offsetof(struct vki_user_regs_struct, fs):
      case offsetof(struct vki_user_regs_struct, gs): break;
      default: to[i - first] = registers[i];
      }
   }
}

static void replace_all(const SyscallArgs* arguments)
{
   const struct vki_iovec* area = (const struct vki_iovec*)arguments->arg4;

   if (arguments->arg1 == PTRACE_PEEKUSER)
      replace((UWord*)arguments->arg4, arguments->arg3 / sizeof(UWord), 1);
   else if (arguments->arg1 == PTRACE_GETREGS)
      replace((UWord*)arguments->arg4, 0, REGISTERS);
   else
      replace(area->iov_base, 0, area->iov_len / sizeof(UWord));
}

/* ---- the call ---- */

static SyscallTableEntry of_valgrind;
/* The call that is being made reads registers that the tool knows. */
static Bool replaces = False;

static void before_ptrace(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                          UWord* flags)
{
   static Bool warned = False;

   replaces = False;
   if (is_about_valgrind(arguments->arg1) && pl_image_is_recorded((Int)arguments->arg2)) {
      replaces = reads_registers(arguments) && is_stopped_by_tool((Int)arguments->arg2);
      if (!warned && !replaces)
         VG_(umsg)("pagelab: it debugs a process that is recorded (ptrace): the system calls and registers that it saw were "
                   "Valgrind's, and single steps went on to the next signal\n");
      warned |= !replaces;
      if (is_step(arguments->arg1))
         arguments->arg1 = PTRACE_CONT;
   }
   of_valgrind.before(tid, layout, arguments, status, flags);
}

/* Valgrind notes that another process debugs this one, and then stops it where a signal would end it, for good. */
static void after_ptrace(ThreadId tid, SyscallArgs* arguments, SyscallStatus* status)
{
   if (replaces)
      replace_all(arguments);
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
