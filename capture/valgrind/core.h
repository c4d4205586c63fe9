/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_CORE_H
#define PAGELAB_CORE_H

/* Parts of Valgrind's core library that its tool interface leaves out, as in Valgrind 3.19. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_xarray.h"

/* ---- processes ---- */

/* Valgrind's own options, which it passes on to the programs that are executed (HChar*). */
extern XArray* VG_(args_for_valgrind);
/* What is executed instead of a program that is to be recorded, and the folder of Valgrind's files. */
extern HChar* VG_(name_of_launcher);
extern const HChar* VG_(libdir);
/* How much Valgrind checks of itself: 1 unless its option --sanity-level says otherwise. */
extern Int VG_(clo_sanity_level);
/* The file of this process's program. */
extern Int VG_(cl_exec_fd);
/* Lets the program's first stack grow down to the address. */
extern Bool VG_(extend_stack)(ThreadId tid, Addr address);

typedef enum { PL_EXECVE, PL_EXECVEAT, PL_FEXECVE } ExecveType;
struct SyscallStatus;
extern void handle_pre_sys_execve(ThreadId tid, struct SyscallStatus* status, Addr path, Addr arguments,
                                  Addr environment, ExecveType type, Bool path_is_the_programs);

/* Calls the functions that are given to VG_(atfork). */
extern void VG_(do_atfork_pre)(ThreadId tid);
extern void VG_(do_atfork_parent)(ThreadId tid);
extern void VG_(do_atfork_child)(ThreadId tid);

/* ---- descriptors ---- */

/* Moves a descriptor into the range that programs can neither see nor close, close-on-exec. */
extern Int VG_(safe_fd)(Int old_fd);

typedef struct {
   Int fd;
   Int type;
   HChar* expanded_name;
} OutputSink;
extern OutputSink VG_(log_output_sink);

/* ---- memory ---- */

#define PAGE_BYTES 4096UL

/* The program's heap. */
extern Addr VG_(brk_base);
extern Addr VG_(brk_limit);

extern SysRes VG_(am_shared_mmap_file_float_valgrind)(SizeT length, UInt protection, Int fd, Off64T offset);
/* Parts of the address space for the program, where Valgrind would put them, and new anonymous memory there. */
extern Addr VG_(am_get_advisory_client_simple)(Addr start, SizeT length, Bool* ok);
extern SysRes VG_(am_mmap_anon_fixed_client)(Addr start, SizeT length, UInt protection);
typedef struct {
   enum { MFixed, MHint, MAny, MAlign } rkind;
   Addr start;
   Addr len;
} MapRequest;
extern void VG_(discard_translations)(Addr start, ULong range, const HChar* who);

/* The highest address that may be mapped, and where Valgrind's own memory begins. Both are local to Valgrind's
   address-space manager; the build makes them global in a copy of it. Where it cannot, they have no address. */
extern Addr aspacem_maxAddr __attribute__((weak));
extern Addr aspacem_vStart __attribute__((weak));
extern Bool VG_(am_notify_client_mmap)(Addr start, SizeT length, UInt protection, UInt flags, Int fd, Off64T offset);
extern Bool VG_(am_notify_munmap)(Addr start, SizeT length);
extern Bool VG_(am_notify_mprotect)(Addr start, SizeT length, UInt protection);
extern Bool VG_(am_create_reservation)(Addr start, SizeT length, ShrinkMode mode, SSizeT extra);

/* The bytes of the pages that so many bytes from a page's start take. */
static inline SizeT pl_whole_pages(SizeT bytes)
{
   return (bytes + 4095) & ~(SizeT)4095;
}

/* ---- system calls ---- */

extern SysRes VG_(mk_SysRes_Error)(UWord error);
extern SysRes VG_(mk_SysRes_Success)(UWord value);

typedef struct SyscallArgs {
   Word number;
   UWord arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8;
} SyscallArgs;

typedef struct SyscallStatus {
   enum { SsComplete = 1, SsHandToKernel, SsIdle } what;
   SysRes sres;
} SyscallStatus;

typedef struct SyscallArgLayout SyscallArgLayout;

/* What Valgrind does before a system call; the last parameter points to the flags below. */
typedef void Before(ThreadId, SyscallArgLayout*, SyscallArgs*, SyscallStatus*, UWord*);
typedef void After(ThreadId, SyscallArgs*, SyscallStatus*);

/* Flag of a call: other threads may run meanwhile. */
#define SfMayBlock (1 << 1)
/* Flag of a call: what follows it is called if it fails, too. */
#define SfPostOnFail (1 << 2)
/* Flag of a call: it may have sent a signal. */
#define SfPollAfter (1 << 3)
/* Flag of a call: other threads get their turn. */
#define SfYieldAfter (1 << 4)

typedef struct {
   Before* before;
   void (*after)(ThreadId, SyscallArgs*, SyscallStatus*);
} SyscallTableEntry;

#endif
