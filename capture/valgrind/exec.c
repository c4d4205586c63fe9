/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* Which of the programs that a recorded program executes are recorded too. Valgrind cannot run programs of other
   architectures or with privileges of their own; it would let their execve fail, or their process end. They run
   natively instead, unrecorded, and the encoder is told why. */

#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "exec_check.h"
#include "image.h"
#include "proc_self.h"
#include "process.h"
#include "stream.h"

/* The encoder counts programs with this reason, and notes others one by one. */
#define PL_NOT_FOLLOWED "is not followed"

#define SET_ID_BITS 06000
/* Interpreters of interpreters that are followed; Linux allows four. */
#define INTERPRETER_DEPTH 4

#define ELF_CLASS 4 /* offset in the header; 1: 32 bit, 2: 64 bit */
#define ELF_MACHINE 18

static Bool has_capabilities(const HChar* path)
{
   return pl_system_call(__NR_getxattr, (ULong)(Addr)path, (ULong)(Addr) "security.capability", 0, 0, 0, 0) > 0;
}

/* Why the program runs natively; NULL if it can be recorded, or if its execve will fail whoever makes it. */
static const HChar* reason_to_run_natively(const HChar* path, Int depth)
{
   HChar head[PL_HEAD_BYTES];
   struct vg_stat facts;
   const HChar* interpreter;
   Int length = pl_exec_read_head(path, head);

   if (length < 2 || sr_isError(VG_(stat)(path, &facts)))
      return NULL;
   if (facts.mode & SET_ID_BITS)
      return "is setuid or setgid";
   if (has_capabilities(path))
      return "has capabilities of its own";
   if (head[0] == '#' && head[1] == '!') {
      interpreter = pl_exec_interpreter(head, length);
      return interpreter != NULL && depth > 0 ? reason_to_run_natively(interpreter, depth - 1) : NULL;
   }
   if (length < ELF_MACHINE + 2 || VG_(memcmp)(head, "\177ELF", 4) != 0)
      return NULL;
   if (head[ELF_CLASS] == 1)
      return "is a 32-bit program";
   return pl_exec_is_foreign(head) ? "is not an x86-64 program" : NULL;
}

/* Valgrind asks this before each execve. The linker is told (--wrap) to call the function below instead. */
extern Bool __real_vgPlain_should_we_trace_this_child(const HChar* path, const HChar** arguments);
extern Bool __wrap_vgPlain_should_we_trace_this_child(const HChar* path, const HChar** arguments);

Bool __wrap_vgPlain_should_we_trace_this_child(const HChar* path, const HChar** arguments)
{
   const HChar* reason;

   /* The encoder has all that it wants and is ending the program, which cleans up. */
   if (!pl_stream_alive()) {
      pl_stream_keep_life_line();
      pl_image_prepare_native();
      return False;
   }
   reason = pl_process_is_followed() ? reason_to_run_natively(path, INTERPRETER_DEPTH) : PL_NOT_FOLLOWED;
   if (reason == NULL && pl_proc_self_is_debugged())
      reason = "is debugged by another program (ptrace)";
   if (reason == NULL && !pl_image_prepare_recorded())
      reason = "was executed where Valgrind's own files cannot be reached";
   if (reason != NULL) {
      pl_image_prepare_native();
      pl_process_runs_natively(reason);
      return False;
   }
   return __real_vgPlain_should_we_trace_this_child(path, arguments);
}
