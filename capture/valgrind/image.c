/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* How a process comes from one program image to the next. Valgrind executes itself, with its own options, the path and
   the arguments of the program but its argv[0]. Paths may be out of reach by then: a process may have dropped its
   privileges, or changed its root. So an image leaves the next one open descriptors: the tool's own file, the log, and
   the door to the encoder. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "exec_check.h"
#include "filters.h"
#include "image.h"
#include "limits.h"
#include "memory_limits.h"
#include "process.h"
#include "stream.h"

#define O_PATH 010000000
#define F_SETFD 2
#define PR_SET_NAME 15
#define AT_EXECVE_CHECK 0x10000
#define AT_FDCWD (-100)
#define PATH_MAX 4096
#define ERROR_NAME_TOO_LONG 36
/* Where a program's descriptors begin, and how many of the first image are looked at for Valgrind's log. */
#define FIRST_FREE_FD 0
#define OPEN_FDS 259
/* A stack that may grow without end may grow so far. */
#define LARGEST_STACK (16UL << 30)
/* So far the kernel keeps the room below a stack free, for programs that raise their limit. */
#define LEAST_ROOM (128UL << 20)

Int pl_door = -1;
Int pl_inherited_filters = -1;
const HChar* pl_argv0 = NULL;

static const HChar* path_of_image = NULL;
/* Of a script, the program that runs it; of an interpreter that is a script, the program that runs that. */
static const HChar* interpreter = NULL;
/* The tool's own file, and its path for an execve. */
static Int tool_fd = -1;
/* The filters for the next image. */
static Int filters_fd = -1;
static HChar tool_path[40];
/* Valgrind's launcher, and the folder of Valgrind's own files. */
static HChar* launcher = NULL;
static const HChar* folder = NULL;

static Bool same_file(const struct vg_stat* a, const struct vg_stat* b)
{
   return a->dev == b->dev && a->ino == b->ino;
}

/* ---- the image begins ---- */

static HChar** own_option(const HChar* name)
{
   Word i, n = VG_(sizeXA)(VG_(args_for_valgrind));

   for (i = 0; i < n; i++) {
      HChar** option = VG_(indexXA)(VG_(args_for_valgrind), i);
      if (VG_(strncmp)(*option, name, VG_(strlen)(name)) == 0)
         return option;
   }
   return NULL;
}

/* Valgrind's loader, which is called before options are read. What it has loaded gets the argv[0] that the program
   asked for; a script's argv[0] is its path as the kernel has it. And the stack has the room that the kernel leaves it,
   beyond Valgrind's 16 MiB; the limit is looked at as it grows (memory_limits.c). */
extern Int __real_vgPlain_do_exec(const HChar* path, void* information);
extern Int __wrap_vgPlain_do_exec(const HChar* path, void* information);
extern UWord VG_(clo_main_stacksize);
extern struct vki_rlimit VG_(client_rlimit_stack);

Int __wrap_vgPlain_do_exec(const HChar* path, void* information)
{
   Int result = __real_vgPlain_do_exec(path, information);
   HChar** option = own_option("--argv0=");
   HChar** memory = own_option("--memory=");
   UWord stack, room;

   pl_memory_limits_begin(memory == NULL ? NULL : *memory + 9);
   stack = VG_(client_rlimit_stack).rlim_cur;
   path_of_image = VG_(strdup)("pagelab.path", path);
   if (result == 0 && option != NULL && (*option)[8] == (interpreter == NULL ? '=' : ':'))
      VG_(args_the_exename) = *option + 9;
   room = VG_(client_rlimit_stack).rlim_max < LEAST_ROOM ? VG_(client_rlimit_stack).rlim_max : LEAST_ROOM;
   if (room < stack)
      room = stack;
   if (VG_(clo_main_stacksize) == 0)
      VG_(clo_main_stacksize) = room > LARGEST_STACK ? LARGEST_STACK : room;
   return result;
}

/* Valgrind loads a script's interpreter by this function. */
extern Int __real_vgPlain_do_exec_inner(const HChar* path, void* information);
extern Int __wrap_vgPlain_do_exec_inner(const HChar* path, void* information);

Int __wrap_vgPlain_do_exec_inner(const HChar* path, void* information)
{
   interpreter = VG_(strdup)("pagelab.interpreter", path);
   return __real_vgPlain_do_exec_inner(path, information);
}

