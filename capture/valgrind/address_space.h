/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_ADDRESS_SPACE_H
#define PAGELAB_ADDRESS_SPACE_H

/* How much of the address space the program may use, and how many segments Valgrind keeps. */

#include "pub_tool_basics.h"

/* Segments of memory that Valgrind keeps (VG_N_SEGMENTS). The build passes more if it has raised the limit. */
#ifndef PL_SEGMENTS
#define PL_SEGMENTS 30000
#endif

/* The program's mappings end here, unless it asks for an address. */
extern Addr pl_mappings_end(void);

/* False once Valgrind's table of segments is nearly full: a call that may make more is to fail with ENOMEM. */
extern Bool pl_segments_are_left(void);

#endif
