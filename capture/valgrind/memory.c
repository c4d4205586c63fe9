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
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "allocations.h"
#include "core.h"
#include "files.h"
#include "io_uring.h"
#include "layout.h"
#include "memory.h"
#include "memory_locks.h"
#include "proc_self.h"
#include "process.h"
#include "ranges.h"
#include "stream.h"
#include "translate.h"

#define MAP_SHARED 0x01
#define MAP_PRIVATE 0x02
#define MAP_ANONYMOUS 0x20
#define MAP_GROWSDOWN 0x100
#define MAP_LOCKED 0x2000
#define MAP_POPULATE 0x8000
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#define MREMAP_DONTUNMAP 4
#define NR_REMAP_FILE_PAGES 216
#define MAP_NONBLOCK 0x10000

static Addr last_brk = 0;
static SizeT detaching_bytes = 0;
/* Where the first stack begins for the kernel; Valgrind's is shorter, and grows. */
static Addr stack_start = 0;
/* Mappings that are not private. */
static Ranges shared;
/* Mappings of files in memory. */
static Ranges in_memory;
static const PlFileId no_memory_file = {0, 0};
/* The file of the mapping under way ends in it: what is populated is recorded on its own. */
static Bool ends_in_mapping = False;

static void send_advice(Addr address, SizeT length, UInt advice)
{
   pl_begin(PL_MADVISE, 20);
   pl_put64(address);
   pl_put64(length);
   pl_put32(advice);
   pl_end();
}

/* ---- mappings ---- */

static void send_mapping_of(Addr address, SizeT length, UInt protection, UInt flags, ULong offset, PlFileId id,
                            const HChar* file)
{
   pl_begin(PL_MMAP, 56 + PL_STRING_MAX);
   pl_put64(address);
   pl_put64(length);
   pl_put32(protection);
   pl_put32(pl_locks_mapped(address, length, protection, flags, ends_in_mapping));
   pl_put64(offset);
   pl_put_file_id(id);
   pl_put_string(file);
   pl_end();
   pl_ranges_remove(&in_memory, address, length);
   if (pl_is_in_memory(id))
      pl_ranges_add(&in_memory, address, length);
   pl_allocations_unmapped(address, length);
   if (protection & VKI_PROT_EXEC)
      pl_allocations_mapped(address, length, offset, file);
}

static void send_mapping(Addr address, SizeT length, UInt protection, UInt flags, ULong offset, const HChar* file)
{
   send_mapping_of(address, length, protection, flags, offset, no_memory_file, file);
}

static UInt protection_of(const NSegment* segment)
{
   return (segment->hasR ? 1 : 0) | (segment->hasW ? 2 : 0) | (segment->hasX ? 4 : 0);
}

static void send_brk(Addr end)
{
   Addr before = last_brk != 0 ? last_brk : end;

   if (end == last_brk)
      return;
   last_brk = end;
   pl_begin(PL_BRK, 16);
   pl_put64(VG_(brk_base));
   pl_put64(end);
   pl_end();
   if (end > before)
      pl_locks_heap_grew(before, end);
}

void pl_memory_kernel_access(Bool writes, Addr address, SizeT length)
{
   if (length == 0)
      return;
   pl_begin(PL_KERNEL_ACCESS, 20);
   pl_put32(writes ? 1 : 0);
   pl_put64(address);
   pl_put64(length);
   pl_end();
   if (pl_process_is_in_exec())
      pl_stream_flush();
}

/* As execve leaves the first stack, before it grows: with room below the strings of arguments and environment.
   Valgrind's own is shorter, with room reserved below. */
static Addr start_of_stack(Addr stack_pointer)
{
   /* The number of arguments, the arguments, NULL, and the environment. */
   const Addr* arguments = (const Addr*)stack_pointer + 1;
   Addr lowest = arguments[0], variable = arguments[*(const Addr*)stack_pointer + 1], start;

   if (lowest == 0 || (variable != 0 && variable < lowest))
      lowest = variable;
   if (lowest == 0)
      lowest = stack_pointer;
   start = (lowest & ~(Addr)4095) - PL_EXEC_STACK_BYTES;
   return start < stack_pointer ? start : stack_pointer & ~(Addr)4095;
}

/* The mappings with which the program begins: its own image, the dynamic linker, stack and heap. Valgrind hides the
   kernel's vdso, so there is none. */
