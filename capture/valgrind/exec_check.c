/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* What an execve fails with. Once Valgrind has begun one, it cannot come back: the process ends, or what Valgrind loads
   is not found. So everything that the kernel would object to is looked for before. Linux 6.12: fs/exec.c
   (do_open_execat, bprm_stack_limits, copy_strings), fs/binfmt_script.c, fs/binfmt_elf.c. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "exec_check.h"
#include "stream.h"
#include "text_busy.h"

#define O_PATH 010000000
#define O_NOFOLLOW 0400000
#define O_CLOEXEC 02000000
#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#define AT_EACCESS 0x200
#define AT_EMPTY_PATH 0x1000
#define NR_FACCESSAT2 439
#define X_OK 1
#define FILE_TYPE 0170000
#define SYMBOLIC_LINK 0120000
#define REGULAR_FILE 0100000
#define ERROR_ACCESS 13
#define ERROR_LOOP 40
#define ERROR_TOO_LONG 7
#define ERROR_TEXT_BUSY 26

#define PATH_MAX 4096
/* Interpreters of interpreters that Linux follows. */
#define INTERPRETER_DEPTH 5
/* One string of an execve (MAX_ARG_STRLEN), and what all may have at least (ARG_MAX) and at most (_STK_LIM / 4 * 3). */
#define LONGEST_STRING (32 * PAGE_BYTES)
#define LEAST_ROOM (128UL << 10)
#define MOST_ROOM (6UL << 20)

#define ELF_CLASS 4 /* offset in the header; 1: 32 bit, 2: 64 bit */
#define ELF_MACHINE 18
#define ELF_PROGRAM_HEADERS 32 /* u64 */
#define ELF_HEADER_SIZE 54     /* u16 */
#define ELF_HEADERS_N 56       /* u16 */
#define HEADER_INTERPRETER 3   /* p_type */
#define MACHINE_I386 3
#define MACHINE_X86_64 62

extern Int VG_(fd_hard_limit);
extern struct vki_rlimit VG_(client_rlimit_stack);

Int pl_exec_read_head(const HChar* path, HChar* head)
{
   SysRes file = VG_(open)(path, VKI_O_RDONLY | O_CLOEXEC, 0);
   Int length;

   if (sr_isError(file))
      return -1;
   length = VG_(read)((Int)sr_Res(file), head, PL_HEAD_BYTES);
   VG_(close)((Int)sr_Res(file));
   return length;
}

static Bool is_blank(HChar character)
{
   return character == ' ' || character == '\t';
}

const HChar* pl_exec_interpreter(HChar* head, Int length)
{
   Int begin = 2, end;

   while (begin < length && is_blank(head[begin]))
      begin++;
   end = begin;
   while (end < length && !is_blank(head[end]) && head[end] != '\n' && head[end] != 0)
      end++;
   if (end == length)
      return NULL;
   head[end] = 0;
   return head + begin;
}

Bool pl_exec_is_foreign(const HChar* head)
{
   return (head[ELF_MACHINE] != MACHINE_X86_64 && head[ELF_MACHINE] != MACHINE_I386) || head[ELF_MACHINE + 1] != 0;
}

/* ---- the file ---- */

static UWord check_file(Int file)
{
   struct vg_stat facts;
   Long result;

   if (VG_(fstat)(file, &facts) != 0)
      return VKI_EBADF;
   if ((facts.mode & FILE_TYPE) == SYMBOLIC_LINK)
      return ERROR_LOOP;
   if ((facts.mode & FILE_TYPE) != REGULAR_FILE)
      return ERROR_ACCESS;
   result = pl_system_call(NR_FACCESSAT2, (ULong)file, (ULong)(Addr) "", X_OK, AT_EACCESS | AT_EMPTY_PATH, 0, 0);
   /* Kernels before 5.8 lack the call; Valgrind looks at the file's mode. */
   if (result == -ERROR_ACCESS)
      return ERROR_ACCESS;
   return pl_text_is_written(file) ? ERROR_TEXT_BUSY : 0;
}

UWord pl_exec_find(Int directory, const HChar* path, UWord flags, Int* file)
{
   Long opened;

   *file = -1;
   if (path[0] == '\0' && !(flags & AT_EMPTY_PATH))
      return VKI_ENOENT;
   if (flags & ~(UWord)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
      return VKI_EINVAL;
   if (path[0] != '/' && directory != AT_FDCWD && (directory < 0 || directory >= VG_(fd_hard_limit)))
      return VKI_EBADF;
   if (path[0] == '\0' && directory != AT_FDCWD)
      opened = VG_(fcntl)(directory, VKI_F_DUPFD, 3);
   else
      opened = pl_system_call(__NR_openat, (ULong)(Long)directory, (ULong)(Addr)(path[0] == '\0' ? "." : path),
                              O_PATH | O_CLOEXEC | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0), 0, 0, 0);
   if (opened < 0)
      return path[0] == '\0' ? VKI_EBADF : (UWord)-opened;
   *file = VG_(safe_fd)((Int)opened);
   return check_file(*file);
}

/* ---- the lists ---- */

