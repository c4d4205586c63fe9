/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_IMAGE_H
#define PAGELAB_IMAGE_H

/* How a process comes from one program image to the next. */

#include "pub_tool_basics.h"

/* Options that an image leaves to the next: the end of the door, and the argv[0] that the program asked for. */
extern Int pl_door;
/* Filters of system calls that an earlier image has installed; -1: none. */
extern Int pl_inherited_filters;
extern const HChar* pl_argv0;

/* To be called once Valgrind has read its options. */
extern void pl_image_begins(void);

/* The file of this image's program, as it was executed. */
extern const HChar* pl_image_path(void);

/* Whether the process runs under this tool. */
extern Bool pl_image_is_recorded(Int pid);
/* The same, or the kernel does not say what the process runs: it has closed its memory to others of its user
   (PR_SET_DUMPABLE, or it has changed its user). */
extern Bool pl_image_may_be_recorded(Int pid);

/* The process is about to execute a program under Valgrind: leaves it what it needs. False if Valgrind's own files
   cannot be reached from here. */
extern Bool pl_image_prepare_recorded(void);

/* The process is about to execute a program natively, which gets none of the tool's descriptors. */
extern void pl_image_prepare_native(void);

#endif
