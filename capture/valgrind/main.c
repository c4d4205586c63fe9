/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* pagelab: a Valgrind tool that sends every data access of a program, and what happens to its address space, to
   pagelab's encoder. README.md has the design and the stream. */

#include "pub_tool_basics.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"

#include "allocations.h"
#include "image.h"
#include "instrument.h"
#include "limits.h"
#include "process.h"
#include "signals.h"

static Bool on_option(const HChar* argument)
{
   if VG_STR_CLO(argument, "--socket", pl_socket_path) {
      return True;
   }
   if VG_BINT_CLO(argument, "--follow", pl_follow_one_in, 1, PL_FOLLOW_MAX) {
      return True;
   }
   if VG_BINT_CLO(argument, "--follow-from", pl_follow_from, 0, PL_FOLLOW_MAX - 1) {
      return True;
   }
   if VG_BOOL_CLO(argument, "--stacks", pl_stacks) {
      /* Else Valgrind follows calls to known addresses inside a superblock, which then ends with no call. */
      if (pl_stacks)
         VG_(clo_vex_control).guest_chase = False;
      return True;
   }
   if (VG_STR_CLO(argument, "--key", pl_key_text) || VG_STR_CLO(argument, "--argv0", pl_argv0)
       || VG_STR_CLO(argument, "--descriptors", pl_descriptors_text)
       || VG_STR_CLO(argument, "--ignored-signals", pl_ignored_signals)
       || VG_(strncmp)(argument, "--memory=", 9) == 0 /* has been read before the image was loaded */
       || VG_BINT_CLO(argument, "--door", pl_door, 0, 0x7fffffff)
       || VG_BINT_CLO(argument, "--filters", pl_inherited_filters, 0, 0x7fffffff))
      return True;
   if VG_BINT_CLO(argument, "--recorder", pl_recorder_pid, 1, 0x7fffffff) {
      return True;
   }
   return False;
}

static void print_usage(void)
{
   VG_(printf)("    --socket=PATH             local socket on which pagelab's encoder listens [required]\n");
   VG_(printf)("    --follow=N                of the first program's children, follow one in N [1]\n");
   VG_(printf)("    --follow-from=K           begin with the child of this number, from 0 on [0]\n");
   VG_(printf)("    --stacks=yes|no           tell calls, returns and allocations [no]\n");
   VG_(printf)("    --ignored-signals=MASK    hexadecimal; what the first program inherits of the C library's signals [0]\n");
   VG_(printf)("    --recorder=PID            parent of the first program\n");
   VG_(printf)("    --door=FD --filters=FD --key=N --argv0=TEXT --descriptors=TEXT --memory=TEXT    what a program leaves to the one that it executes\n");
}

static void print_debug_usage(void)
{
   VG_(printf)("    (none)\n");
}

static void on_options_read(void)
{
   if (pl_socket_path == NULL && pl_door < 0)
      VG_(fmsg_bad_option)("--socket", "this tool is started by 'pagelab record', which passes the socket\n");
   pl_image_begins();
   pl_limits_begin();
   pl_process_hello();
}

static void on_end(Int code)
{
   pl_process_exit(code);
}

static void before_options(void)
{
   VG_(details_name)("pagelab");
   VG_(details_version)("1");
   VG_(details_description)("a recorder of memory accesses");
   VG_(details_copyright_author)("Copyright (C) the pagelab contributors, GPL-2.0-or-later.");
   VG_(details_bug_reports_to)("the pagelab project");
   VG_(details_avg_translation_sizeB)(400);
   VG_(basic_tool_funcs)(on_options_read, pl_instrument, on_end);
   VG_(needs_superblock_discards)(pl_discard_superblock);
   VG_(needs_command_line_options)(on_option, print_usage, print_debug_usage);
   pl_limits_make_room();
   pl_instrument_init();
   pl_process_init();
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
