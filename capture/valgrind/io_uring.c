/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Operations of io_uring name memory that the kernel reads or writes later. The tool notes those that a call submits,
   and looks for their completions when a call returns: only then it is known how many bytes there were. A completion
   has only the user data of its operation. Of several with the same, it is taken for that of the oldest. Linux 6.18:
   include/uapi/linux/io_uring.h. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "files.h"
#include "io_uring.h"
#include "memory.h"
#include "stream.h"

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
#define SKIP_SUCCESS (1u << 6)

/* Offsets in a completion, and its flag that more of the same operation will follow. */
#define RESULT 8
#define COMPLETION_FLAGS 12
#define MORE_FOLLOW (1u << 1)

enum { READV = 1, WRITEV = 2, READ_FIXED = 4, WRITE_FIXED = 5, READ = 22, WRITE = 23, SEND = 26, RECV = 27 };
#define REGISTER_BUFFERS 0
#define REGISTER_FILES 2
#define REGISTER_FILES_UPDATE 6
/* Where struct io_uring_files_update has the descriptors. */
#define UPDATED_FILES 8
#define NO_FILE (-1)
/* One that is registered: the descriptor is a place in a table. */
#define REGISTERED_FILE (-2)
#define SEEK_CUR 1
#define KCMP_FILE 0
/* How often the descriptor's offset is read anew because operations completed meanwhile. */
#define MOST_READINGS 1000

typedef struct {
   Int descriptor;
   UChar parameters[PARAMETERS_BYTES];
   Addr submissions, completions, entries;
   UInt seen; /* completions */
} IoRing;

