// SPDX-License-Identifier: GPL-2.0
/*
 * touch PATTERN MIB [ROUNDS]: stores to each 4 KiB page of a fresh anonymous
 * mapping once, then once more.
 *
 * The first pass faults on each page, the second on none. Both run the same
 * loop, so the difference is what the faults took. The order is in an array
 * that is present before. Patterns: sequential; random; semi-random, which is
 * a random page and the four that follow it, as in the evaluation of the
 * software translation cache.
 */
#include <sys/mman.h>

#include "guest.h"

#define STEPS 5 /* of semi-random: one random step and four sequential ones */
#define REGIONS 32
#define REGION_PAGES (1024 * MIB / PAGE)

/* Groups of consecutive pages in random order; the last one may be shorter. */
static void fill(uint32_t *order, unsigned long pages, unsigned long together, uint64_t *state)
{
	unsigned long groups = (pages + together - 1) / together, at = 0;
	uint32_t *group = malloc(groups * sizeof(*group));

	if (!group)
		quit(FAIL, "no memory for %lu groups", groups);
	for (unsigned long i = 0; i < groups; i++)
		group[i] = i;
	shuffle(group, groups, state);
	for (unsigned long i = 0; i < groups; i++)
		for (unsigned long page = group[i] * together; page < pages && page < (group[i] + 1) * together; page++)
			order[at++] = page;
	free(group);
}

static void fill_regions(uint32_t *order, unsigned long pages)
{
	for (unsigned long i = 0; i < pages; i++)
		order[i] = i % REGIONS * REGION_PAGES + i / REGIONS;
}

/* Of the mapping: up to the last page that is touched. */
static unsigned long span(const uint32_t *order, unsigned long pages)
{
	unsigned long last = 0;

	for (unsigned long i = 0; i < pages; i++)
		last = order[i] > last ? order[i] : last;
	return (last + 1) * PAGE;
}

static uint64_t touch_all(volatile char *memory, const uint32_t *order, unsigned long pages)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < pages; i++)
		memory[order[i] * PAGE] = 1;
	return ticks() - began;
}

static void measure(const uint32_t *order, unsigned long pages)
{
	unsigned long bytes = span(order, pages);
	uint64_t faulting, present;
	long before, after;
	char *memory;

	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	before = minor_faults();
	trace_begin();
	faulting = touch_all(memory, order, pages);
	trace_end();
	after = minor_faults();
	present = touch_all(memory, order, pages);
	if (minor_faults() != after)
		quit(FAIL, "%ld faults in the second pass", minor_faults() - after);
	for (unsigned long i = 0; i < pages; i++)
		if (memory[order[i] * PAGE] != 1 || memory[order[i] * PAGE + PAGE - 1])
			quit(FAIL, "page %u is not what was stored to it", order[i]);
	munmap(memory, bytes);
	printf("faults=%ld\n", after - before);
	printf("ticks=%lu\n", faulting - present);
	printf("loop_ticks=%lu\n", present);
}

int main(int count, char **arguments)
{
	unsigned long pages, rounds;
	uint64_t state = 88172645463325252ULL;
	uint32_t *order;

	if (count < 3 || count > 4)
		quit(USAGE, "usage: touch sequential|random|semi-random|regions MIB [ROUNDS]");
	pages = whole_number(arguments[2], "MIB") * MIB / PAGE;
	rounds = count > 3 ? whole_number(arguments[3], "ROUNDS") : 1;
	if (!pages || !rounds)
		quit(USAGE, "MIB and ROUNDS must be at least 1");
	order = malloc(pages * sizeof(*order));
	if (!order)
		quit(FAIL, "no memory for %lu pages", pages);
	if (!strcmp(arguments[1], "sequential"))
		fill(order, pages, pages, &state);
	else if (!strcmp(arguments[1], "semi-random"))
		fill(order, pages, STEPS, &state);
	else if (!strcmp(arguments[1], "random"))
		fill(order, pages, 1, &state);
	else if (!strcmp(arguments[1], "regions"))
		fill_regions(order, pages);
	else
		quit(USAGE, "no pattern %s: sequential, random, semi-random or regions", arguments[1]);
	printf("pages=%lu\n", pages);
	for (unsigned long round = 0; round < rounds; round++)
		measure(order, pages);
	return PASS;
}