void pl_memory_begins(ThreadId tid)
{
   Addr starts[256];
   Int n = VG_(am_get_segment_starts)(SkFileC | SkAnonC | SkShmC, starts, 256), i;
   Addr stack_pointer = VG_(get_SP)(tid);

   for (i = 0; i < n; i++) {
      const NSegment* segment = VG_(am_find_nsegment)(starts[i]);
      Addr start = segment->start;
      if (segment->isCH)
         continue;
      if (segment->start <= stack_pointer && stack_pointer <= segment->end) {
         start = stack_start = start_of_stack(stack_pointer);
         send_mapping(start, segment->end + 1 - start, protection_of(segment),
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, 0, "[stack]");
         /* The kernel wrote arguments, environment and auxiliary vector there. */
         pl_memory_kernel_access(True, stack_pointer, segment->end + 1 - stack_pointer);
      } else if (segment->kind == SkFileC) {
         send_mapping(start, segment->end + 1 - start, protection_of(segment), MAP_PRIVATE,
                      (ULong)segment->offset, VG_(am_get_filename)(segment));
      } else {
         send_mapping(start, segment->end + 1 - start, protection_of(segment), MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL);
      }
   }
   send_brk(VG_(brk_limit));
   pl_proc_self_begins(stack_pointer);
}

static void after_msync(UWord* args)
{
   pl_begin(PL_MSYNC, 20);
   pl_put64(args[0]);
   pl_put64(pl_whole_pages(args[1]));
   pl_put32((UInt)args[2]);
   pl_end();
}

static void send_address_length(PlControl kind, Addr address, SizeT length)
{
   pl_begin(kind, 24);
   pl_put64(address);
   pl_put64(pl_whole_pages(length));
   pl_end();
}

/* Memory files have no other name; the kernel adds that it is deleted. */
static Bool is_memory_file(const HChar* file)
{
   return VG_(strncmp)(file, "/memfd:", 7) == 0 || VG_(strncmp)(file, "/dev/shm/", 9) == 0;
}

/* Whether what a mapping of a file has can change other than by writes to the mapping that Valgrind looks for. */
static Bool is_mutable_file(const HChar* file, UWord protection, UWord flags)
{
   Bool written_and_executed = (protection & VKI_PROT_WRITE) && (protection & VKI_PROT_EXEC);

   return (flags & MAP_SHARED) || written_and_executed || (file != NULL && is_memory_file(file));
}

