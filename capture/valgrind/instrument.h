/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_INSTRUMENT_H
#define PAGELAB_INSTRUMENT_H

#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

/* Adds to a superblock the code that records its accesses, and sends the descriptors of its segments. */
extern IRSB* pl_instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                           const VexGuestExtents* extents, const VexArchInfo* host, IRType guest_word,
                           IRType host_word);

/* Frees the segment numbers of a superblock whose translation is thrown away. */
extern void pl_discard_superblock(Addr origin, VexGuestExtents extents);

extern void pl_instrument_init(void);

#endif
