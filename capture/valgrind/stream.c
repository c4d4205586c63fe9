/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "stream.h"

#define AF_LOCAL 1
#define SOCK_STREAM 1
#define SOCK_SEQPACKET 5
#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define MSG_NOSIGNAL 0x4000
#define SOCK_CLOEXEC 02000000
#define O_ASYNC 020000
#define F_SETFD 2
#define F_SETFL 4
#define F_SETOWN 8
#define F_SETSIG 10

/* Where records go that nobody reads: before the encoder is there and after it has gone. */
static UChar nowhere[PL_SLOT_BYTES];
UChar* pl_pos = nowhere;
UChar* pl_limit = nowhere + PL_FRAME_BYTES;

static Int stream_fd = -1;
/* One end of a connection on which nothing is ever sent; the encoder has the other. */
static Int life_line_fd = -1;
/* What connections are sent through. All images of a recording have the same end. */
static Int door_fd = -1;
static UChar* ring = NULL;
static UInt slot;
static UInt free_slots; /* bit per slot */
static UChar* record_begin = NULL;

Long pl_system_call(ULong number, ULong a1, ULong a2, ULong a3, ULong a4, ULong a5, ULong a6)
{
   Long result;
   register ULong r10 __asm__("r10") = a4;
   register ULong r8 __asm__("r8") = a5;
   register ULong r9 __asm__("r9") = a6;
   __asm__ volatile("syscall"
                    : "=a"(result)
                    : "0"(number), "D"(a1), "S"(a2), "d"(a3), "r"(r10), "r"(r8), "r"(r9)
                    : "rcx", "r11", "memory");
   return result;
}

struct local_address {
   UShort family;
   HChar path[108];
};

struct message_header {
   void* name;
   UInt name_bytes;
   struct vki_iovec* parts;
   ULong parts_n;
   void* control;
   ULong control_bytes;
   Int flags;
};

struct passed_descriptors {
   ULong bytes;
   Int level;
   Int type;
   Int fds[3];
};

static void use_slot(UInt number)
{
   slot = number;
   free_slots &= ~(1u << number);
   pl_pos = ring + (SizeT)number * PL_SLOT_BYTES;
   pl_limit = pl_pos + PL_FRAME_BYTES;
}

static void use_nowhere(void)
{
   pl_pos = nowhere;
   pl_limit = nowhere + PL_FRAME_BYTES;
}

static Int connect_to(const HChar* path)
{
   struct local_address address;
   SizeT length = VG_(strlen)(path);
   Long fd, result;

   if (length >= sizeof address.path)
      return -1;
   address.family = AF_LOCAL;
   VG_(memcpy)(address.path, path, length + 1);
   fd = pl_system_call(__NR_socket, AF_LOCAL, SOCK_STREAM, 0, 0, 0, 0);
   if (fd < 0)
      return -1;
   do {
      result = pl_system_call(__NR_connect, fd, (ULong)(Addr)&address, sizeof(UShort) + length + 1, 0, 0, 0);
   } while (result == -VKI_EINTR);
   if (result < 0) {
      VG_(close)((Int)fd);
      return -1;
   }
   return VG_(safe_fd)((Int)fd);
}

/* Has the kernel kill this process once nobody holds the end that is returned; -1 if that cannot be had. A process
   whose encoder is gone would go on as slowly as under Valgrind, for nobody; and it may be asleep, so it cannot look
   itself. */
static Int tie_life_line(void)
{
   Int ends[2];
   Bool tied;

   if (pl_system_call(__NR_socketpair, AF_LOCAL, SOCK_STREAM | SOCK_CLOEXEC, 0, (ULong)(Addr)ends, 0, 0) < 0)
      return -1;
   life_line_fd = VG_(safe_fd)(ends[0]);
   tied = pl_system_call(__NR_fcntl, life_line_fd, F_SETOWN, (ULong)VG_(getpid)(), 0, 0, 0) >= 0
          && pl_system_call(__NR_fcntl, life_line_fd, F_SETSIG, VKI_SIGKILL, 0, 0, 0) >= 0
          && pl_system_call(__NR_fcntl, life_line_fd, F_SETFL, O_ASYNC, 0, 0, 0) >= 0;
   if (tied)
      return ends[1];
   VG_(close)(ends[1]);
   return -1;
}

