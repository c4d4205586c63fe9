/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Operations of io_uring name memory that the kernel reads or writes later. The tool notes those that a call submits,
   and looks for their completions when a call returns: only then it is known how many bytes there were. Linux 6.18:
   include/uapi/linux/io_uring.h. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"

#include "core.h"
#include "files.h"
#include "io_uring.h"
#include "memory.h"

#define RINGS 16
#define MOST_PENDING 4096

/* Offsets in struct io_uring_params, and of the offsets in its parts for submissions and completions. */
#define PARAMETERS_BYTES 120
#define FLAGS 8
#define FEATURES 20
#define SUBMISSIONS 40
#define COMPLETIONS 80
#define HEAD 0
#define TAIL 4
#define MASK 8
#define ARRAY 24
#define ENTRIES 20

#define SETUP_SQPOLL (1u << 1)
#define SETUP_SQE128 (1u << 10)
#define SETUP_CQE32 (1u << 11)
#define SETUP_NO_SQARRAY (1u << 16)
#define FEATURE_SINGLE_MMAP 1u

#define OFFSET_SUBMISSIONS 0ULL
#define OFFSET_COMPLETIONS 0x8000000ULL
#define OFFSET_ENTRIES 0x10000000ULL

/* Offsets in a submission. */
#define OPERATION 0
#define OPTIONS 1
#define FILE_DESCRIPTOR 4
#define FILE_OFFSET 8
#define ADDRESS 16
#define LENGTH 24
#define USER_DATA 32
#define FIXED_FILE (1u << 0)
#define BUFFER_SELECT (1u << 5)

enum { READV = 1, WRITEV = 2, READ_FIXED = 4, WRITE_FIXED = 5, READ = 22, WRITE = 23, SEND = 26, RECV = 27 };
#define REGISTER_BUFFERS 0
#define REGISTER_FILES 2
#define REGISTER_FILES_UPDATE 6
/* Where struct io_uring_files_update has the descriptors. */
#define UPDATED_FILES 8
#define NO_FILE (-1)
#define SEEK_CUR 1

typedef struct {
   Int descriptor;
   UChar parameters[PARAMETERS_BYTES];
   Addr submissions, completions, entries;
   UInt seen; /* completions */
} IoRing;

typedef struct {
   Int descriptor;
   ULong user_data;
   Addr address;
   SizeT length;
   Bool writes;
   /* It reads or writes this file, at this place, or at the descriptor's offset if that is negative. */
   Int file;
   Long offset;
} Pending;

static IoRing rings[RINGS];
static UInt rings_n = 0;
static Pending pending[MOST_PENDING];
static UInt pending_n = 0;
/* A file in memory was registered (IORING_REGISTER_FILES): operations name it by its place in a table. */
static Bool has_memory_files = False;

static UInt word(const UChar* bytes, UInt at)
{
   return *(const UInt*)(bytes + at);
}

/* A word of the program's memory; 0 where there is none. */
static ULong load(Addr address, SizeT bytes)
{
   if (!VG_(am_is_valid_for_client)(address, bytes, VKI_PROT_READ))
      return 0;
   return bytes == 8 ? *(const ULong*)address : bytes == 4 ? *(const UInt*)address : *(const UChar*)address;
}

static IoRing* ring_of(Int descriptor)
{
   UInt i;

   for (i = 0; i < rings_n; i++) {
      if (rings[i].descriptor == descriptor)
         return &rings[i];
   }
   return NULL;
}

static void tell(const HChar* what)
{
   static Bool warned = False;

   if (!warned)
      VG_(umsg)("pagelab: it uses io_uring %s; what the kernel writes there is not recorded\n", what);
   warned = True;
}

void pl_io_uring_made(Int descriptor, Addr parameters)
{
   IoRing* ring = ring_of(descriptor);

   if (ring == NULL && rings_n < RINGS)
      ring = &rings[rings_n++];
   if (ring == NULL) {
      tell("with many rings");
      return;
   }
   VG_(memset)(ring, 0, sizeof *ring);
   ring->descriptor = descriptor;
   VG_(memcpy)(ring->parameters, (const void*)parameters, PARAMETERS_BYTES);
   if (word(ring->parameters, FLAGS) & SETUP_SQPOLL)
      tell("with a thread of the kernel that polls");
}

