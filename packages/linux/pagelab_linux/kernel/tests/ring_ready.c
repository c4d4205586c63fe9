// SPDX-License-Identifier: GPL-2.0
/* ring_ready PAGES PERIOD_US: new rings of this size, and waits until they are full. */
#define _GNU_SOURCE
#include "rings.h"

int main(int count, char **arguments)
{
	if (count != 3)
		quit(USAGE, "usage: ring_ready PAGES PERIOD_US");
	if (access(STATS, R_OK))
		quit(SKIP, "this kernel has no %s", DIRECTORY);
	restart(whole_number(arguments[1], "PAGES"), whole_number(arguments[2], "PERIOD_US"));
	return PASS;
}
