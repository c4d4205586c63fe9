/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

/* For the kernel it is the tool that runs, not the program. So each image has a lock on one byte far behind the end of
   its program's file, which goes when the last process with this image has gone. Whoever opens the file for writing
   looks for the lock. Whether a file is open for writing can only be asked of the kernel: by an execveat that checks
   and executes nothing (since Linux 6.14), or else by a lease, which the kernel does not grant then. Linux 6.12:
   fs/exec.c (do_open_execat), fs/open.c (do_dentry_open, vfs_truncate), fs/locks.c (check_conflicting_open).

   Whoever closes a descriptor of a file releases the locks (fcntl) that the table of descriptors has on the file. So a
   thread with a table of its own opens and closes it (fs/open.c: filp_flush, fs/locks.c: locks_remove_posix). Where the
   kernel allows none, this thread does so itself: a released lock is less harm than a running file that is written. */

#include "pub_tool_aspacemgr.h"
#include "pub_tool_basics.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "core.h"
#include "own_thread.h"
#include "stream.h"
#include "text_busy.h"

#define O_ACCESS_MODE 3
#define O_CREATE 0100
#define O_EXCLUSIVE 0200
#define O_TRUNC 01000
#define O_NONBLOCK 04000
#define O_NOFOLLOW 0400000
#define O_CLOEXEC 02000000
#define O_PATH 010000000
#define O_DIRECTORY 0200000
/* All that Linux knows (VALID_OPEN_FLAGS), and of openat2 a flag of `resolve`. */
#define O_VALID 037777703ULL
#define RESOLVE_CACHED 0x20
#define MODE_BITS 07777
#define AT_FDCWD (-100)
#define AT_EACCESS 0x200
#define AT_EMPTY_PATH 0x1000
#define AT_EXECVE_CHECK 0x10000
#define NR_OPENAT2 437
#define NR_FACCESSAT2 439
#define W_OK 2
#define ANY_EXECUTE_BIT 0111
#define F_SETSIG 10
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_SETLEASE 1024
#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2
#define ERROR_AGAIN 11
#define ERROR_TEXT_BUSY 26

/* struct flock */
typedef struct {
   Short type;
   Short whence;
   Long start;
   Long length;
   Int pid;
} Lock;

/* struct open_how */
typedef struct {
   ULong flags, mode, resolve;
} OpenHow;

/* How the program names a file. */
typedef struct {
   Int folder;
   const HChar* path;
   OpenHow how;
} Named;

/* A byte of the file that nothing else locks. */
#define PLACE 0x706167656c6162L

static Bool lock(Int file, Int command, Lock* asked)
{
   return pl_system_call(__NR_fcntl, (ULong)file, (ULong)command, (ULong)(Addr)asked, 0, 0, 0) == 0;
}

void pl_text_busy_begins(void)
{
   Lock running = {F_RDLCK, VKI_SEEK_SET, PLACE, 1, 0};

   /* Of a script, that of the program that runs it. */
   if (VG_(cl_exec_fd) >= 0)
      lock(VG_(cl_exec_fd), F_OFD_SETLK, &running);
}

/* ---- files that are written ---- */

/* What `asked` returns, in a thread with descriptors of its own if there can be one. */
static Bool with_own_descriptors(Long (*asked)(const void*), const void* argument)
{
   Long answer;

   if (!pl_ask_in_thread(asked, argument, &answer))
      answer = asked(argument);
   return answer != 0;
}

static Long lease_is_refused(const void* descriptor)
{
   HChar path[40];
   SysRes opened;
   Long result;

   VG_(sprintf)(path, "/proc/thread-self/fd/%d", *(const Int*)descriptor);
   opened = VG_(open)(path, VKI_O_RDONLY | O_CLOEXEC, 0);
   if (sr_isError(opened))
      return False;
   /* Should somebody open the file for writing just now, this is the signal that tells of it, and is ignored. */
   pl_system_call(__NR_fcntl, sr_Res(opened), F_SETSIG, VKI_SIGURG, 0, 0, 0);
   result = pl_system_call(__NR_fcntl, sr_Res(opened), F_SETLEASE, F_RDLCK, 0, 0, 0);
   VG_(close)((Int)sr_Res(opened));
   return result == -ERROR_AGAIN;
}

Bool pl_text_is_written(Int file)
{
   const HChar* arguments[] = {"", NULL};
   Long result = pl_system_call(__NR_execveat, (ULong)file, (ULong)(Addr) "", (ULong)(Addr)arguments,
                                (ULong)(Addr)(arguments + 1), AT_EMPTY_PATH | AT_EXECVE_CHECK, 0);

   return result == -ERROR_TEXT_BUSY || (result == -VKI_EINVAL && with_own_descriptors(lease_is_refused, &file));
}

/* ---- files that run ---- */

