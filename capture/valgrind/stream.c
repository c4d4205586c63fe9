/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "stream.h"

/* Moves a descriptor into the range that clients can neither see nor close, close-on-exec. Part of Valgrind's core
   library, not of its tool interface. */
extern Int VG_(safe_fd)(Int oldfd);

/* A frame: its length in a word, then records. */
#define FRAME_HEADER_BYTES 4

/* The last page is for pl_fault, which copies what stands behind pl_pos. */
UChar pl_frame[PL_BUFFER_BYTES + PL_SLACK_BYTES + 4096] __attribute__((aligned(4096)));
UChar* pl_pos = pl_frame + FRAME_HEADER_BYTES;

static Int stream_fd = -1;
static UChar* record_begin = NULL;

/* The tool interface has no sockets, so the three calls needed are made directly. */
static Long system_call(ULong number, ULong a1, ULong a2, ULong a3, ULong a4, ULong a5, ULong a6)
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

Bool pl_stream_connect(const HChar* path)
{
   struct local_address address;
   SizeT length = VG_(strlen)(path);
   Long fd, result;

   if (length >= sizeof address.path)
      return False;
   address.family = 1 /* AF_UNIX */;
   VG_(memcpy)(address.path, path, length + 1);
   fd = system_call(__NR_socket, 1 /* AF_UNIX */, 1 /* SOCK_STREAM */, 0, 0, 0, 0);
   if (fd < 0)
      return False;
   do {
      result = system_call(__NR_connect, fd, (ULong)(Addr)&address, sizeof(UShort) + length + 1, 0, 0, 0);
   } while (result == -VKI_EINTR);
   if (result < 0) {
      VG_(close)((Int)fd);
      return False;
   }
   stream_fd = VG_(safe_fd)((Int)fd);
   pl_pos = pl_frame + FRAME_HEADER_BYTES;
   return True;
}

void pl_stream_forget(void)
{
   if (stream_fd >= 0)
      VG_(close)(stream_fd);
   stream_fd = -1;
   pl_pos = pl_frame + FRAME_HEADER_BYTES;
}

Bool pl_stream_alive(void)
{
   return stream_fd >= 0;
}

void pl_stream_flush(void)
{
   UInt length = (UInt)(pl_pos - pl_frame);
   UInt sent = 0;

   pl_pos = pl_frame + FRAME_HEADER_BYTES;
   if (stream_fd < 0 || length == FRAME_HEADER_BYTES)
      return;
   *(UInt*)pl_frame = length - FRAME_HEADER_BYTES;
   while (sent < length) {
      /* MSG_NOSIGNAL: a SIGPIPE would reach the client. */
      Long result = system_call(__NR_sendto, stream_fd, (ULong)(Addr)(pl_frame + sent), length - sent,
                                0x4000 /* MSG_NOSIGNAL */, 0, 0);
      if (result == -VKI_EINTR)
         continue;
      if (result <= 0) {
         VG_(umsg)("pagelab: the encoder went away (error %lld); the program goes on unrecorded\n", -result);
         pl_stream_forget();
         return;
      }
      sent += (UInt)result;
   }
}

void pl_stream_close(void)
{
   pl_stream_flush();
   pl_stream_forget();
}

void pl_begin(PlControl kind, SizeT payload_bytes_max)
{
   tl_assert(record_begin == NULL);
   if (pl_pos + 8 + payload_bytes_max > PL_LIMIT)
      pl_stream_flush();
   tl_assert(8 + payload_bytes_max <= PL_BUFFER_BYTES - FRAME_HEADER_BYTES);
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
