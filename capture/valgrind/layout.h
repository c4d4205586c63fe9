/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_LAYOUT_H
#define PAGELAB_LAYOUT_H

/* Where mappings go that the program leaves to the kernel. */

#include "pub_tool_basics.h"

/* There is nothing mapped any more. */
extern void pl_layout_unmapped(Addr start, SizeT length);

#endif