void pl_io_uring_mapped(Int descriptor, ULong offset, Addr address)
{
   IoRing* ring = ring_of(descriptor);

   if (ring == NULL)
      return;
   if (offset == OFFSET_SUBMISSIONS) {
      ring->submissions = address;
      if (word(ring->parameters, FEATURES) & FEATURE_SINGLE_MMAP)
         ring->completions = address;
   } else if (offset == OFFSET_COMPLETIONS) {
      ring->completions = address;
   } else if (offset == OFFSET_ENTRIES) {
      ring->entries = address;
   }
}

static void add_pending(Pending operation)
{

   if (pending_n == MOST_PENDING)
      tell("with many operations at once");
   else
      pending[pending_n++] = operation;
}

static void add_vectors(Pending operation, Addr vectors, UInt n)
{
   UInt i;

   if (!VG_(am_is_valid_for_client)(vectors, n * sizeof(struct vki_iovec), VKI_PROT_READ))
      return;
   for (i = 0; i < n; i++) {
      const struct vki_iovec* vector = (const struct vki_iovec*)vectors + i;
      operation.address = (Addr)vector->iov_base;
      operation.length = vector->iov_len;
      add_pending(operation);
      if (operation.offset >= 0)
         operation.offset += vector->iov_len;
   }
}

static void note_submission(Int descriptor, Addr entry)
{
   UChar operation = (UChar)load(entry + OPERATION, 1);
   UInt options = (UInt)load(entry + OPTIONS, 1);
   Pending reads = {.descriptor = descriptor, .user_data = load(entry + USER_DATA, 8), .address = load(entry + ADDRESS, 8),
                    .length = (UInt)load(entry + LENGTH, 4), .writes = True, .file = NO_FILE};
   Bool is_write = operation == WRITEV || operation == WRITE || operation == WRITE_FIXED;
   Pending writes;

   if ((is_write || operation == READV || operation == READ || operation == READ_FIXED) && !(options & FIXED_FILE)) {
      reads.file = (Int)load(entry + FILE_DESCRIPTOR, 4);
      reads.offset = (Long)load(entry + FILE_OFFSET, 8);
   } else if (is_write && has_memory_files) {
      tell("with registered files in memory");
   }
   writes = reads;
   writes.writes = False;
   switch (operation) {
   case READV: add_vectors(reads, reads.address, (UInt)reads.length); break;
   case WRITEV: add_vectors(writes, writes.address, (UInt)writes.length); break;
   case READ:
   case RECV:
      if (options & BUFFER_SELECT)
         tell("with buffers that the kernel chooses");
      else
         add_pending(reads);
      break;
   case READ_FIXED: add_pending(reads); break;
   case WRITE:
   case SEND:
   case WRITE_FIXED: add_pending(writes); break;
   default: break;
   }
}

void pl_io_uring_before_enter(Int descriptor, UInt submitted)
{
   const IoRing* ring = ring_of(descriptor);
   UInt flags, head, tail, mask, i;

   if (ring == NULL || ring->submissions == 0 || ring->entries == 0)
      return;
   flags = word(ring->parameters, FLAGS);
   head = (UInt)load(ring->submissions + word(ring->parameters, SUBMISSIONS + HEAD), 4);
   tail = (UInt)load(ring->submissions + word(ring->parameters, SUBMISSIONS + TAIL), 4);
   mask = (UInt)load(ring->submissions + word(ring->parameters, SUBMISSIONS + MASK), 4);
   for (i = 0; i < submitted && head + i != tail; i++) {
      UInt index = (head + i) & mask;
      if (!(flags & SETUP_NO_SQARRAY))
         index = (UInt)load(ring->submissions + word(ring->parameters, SUBMISSIONS + ARRAY) + 4UL * index, 4);
      note_submission(descriptor, ring->entries + (SizeT)index * (flags & SETUP_SQE128 ? 128 : 64));
   }
}

