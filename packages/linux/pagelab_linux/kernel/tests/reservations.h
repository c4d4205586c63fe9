/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of reservations and of rings share: groups, pagemap and counters. */
#ifndef PAGELAB_RESERVATIONS_H
#define PAGELAB_RESERVATIONS_H

#include <sys/mman.h>

#include "switches.h"

#ifndef DIRECTORY
#define DIRECTORY	DEBUGFS "reservations/"
#endif
#define STATS		DIRECTORY "stats"
#ifndef HELD
#define HELD		"reserved"	/* pages that are held back now */
#endif
#define GROUP_PAGES	8UL
#define GROUP		(GROUP_PAGES * PAGE)
#define PRESENT		(1ULL << 63)
#define FRAME		((1ULL << 55) - 1)

static inline long stat_of(const char *name)
{
	return number_in(STATS, name);
}

/* Free pages, those in the lists of CPUs included. */
static inline long free_pages(void)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	long pages = 0, number;
	char line[256];

	CHECK(file, "zoneinfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, " nr_free_pages %ld", &number) == 1 ||
		    sscanf(line, " count: %ld", &number) == 1)
			pages += number;
	fclose(file);
	return pages;
}

/* A mapping whose start is that of a group, with a hole before and behind. */
static inline char *map_groups(size_t size)
{
	char *all = mmap(NULL, size + 2 * GROUP + 2 * PAGE, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start;

	CHECK(all != MAP_FAILED, "mmap: %s", strerror(errno));
	start = (char *)(((unsigned long)all + PAGE + GROUP - 1) / GROUP * GROUP);
	CHECK(mmap(start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		   MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == start,
	      "mmap: %s", strerror(errno));
	return start;
}

/* The frame of a page, or 0 if there is none. */
static inline uint64_t frame_of(const void *address)
{
	static int file = -1;
	uint64_t entry;

	if (file < 0)
		file = open("/proc/self/pagemap", O_RDONLY);
	CHECK(pread(file, &entry, sizeof(entry), (unsigned long)address / PAGE *
		    sizeof(entry)) == sizeof(entry), "pagemap: %s", strerror(errno));
	return entry & PRESENT ? entry & FRAME : 0;
}

/* Groups whose eight pages lie in eight frames in order, aligned as they are. */
static inline unsigned long contiguous_groups(const char *start, size_t size)
{
	unsigned long contiguous = 0;

	for (const char *group = start; group < start + size; group += GROUP) {
		uint64_t first = frame_of(group);
		bool all = first && first % GROUP_PAGES == 0;

		for (unsigned long i = 1; all && i < GROUP_PAGES; i++)
			all = frame_of(group + i * PAGE) == first + i;
		contiguous += all;
	}
	return contiguous;
}

static inline void store_page(char *at, unsigned long salt)
{
	for (unsigned long i = 0; i < PAGE / sizeof(long); i += 64)
		((unsigned long *)at)[i] = (unsigned long)at + salt + i;
}

/* Stores where store_page() does not. */
static inline void touch_aside(char *at)
{
	*(volatile char *)(at + sizeof(long)) = 1;
}

static inline void expect_page(const char *at, unsigned long salt)
{
	for (unsigned long i = 0; i < PAGE / sizeof(long); i += 64)
		CHECK(((unsigned long *)at)[i] == (unsigned long)at + salt + i,
		      "%p + %lu holds %lx", (void *)at, i * 8,
		      ((unsigned long *)at)[i]);
}

/*
 * The first store to a page, all of which must be zero. A load ahead of it
 * would map the zero page, and the group would not be reserved.
 */
static inline void first_store(char *at, unsigned long salt)
{
	*(volatile unsigned long *)at = 0;
	for (unsigned long i = 0; i < PAGE / sizeof(long); i++)
		CHECK(!((unsigned long *)at)[i], "%p is not zero", (void *)at);
	store_page(at, salt);
}

/* Stores to one page of each group, and so reserves seven. */
static inline void touch_one_each(char *start, size_t size, unsigned long salt)
{
	for (unsigned long group = 0; group * GROUP < size; group++)
		first_store(start + group * GROUP + group % GROUP_PAGES * PAGE,
			    salt);
}

static inline void expect_one_each(char *start, size_t size, unsigned long salt)
{
	for (unsigned long group = 0; group * GROUP < size; group++)
		expect_page(start + group * GROUP + group % GROUP_PAGES * PAGE,
			    salt);
}

/* Other memory of the same process, such as its heap, has reservations too. */
static inline bool near(long counted, long expected)
{
	return labs(counted - expected) <= 64;
}

struct reservation_case {
	const char *name;
	const char *mutation;	/* what the case must notice */
	void (*run)(void);
};

/*
 * NAME..., "mutation NAME", or nothing: all cases. Of a mutation, the case
 * runs in a child, which must fail.
 */
static inline int run_cases(const struct reservation_case *cases, int count,
			    char **arguments)
{
	bool mutation = count == 3 && !strcmp(arguments[1], "mutation");
	int known = 0, status;

	if (access(STATS, R_OK))
		quit(SKIP, "this kernel has no %s", DIRECTORY);
	must_put(DIRECTORY "enabled", "1");
	for (; cases->name; cases++) {
		bool named = count == 1;

		for (int i = 1; i < count; i++)
			named |= !strcmp(arguments[i], cases->name);
		if (mutation)
			named = cases->mutation && !strcmp(arguments[2], cases->mutation);
		if (!named)
			continue;
		known++;
		printf("case=%s\n", cases->name);
		fflush(stdout);
		if (!mutation) {
			cases->run();
			continue;
		}
		must_put(DEBUGFS "mutation", arguments[2]);
		if (!fork()) {
			cases->run();
			_exit(PASS);
		}
		wait(&status);
		must_put(DEBUGFS "mutation", "none");
		CHECK(status, "nothing noticed %s", arguments[2]);
	}
	must_put(DIRECTORY "enabled", "0");
	printf("%s=%ld\n", HELD, stat_of(HELD));
	if (!known)
		quit(USAGE, "no such case");
	return PASS;
}

#endif
