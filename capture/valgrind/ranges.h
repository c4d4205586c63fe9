/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_RANGES_H
#define PAGELAB_RANGES_H

/* Sets of addresses, as ranges that do not overlap. */

#include "pub_tool_basics.h"
#include "pub_tool_xarray.h"

typedef struct {
   XArray* ranges; /* NULL: none */
} Ranges;

extern void pl_ranges_add(Ranges* set, Addr start, SizeT length);
extern void pl_ranges_remove(Ranges* set, Addr start, SizeT length);
/* Whether some of the range is in the set. */
extern Bool pl_ranges_touch(const Ranges* set, Addr start, SizeT length);
/* How much of the range is. */
extern SizeT pl_ranges_bytes(const Ranges* set, Addr start, SizeT length);
/* What is known of the old range holds for the new one, which is not in the set otherwise; the old one is not any
   more. */
extern void pl_ranges_move(Ranges* set, Addr old_start, SizeT old_length, Addr new_start, SizeT new_length);

#endif