/* Valgrind keeps what the program reads as its /proc/self/cmdline and auxv in files below /tmp, which it deletes at
   once. There may be no /tmp that can be written: they are in memory instead, and have no name. */
extern Int __real_vgPlain_mkstemp(const HChar* part_of_name, HChar* name);
extern Int __wrap_vgPlain_mkstemp(const HChar* part_of_name, HChar* name);
extern Int __real_vgPlain_unlink(const HChar* name);
extern Int __wrap_vgPlain_unlink(const HChar* name);

Int __wrap_vgPlain_mkstemp(const HChar* part_of_name, HChar* name)
{
   Long descriptor = pl_system_call(__NR_memfd_create, (ULong)(Addr)part_of_name, 1 /* MFD_CLOEXEC */, 0, 0, 0, 0);

   if (descriptor < 0)
      return __real_vgPlain_mkstemp(part_of_name, name);
   name[0] = '\0';
   return VG_(safe_fd)((Int)descriptor);
}

Int __wrap_vgPlain_unlink(const HChar* name)
{
   return name[0] == '\0' ? 0 : __real_vgPlain_unlink(name);
}

/* Valgrind gives its log a new descriptor, and leaves the one that it has opened, or inherited, to the program. */
static void close_other_log(void)
{
   HChar** option = own_option("--log-fd=");
   Int inherited = option == NULL ? -1 : (Int)VG_(strtoll10)(*option + 9, NULL), descriptor;
   struct vg_stat of_log, of_other;

   if (VG_(fstat)(VG_(log_output_sink).fd, &of_log) != 0)
      return;
   for (descriptor = FIRST_FREE_FD; descriptor < FIRST_FREE_FD + OPEN_FDS; descriptor++) {
      Int other = inherited >= 0 ? inherited : descriptor;
      if (other != VG_(log_output_sink).fd && VG_(fstat)(other, &of_other) == 0 && same_file(&of_log, &of_other)) {
         VG_(close)(other);
         return;
      }
   }
}

/* The folder of Valgrind's files: VALGRIND_LIB, or if that is the tool's folder, the one that a link there points
   to. */
static void find_folder(void)
{
   static HChar link[PATH_MAX], file[PATH_MAX];
   SSizeT length;

   folder = VG_(libdir);
   VG_(snprintf)(link, sizeof link, "%s/vgpreload_core-amd64-linux.so", VG_(libdir));
   length = VG_(readlink)(link, file, sizeof file - 1);
   if (length <= 0 || file[0] != '/')
      return;
   file[length] = '\0';
   *VG_(strrchr)(file, '/') = '\0';
   folder = file;
}

static const HChar* name_in(const HChar* path)
{
   const HChar* slash = VG_(strrchr)(path, '/');

   return slash == NULL ? path : slash + 1;
}

void pl_image_begins(void)
{
   SysRes opened;

   if (pl_door >= 0)
      pl_stream_inherit_door(pl_door);
   if (pl_inherited_filters >= 0)
      pl_filters_load(pl_inherited_filters);
   close_other_log();
   launcher = VG_(name_of_launcher);
   if (interpreter != NULL) {
      /* /proc/self/exe is the interpreter; Valgrind takes it for the script. */
      opened = VG_(open)(interpreter, VKI_O_RDONLY, 0);
      if (!sr_isError(opened)) {
         VG_(close)(VG_(cl_exec_fd));
         VG_(cl_exec_fd) = VG_(safe_fd)((Int)sr_Res(opened));
      }
   }
   find_folder();
   opened = VG_(open)("/proc/self/exe", O_PATH, 0);
   if (!sr_isError(opened)) {
      tool_fd = VG_(safe_fd)((Int)sr_Res(opened));
      /* The thread that calls execve may not be the first one, which Valgrind ends before. */
      VG_(sprintf)(tool_path, "/proc/thread-self/fd/%d", tool_fd);
   }
   /* As execve names the process, which would have the name of Valgrind. */
   pl_system_call(__NR_prctl, PR_SET_NAME, (ULong)(Addr)name_in(path_of_image), 0, 0, 0, 0);
}

Bool pl_image_is_recorded(Int pid)
{
   HChar path[40];
   struct vg_stat of_process, of_tool;

   VG_(sprintf)(path, "/proc/%d/exe", pid);
   return tool_fd >= 0 && !sr_isError(VG_(stat)(path, &of_process)) && VG_(fstat)(tool_fd, &of_tool) == 0
          && same_file(&of_process, &of_tool);
}

