/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_basics.h"
#include "pub_tool_mallocfree.h"

#include "ranges.h"

typedef struct {
   Addr start;
   Addr end;
} Range;

Bool pl_ranges_touch(const Ranges* set, Addr start, SizeT length)
{
   Word i, n = set->ranges == NULL ? 0 : VG_(sizeXA)(set->ranges);

   for (i = 0; i < n; i++) {
      const Range* range = VG_(indexXA)(set->ranges, i);
      if (start < range->end && range->start < start + length)
         return True;
   }
   return False;
}

SizeT pl_ranges_bytes(const Ranges* set, Addr start, SizeT length)
{
   Word i, n = set->ranges == NULL ? 0 : VG_(sizeXA)(set->ranges);
   SizeT bytes = 0;

   for (i = 0; i < n; i++) {
      const Range* range = VG_(indexXA)(set->ranges, i);
      Addr from = start > range->start ? start : range->start;
      Addr to = start + length < range->end ? start + length : range->end;
      bytes += from < to ? to - from : 0;
   }
   return bytes;
}

void pl_ranges_remove(Ranges* set, Addr start, SizeT length)
{
   Addr end = start + length;
   Word i, n = set->ranges == NULL ? 0 : VG_(sizeXA)(set->ranges);

   for (i = n - 1; i >= 0; i--) {
      Range* range = VG_(indexXA)(set->ranges, i);
      Range behind = {end, range->end};
      if (range->end <= start || end <= range->start)
         continue;
      if (range->start < start) {
         range->end = start;
         if (behind.start < behind.end)
            VG_(addToXA)(set->ranges, &behind);
      } else if (behind.start < behind.end) {
         range->start = end;
      } else {
         VG_(removeIndexXA)(set->ranges, i);
      }
   }
}

/* Neighbours become one range: mappings are mostly stacked, and each call looks at all ranges. */
void pl_ranges_add(Ranges* set, Addr start, SizeT length)
{
   Range range = {start, start + length};
   Word i;

   pl_ranges_remove(set, start, length);
   if (set->ranges == NULL)
      set->ranges = VG_(newXA)(VG_(malloc), "pagelab.ranges", VG_(free), sizeof(Range));
   for (i = VG_(sizeXA)(set->ranges) - 1; i >= 0; i--) {
      const Range* other = VG_(indexXA)(set->ranges, i);
      if (other->end != range.start && other->start != range.end)
         continue;
      range.start = other->end == range.start ? other->start : range.start;
      range.end = other->start == range.end ? other->end : range.end;
      VG_(removeIndexXA)(set->ranges, i);
   }
   VG_(addToXA)(set->ranges, &range);
}

void pl_ranges_move(Ranges* set, Addr old_start, SizeT old_length, Addr new_start, SizeT new_length)
{
   Bool moved = pl_ranges_touch(set, old_start, old_length);

   pl_ranges_remove(set, old_start, old_length);
   if (moved)
      pl_ranges_add(set, new_start, new_length);
   else
      pl_ranges_remove(set, new_start, new_length);
}
