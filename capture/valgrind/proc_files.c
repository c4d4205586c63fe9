/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Files below /proc that tell of Valgrind where the program looks for itself: in `status`, which signals are blocked,
   ignored and caught; there and in `statm`, how much address space there is; in `limits`, the limits that the kernel
   is not told. A program that opens one of them gets a copy in memory, as of then, with what is true of the program. */

#include "pub_tool_basics.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "cpu_time.h"
#include "limits.h"
#include "memory_limits.h"
#include "stream.h"
#include "text_busy.h"

#define O_DIRECTORY 0200000
#define O_PATH 010000000
#define O_ACCESS_MODE 3
#define AT_FDCWD (-100)
#define NO_LIMIT (~0UL)
/* By so much the lines that are put right may be longer. */
#define MORE_BYTES 4096
/* Signals of Linux, without the last one, which Valgrind keeps for itself. */
#define SIGNALS_N 63

extern ThreadId VG_(lwpid_to_vgtid)(Int thread_of_system);
extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t* new_action, vki_sigaction_fromK_t* old_action);
extern SysRes VG_(do_sys_sigprocmask)(ThreadId tid, Int how, vki_sigset_t* set, vki_sigset_t* old_set);
extern Int VG_(fd_soft_limit);
extern Int VG_(fd_hard_limit);
extern struct vki_rlimit VG_(client_rlimit_stack);
extern struct vki_rlimit VG_(client_rlimit_data);

/* ---- which file ---- */

/* Skips `text` at *path. */
static Bool skip(const HChar** path, const HChar* text)
{
   if (VG_(strncmp)(*path, text, VG_(strlen)(text)) != 0)
      return False;
   *path += VG_(strlen)(text);
   return True;
}

/* A number of a process or thread at *path; 0 if there is none. */
static Int skip_number(const HChar** path)
{
   HChar* end;
   Long number = **path >= '1' && **path <= '9' ? VG_(strtoll10)(*path, &end) : 0;

   if (number > 0)
      *path = end;
   return (Int)number;
}

/* Of a path below the process's own folder, the name in there, and the thread that it is about. */
static const HChar* name_of_own_file(const HChar* path, ThreadId* tid)
{
   Int thread = VG_(getpid)();

   if (!skip(&path, "/proc/"))
      return NULL;
   if (skip(&path, "thread-self/"))
      thread = VG_(gettid)();
   else if (!skip(&path, "self/") && (skip_number(&path) != VG_(getpid)() || !skip(&path, "/")))
      return NULL;
   if (skip(&path, "task/")) {
      thread = skip_number(&path);
      if (!skip(&path, "/"))
         return NULL;
   }
   *tid = VG_(lwpid_to_vgtid)(thread);
   return *tid == VG_INVALID_THREADID ? NULL : path;
}

/* ---- what it says ---- */

/* Signals with the action; those with a handler if it is neither SIG_DFL nor SIG_IGN. */
static ULong signals_with(Bool are_ignored)
{
   ULong set = 0;
   Int signal;

   for (signal = 1; signal <= SIGNALS_N; signal++) {
      vki_sigaction_fromK_t action;
      if (sr_isError(VG_(do_sys_sigaction)(signal, NULL, &action)) || action.ksa_handler == VKI_SIG_DFL)
         continue;
      if ((action.ksa_handler == VKI_SIG_IGN) == are_ignored)
         set |= 1ULL << (signal - 1);
   }
   return set;
}

static ULong blocked_signals(ThreadId tid)
{
   vki_sigset_t set;
   ULong bits = 0;

   VG_(do_sys_sigprocmask)(tid, VKI_SIG_BLOCK, NULL, &set);
   VG_(memcpy)(&bits, &set, sizeof set < sizeof bits ? sizeof set : sizeof bits);
   return bits;
}

/* Each writes what is true instead of the line into `out`, and returns its length; 0 if the line is right. */
typedef UInt Correct(const HChar* line, ThreadId tid, HChar* out);