Bool pl_image_may_be_recorded(Int pid)
{
   HChar path[40];
   struct vg_stat of_process;
   SysRes result;

   VG_(sprintf)(path, "/proc/%d/exe", pid);
   result = VG_(stat)(path, &of_process);
   return (sr_isError(result) && sr_Err(result) == VKI_EACCES) || pl_image_is_recorded(pid);
}

const HChar* pl_image_path(void)
{
   return path_of_image;
}

/* ---- the image ends ---- */

static void set_option(const HChar* name, const HChar* replaced, const HChar* value)
{
   HChar** option = own_option(name);
   HChar* text = VG_(malloc)("pagelab.option", VG_(strlen)(name) + VG_(strlen)(value) + 1);

   VG_(strcpy)(text, name);
   VG_(strcat)(text, value);
   if (option == NULL && replaced != NULL)
      option = own_option(replaced);
   if (option != NULL)
      *option = text;
   else
      VG_(addToXA)(VG_(args_for_valgrind), &text);
}

static void keep_over_exec(Int descriptor, Bool kept)
{
   if (descriptor > 2)
      pl_system_call(__NR_fcntl, (ULong)descriptor, F_SETFD, kept ? 0 : VKI_FD_CLOEXEC, 0, 0, 0);
}

/* A failed execve may have left other ones. */
static void leave_filters(void)
{
   HChar number[24];

   if (filters_fd >= 0)
      VG_(close)(filters_fd);
   filters_fd = pl_filters_save(VG_(get_running_tid)());
   if (filters_fd < 0)
      return;
   VG_(sprintf)(number, "%d", filters_fd);
   set_option("--filters=", NULL, number);
}

static void keep_descriptors(Bool kept)
{
   keep_over_exec(filters_fd, kept);
   keep_over_exec(pl_stream_door(), kept);
   keep_over_exec(VG_(log_output_sink).fd, kept);
}

Bool pl_image_prepare_recorded(void)
{
   HChar number[24];

   if (tool_fd < 0 || VG_(access)(tool_path, False, False, True) != 0)
      return False;
   VG_(name_of_launcher) = tool_path;
   VG_(sprintf)(number, "%d", pl_stream_door());
   set_option("--door=", "--socket=", number);
   VG_(sprintf)(number, "%d", VG_(log_output_sink).fd);
   set_option("--log-fd=", "--log-file=", number);
   VG_(sprintf)(number, "%llu", pl_process_key());
   set_option("--key=", NULL, number);
   VG_(sprintf)(number, "%d", pl_recorder_pid);
   set_option("--recorder=", NULL, number);
   set_option("--descriptors=", NULL, pl_limits_text());
   set_option("--memory=", NULL, pl_memory_limits_text());
   leave_filters();
   keep_descriptors(True);
   return True;
}

void pl_image_prepare_native(void)
{
   pl_limits_exec_begins();
   if (pl_filters_are_on(VG_(get_running_tid)()))
      VG_(umsg)("pagelab: its filter of system calls (seccomp) does not hold in the program that it executed, which runs "
                "natively\n");
   keep_descriptors(False);
}

/* Valgrind sets VALGRIND_LIB so for the next image, to the tool's folder, which may be out of reach. And as the tool's
   file is executed without the launcher, nobody else sets VALGRIND_LAUNCHER. */
extern void __real_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value);
extern void __wrap_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value);

void __wrap_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value)
{
   Bool of_next_image = VG_(name_of_launcher) == tool_path && VG_(strcmp)(name, "VALGRIND_LIB") == 0;

   __real_vgPlain_env_setenv(environment, name, of_next_image ? folder : value);
   if (of_next_image && launcher != NULL)
      __real_vgPlain_env_setenv(environment, "VALGRIND_LAUNCHER", launcher);
}

/* ---- the file that is executed ---- */

/* A path that the next image can open the descriptor's file by: its name, or the descriptor itself, which stays
   open. */