static void send_file_mapping(const UWord* args, Addr address, const HChar* file)
{
   SizeT length = pl_whole_pages(args[1]), populated = length;
   UInt flags = (UInt)args[3];
   PlFileId id = no_memory_file;

   if (file != NULL) {
      id = pl_file_id((Int)args[4]);
      populated = pl_files_bytes_from((Int)args[4], args[5], length);
   }
   if (populated == length || !pl_locks_populates(flags)) {
      send_mapping_of(address, length, (UInt)args[2], flags, args[5], id, file);
      return;
   }
   /* The file ends before the mapping: there is nothing to populate behind its end. */
   ends_in_mapping = True;
   send_mapping_of(address, length, (UInt)args[2], flags, args[5], id, file);
   ends_in_mapping = False;
   if (populated > 0 && (args[2] & (VKI_PROT_READ | VKI_PROT_WRITE | VKI_PROT_EXEC)))
      send_advice(address, populated,
                  (args[2] & VKI_PROT_WRITE) && !(flags & MAP_SHARED) ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

static void after_mmap(UWord* args, Addr address)
{
   const HChar* file = NULL;
   if (!(args[3] & MAP_ANONYMOUS)) {
      const NSegment* segment = VG_(am_find_nsegment)(address);
      if (segment != NULL)
         file = VG_(am_get_filename)(segment);
   }
   if (!(args[3] & MAP_ANONYMOUS) && is_mutable_file(file, args[2], args[3]))
      pl_translate_mutable(address, pl_whole_pages(args[1]));
   else
      pl_translate_forget(address, pl_whole_pages(args[1]));
   pl_ranges_remove(&shared, address, pl_whole_pages(args[1]));
   if (args[3] & MAP_SHARED)
      pl_ranges_add(&shared, address, pl_whole_pages(args[1]));
   send_file_mapping(args, address, file);
}

static void send_protection(Addr address, SizeT length, UInt protection)
{
   pl_begin(PL_MPROTECT, 20);
   pl_put64(address);
   pl_put64(length);
   pl_put32(protection);
   pl_end();
}

void pl_memory_protected(Addr start, SizeT length, UWord protection)
{
   const NSegment* segment = VG_(am_find_nsegment)(start);

   if (length == 0)
      return;
   /* Code that a program writes into a mapping of a file, be it executed only later. */
   if ((protection & VKI_PROT_WRITE) && segment != NULL && segment->kind == SkFileC)
      pl_translate_mutable(start, length);
   else if ((protection & VKI_PROT_WRITE) && (protection & VKI_PROT_EXEC))
      VG_(discard_translations)(start, length, "pagelab: code that may be written");
   send_protection(start, length, (UInt)protection);
   pl_locks_protected(start, length);
}

/* ---- parts of ranges ---- */

/* Segments are an array that covers all addresses, gaps included. */
const NSegment* pl_memory_first_segment(void)
{
   const NSegment* segment = VG_(am_find_nsegment)(VG_(brk_base));

   while (segment != NULL && segment->start > 0)
      segment--;
   return segment;
}

const NSegment* pl_memory_next_segment(const NSegment* segment)
{
   return segment->end == ~(Addr)0 ? NULL : segment + 1;
}

Bool pl_memory_for_parts(Addr start, SizeT length, Bool stop_at_hole, PlOfPart* of_part, UInt argument)
{
   const NSegment* segment = VG_(am_find_nsegment)(start);
   Addr end = start + length, reached = start;

   if (end < start)
      return False;
   /* There is none to be found in a gap. */
   if (segment == NULL)
      segment = pl_memory_first_segment();
   for (; segment != NULL && segment->start < end; segment = pl_memory_next_segment(segment)) {
      Addr from = segment->start > start ? segment->start : start;
      Addr to = segment->end < end - 1 ? segment->end + 1 : end;
      if (from >= to || !pl_memory_is_programs(segment))
         continue;
      if ((stop_at_hole && from != reached) || !of_part(segment, from, to - from, argument))
         return False;
      reached = to;
   }
   return reached == end;
}

static Bool populates(UInt advice)
{
   return advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;
}

static Bool stops_at_locks(UInt advice)
{
   return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE || advice == MADV_COLD
          || advice == MADV_PAGEOUT;
}

/* As much of the part as the kernel works on before it fails. */
static Bool advise_part(const NSegment* segment, Addr start, SizeT length, UInt advice)
{
   SizeT allowed = length;

   if (stops_at_locks(advice))
      allowed = pl_locks_bytes_before(start, length);
   if ((advice == MADV_POPULATE_WRITE && !segment->hasW)
       || (advice == MADV_POPULATE_READ && !segment->hasR && !segment->hasW && !segment->hasX)
       || (advice == MADV_FREE && (segment->kind != SkAnonC || pl_memory_is_shared(start, length)))
       || (advice == MADV_REMOVE && (!segment->hasW || pl_memory_shared_bytes(start, length) < length)))
      allowed = 0;
   if (allowed > 0)
      send_advice(start, allowed, advice);
   return allowed == length;
}

void pl_memory_advice_failed(Addr start, SizeT length, UInt advice)
{
   pl_memory_for_parts(start, length, populates(advice), advise_part, advice);
}

/* ---- memory of other calls ---- */

void pl_memory_of_process(Int pid, Bool writes, Addr address, SizeT length)
{
   if (pid == VG_(getpid)()) {
      pl_memory_kernel_access(writes, address, length);
   } else if (length > 0) {
      pl_begin(PL_REMOTE_ACCESS, 24);
      pl_put32((UInt)pid);
      pl_put32(writes);
      pl_put64(address);
      pl_put64(length);
      pl_end();
   }
}

/* `bytes` of what the vectors name have been read or written in the memory of the process, which may be this one. */
static void after_process_vm(const UWord* args, Bool writes, UWord bytes)
{
   const struct vki_iovec* vectors = (const struct vki_iovec*)args[3];
   UWord i;

   for (i = 0; i < args[4] && bytes > 0; i++) {
      SizeT length = vectors[i].iov_len < bytes ? vectors[i].iov_len : bytes;
      pl_memory_of_process((Int)args[0], writes, (Addr)vectors[i].iov_base, length);
      bytes -= length;
   }
}

void pl_memory_advised(Addr address, SizeT length, UInt advice)
{
   send_advice(address, pl_whole_pages(length), advice);
}

Bool pl_memory_is_shared(Addr address, SizeT length)
{
   return pl_ranges_touch(&shared, address, length);
}

SizeT pl_memory_shared_bytes(Addr address, SizeT length)
{
   return pl_ranges_bytes(&shared, address, length);
}

Bool pl_memory_is_programs(const NSegment* segment)
{
   return segment->kind == SkAnonC || segment->kind == SkFileC || segment->kind == SkShmC;
}

Addr pl_memory_stack_start(void)
{
   return stack_start;
}

/* A new shared mapping of what is mapped at `old`; of a file from `offset` on. */
static void after_mapped_again(Addr old, ULong offset, Addr address, SizeT length, UInt flags)
{
   const NSegment* segment = VG_(am_find_nsegment)(old);
   const HChar* file = segment->kind == SkFileC ? VG_(am_get_filename)(segment) : NULL;
   PlFileId id = no_memory_file;

   if (file != NULL && pl_ranges_touch(&in_memory, old, 1)) {
      id.device = segment->dev;
      id.inode = segment->ino;
      pl_files_send_data(address, offset, length, id, file);
   }
   if (file == NULL)
      VG_(umsg)("pagelab note: it maps shared memory a second time (mremap), which counts as other memory\n");
   pl_translate_mutable(address, length);
   pl_ranges_add(&shared, address, length);
   send_mapping_of(address, length, protection_of(segment), flags, offset, id, file);
}

/* The pages of a shared mapping are those of another part of its file from now on. */
static void after_remap_file_pages(const UWord* args)
{
   after_mapped_again(args[0], args[3] * PAGE_BYTES, args[0], pl_whole_pages(args[1]),
                      args[4] & MAP_NONBLOCK ? MAP_SHARED : MAP_SHARED | MAP_POPULATE);
}

static void after_mremap(const UWord* args, Addr address)
{
   SizeT old_length = pl_whole_pages(args[1]), length = pl_whole_pages(args[2]);
   const NSegment* segment;

   if (old_length == 0) {
      segment = VG_(am_find_nsegment)(args[0]);
      after_mapped_again(args[0], (ULong)segment->offset + (args[0] - segment->start), address, length, MAP_SHARED);
      return;
   }
   segment = VG_(am_find_nsegment)(address);
   if (length > old_length && pl_ranges_touch(&in_memory, args[0], old_length) && segment != NULL
       && segment->kind == SkFileC) {
      PlFileId id = {segment->dev, segment->ino};
      pl_files_send_data(address + old_length, (ULong)segment->offset + (address + old_length - segment->start),
                         length - old_length, id, VG_(am_get_filename)(segment));
   }
   pl_ranges_move(&in_memory, args[0], old_length, address, length);
   pl_translate_moved(args[0], old_length, address, length);
   pl_ranges_move(&shared, args[0], old_length, address, length);
   pl_begin(PL_MREMAP, 32);
   pl_put64(args[0]);
   pl_put64(old_length);
   pl_put64(address);
   pl_put64(length);
   pl_end();
   pl_locks_moved(args[0], old_length, address, length);
   if (address == args[0] && length < old_length)
      pl_layout_unmapped(args[0] + length, old_length - length);
   else if (address != args[0] && !(args[3] & MREMAP_DONTUNMAP))
      pl_layout_unmapped(args[0], old_length);
   if (!(args[3] & MREMAP_DONTUNMAP))
      return;
   /* The pages have gone; the mapping is still there. */
   if (segment != NULL && pl_memory_is_shared(address, 1)) {
      after_mapped_again(address, (ULong)segment->offset + (address - segment->start), args[0], old_length, MAP_SHARED);
      return;
   }
   segment = VG_(am_find_nsegment)(args[0]);
   if (segment != NULL)
      send_mapping(args[0], old_length, protection_of(segment), MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL);
}

/* ---- system calls ---- */

void pl_memory_before_call(ThreadId tid, UInt number, const UWord* args)
{
   pl_files_before_call(tid, number, args);
   switch (number) {
   case __NR_mmap:
      if (!(args[3] & MAP_ANONYMOUS))
         pl_files_before_map((Int)args[4], args[5], pl_whole_pages(args[1]));
      break;
   case __NR_mprotect:
   case __NR_pkey_mprotect: pl_locks_before_protect(args[0], pl_whole_pages(args[1]), args[2]); break;
   case __NR_io_uring_enter: pl_io_uring_before_enter((Int)args[0], (UInt)args[1]); break;
   case __NR_shmdt: {
      const NSegment* segment = VG_(am_find_nsegment)(args[0]);
      detaching_bytes = segment != NULL && segment->start == args[0] ? segment->end + 1 - segment->start : 0;
      break;
   }
   default:
      break;
   }
}

void pl_memory_after_failure(UInt number, UWord* args, UWord error)
{
   UInt advice = (UInt)args[2];
   Bool advises = number == __NR_madvise && args[0] % PAGE_BYTES == 0;

   /* Parts of the range are not mapped, are locked, or must not be accessed; what comes before them, or all else, is
      done. */
   if (error != VKI_ENOMEM && !(advises && populates(advice) && (error == VKI_EINVAL || error == VKI_EFAULT))
       && !(advises && stops_at_locks(advice) && (error == VKI_EINVAL || error == VKI_EACCES)))
      return;
   switch (number) {
   case __NR_msync: after_msync(args); break;
   case __NR_madvise: pl_memory_advice_failed(args[0], pl_whole_pages(args[1]), advice); break;
   case __NR_mlock:
   case __NR_mlock2: pl_locks_failed(number, args); break;
   default:
      break;
   }
}

void pl_memory_after_call(ThreadId tid, UInt number, UWord* args, UWord value)
{
   pl_files_after_call(tid, number, args, value);
   switch (number) {
   case __NR_mmap:
      after_mmap(args, value);
      if (!(args[3] & MAP_ANONYMOUS))
         pl_io_uring_mapped((Int)args[4], args[5], value);
      break;
   case __NR_munmap:
      send_address_length(PL_MUNMAP, args[0], args[1]);
      pl_translate_forget(args[0], pl_whole_pages(args[1]));
      pl_ranges_remove(&shared, args[0], pl_whole_pages(args[1]));
      pl_ranges_remove(&in_memory, args[0], pl_whole_pages(args[1]));
      pl_locks_unmapped(args[0], pl_whole_pages(args[1]));
      pl_layout_unmapped(args[0], pl_whole_pages(args[1]));
      pl_allocations_unmapped(args[0], pl_whole_pages(args[1]));
      break;
   case __NR_mprotect:
   case __NR_pkey_mprotect: pl_memory_protected(args[0], pl_whole_pages(args[1]), args[2]); break;
   case __NR_mremap: after_mremap(args, value); break;
   case NR_REMAP_FILE_PAGES: after_remap_file_pages(args); break;
   case __NR_madvise: send_advice(args[0], pl_whole_pages(args[1]), (UInt)args[2]); break;
   case __NR_mlock:
   case __NR_mlock2:
   case __NR_munlock:
   case __NR_mlockall:
   case __NR_munlockall: pl_locks_after_call(number, args); break;
   case __NR_io_uring_setup: pl_io_uring_made((Int)value, args[1]); break;
   case __NR_io_uring_enter: pl_io_uring_after_enter((Int)args[0]); break;
   case __NR_io_uring_register: pl_io_uring_registered((UInt)args[1], args[2], (UInt)args[3]); break;
   case __NR_process_vm_readv: after_process_vm(args, False, value); break;
   case __NR_process_vm_writev: after_process_vm(args, True, value); break;
   case __NR_msync: after_msync(args); break;
   case __NR_brk:
      send_brk(value);
      pl_proc_self_heap_moved();
      break;
   case __NR_shmat: {
      const NSegment* segment = VG_(am_find_nsegment)(value);
      if (segment != NULL && segment->start == value) {
         SizeT length = segment->end + 1 - segment->start;
         PlFileId id = pl_segment_id((Int)args[0]);
         const HChar* name = pl_segment_name((Int)args[0]);
         pl_ranges_add(&shared, value, length);
         pl_files_send_data(value, 0, length, id, name);
         send_mapping_of(value, length, protection_of(segment), MAP_SHARED, 0, id, name);
         pl_locks_made(value, length);
      }
      break;
   }
   case __NR_shmdt:
      if (detaching_bytes > 0) {
         pl_ranges_remove(&shared, args[0], detaching_bytes);
         pl_ranges_remove(&in_memory, args[0], detaching_bytes);
         pl_locks_unmapped(args[0], detaching_bytes);
         pl_layout_unmapped(args[0], detaching_bytes);
         send_address_length(PL_MUNMAP, args[0], detaching_bytes);
      }
      break;
   default:
      break;
   }
}