void pl_stream_inherit_door(Int descriptor)
{
   door_fd = VG_(safe_fd)(descriptor);
}

Int pl_stream_door(void)
{
   return door_fd;
}

/* Two ends of a new connection; False if they cannot be had. */
static Bool make_pair(Int type, Int* ends)
{
   return pl_system_call(__NR_socketpair, AF_LOCAL, type | SOCK_CLOEXEC, 0, (ULong)(Addr)ends, 0, 0) >= 0;
}

/* Tells the encoder the ring's shape, and passes it three descriptors: the ring's memory, the other end of the life
   line, and that of the door or of the connection. */
static Bool greet(Int through_fd, Int memory_fd, Int life_line_end, Int other_end)
{
   UInt shape[4] = {PL_MAGIC, PL_PROTOCOL_VERSION, PL_SLOTS, PL_SLOT_BYTES};
   struct vki_iovec part = {shape, sizeof shape};
   struct passed_descriptors control = {28, SOL_SOCKET, SCM_RIGHTS, {memory_fd, life_line_end, other_end}};
   struct message_header header = {NULL, 0, &part, 1, &control, sizeof control, 0};
   Long result;

   do {
      result = pl_system_call(__NR_sendmsg, through_fd, (ULong)(Addr)&header, MSG_NOSIGNAL, 0, 0, 0);
   } while (result == -VKI_EINTR);
   return result == sizeof shape;
}

/* The first image: it makes the door. */
static Bool connect_first(const HChar* path, Int memory_fd, Int life_line_end)
{
   Int ends[2];
   Bool passed;

   stream_fd = connect_to(path);
   if (stream_fd < 0 || !make_pair(SOCK_SEQPACKET, ends))
      return False;
   door_fd = VG_(safe_fd)(ends[0]);
   passed = greet(stream_fd, memory_fd, life_line_end, ends[1]);
   VG_(close)(ends[1]);
   return passed;
}

static Bool connect_through_door(Int memory_fd, Int life_line_end)
{
   Int ends[2];
   Bool passed;

   if (!make_pair(SOCK_STREAM, ends))
      return False;
   stream_fd = VG_(safe_fd)(ends[0]);
   passed = greet(door_fd, memory_fd, life_line_end, ends[1]);
   VG_(close)(ends[1]);
   return passed;
}

/* A descriptor of new memory for the ring, which is mapped; -1 if it cannot be had. */
static Int make_ring(void)
{
   SizeT bytes = (SizeT)PL_SLOTS * PL_SLOT_BYTES;
   Long memory_fd = pl_system_call(__NR_memfd_create, (ULong)(Addr) "pagelab", 1 /* MFD_CLOEXEC */, 0, 0, 0, 0);
   SysRes mapping;

   if (memory_fd < 0)
      return -1;
   if (pl_system_call(__NR_ftruncate, memory_fd, bytes, 0, 0, 0, 0) >= 0) {
      mapping = VG_(am_shared_mmap_file_float_valgrind)(bytes, VKI_PROT_READ | VKI_PROT_WRITE, (Int)memory_fd, 0);
      if (!sr_isError(mapping)) {
         ring = (UChar*)(Addr)sr_Res(mapping);
         return (Int)memory_fd;
      }
   }
   VG_(close)((Int)memory_fd);
   return -1;
}

Bool pl_stream_connect(const HChar* path)
{
   Int memory_fd = make_ring(), life_line_end;
   Bool passed;

   if (memory_fd < 0)
      return False;
   life_line_end = tie_life_line();
   passed = life_line_end >= 0
            && (door_fd < 0 ? connect_first(path, memory_fd, life_line_end)
                            : connect_through_door(memory_fd, life_line_end));
   VG_(close)(memory_fd);
   if (life_line_end >= 0)
      VG_(close)(life_line_end);
   if (!passed) {
      pl_stream_forget();
      return False;
   }
   free_slots = PL_SLOTS == 32 ? ~0u : (1u << PL_SLOTS) - 1;
   use_slot(0);
   return True;
}