static const HChar* path_of_descriptor(Int descriptor)
{
   static HChar path[PATH_MAX], link[40];
   struct vg_stat of_descriptor, of_path;
   SSizeT length;
   Int copy;

   if (VG_(fstat)(descriptor, &of_descriptor) != 0)
      return NULL;
   VG_(sprintf)(link, "/proc/self/fd/%d", descriptor);
   length = VG_(readlink)(link, path, sizeof path - 1);
   if (length > 0) {
      path[length] = '\0';
      if (!sr_isError(VG_(stat)(path, &of_path)) && same_file(&of_descriptor, &of_path))
         return path;
   }
   /* It has no name any more, or never had one (memfd_create). */
   copy = VG_(fcntl)(descriptor, VKI_F_DUPFD, 3);
   VG_(sprintf)(link, "/proc/self/fd/%d", copy);
   return copy < 0 ? NULL : link;
}

/* The number in a path such as /proc/self/fd/7; -1 if it is none. */
static Int descriptor_in(const HChar* path)
{
   static const HChar* const folders[] = {"/proc/self/fd/", "/dev/fd/", "/proc/thread-self/fd/"};
   UInt i;

   for (i = 0; i < sizeof folders / sizeof folders[0]; i++) {
      SizeT length = VG_(strlen)(folders[i]);
      HChar* end;
      Long number;
      if (VG_(strncmp)(path, folders[i], length) != 0)
         continue;
      number = VG_(strtoll10)(path + length, &end);
      return end > path + length && *end == '\0' ? (Int)number : -1;
   }
   return -1;
}

/* What is to be executed instead of the program's path. The kernel takes /proc/self/exe, and all links to it, for the
   tool, which runs in the program's place; and a descriptor may be closed by the execve itself. */
static const HChar* path_to_execute(const HChar* path)
{
   struct vg_stat of_path, of_tool;
   Int descriptor = descriptor_in(path);
   const HChar* resolved = NULL;

   if (descriptor >= 0)
      resolved = path_of_descriptor(descriptor);
   else if (tool_fd >= 0 && !sr_isError(VG_(stat)(path, &of_path)) && VG_(fstat)(tool_fd, &of_tool) == 0
            && same_file(&of_path, &of_tool))
      resolved = path_of_descriptor(VG_(cl_exec_fd));
   if (resolved == NULL && VG_(strchr)(path, '/') == NULL && VG_(strlen)(path) < PATH_MAX - 3) {
      /* Valgrind would look for it in PATH. */
      static HChar here[PATH_MAX];
      VG_(strcpy)(here, "./");
      VG_(strcat)(here, path);
      resolved = here;
   }
   return resolved != NULL ? resolved : path;
}

/* The same of a name below the descriptor; `file` is what it names. A script gets a path that only works while the
   descriptor is open. */
static UWord path_below(Int directory, const HChar* name, Int file, const HChar** path)
{
   static HChar of_script[PATH_MAX + 24];
   HChar head[PL_HEAD_BYTES];

   *path = path_of_descriptor(file);
   if (*path == NULL)
      return VKI_EBADF;
   if (pl_exec_read_head(*path, head) < 2 || head[0] != '#' || head[1] != '!')
      return 0;
   if (VG_(fcntl)(directory, VKI_F_GETFD, 0) & VKI_FD_CLOEXEC)
      return VKI_ENOENT;
   VG_(sprintf)(of_script, name[0] == '\0' ? "/dev/fd/%d" : "/dev/fd/%d/%s", directory, name);
   *path = of_script;
   return 0;
}

/* The first argument, marked by '='; nothing if it is the path. Of a script, its name, marked by ':'. */
static void leave_argv0(Addr arguments, const HChar* path, const HChar* name)
{
   const HChar* argv0 = *(const HChar* const*)arguments;
   HChar head[PL_HEAD_BYTES];
   Bool is_script = pl_exec_read_head(path, head) >= 2 && head[0] == '#' && head[1] == '!';
   Bool is_here = VG_(strncmp)(path, "./", 2) == 0 && VG_(strcmp)(path + 2, name) == 0;
   HChar* text;

   if (is_script)
      argv0 = is_here ? name : path;
   text = VG_(malloc)("pagelab.argv0", VG_(strlen)(argv0) + 2);
   VG_(sprintf)(text, "%c%s", is_script ? ':' : '=', argv0);
   set_option("--argv0=", NULL, VG_(strcmp)(argv0, path) == 0 ? "" : text);
   VG_(free)(text);
}

#define RED_ZONE_BYTES 128
/* Two pointers and an empty string. */
#define EMPTY_LIST_BYTES 32

