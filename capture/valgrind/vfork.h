/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_VFORK_H
#define PAGELAB_VFORK_H

#include "pub_tool_basics.h"

/* Of a fork whose parent waits until the child executes another program or ends (CLONE_VFORK). */

/* Before the fork. */
void pl_vfork_begins(void);
/* In the child. `shares`: its memory is that of its parent (CLONE_VM). */
void pl_vfork_in_child(Bool shares);
/* In a child of any fork: it is no part of what its parent's fork has begun. */
void pl_vfork_forget(void);
/* In the child, before it executes another program, and at its end. */
void pl_vfork_give_back(void);
/* In the parent: waits for the child, and takes over what it wrote. */
void pl_vfork_wait(void);

#endif
