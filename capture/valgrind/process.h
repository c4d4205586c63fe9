/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_PROCESS_H
#define PAGELAB_PROCESS_H

/* What the process does besides executing instructions: address-space changes, threads, children, system calls. */

#include "pub_tool_basics.h"

/* Registers the callbacks with Valgrind. */
extern void pl_process_init(void);

/* A new image: connects and says who this is. */
extern void pl_process_hello(void);
/* What tells this process from all others of the recording, to be left to the program that it executes. */
extern ULong pl_process_key(void);
/* What is recorded from here on is of this thread. */
extern void pl_process_run_as(ThreadId tid);
/* Between the start of an execve and its failure: what is recorded there is to be sent at once. */
extern Bool pl_process_is_in_exec(void);

/* The process ends with this code. */
extern void pl_process_exit(Int code);

/* The program that an execve under way names will run without Valgrind, since it `reason` ("is …"). */
extern void pl_process_runs_natively(const HChar* reason);

/* Of the children of the recording's first program, one in so many is followed into what it executes, from the one of
   number pl_follow_from on; the others run natively. The first program is the one whose parent is pl_recorder_pid. */
#define PL_FOLLOW_MAX 1000000
extern Int pl_follow_one_in;
extern Int pl_follow_from;
extern Int pl_recorder_pid;
/* False if this process is a child that is not followed. */
extern Bool pl_process_is_followed(void);

/* Options: the encoder's socket, and the key of an executed process. */
extern const HChar* pl_socket_path;
extern const HChar* pl_key_text;

#endif