/* A program that is executed without arguments gets an empty one. Below the stack is room for the list. */
static Addr empty_arguments(ThreadId tid)
{
   Addr place = (VG_(get_SP)(tid) - RED_ZONE_BYTES - EMPTY_LIST_BYTES) & ~15UL;
   Addr* list = (Addr*)place;
   const NSegment* segment = VG_(am_find_nsegment)(place);

   if (segment != NULL && segment->kind == SkResvn)
      VG_(extend_stack)(tid, place);
   if (!VG_(am_is_valid_for_client)(place, EMPTY_LIST_BYTES, VKI_PROT_READ | VKI_PROT_WRITE))
      return 0;
   list[0] = (Addr)&list[2];
   list[1] = list[2] = 0;
   return place;
}

/* What Valgrind passes on before the program's path and arguments. */
static SizeT own_bytes(void)
{
   Word i, n = VG_(sizeXA)(VG_(args_for_valgrind));
   SizeT bytes = 3 * PATH_MAX;

   for (i = 0; i < n; i++)
      bytes += VG_(strlen)(*(HChar**)VG_(indexXA)(VG_(args_for_valgrind), i)) + 1 + sizeof(Addr);
   return bytes;
}

/* The name's length; -1 if it is not readable. */
static Long length_of(Addr name)
{
   SizeT length = 0;

   while (length < PATH_MAX) {
      if ((length == 0 || (name + length) % PAGE_BYTES == 0)
          && !VG_(am_is_valid_for_client)(name + length, 1, VKI_PROT_READ))
         return -1;
      if (((const HChar*)name)[length] == '\0')
         break;
      length++;
   }
   return (Long)length;
}

typedef struct {
   Int directory;
   Addr name;
   Addr arguments;
   Addr environment;
   UWord flags;
   ExecveType type;
} Execution;

/* Checks what the kernel would check, in its order, and finds the path to execute. */
static UWord prepare(ThreadId tid, Execution* asked, const HChar** path)
{
   Long length = length_of(asked->name);
   const HChar* name = (const HChar*)asked->name;
   Bool is_below = length > 0 ? name[0] != '/' && asked->directory != AT_FDCWD : True;
   UWord arguments_n, error;
   Int file;

   if (length < 0 || length == PATH_MAX)
      return length < 0 ? VKI_EFAULT : ERROR_NAME_TOO_LONG;
   *path = is_below ? name : path_to_execute(name);
   error = pl_exec_find(asked->directory, *path, asked->flags, &file);
   if (error == 0 && is_below)
      error = path_below(asked->directory, name, file, path);
   if (file >= 0)
      VG_(close)(file);
   if (error == 0)
      error = pl_exec_check_lists(asked->arguments, asked->environment, own_bytes(), &arguments_n);
   if (error == 0)
      error = pl_exec_check_format(*path);
   if (error == 0 && arguments_n == 0)
      asked->arguments = empty_arguments(tid);
   return error != 0 || asked->arguments != 0 ? error : VKI_EFAULT;
}

static void execute(ThreadId tid, SyscallStatus* status, Execution asked)
{
   const HChar* path;
   UWord error = prepare(tid, &asked, &path);

   if (error != 0) {
      status->what = SsComplete;
      status->sres = VG_(mk_SysRes_Error)(error);
      return;
   }
   leave_argv0(asked.arguments, path, (const HChar*)asked.name);
   handle_pre_sys_execve(tid, status, (Addr)path, asked.arguments, asked.environment, asked.type, False);
}

extern Before __wrap_vgSysWrap_generic_sys_execve_before, __wrap_vgSysWrap_linux_sys_execveat_before;

void __wrap_vgSysWrap_generic_sys_execve_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                SyscallStatus* status, UWord* flags)
{
   Execution asked = {AT_FDCWD, arguments->arg1, arguments->arg2, arguments->arg3, 0, PL_EXECVE};

   (void)layout;
   (void)flags;
   execute(tid, status, asked);
}

void __wrap_vgSysWrap_linux_sys_execveat_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                SyscallStatus* status, UWord* flags)
{
   Execution asked = {(Int)arguments->arg1, arguments->arg2, arguments->arg3, arguments->arg4, arguments->arg5,
                      PL_EXECVEAT};

   (void)layout;
   (void)flags;
   /* It only asks whether it could be executed (Linux 6.14). */
   if (arguments->arg5 & AT_EXECVE_CHECK)
      status->what = SsHandToKernel;
   else
      execute(tid, status, asked);
}
