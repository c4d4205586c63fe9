/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_FILES_H
#define PAGELAB_FILES_H

/* Files that may be mapped: their lengths, their holes, and the data of those that exist in memory only. */

#include "pub_tool_basics.h"

/* What tells a file in memory (tmpfs, memfd_create, memfd_secret, System V) from all others; both are 0 for other
   files. */
typedef struct {
   ULong device;
   ULong inode;
} PlFileId;

extern PlFileId pl_file_id(Int descriptor);
extern Bool pl_is_in_memory(PlFileId id);
extern void pl_put_file_id(PlFileId id);

/* How much of a part of the file there is, in whole pages, before the file ends. */
extern SizeT pl_files_bytes_from(Int descriptor, ULong offset, SizeT length);

/* A part of the file is about to be mapped, and perhaps populated: sends which pages of it hold data. */
extern void pl_files_before_map(Int descriptor, ULong offset, SizeT length);
/* The same of a part that is mapped already at this address. */
extern void pl_files_send_data(Addr mapped, ULong offset, SizeT length, PlFileId id, const HChar* file);

/* The program has written so many bytes to a file, up to this place; if it is negative, up to the descriptor's
   offset. */
extern void pl_files_written(Int descriptor, Long end, UWord bytes);

/* A mapping of System V shared memory: what tells the segment, and its name as in /proc/PID/maps. */
extern PlFileId pl_segment_id(Int segment);
extern const HChar* pl_segment_name(Int segment);

extern void pl_files_before_call(ThreadId tid, UInt number, const UWord* args);
extern void pl_files_after_call(ThreadId tid, UInt number, const UWord* args, UWord value);

#endif
