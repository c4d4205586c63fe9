/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_STREAM_H
#define PAGELAB_STREAM_H

/* The stream from this process to the encoder: what README.md, "Stream", describes.

   One buffer per process suffices because Valgrind runs one thread at a time. Generated code stores segment
   records at pl_pos and advances it; the C side appends control records at the same place, so the order inside
   a process is the order in which things happened. */

#include "pub_tool_basics.h"

#define PL_MAGIC 0x626c6770u /* "pglb" */
#define PL_PROTOCOL_VERSION 11

/* The frames lie in a ring of slots in memory shared with the encoder. A slot in use stays in the second-level cache;
   the lowest free slot is taken, so that a fast encoder keeps the ring's footprint small, and a slow one has some
   megabytes to catch up. */
#define PL_SLOTS 16
#define PL_SLOT_BYTES (256 * 1024)
/* Room beyond the limit for everything that one superblock can store, since only its start checks the limit. */
#define PL_SLACK_BYTES (48 * 1024)
#define PL_FRAME_BYTES (PL_SLOT_BYTES - PL_SLACK_BYTES - 4096)

#define PL_CONTROL_BIT 0x80000000u

/* Control records: a word PL_CONTROL_BIT | kind, a word with the payload's length, the payload. */
typedef enum {
   PL_HELLO = 1,
   PL_SEGMENT = 2,
   PL_SWITCH = 4,
   PL_THREAD_START = 5,
   PL_THREAD_EXIT = 6,
   PL_KERNEL_ACCESS = 7,
   PL_MMAP = 8,
   PL_MUNMAP = 9,
   PL_MREMAP = 10,
   PL_MPROTECT = 11,
   PL_MADVISE = 12,
   PL_BRK = 13,
   PL_FORK = 14,
   PL_EXEC_BEGIN = 15,
   PL_EXEC_FAILED = 16,
   PL_EXIT = 17,
   PL_WAITED = 18,
   PL_FAULT = 19,
   PL_EXEC_NATIVE = 20,
   PL_MSYNC = 21,
   PL_TRUNCATE = 22,
   PL_WAKE = 23,
   PL_WOKEN = 24,
   PL_ALLOCATED = 25,
   PL_FREED = 26,
   PL_FILE_DATA = 27,
   PL_FILE_HOLE = 28,
   PL_REMOTE_ACCESS = 29,
   PL_LEFT = 30
} PlControl;

/* Next free byte of the frame, and the place from which on a superblock asks for a flush. */
extern UChar* pl_pos;
extern UChar* pl_limit;

/* The tool interface lacks sockets and some other calls, which are made directly. */
extern Long pl_system_call(ULong number, ULong a1, ULong a2, ULong a3, ULong a4, ULong a5, ULong a6);

/* Connects to the encoder: the first image through the socket at `path`, others through the door, whose descriptor was
   inherited. True if it answered. */
extern Bool pl_stream_connect(const HChar* path);
/* The image was executed by another one, which left it this end of the door. */
extern void pl_stream_inherit_door(Int descriptor);
/* This process's end of the door; -1 without one. */
extern Int pl_stream_door(void);
/* Gives up the connection inherited from the parent of a fork, with what it buffered. */
extern void pl_stream_forget(void);
/* Leaves the life line to the program that this process is about to execute. */
extern void pl_stream_keep_life_line(void);
/* Hands the frame over and goes on in a free slot, waiting for one if need be. */
extern void pl_stream_flush(void);
/* Sends what is buffered and closes the connection. */
extern void pl_stream_close(void);
/* False once the encoder takes no more. */
extern Bool pl_stream_alive(void);

/* A control record is begun, filled and ended; nothing else may touch the stream in between. */
extern void pl_begin(PlControl kind, SizeT payload_bytes_max);
extern void pl_put8(UChar value);
extern void pl_put16(UShort value);
extern void pl_put32(UInt value);
extern void pl_put64(ULong value);
/* A 32-bit length and the bytes; NULL becomes length 0. Longer strings than PL_STRING_MAX are cut. */
#define PL_STRING_MAX 4096
extern void pl_put_string(const HChar* text);
extern void pl_put_bytes(const UChar* bytes, SizeT length);
extern void pl_end(void);

#endif
