/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "files.h"
#include "memory.h"
#include "stream.h"

#define TMPFS_MAGIC 0x01021994
#define SECRETMEM_MAGIC 0x5345434d
#define PROC_MAGIC 0x9fa0
/* No device of a file. */
#define SYSTEM_V_DEVICE (~0ULL)
#define IPC_STAT 2
#define O_TRUNC 01000
/* Opened for its name and status alone: this neither blocks nor takes locks away when it is closed. */
#define O_PATH 010000000
#define O_CLOEXEC 02000000
#define AT_FDCWD (-100)
#define NR_OPENAT2 437
#define MAP_PRIVATE 0x02
#define MAP_NORESERVE 0x4000
#define FALLOC_FL_PUNCH_HOLE 0x02
#define FALLOC_FL_COLLAPSE_RANGE 0x08
#define FALLOC_FL_ZERO_RANGE 0x10
#define FALLOC_FL_INSERT_RANGE 0x20
#define SEEK_CUR 1
#define END_OF_ALL_FILES (1ULL << 62)

/* Of threads whose system call under way gives a file another length: the one that it has. By thread, as others may run
   meanwhile; one that shares its place with another's is left out. */
#define TRUNCATIONS 256
static struct {
   ThreadId thread;
   ULong from;
} truncations[TRUNCATIONS];

/* ---- which file ---- */

/* The magic number of the descriptor's file system; 0 without one. */
static ULong file_system_of(Int descriptor)
{
   ULong about[15];

   if (descriptor < 0 || pl_system_call(__NR_fstatfs, descriptor, (ULong)(Addr)about, 0, 0, 0, 0) != 0)
      return 0;
   return about[0];
}

PlFileId pl_file_id(Int descriptor)
{
   static const PlFileId none = {0, 0};
   ULong magic = file_system_of(descriptor);
   struct vg_stat status;
   PlFileId id;

   if ((magic != TMPFS_MAGIC && magic != SECRETMEM_MAGIC) || VG_(fstat)(descriptor, &status) != 0
       || !VKI_S_ISREG(status.mode))
      return none;
   id.device = status.dev;
   id.inode = status.ino;
   return id;
}

Bool pl_is_in_memory(PlFileId id)
{
   return id.inode != 0;
}

void pl_put_file_id(PlFileId id)
{
   pl_put64(id.device);
   pl_put64(id.inode);
}

PlFileId pl_segment_id(Int segment)
{
   PlFileId id = {SYSTEM_V_DEVICE, (ULong)(UInt)segment + 1};

   return id;
}

const HChar* pl_segment_name(Int segment)
{
   static HChar name[40];
   UInt about[64] = {0};

   /* The key comes first in struct shmid_ds. */
   pl_system_call(__NR_shmctl, (ULong)(Long)segment, IPC_STAT, (ULong)(Addr)about, 0, 0, 0);
   VG_(sprintf)(name, "/SYSV%08x (deleted)", about[0]);
   return name;
}

SizeT pl_files_bytes_from(Int descriptor, ULong offset, SizeT length)
{
   struct vg_stat status;
   ULong end;

   if (VG_(fstat)(descriptor, &status) != 0 || !VKI_S_ISREG(status.mode))
      return length;
   end = pl_whole_pages((SizeT)status.size);
   if (offset >= end)
      return 0;
   return end - offset < length ? end - offset : length;
}

/* The path of an open file; NULL if it is not to be had. */
static const HChar* path_of(Int descriptor)
{
   static HChar file[PL_STRING_MAX];
   HChar link[40];
   SSizeT bytes;

   VG_(sprintf)(link, "/proc/self/fd/%d", descriptor);
   bytes = VG_(readlink)(link, file, sizeof(file) - 1);
   if (bytes <= 0)
      return NULL;
   file[bytes] = '\0';
   return file;
}

static void send_part(PlControl kind, ULong offset, ULong length, PlFileId id, const HChar* file)
{
   pl_begin(kind, 36 + PL_STRING_MAX);
   pl_put64(offset);
   pl_put64(length);
   pl_put_file_id(id);
   pl_put_string(file);
   pl_end();
}

/* ---- data ---- */

