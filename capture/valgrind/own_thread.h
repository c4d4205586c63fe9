/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_OWN_THREAD_H
#define PAGELAB_OWN_THREAD_H

/* Questions to the kernel that would change what this process has. */

#include "pub_tool_basics.h"

/* Asks in a thread that has a copy of the descriptors and rights, while this one waits. False if there can be none. */
extern Bool pl_ask_in_thread(Long (*asked)(const void*), const void* argument, Long* answered);

#endif