/* Ends recording. The life line stays. */
static void release_ring(void)
{
   if (stream_fd >= 0)
      VG_(close)(stream_fd);
   stream_fd = -1;
   if (ring != NULL)
      VG_(am_munmap_valgrind)((Addr)ring, (SizeT)PL_SLOTS * PL_SLOT_BYTES);
   ring = NULL;
   use_nowhere();
}

void pl_stream_forget(void)
{
   release_ring();
   if (life_line_fd >= 0)
      VG_(close)(life_line_fd);
   life_line_fd = -1;
}

void pl_stream_keep_life_line(void)
{
   if (life_line_fd >= 0)
      pl_system_call(__NR_fcntl, life_line_fd, F_SETFD, 0, 0, 0, 0);
}

Bool pl_stream_alive(void)
{
   return stream_fd >= 0;
}

/* Frees the slots that the encoder has read; waits for one if none is free. */
static Bool collect_free_slots(void)
{
   UChar numbers[PL_SLOTS];

   do {
      Long result = pl_system_call(__NR_recvfrom, stream_fd, (ULong)(Addr)numbers, sizeof numbers,
                                free_slots == 0 ? 0 : 0x40 /* MSG_DONTWAIT */, 0, 0);
      Long i;
      if (result == -VKI_EINTR)
         continue;
      if (result == -VKI_EAGAIN)
         break;
      if (result <= 0)
         return False;
      for (i = 0; i < result; i++)
         free_slots |= 1u << (numbers[i] % PL_SLOTS);
   } while (free_slots == 0);
   return True;
}

static Bool hand_over(UInt length)
{
   UInt message[2] = {slot, length};
   Long result;

   do {
      /* MSG_NOSIGNAL: a SIGPIPE would reach the client. Eight bytes go whole or not at all. */
      result = pl_system_call(__NR_sendto, stream_fd, (ULong)(Addr)message, sizeof message, MSG_NOSIGNAL, 0, 0);
   } while (result == -VKI_EINTR);
   return result == sizeof message && collect_free_slots();
}

void pl_stream_flush(void)
{
   UInt lowest = 0;

   if (stream_fd < 0) {
      use_nowhere();
      return;
   }
   UInt length = (UInt)(pl_pos - (ring + (SizeT)slot * PL_SLOT_BYTES));
   if (length == 0)
      return;
   if (!hand_over(length)) {
      /* It has what it wants and will end this process, or is gone, and the life line does. */
      release_ring();
      return;
   }
   while (!(free_slots & (1u << lowest)))
      lowest++;
   use_slot(lowest);
}

void pl_stream_close(void)
{
   pl_stream_flush();
   pl_stream_forget();
}

void pl_begin(PlControl kind, SizeT payload_bytes_max)
{
   tl_assert(record_begin == NULL);
   tl_assert(8 + payload_bytes_max <= PL_FRAME_BYTES);
   if (pl_pos + 8 + payload_bytes_max > pl_limit)
      pl_stream_flush();
   record_begin = pl_pos;
   *(UInt*)pl_pos = PL_CONTROL_BIT | (UInt)kind;
   pl_pos += 8;
}

void pl_end(void)
{
   *(UInt*)(record_begin + 4) = (UInt)(pl_pos - record_begin - 8);
   record_begin = NULL;
}

void pl_put8(UChar value)
{
   *pl_pos = value;
   pl_pos += 1;
}

void pl_put16(UShort value)
{
   *(UShort*)pl_pos = value;
   pl_pos += 2;
}

void pl_put32(UInt value)
{
   *(UInt*)pl_pos = value;
   pl_pos += 4;
}

void pl_put64(ULong value)
{
   *(ULong*)pl_pos = value;
   pl_pos += 8;
}

void pl_put_bytes(const UChar* bytes, SizeT length)
{
   VG_(memcpy)(pl_pos, bytes, length);
   pl_pos += length;
}

void pl_put_string(const HChar* text)
{
   SizeT length = text == NULL ? 0 : VG_(strlen)(text);

   if (length > PL_STRING_MAX)
      length = PL_STRING_MAX;
   pl_put32((UInt)length);
   pl_put_bytes((const UChar*)text, length);
}