static UInt correct_status(const HChar* line, ThreadId tid, HChar* out)
{
   if (skip(&line, "VmSize:"))
      return VG_(sprintf)(out, "VmSize:\t%8lu kB\n", pl_memory_usage().all >> 10);
   if (skip(&line, "VmData:"))
      return VG_(sprintf)(out, "VmData:\t%8lu kB\n", pl_memory_usage().data >> 10);
   if (skip(&line, "SigBlk:"))
      return VG_(sprintf)(out, "SigBlk:\t%016llx\n", blocked_signals(tid));
   if (skip(&line, "SigIgn:"))
      return VG_(sprintf)(out, "SigIgn:\t%016llx\n", signals_with(True));
   if (skip(&line, "SigCgt:"))
      return VG_(sprintf)(out, "SigCgt:\t%016llx\n", signals_with(False));
   return 0;
}

/* Pages: size, resident, shared, text, 0, data and stack, 0. */
static UInt correct_statm(const HChar* line, ThreadId tid, HChar* out)
{
   PlUsage usage = pl_memory_usage();
   ULong numbers[7] = {0};
   UInt i;

   (void)tid;
   for (i = 0; i < 7; i++) {
      HChar* end;
      numbers[i] = VG_(strtoull10)(line, &end);
      line = end;
   }
   numbers[0] = usage.all / PAGE_BYTES;
   numbers[5] = (usage.data + usage.stack) / PAGE_BYTES;
   return VG_(sprintf)(out, "%llu %llu %llu %llu %llu %llu %llu\n", numbers[0], numbers[1], numbers[2], numbers[3],
                       numbers[4], numbers[5], numbers[6]);
}

static UInt put_limit(UWord limit, HChar* out)
{
   return limit == NO_LIMIT ? VG_(sprintf)(out, "%-20s ", "unlimited") : VG_(sprintf)(out, "%-20lu ", limit);
}

static UInt correct_limits(const HChar* line, ThreadId tid, HChar* out)
{
   struct vki_rlimit descriptors = {(UWord)VG_(fd_soft_limit), (UWord)VG_(fd_hard_limit)};
   const struct {
      const HChar* name;
      const struct vki_rlimit* limit;
      const HChar* unit;
   } lines[] = {
      {"Max cpu time", pl_cpu_time_limit(), "seconds"},
      {"Max file size", pl_limit_of_file_size(), "bytes"},
      {"Max address space", pl_memory_limit_of_address_space(), "bytes"},
      {"Max data size", &VG_(client_rlimit_data), "bytes"},
      {"Max stack size", &VG_(client_rlimit_stack), "bytes"},
      {"Max open files", &descriptors, "files"},
   };
   UInt i, length;

   (void)tid;
   for (i = 0; i < sizeof lines / sizeof lines[0]; i++) {
      if (VG_(strncmp)(line, lines[i].name, VG_(strlen)(lines[i].name)) != 0)
         continue;
      length = VG_(sprintf)(out, "%-25s ", lines[i].name);
      length += put_limit(lines[i].limit->rlim_cur, out + length);
      length += put_limit(lines[i].limit->rlim_max, out + length);
      return length + VG_(sprintf)(out + length, "%-10s\n", lines[i].unit);
   }
   return 0;
}

static const struct {
   const HChar* name;
   Correct* correct;
} files[] = {{"status", correct_status}, {"statm", correct_statm}, {"limits", correct_limits}};

/* All that the file has, or NULL. The status has all groups of the process, and so may be long. */
static HChar* read_whole(const HChar* path)
{
   SysRes file = VG_(open)(path, VKI_O_RDONLY, 0);
   SizeT room = 8192, length = 0;
   HChar* text;
   Int n;

   if (sr_isError(file))
      return NULL;
   text = VG_(malloc)("pagelab.proc_files", room);
   while ((n = VG_(read)((Int)sr_Res(file), text + length, (Int)(room - 1 - length))) > 0) {
      length += (SizeT)n;
      if (length > room / 2)
         text = VG_(realloc)("pagelab.proc_files", text, room *= 2);
   }
   VG_(close)((Int)sr_Res(file));
   text[length] = '\0';
   return text;
}