void pl_files_send_data(Addr mapped, ULong offset, SizeT length, PlFileId id, const HChar* file)
{
   static UChar present[65536];
   SizeT pages = (length + PAGE_BYTES - 1) / PAGE_BYTES, first, i, start = 0;
   Bool in_run = False;

   for (first = 0; first < pages; first += sizeof present) {
      SizeT n = pages - first < sizeof present ? pages - first : sizeof present;
      if (pl_system_call(__NR_mincore, mapped + first * PAGE_BYTES, n * PAGE_BYTES, (ULong)(Addr)present, 0, 0, 0) != 0)
         VG_(memset)(present, 1, n);
      for (i = 0; i < n; i++) {
         if ((present[i] & 1) && !in_run) {
            start = first + i;
         } else if (!(present[i] & 1) && in_run) {
            send_part(PL_FILE_DATA, offset + start * PAGE_BYTES, (first + i - start) * PAGE_BYTES, id, file);
         }
         in_run = present[i] & 1;
      }
   }
   if (in_run)
      send_part(PL_FILE_DATA, offset + start * PAGE_BYTES, (pages - start) * PAGE_BYTES, id, file);
}

/* The kernel tells by a mapping which pages are in the page cache, without a change of the descriptor's offset. */
void pl_files_before_map(Int descriptor, ULong offset, SizeT length)
{
   PlFileId id = pl_file_id(descriptor);
   struct vg_stat status;
   const HChar* file;
   Long mapped;

   if (!pl_is_in_memory(id) || VG_(fstat)(descriptor, &status) != 0 || status.blocks == 0
       || offset >= (ULong)status.size || offset % PAGE_BYTES != 0)
      return;
   if (length > (ULong)status.size - offset)
      length = (ULong)status.size - offset;
   file = path_of(descriptor);
   if (file == NULL)
      return;
   mapped = pl_system_call(__NR_mmap, 0, length, 0, MAP_PRIVATE | MAP_NORESERVE, descriptor, offset);
   if (mapped < 0 && mapped > -4096) {
      send_part(PL_FILE_DATA, offset, length, id, file);
      return;
   }
   pl_files_send_data((Addr)mapped, offset, length, id, file);
   pl_system_call(__NR_munmap, mapped, length, 0, 0, 0, 0);
}

/* A call has written so many bytes up to this address to the memory of the process whose /proc/PID/mem the descriptor
   is. */
static void after_memory_write(Int descriptor, Addr end, UWord bytes)
{
   const HChar* file = path_of(descriptor);
   HChar* rest;
   Long pid;

   if (file == NULL || VG_(strncmp)(file, "/proc/", 6) != 0)
      return;
   pid = VG_(strtoll10)(file + 6, &rest);
   /* Of a thread: /proc/PID/task/TID/mem. */
   if (VG_(strncmp)(rest, "/task/", 6) == 0)
      VG_(strtoll10)(rest + 6, &rest);
   if (pid > 0 && VG_(strcmp)(rest, "/mem") == 0)
      pl_memory_of_process((Int)pid, True, end - bytes, bytes);
}

void pl_files_written(Int descriptor, Long end, UWord bytes)
{
   PlFileId id;
   const HChar* file;

   if (bytes == 0)
      return;
   if (file_system_of(descriptor) == PROC_MAGIC) {
      after_memory_write(descriptor, (Addr)(end < 0 ? VG_(lseek)(descriptor, 0, SEEK_CUR) : end), bytes);
      return;
   }
   id = pl_file_id(descriptor);
   if (!pl_is_in_memory(id))
      return;
   file = path_of(descriptor);
   if (end < 0)
      end = VG_(lseek)(descriptor, 0, SEEK_CUR);
   if (file != NULL && end >= (Long)bytes)
      send_part(PL_FILE_DATA, (ULong)end - bytes, bytes, id, file);
}

/* The same of a call with a pointer to the place, which it has moved. */
static void after_write_to(Int descriptor, Addr place, UWord bytes)
{
   pl_files_written(descriptor, place != 0 ? *(const Long*)place : -1, bytes);
}

/* ---- lengths and holes ---- */

/* The descriptor's regular file is about to get another length. */
static void before_truncation(ThreadId tid, Int descriptor)
{
   struct vg_stat status;

   truncations[tid % TRUNCATIONS].thread = VG_INVALID_THREADID;
   if (descriptor < 0 || VG_(fstat)(descriptor, &status) != 0 || !VKI_S_ISREG(status.mode))
      return;
   truncations[tid % TRUNCATIONS].thread = tid;
   truncations[tid % TRUNCATIONS].from = (ULong)status.size;
}

