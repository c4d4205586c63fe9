/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_NEWER_CALLS_H
#define PAGELAB_NEWER_CALLS_H

/* What is done before and after calls that the kernel carries out itself, but Valgrind's core does not know. */

#include "core.h"

extern Before pl_epoll_pwait2_before, pl_futex_requeue_before, pl_futex_wait_before, pl_futex_waitv_before;
extern Before pl_io_pgetevents_before, pl_process_madvise_before;
extern After pl_epoll_pwait2_after, pl_newer_call_after, pl_process_madvise_after;

#endif