/* The corrected text, and its length; NULL if the file cannot be read. */
static HChar* read_corrected(const HChar* path, Correct* correct, ThreadId tid, UInt* length)
{
   HChar *text = read_whole(path), *line = text, *out, *end;

   *length = 0;
   if (text == NULL)
      return NULL;
   out = VG_(malloc)("pagelab.proc_files", VG_(strlen)(text) + MORE_BYTES);
   while ((end = VG_(strchr)(line, '\n')) != NULL) {
      UInt corrected = correct(line, tid, out + *length);
      if (corrected == 0) {
         corrected = (UInt)(end + 1 - line);
         VG_(memcpy)(out + *length, line, corrected);
      }
      *length += corrected;
      line = end + 1;
   }
   VG_(free)(text);
   return out;
}

/* ---- the calls ---- */

/* A descriptor of a file in memory with the text, as the program would have got it; negative if there can be none. */
static Int open_copy(const HChar* name, const HChar* text, UInt length, UWord flags)
{
   Long memory = pl_system_call(__NR_memfd_create, (ULong)(Addr)name, 1 /* MFD_CLOEXEC */, 0, 0, 0, 0);
   HChar path[40];
   SysRes opened;

   if (memory < 0)
      return -1;
   memory = VG_(safe_fd)((Int)memory);
   VG_(write)((Int)memory, text, (Int)length);
   VG_(sprintf)(path, "/proc/self/fd/%d", (Int)memory);
   opened = VG_(open)(path, (Int)flags, 0);
   VG_(close)((Int)memory);
   return sr_isError(opened) ? -1 : (Int)sr_Res(opened);
}

/* True if the call is done. */
static Bool opens_own_file(Addr path, UWord flags, SyscallStatus* status)
{
   ThreadId tid;
   const HChar* name;
   UInt i;

   if ((flags & (O_ACCESS_MODE | O_PATH | O_DIRECTORY)) != 0 || !VG_(am_is_valid_for_client)(path, 8, VKI_PROT_READ)
       || VG_(strncmp)((const HChar*)path, "/proc/", 6) != 0)
      return False;
   name = name_of_own_file((const HChar*)path, &tid);
   for (i = 0; name != NULL && i < sizeof files / sizeof files[0]; i++) {
      UInt length;
      HChar* out;
      Int descriptor;
      if (VG_(strcmp)(name, files[i].name) != 0)
         continue;
      out = read_corrected((const HChar*)path, files[i].correct, tid, &length);
      descriptor = length == 0 ? -1 : open_copy(name, out, length, flags);
      if (out != NULL)
         VG_(free)(out);
      if (descriptor < 0)
         return False;
      status->what = SsComplete;
      status->sres = VG_(mk_SysRes_Success)((UWord)descriptor);
      return True;
   }
   return False;
}

extern Before __real_vgSysWrap_generic_sys_open_before, __wrap_vgSysWrap_generic_sys_open_before;
extern Before __real_vgSysWrap_linux_sys_openat_before, __wrap_vgSysWrap_linux_sys_openat_before;

void __wrap_vgSysWrap_generic_sys_open_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                              SyscallStatus* status, UWord* flags)
{
   if (!opens_own_file(arguments->arg1, arguments->arg2, status)
       && !pl_text_refuses(AT_FDCWD, arguments->arg1, arguments->arg2, status))
      __real_vgSysWrap_generic_sys_open_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_linux_sys_openat_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                              SyscallStatus* status, UWord* flags)
{
   if (!opens_own_file(arguments->arg2, arguments->arg3, status)
       && !pl_text_refuses((Int)arguments->arg1, arguments->arg2, arguments->arg3, status))
      __real_vgSysWrap_linux_sys_openat_before(tid, layout, arguments, status, flags);
}