typedef struct {
   Int descriptor;
   ULong user_data;
   UInt number; /* of the submission: vectors of one share it */
   Bool done;
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

/* One of which only the completion counts. */
static void add_without_memory(Pending operation)
{
   operation.length = 0;
   operation.file = NO_FILE;
   add_pending(operation);
}

static void note_submission(Int descriptor, UInt number, Addr entry)
{
   UChar operation = (UChar)load(entry + OPERATION, 1);
   UInt options = (UInt)load(entry + OPTIONS, 1);
   Pending reads = {.descriptor = descriptor, .user_data = load(entry + USER_DATA, 8), .number = number,
                    .address = load(entry + ADDRESS, 8), .length = (UInt)load(entry + LENGTH, 4), .writes = True,
                    .file = NO_FILE};
   Bool is_write = operation == WRITEV || operation == WRITE || operation == WRITE_FIXED;
   Bool is_of_file = is_write || operation == READV || operation == READ || operation == READ_FIXED;
   Pending writes;

   if (options & SKIP_SUCCESS) {
      if (is_of_file || operation == SEND || operation == RECV)
         tell("with operations that do not tell of their completion");
      return;
   }
   if (is_of_file) {
      reads.file = options & FIXED_FILE ? REGISTERED_FILE : (Int)load(entry + FILE_DESCRIPTOR, 4);
      reads.offset = (Long)load(entry + FILE_OFFSET, 8);
      if (is_write && (options & FIXED_FILE) && has_memory_files)
         tell("with registered files in memory");
   }
   writes = reads;
   writes.writes = False;
   switch (operation) {
   case READV: add_vectors(reads, reads.address, (UInt)reads.length); break;
   case WRITEV: add_vectors(writes, writes.address, (UInt)writes.length); break;
   case READ:
   case RECV:
      if (options & BUFFER_SELECT) {
         tell("with buffers that the kernel chooses");
         add_without_memory(reads);
      } else {
         add_pending(reads);
      }
      break;
   case READ_FIXED: add_pending(reads); break;
   case WRITE:
   case SEND:
   case WRITE_FIXED: add_pending(writes); break;
   default: add_without_memory(reads); break;
   }
}

/* Operations that an earlier call named, but that the kernel did not take: they are still in the ring. */
static void drop_refused(Int descriptor, UInt head)
{
   UInt i, kept = 0;

   for (i = 0; i < pending_n; i++)
      if (pending[i].descriptor != descriptor || (Int)(pending[i].number - head) < 0)
         pending[kept++] = pending[i];
   pending_n = kept;
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
   if (submitted > 0)
      drop_refused(descriptor, head);
   for (i = 0; i < submitted && head + i != tail; i++) {
      UInt index = (head + i) & mask;
      if (!(flags & SETUP_NO_SQARRAY))
         index = (UInt)load(ring->submissions + word(ring->parameters, SUBMISSIONS + ARRAY) + 4UL * index, 4);
      note_submission(descriptor, head + i, ring->entries + (SizeT)index * (flags & SETUP_SQE128 ? 128 : 64));
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
   Int result = (Int)load(entry + RESULT, 4);

   return result > 0 ? (UWord)result : 0;
}

/* The oldest operation that a completion with this user data may be of, which is done now; else pending_n. */
static UInt take(const IoRing* ring, ULong user_data)
{
   UInt first, i;

   for (first = 0; first < pending_n; first++)
      if (!pending[first].done && pending[first].descriptor == ring->descriptor
          && pending[first].user_data == user_data)
         break;
   for (i = first; i < pending_n; i++)
      pending[i].done |= pending[i].descriptor == ring->descriptor && pending[i].number == pending[first].number;
   return first;
}

static UInt tail_of(const IoRing* ring)
{
   return (UInt)load(ring->completions + word(ring->parameters, COMPLETIONS + TAIL), 4);
}

/* Whether the operation moves the offset that the descriptor has. Of a registered file in memory that is not known. */
static Bool moves_offset(const Pending* operation, Int file)
{
   if (operation->offset >= 0 || operation->file == NO_FILE)
      return False;
   if (operation->file == REGISTERED_FILE)
      return has_memory_files;
   return operation->file == file
          || pl_system_call(__NR_kcmp, (ULong)VG_(getpid)(), (ULong)VG_(getpid)(), KCMP_FILE, (ULong)operation->file,
                            (ULong)file, 0) == 0;
}

/* Where the descriptor's offset was as the completion that is looked at came. False if operations may have moved it
   whose completion has not come yet. */
static Bool offset_then(const IoRing* ring, Int file, Long* offset)
{
   UInt tail, number, readings = 0, i;
   Bool known = True;

   do {
      tail = tail_of(ring);
      *offset = VG_(lseek)(file, 0, SEEK_CUR);
   } while (tail_of(ring) != tail && ++readings < MOST_READINGS);
   for (number = ring->seen + 1; number != tail; number++) {
      Addr entry = completion(ring, number);
      i = take(ring, load(entry, 8));
      if (i == pending_n || !moves_offset(&pending[i], file))
         continue;
      *offset -= (Long)completed_bytes(entry);
      known &= pending[i].file != REGISTERED_FILE;
   }
   for (i = 0; i < pending_n; i++)
      known &= pending[i].done || !moves_offset(&pending[i], file);
   return known && readings < MOST_READINGS;
}

/* What the operation has written to a file. `left` bytes behind it are of its other vectors. */
static void note_written(const IoRing* ring, const Pending* operation, UWord left)
{
   UInt i;
   Long end = operation->offset + (Long)operation->length;

   if (operation->offset < 0) {
      if (!pl_is_in_memory(pl_file_id(operation->file)))
         return;
      if (!offset_then(ring, operation->file, &end)) {
         tell("with several operations at a descriptor's offset at once");
         end = -1;
      }
      for (i = 0; i < pending_n; i++)
         pending[i].done = pending[i].descriptor == ring->descriptor && pending[i].number == operation->number;
      if (end < 0)
         return;
      end -= (Long)left;
   }
   pl_files_written(operation->file, end, operation->length);
}

/* So many bytes of what the operation names have been read or written. */
static void complete(const IoRing* ring)
{
   Addr entry = completion(ring, ring->seen);
   UWord bytes = completed_bytes(entry);
   Bool goes_on = (load(entry + COMPLETION_FLAGS, 4) & MORE_FOLLOW) != 0;
   UInt i = take(ring, load(entry, 8)), kept = 0;

   for (; i < pending_n; i++) {
      Pending operation = pending[i];
      if (!operation.done)
         continue;
      if (operation.length > bytes)
         operation.length = bytes;
      bytes -= operation.length;
      pl_memory_kernel_access(operation.writes, operation.address, operation.length);
      if (operation.file >= 0 && !operation.writes)
         note_written(ring, &operation, bytes);
   }
   for (i = 0; i < pending_n; i++) {
      Bool stays = goes_on || !pending[i].done;
      pending[i].done = False;
      if (stays)
         pending[kept++] = pending[i];
   }
   pending_n = kept;
}

void pl_io_uring_after_enter(Int descriptor)
{
   IoRing* ring = ring_of(descriptor);

   if (ring == NULL || ring->completions == 0)
      return;
   for (; ring->seen != tail_of(ring); ring->seen++)
      complete(ring);
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