static void after_truncation(ThreadId tid, Int descriptor, ULong length)
{
   ULong from = truncations[tid % TRUNCATIONS].from;
   const HChar* file;

   if (descriptor < 0 || truncations[tid % TRUNCATIONS].thread != tid)
      return;
   truncations[tid % TRUNCATIONS].thread = VG_INVALID_THREADID;
   file = path_of(descriptor);
   if (file != NULL)
      send_part(PL_TRUNCATE, from, length, pl_file_id(descriptor), file);
}

/* A descriptor of a path's file; -1 without one. */
static Int open_path(Int folder, Addr path)
{
   if (!VG_(am_is_valid_for_client)(path, 1, VKI_PROT_READ))
      return -1;
   return (Int)pl_system_call(__NR_openat, (ULong)(Long)folder, path, O_PATH | O_CLOEXEC, 0, 0, 0);
}

static void close_path(Int descriptor)
{
   if (descriptor >= 0)
      VG_(close)(descriptor);
}

static void before_path_is_truncated(ThreadId tid, Int folder, Addr path)
{
   Int descriptor = open_path(folder, path);

   before_truncation(tid, descriptor);
   /* A file that is empty, or that the call creates, loses nothing. */
   if (truncations[tid % TRUNCATIONS].from == 0)
      truncations[tid % TRUNCATIONS].thread = VG_INVALID_THREADID;
   close_path(descriptor);
}

static void after_fallocate(Int descriptor, UWord mode, ULong offset, ULong length)
{
   const HChar* file;

   if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)))
      return;
   /* What follows goes to other places. */
   if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
      length = END_OF_ALL_FILES;
   file = path_of(descriptor);
   if (file != NULL)
      send_part(PL_FILE_HOLE, offset, length, pl_file_id(descriptor), file);
}

/* ---- system calls ---- */

/* Of the flags with which struct open_how begins. */
static Bool truncates(Addr how)
{
   return VG_(am_is_valid_for_client)(how, sizeof(UWord), VKI_PROT_READ) && (*(const UWord*)how & O_TRUNC);
}

void pl_files_before_call(ThreadId tid, UInt number, const UWord* args)
{
   switch (number) {
   case __NR_ftruncate: before_truncation(tid, (Int)args[0]); break;
   case __NR_truncate: {
      Int descriptor = open_path(AT_FDCWD, args[0]);
      before_truncation(tid, descriptor);
      close_path(descriptor);
      break;
   }
   case __NR_creat: before_path_is_truncated(tid, AT_FDCWD, args[0]); break;
   case __NR_open:
      if (args[1] & O_TRUNC)
         before_path_is_truncated(tid, AT_FDCWD, args[0]);
      break;
   case __NR_openat:
      if (args[2] & O_TRUNC)
         before_path_is_truncated(tid, (Int)args[0], args[1]);
      break;
   case NR_OPENAT2:
      if (truncates(args[2]))
         before_path_is_truncated(tid, (Int)args[0], args[1]);
      break;
   default:
      break;
   }
}

void pl_files_after_call(ThreadId tid, UInt number, const UWord* args, UWord value)
{
   switch (number) {
   case __NR_write:
   case __NR_writev: pl_files_written((Int)args[0], -1, value); break;
   case __NR_pwrite64:
   case __NR_pwritev:
   case __NR_pwritev2:
      pl_files_written((Int)args[0], (Long)args[3] < 0 ? -1 : (Long)(args[3] + value), value);
      break;
   case __NR_sendfile: pl_files_written((Int)args[0], -1, value); break;
   case __NR_copy_file_range:
   case __NR_splice: after_write_to((Int)args[2], args[3], value); break;
   case __NR_fallocate: after_fallocate((Int)args[0], args[1], args[2], args[3]); break;
   case __NR_ftruncate: after_truncation(tid, (Int)args[0], args[1]); break;
   case __NR_truncate: {
      Int descriptor = open_path(AT_FDCWD, args[0]);
      after_truncation(tid, descriptor, args[1]);
      close_path(descriptor);
      break;
   }
   case __NR_creat: after_truncation(tid, (Int)value, 0); break;
   case __NR_open:
      if (args[1] & O_TRUNC)
         after_truncation(tid, (Int)value, 0);
      break;
   case __NR_openat:
      if (args[2] & O_TRUNC)
         after_truncation(tid, (Int)value, 0);
      break;
   case NR_OPENAT2:
      if (truncates(args[2]))
         after_truncation(tid, (Int)value, 0);
      break;
   default:
      break;
   }
}
