/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#include "pub_tool_basics.h"

/* Valgrind's core reads the debug information of every file that the program maps. Nothing here needs it, and it takes
   0.1 s for a C library and 0.3 s for a compiler, each time one is executed. The linker is told (--wrap) to call this
   function instead; 0 says that there is no debug information. */
extern ULong __wrap_vgPlain_di_notify_mmap(Addr address, Bool allow_SkFileV, Int use_fd);

ULong __wrap_vgPlain_di_notify_mmap(Addr address, Bool allow_SkFileV, Int use_fd)
{
   (void)address;
   (void)allow_SkFileV;
   (void)use_fd;
   return 0;
}