static Addr completion(const IoRing* ring, UInt number)
{
   UInt mask = (UInt)load(ring->completions + word(ring->parameters, COMPLETIONS + MASK), 4);
   UInt bytes = word(ring->parameters, FLAGS) & SETUP_CQE32 ? 32 : 16;

   return ring->completions + word(ring->parameters, COMPLETIONS + ENTRIES) + (SizeT)(number & mask) * bytes;
}

static UWord completed_bytes(Addr entry)
{
   Int result = (Int)load(entry + 8, 4);

   return result > 0 ? (UWord)result : 0;
}

/* By how much operations that completed from this number on have moved the descriptor's offset. */
static UWord moved_later(const IoRing* ring, UInt from, UInt tail, Int file)
{
   UWord bytes = 0;
   UInt i;

   for (; from != tail; from++) {
      Addr entry = completion(ring, from);
      ULong user_data = load(entry, 8);
      for (i = 0; i < pending_n; i++) {
         if (pending[i].descriptor != ring->descriptor || pending[i].user_data != user_data)
            continue;
         if (pending[i].file == file && pending[i].offset < 0)
            bytes += completed_bytes(entry);
         break;
      }
   }
   return bytes;
}

/* `bytes` of what the operation names have been read or written. */
static void complete(const IoRing* ring, UInt tail)
{
   Addr entry = completion(ring, ring->seen);
   ULong user_data = load(entry, 8);
   UWord bytes = completed_bytes(entry);
   UInt i, kept = 0;
   Long end;

   for (i = 0; i < pending_n; i++) {
      Pending operation = pending[i];
      if (operation.descriptor != ring->descriptor || operation.user_data != user_data) {
         pending[kept++] = operation;
         continue;
      }
      if (operation.length > bytes)
         operation.length = bytes;
      bytes -= operation.length;
      pl_memory_kernel_access(operation.writes, operation.address, operation.length);
      if (operation.file == NO_FILE || operation.writes)
         continue;
      /* The descriptor's offset is behind all that has been read and written there since. */
      end = operation.offset >= 0 ? operation.offset + (Long)operation.length
                                  : VG_(lseek)(operation.file, 0, SEEK_CUR) - (Long)bytes
                                       - (Long)moved_later(ring, ring->seen + 1, tail, operation.file);
      pl_files_written(operation.file, end, operation.length);
   }
   pending_n = kept;
}

void pl_io_uring_after_enter(Int descriptor)
{
   IoRing* ring = ring_of(descriptor);
   UInt tail;

   if (ring == NULL || ring->completions == 0)
      return;
   tail = (UInt)load(ring->completions + word(ring->parameters, COMPLETIONS + TAIL), 4);
   for (; ring->seen != tail; ring->seen++)
      complete(ring, tail);
}

static void note_registered_files(Addr descriptors, UInt n)
{
   UInt i;

   for (i = 0; i < n; i++)
      has_memory_files |= pl_is_in_memory(pl_file_id((Int)load(descriptors + i * sizeof(Int), 4)));
}

static void write_registered_buffers(Addr vectors, UInt n)
{
   UInt i;

   if (!VG_(am_is_valid_for_client)(vectors, n * sizeof(struct vki_iovec), VKI_PROT_READ))
      return;
   for (i = 0; i < n; i++) {
      const struct vki_iovec* vector = (const struct vki_iovec*)vectors + i;
      pl_memory_kernel_access(True, (Addr)vector->iov_base, vector->iov_len);
   }
}

void pl_io_uring_registered(UInt operation, Addr argument, UInt n)
{
   switch (operation) {
   /* The kernel pins the buffers, and so faults them in. */
   case REGISTER_BUFFERS: write_registered_buffers(argument, n); break;
   case REGISTER_FILES: note_registered_files(argument, n); break;
   case REGISTER_FILES_UPDATE: note_registered_files((Addr)load(argument + UPDATED_FILES, 8), n); break;
   default: break;
   }
}