/* The string's length with its end; 0 if it is not readable to there. */
static SizeT string_bytes(Addr string)
{
   Addr end = string;

   for (;;) {
      Addr page_end = (end & ~(PAGE_BYTES - 1)) + PAGE_BYTES;
      if (!VG_(am_is_valid_for_client)(end, 1, VKI_PROT_READ))
         return 0;
      while (end < page_end && *(const HChar*)end != '\0')
         end++;
      if (end < page_end)
         return end + 1 - string;
      if (end - string > LONGEST_STRING)
         return end - string;
   }
}

/* Adds the numbers of strings and of bytes. */
static UWord count(Addr list, UWord* n, SizeT* bytes)
{
   if (list == 0)
      return 0;
   for (;; list += sizeof(Addr)) {
      SizeT length;
      if (!VG_(am_is_valid_for_client)(list, sizeof(Addr), VKI_PROT_READ))
         return VKI_EFAULT;
      if (*(const Addr*)list == 0)
         return 0;
      length = string_bytes(*(const Addr*)list);
      if (length == 0)
         return VKI_EFAULT;
      if (length > LONGEST_STRING)
         return ERROR_TOO_LONG;
      *bytes += length;
      *n += 1;
   }
}

UWord pl_exec_check_lists(Addr arguments, Addr environment, SizeT own_bytes, UWord* arguments_n)
{
   SizeT room = VG_(client_rlimit_stack).rlim_cur / 4, bytes = own_bytes;
   UWord variables_n = 0, error;

   *arguments_n = 0;
   error = count(arguments, arguments_n, &bytes);
   if (error == 0)
      error = count(environment, &variables_n, &bytes);
   if (error != 0)
      return error;
   room = room > MOST_ROOM ? MOST_ROOM : room < LEAST_ROOM ? LEAST_ROOM : room;
   bytes += ((*arguments_n == 0 ? 1 : *arguments_n) + variables_n) * sizeof(Addr);
   return bytes > room ? ERROR_TOO_LONG : 0;
}

/* ---- the format ---- */

static UWord check_format(const HChar* path, Int depth);

/* An interpreter: of a script, or ld.so. */
static UWord check_interpreter(const HChar* path, Int depth)
{
   Int file;
   UWord error;

   error = pl_exec_find(AT_FDCWD, path, 0, &file);
   if (file >= 0)
      VG_(close)(file);
   return error != 0 || depth < 0 ? error : check_format(path, depth);
}

static UInt u16(const HChar* bytes)
{
   return (UChar)bytes[0] | (UInt)(UChar)bytes[1] << 8;
}

static ULong u64(const HChar* bytes)
{
   ULong value;

   VG_(memcpy)(&value, bytes, sizeof value);
   return value;
}

static UWord check_dynamic_linker(const HChar* path, const HChar* head)
{
   static HChar header[256], name[PATH_MAX];
   UInt size = u16(head + ELF_HEADER_SIZE), n = u16(head + ELF_HEADERS_N), i;
   SysRes file = VG_(open)(path, VKI_O_RDONLY | O_CLOEXEC, 0);

   if (sr_isError(file))
      return 0;
   name[0] = '\0';
   for (i = 0; i < n && size >= 56 && size <= sizeof header && name[0] == '\0'; i++) {
      ULong at = u64(head + ELF_PROGRAM_HEADERS) + (ULong)i * size, length;
      if (pl_system_call(__NR_pread64, sr_Res(file), (ULong)(Addr)header, size, at, 0, 0) != size)
         break;
      /* p_offset and p_filesz */
      length = u64(header + 32);
      if (u16(header) != HEADER_INTERPRETER || u16(header + 2) != 0 || length < 2 || length >= PATH_MAX)
         continue;
      pl_system_call(__NR_pread64, sr_Res(file), (ULong)(Addr)name, length, u64(header + 8), 0, 0);
      name[length] = '\0';
   }
   VG_(close)((Int)sr_Res(file));
   return name[0] == '\0' ? 0 : check_interpreter(name, -1);
}

static UWord check_format(const HChar* path, Int depth)
{
   HChar head[PL_HEAD_BYTES];
   struct vg_stat facts;
   const HChar* interpreter;
   Int length;

   VG_(memset)(head, 0, sizeof head);
   length = pl_exec_read_head(path, head);
   if (length < 0)
      return 0;
   if (head[0] == '#' && head[1] == '!') {
      if (depth == 0)
         return ERROR_LOOP;
      interpreter = pl_exec_interpreter(head, length);
      return interpreter == NULL || interpreter[0] == '\0' ? VKI_ENOEXEC : check_interpreter(interpreter, depth - 1);
   }
   /* An emulator may run what is not for this processor (binfmt_misc). */
   if (!sr_isError(VG_(stat)("/proc/sys/fs/binfmt_misc/status", &facts)))
      return 0;
   if (length < ELF_MACHINE + 2 || VG_(memcmp)(head, "\177ELF", 4) != 0 || pl_exec_is_foreign(head))
      return VKI_ENOEXEC;
   return head[ELF_CLASS] == 2 && length >= 64 ? check_dynamic_linker(path, head) : 0;
}

UWord pl_exec_check_format(const HChar* path)
{
   return check_format(path, INTERPRETER_DEPTH);
}