static Long open_named(const Named* named, ULong flags)
{
   OpenHow how = {flags | O_CLOEXEC | (named->how.flags & O_NOFOLLOW), 0, named->how.resolve};

   if (how.resolve != 0)
      return pl_system_call(NR_OPENAT2, (ULong)(Long)named->folder, (ULong)(Addr)named->path, (ULong)(Addr)&how,
                            sizeof how, 0, 0);
   return pl_system_call(__NR_openat, (ULong)(Long)named->folder, (ULong)(Addr)named->path, how.flags, 0, 0, 0);
}

static Long is_locked(const void* named)
{
   Lock wanted = {F_WRLCK, VKI_SEEK_SET, PLACE, 1, 0};
   Long file = open_named(named, O_NONBLOCK);
   Bool locked;

   if (file < 0)
      return False;
   locked = lock((Int)file, F_OFD_GETLK, &wanted) && wanted.type != F_UNLCK;
   VG_(close)((Int)file);
   return locked;
}

/* Whether a recorded program runs the file, and this one might write to it otherwise. A descriptor of a path alone
   releases no locks. */
static Bool is_running(const Named* named)
{
   struct vg_stat facts;
   Long file = open_named(named, O_PATH);
   Bool may_write;

   if (file < 0)
      return False;
   may_write = VG_(fstat)((Int)file, &facts) == 0 && VKI_S_ISREG(facts.mode) && (facts.mode & ANY_EXECUTE_BIT)
               && pl_system_call(NR_FACCESSAT2, (ULong)file, (ULong)(Addr) "", W_OK, AT_EACCESS | AT_EMPTY_PATH, 0, 0)
                     == 0;
   VG_(close)((Int)file);
   return may_write && with_own_descriptors(is_locked, named);
}

static Bool refuses(const Named* named, SyscallStatus* status)
{
   UWord flags = named->how.flags, access = flags & O_ACCESS_MODE;

   /* The mode 3 asks for both rights, but opens for neither. A folder is never opened for writing. */
   if (((access == VKI_O_RDONLY || access == O_ACCESS_MODE) && !(flags & O_TRUNC)) || (flags & (O_PATH | O_DIRECTORY))
       || (flags & (O_CREATE | O_EXCLUSIVE)) == (O_CREATE | O_EXCLUSIVE)
       || !VG_(am_is_valid_for_client)((Addr)named->path, 1, VKI_PROT_READ) || !is_running(named))
      return False;
   status->what = SsComplete;
   status->sres = VG_(mk_SysRes_Error)(ERROR_TEXT_BUSY);
   return True;
}

Bool pl_text_refuses(Int folder, Addr path, UWord flags, SyscallStatus* status)
{
   Named named = {folder, (const HChar*)path, {flags, 0, 0}};

   return refuses(&named, status);
}

/* ---- calls that are no others' ---- */

extern Before __real_vgSysWrap_generic_sys_creat_before, __wrap_vgSysWrap_generic_sys_creat_before;
extern Before __real_vgSysWrap_generic_sys_truncate_before, __wrap_vgSysWrap_generic_sys_truncate_before;

void __wrap_vgSysWrap_generic_sys_creat_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                               SyscallStatus* status, UWord* flags)
{
   if (!pl_text_refuses(AT_FDCWD, arguments->arg1, O_TRUNC, status))
      __real_vgSysWrap_generic_sys_creat_before(tid, layout, arguments, status, flags);
}

void __wrap_vgSysWrap_generic_sys_truncate_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments,
                                                  SyscallStatus* status, UWord* flags)
{
   if ((Word)arguments->arg2 < 0 || !pl_text_refuses(AT_FDCWD, arguments->arg1, O_TRUNC, status))
      __real_vgSysWrap_generic_sys_truncate_before(tid, layout, arguments, status, flags);
}

/* Whether the kernel would look for the file (build_open_flags); of what is wrong it says so. */
static Bool is_valid(const OpenHow* how)
{
   Bool creates = (how->flags & O_CREATE) != 0;

   return (how->flags & ~O_VALID) == 0 && (how->mode & ~(ULong)(creates ? MODE_BITS : 0)) == 0
          && !((how->resolve & RESOLVE_CACHED) && (creates || (how->flags & O_TRUNC)));
}

void pl_openat2_before(ThreadId tid, SyscallArgLayout* layout, SyscallArgs* arguments, SyscallStatus* status,
                       UWord* flags)
{
   Named named = {(Int)arguments->arg1, (const HChar*)arguments->arg2, {0, 0, 0}};

   (void)tid;
   (void)layout;
   if (arguments->arg4 == sizeof named.how
       && VG_(am_is_valid_for_client)(arguments->arg3, sizeof named.how, VKI_PROT_READ)
       && is_valid((const OpenHow*)arguments->arg3))
      named.how = *(const OpenHow*)arguments->arg3;
   if (!refuses(&named, status))
      *flags |= SfMayBlock;
}
