// SPDX-License-Identifier: GPL-2.0
/*
 * paced MIB GAP: stores to each 4 KiB page of a fresh anonymous mapping, with
 * GAP instructions between one page and the next. Like touch, it does so once
 * more, and the difference of both passes is what the faults took.
 */
#include <sys/mman.h>

#include "guest.h"

/* Two instructions each time round. */
static void wait_for(unsigned long instructions)
{
	unsigned long left = instructions / 2;

	if (left)
		__asm__ volatile("1: dec %0; jnz 1b" : "+r"(left));
}

static uint64_t touch_all(volatile char *memory, unsigned long pages, unsigned long gap)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < pages; i++) {
		memory[i * PAGE] = 1;
		wait_for(gap);
	}
	return ticks() - began;
}

int main(int count, char **arguments)
{
	unsigned long pages, gap;
	uint64_t faulting, present;
	char *memory;
	long before;

	if (count != 3)
		quit(USAGE, "usage: paced MIB GAP");
	pages = whole_number(arguments[1], "MIB") * MIB / PAGE;
	gap = whole_number(arguments[2], "GAP");
	if (!pages)
		quit(USAGE, "MIB must be at least 1");
	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	before = minor_faults();
	faulting = touch_all(memory, pages, gap);
	printf("faults=%ld\n", minor_faults() - before);
	present = touch_all(memory, pages, gap);
	printf("ticks=%ld\n", (long)(faulting - present));
	printf("loop_ticks=%lu\n", present);
	return PASS;
}
