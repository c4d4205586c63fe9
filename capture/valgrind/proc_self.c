/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* What the kernel knows of the process's image is Valgrind's: where the first stack begins, the heap, arguments and
   environment. Programs read that in /proc/self/maps ([heap] and [stack]) and stat, others in /proc/PID/cmdline. So the
   kernel is told of the program's (PR_SET_MM_MAP). Kernels may refuse it; then the files stay as they are.

   Valgrind adds two variables to the environment. One of them has ld.so load a library that this tool does not need.
   They are taken away before the program sees them. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "proc_self.h"
#include "process.h"
#include "stream.h"

#define PR_SET_MM 35
#define PR_SET_MM_MAP 14
#define O_CLOEXEC 02000000
#define AT_NULL 0
#define AT_ENTRY 9
#define PRELOAD "LD_PRELOAD="
#define VALGRIND_LIB "VALGRIND_LIB="
/* Ancestors of a process that are looked at. */
#define MOST_ANCESTORS 1000

/* linux/prctl.h: struct prctl_mm_map */
static struct {
   ULong start_code, end_code, start_data, end_data, start_brk, brk, start_stack;
   ULong arg_start, arg_end, env_start, env_end;
   const ULong* auxv;
   UInt auxv_size, exe_fd;
} image = {.exe_fd = ~0u};

/* The strings of a list that ends with NULL; returns what follows the list. */
static const Addr* strings(const Addr* list, ULong* start, ULong* end)
{
   *start = *end = *list;
   while (*list != 0) {
      *end = *list + VG_(strlen)((const HChar*)*list) + 1;
      list++;
   }
   return list + 1;
}

/* False if the kernel was told nothing. */
static Bool tell_kernel(void)
{
   return image.start_stack != 0
          && pl_system_call(__NR_prctl, PR_SET_MM, PR_SET_MM_MAP, (ULong)(Addr)&image, sizeof image, 0, 0) == 0;
}

extern Int VG_(cl_cmdline_fd);

/* A program that opens its own cmdline gets a copy from Valgrind, as of its start. Now it gets the file, and so what it
   has written over its arguments since, as servers do to show what they are at. */
static void follow_cmdline(void)
{
   SysRes file = VG_(open)("/proc/self/cmdline", VKI_O_RDONLY, 0);

   if (sr_isError(file))
      return;
   pl_system_call(__NR_dup3, sr_Res(file), (ULong)VG_(cl_cmdline_fd), O_CLOEXEC, 0, 0, 0);
   VG_(close)((Int)sr_Res(file));
}

void pl_proc_self_forked(void)
{
   if (tell_kernel())
      follow_cmdline();
}

/* Removes Valgrind's own library from `variable`, an LD_PRELOAD; returns whether nothing is left. */
static Bool remove_preload(HChar* variable)
{
   HChar* list = variable + VG_(strlen)(PRELOAD);
   HChar* own = VG_(strstr)(list, "/vgpreload_core");
   HChar *start = own, *end = own;

   if (own == NULL)
      return False;
   while (start > list && start[-1] != ':')
      start--;
   while (*end != '\0' && *end != ':')
      end++;
   if (*end == ':')
      end++;
   VG_(memmove)(start, end, VG_(strlen)(end) + 1);
   return *list == '\0';
}

/* What follows a variable of the environment on the stack, down to the auxiliary vector, takes its place. */
static void remove_variable(Addr* variable)
{
   Addr* end = variable;

   VG_(memset)((void*)*variable, 0, VG_(strlen)((const HChar*)*variable));
   while (*end != 0)
      end++;
   for (end++; end[0] != AT_NULL; end += 2) {
   }
   VG_(memmove)(variable, variable + 1, (SizeT)((UChar*)(end + 2) - (UChar*)(variable + 1)));
}

static void clean_environment(Addr* stack_pointer)
{
   /* The number of arguments, the arguments, and NULL come first. */
   Addr* variable = stack_pointer + 1 + stack_pointer[0] + 1;

   while (*variable != 0) {
      HChar* text = (HChar*)*variable;
      if (VG_(strncmp)(text, VALGRIND_LIB, VG_(strlen)(VALGRIND_LIB)) == 0
          || (VG_(strncmp)(text, PRELOAD, VG_(strlen)(PRELOAD)) == 0 && remove_preload(text)))
         remove_variable(variable);
      else
         variable++;
   }
}

void pl_proc_self_begins(Addr stack_pointer)
{
   const Addr* auxiliary;
   const NSegment* code = NULL;

   clean_environment((Addr*)stack_pointer);
   auxiliary = strings((const Addr*)stack_pointer + 1, &image.arg_start, &image.arg_end);
   auxiliary = strings(auxiliary, &image.env_start, &image.env_end);
   if (image.env_start == 0)
      image.env_start = image.env_end = image.arg_end;
   for (; auxiliary[0] != AT_NULL; auxiliary += 2) {
      if (auxiliary[0] == AT_ENTRY)
         code = VG_(am_find_nsegment)(auxiliary[1]);
   }
   if (code == NULL || image.arg_start == 0)
      return;
   image.start_code = code->start;
   image.end_code = code->end + 1;
   image.start_data = image.end_data = image.start_brk = VG_(brk_base);
   image.start_stack = stack_pointer;
   image.brk = VG_(brk_limit);
   pl_proc_self_forked();
}

void pl_proc_self_heap_moved(void)
{
   image.brk = VG_(brk_limit);
   tell_kernel();
}

/* The number behind `name` in /proc/PID/status; 0 if there is none. */
static Int status_of(Int pid, const HChar* name)
{
   static HChar text[2048];
   const HChar* field;
   SysRes file;
   Int length;

   VG_(sprintf)(text, "/proc/%d/status", pid);
   file = VG_(open)(text, VKI_O_RDONLY, 0);
   if (sr_isError(file))
      return 0;
   length = VG_(read)((Int)sr_Res(file), text, sizeof text - 1);
   VG_(close)((Int)sr_Res(file));
   text[length > 0 ? length : 0] = '\0';
   field = VG_(strstr)(text, name);
   return field == NULL ? 0 : (Int)VG_(strtoll10)(field + VG_(strlen)(name), NULL);
}

Bool pl_proc_self_is_debugged(void)
{
   Int pid = status_of(VG_(getpid)(), "\nTracerPid:\t"), i;

   for (i = 0; i < MOST_ANCESTORS && pid > 1; i++) {
      if (pid == pl_recorder_pid)
         return i > 0;
      pid = status_of(pid, "\nPPid:\t");
   }
   return False;
}
