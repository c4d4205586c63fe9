/* Part of the pagelab recorder, a Valgrind tool.
   Copyright the pagelab contributors.

   This program is free software; you can redistribute it and/or modify it under the terms of the GNU General
   Public License as published by the Free Software Foundation; either version 2 of the License, or (at your
   option) any later version. It is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY;
   without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the file COPYING.

   SPDX-License-Identifier: GPL-2.0-or-later */

#ifndef PAGELAB_SIGNALS_H
#define PAGELAB_SIGNALS_H

#include "pub_tool_basics.h"

/* Option: the signals that the program inherits as ignored, as hexadecimal digits. */
extern const HChar* pl_ignored_signals;

/* Before the recording's first program runs. */
extern void pl_signals_begin(void);
/* A signal is about to be delivered to the thread. */
extern void pl_signals_before_delivery(ThreadId tid, Int signal);
/* The thread goes on, in the handler if a signal was delivered. */
extern void pl_signals_goes_on(ThreadId tid);

#endif
