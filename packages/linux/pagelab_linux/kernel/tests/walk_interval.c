// SPDX-License-Identifier: GPL-2.0
/*
 * walk_interval PATTERN [ROUNDS]: what a walk of a page table costs a
 * processor, and what a cache of it saves, by how much other memory is touched
 * between two walks. PATTERN is sequential or random.
 *
 * A model in user space, for a processor and not for emulation: tables of
 * three levels over 1 GiB, as four levels with P4D folded have them down to
 * the PMD entry, in memory of this program. The walk makes the loads and tests
 * that __handle_mm_fault() makes on its way; the cache is that of whole PMD
 * tables, which always hits here. Nothing else differs between the two.
 *
 * A round takes the median of WALKS walks of each sort, in turn. Printed are
 * means of the rounds, without what an empty pair of time stamps takes, and
 * the interval that holds the saved part with 95 % confidence.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>

#include "guest.h"

#define ENTRIES		512UL
#define WALKS		301
#define MOST_ROUNDS	200
#define SLOTS		16
#define PRESENT		1UL
#define HUGE		0x80UL
#define ADDRESS		0x000ffffffffff000UL
#define START		0x100000000000UL	/* of the GiB that is walked */

struct slot {
	unsigned long tag, generation;
	unsigned long *table;
};

struct space {
	unsigned long *top, generation;
	struct slot slots[SLOTS];
};

enum sort { EMPTY, PLAIN, CACHED, SORTS };

static volatile unsigned char *other;
static volatile unsigned long sink;

static unsigned long *next_table(unsigned long *entry)
{
	unsigned long value = *(volatile unsigned long *)entry;

	if (!(value & PRESENT) || value & HUGE)
		return NULL;
	return (unsigned long *)(value & ADDRESS);
}

static __attribute__((noinline)) unsigned long *
walk(struct space *space, unsigned long address)
{
	unsigned long *table = next_table(space->top + (address >> 39) % ENTRIES);

	if (!table)
		return NULL;
	table = next_table(table + (address >> 30) % ENTRIES);
	return table ? table + (address >> 21) % ENTRIES : NULL;
}

static __attribute__((noinline)) unsigned long *
cached(struct space *space, unsigned long address)
{
	unsigned long tag = address >> 30;
	struct slot *slot = &space->slots[tag % SLOTS];

	if (slot->tag != tag || slot->generation != space->generation)
		return walk(space, address);
	return slot->table + (address >> 21) % ENTRIES;
}

static uint64_t timed(struct space *space, enum sort sort, unsigned long address)
{
	uint64_t began = ticks();

	if (sort != EMPTY)
		sink = *(sort == PLAIN ? walk : cached)(space, address);
	return ticks() - began;
}

static int compare(const void *one, const void *two)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)two;

	return (a > b) - (a < b);
}

static double median(struct space *space, enum sort sort, bool random,
		     size_t size, uint64_t *state)
{
	uint64_t took[WALKS];

	for (unsigned long i = 0; i < WALKS; i++) {
		unsigned long page = random ? next_random(state) % (1UL << 18) : i;

		for (size_t at = 0; at < size; at += 64)
			other[at]++;
		took[i] = timed(space, sort, START + page * PAGE);
	}
	qsort(took, WALKS, sizeof(took[0]), compare);
	return took[WALKS / 2];
}

static unsigned long *table(void)
{
	unsigned long *got = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE |
				  MAP_ANONYMOUS, -1, 0);

	if (got == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	return got;
}

static void make(struct space *space)
{
	unsigned long *middle = table(), *low = table();

	space->top = table();
	space->generation = 1;
	space->top[(START >> 39) % ENTRIES] = (unsigned long)middle | PRESENT;
	middle[(START >> 30) % ENTRIES] = (unsigned long)low | PRESENT;
	for (unsigned long i = 0; i < ENTRIES; i++)
		low[i] = PRESENT;
	space->slots[(START >> 30) % SLOTS] = (struct slot){ START >> 30, 1, low };
}

/* Without the mathematical library. */
static double root(double x)
{
	__asm__("sqrtsd %0, %0" : "+x"(x));
	return x;
}

/* Means of the rounds, and of the saved part its interval. */
static void measure(struct space *space, bool random, size_t size,
		    unsigned long rounds)
{
	double sum[SORTS] = { 0 }, saved[MOST_ROUNDS], mean = 0, spread = 0;
	uint64_t state = 88172645463325252ULL;

	for (unsigned long round = 0; round < rounds; round++) {
		double now[SORTS];

		for (enum sort sort = EMPTY; sort < SORTS; sort++) {
			now[sort] = median(space, sort, random, size, &state);
			sum[sort] += now[sort] / rounds;
		}
		saved[round] = now[PLAIN] - now[CACHED];
		mean += saved[round] / rounds;
	}
	for (unsigned long round = 0; round < rounds; round++)
		spread += (saved[round] - mean) * (saved[round] - mean) / (rounds - 1);
	spread = 1.96 * root(spread / rounds);
	printf("other=%zu\nempty=%.1f\nplain=%.1f\ncached=%.1f\n", size,
	       sum[EMPTY], sum[PLAIN] - sum[EMPTY], sum[CACHED] - sum[EMPTY]);
	printf("saved=%.1f\nsaved_low=%.1f\nsaved_high=%.1f\n", mean,
	       mean - spread, mean + spread);
}

int main(int count, char **arguments)
{
	static const size_t sizes[] = { 0, 4096, 32768, 262144, 1048576, 4194304 };
	static struct space space;
	unsigned long rounds = 40;
	bool random;

	if (count < 2 || count > 3)
		quit(USAGE, "usage: walk_interval sequential|random [ROUNDS]");
	random = !strcmp(arguments[1], "random");
	if (!random && strcmp(arguments[1], "sequential"))
		quit(USAGE, "no pattern %s: sequential or random", arguments[1]);
	if (count == 3)
		rounds = whole_number(arguments[2], "ROUNDS");
	if (rounds < 2 || rounds > MOST_ROUNDS)
		quit(USAGE, "ROUNDS must be 2 to %d", MOST_ROUNDS);
	make(&space);
	other = mmap(NULL, sizes[5], PROT_READ | PROT_WRITE, MAP_PRIVATE |
		     MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (other == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		measure(&space, random, sizes[i], rounds);
	return PASS;
}
