/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_TRANSLATE_H
#define PAGELAB_TRANSLATE_H

/* How code is translated beyond what Valgrind does by itself. */

#include "libvex.h"
#include "pub_tool_basics.h"

/* A handler of faults may look at registers, and repair what the faulting access needs: from here on all registers are
   exact at each access. */
extern void pl_translate_exactly(void);
/* The same for a handler of divisions by zero. */
extern void pl_translate_divisions_exactly(void);

/* Code in this range can change without a write to it: it is checked each time before it runs. */
extern void pl_translate_mutable(Addr start, SizeT length);
/* The mapping is at another place. */
extern void pl_translate_moved(Addr old_start, SizeT old_length, Addr new_start, SizeT new_length);
/* Whether a superblock's code lies in memory that the program may write. */
extern Bool pl_translate_may_be_written(const VexGuestExtents* extents);
/* The range has other contents, or none. */
extern void pl_translate_forget(Addr start, SizeT length);

#endif
