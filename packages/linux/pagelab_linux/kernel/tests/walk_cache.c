// SPDX-License-Identifier: GPL-2.0
/*
 * walk_cache check KIND [CASE]: uses addresses again after their page tables
 * were freed or moved, with the oracle on. No walk may differ from what was
 * cached, no page may hold what was not stored to it, and there must be hits.
 *
 * walk_cache mutation NAME KIND: the same with an invalidation left out, which
 * the oracle must report.
 *
 * walk_cache switches: bad input is refused, and walks are timed.
 *
 * walk_cache no-memory: a cache cannot be allocated.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "switches.h"

#define DIRECTORY	DEBUGFS "walk_cache/"
#define STATS		DIRECTORY "stats"

/* Far from what else a static program maps, and each in its own 512 GiB. */
#define FIRST		((char *)0x100000000000UL)
#define SECOND		((char *)0x180000000000UL)

#define STEP		(8 * MIB)	/* two pages touched in each */

static char *map_at(char *address, size_t size, int protection)
{
	char *got = mmap(address, size, protection, MAP_PRIVATE | MAP_ANONYMOUS |
			 MAP_NORESERVE | MAP_FIXED, -1, 0);

	CHECK(got == address, "mmap: %s", strerror(errno));
	return got;
}

static void unmap(char *address, size_t size)
{
	CHECK(!munmap(address, size), "munmap: %s", strerror(errno));
}

static void store(char *start, size_t size, unsigned long salt)
{
	for (char *at = start; at < start + size; at += STEP) {
		*(unsigned long *)at = (unsigned long)(at - start) ^ salt;
		*(unsigned long *)(at + PAGE) = ~((unsigned long)(at - start) ^ salt);
	}
}

static void expect_stored(const char *start, size_t size, unsigned long salt)
{
	for (const char *at = start; at < start + size; at += STEP) {
		unsigned long value = (unsigned long)(at - start) ^ salt;

		CHECK(*(unsigned long *)at == value, "%p holds %lx, not %lx", at,
		      *(unsigned long *)at, value);
		CHECK(*(unsigned long *)(at + PAGE) == ~value,
		      "%p holds %lx, not %lx", at + PAGE,
		      *(unsigned long *)(at + PAGE), ~value);
	}
}

/* From the end: what was cached last is asked first. */
static void expect_zero(const char *start, size_t size)
{
	for (const char *at = start + size - STEP; at >= start; at -= STEP)
		CHECK(!*(unsigned long *)at && !*(unsigned long *)(at + PAGE),
		      "%p is not zero", at);
}

/* The PMD table goes with its only VMA, and comes back. */
static void unmap_and_again(void)
{
	for (unsigned long round = 1; round < 4; round++) {
		map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
		store(FIRST, GIB, round);
		/* Takes pages that the next round's tables may have been. */
		map_at(SECOND, GIB, PROT_READ | PROT_WRITE);
		expect_stored(FIRST, GIB, round);
		unmap(FIRST, GIB);
		store(SECOND, GIB, ~round);
		map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
		expect_zero(FIRST, GIB);
		store(FIRST, GIB, round);
		expect_stored(SECOND, GIB, ~round);
		expect_stored(FIRST, GIB, round);
		unmap(FIRST, GIB);
		unmap(SECOND, GIB);
	}
}

/*
 * A VMA that outlives the PMD table of a part and grows over it again: a part
 * is split off, unmapped, and mapped so that it merges with what remained.
 */
static void merge_again(void)
{
	for (unsigned long round = 1; round < 4; round++) {
		map_at(FIRST, 2 * GIB, PROT_READ | PROT_WRITE);
		store(FIRST + GIB, GIB, round);
		store(FIRST, GIB, round);
		CHECK(!mprotect(FIRST + GIB, GIB, PROT_READ), "mprotect");
		unmap(FIRST, GIB);
		map_at(FIRST, GIB, PROT_READ);
		expect_zero(FIRST, GIB);
		CHECK(!mprotect(FIRST, 2 * GIB, PROT_READ | PROT_WRITE),
		      "mprotect");
		store(FIRST, 2 * GIB, ~round);
		expect_stored(FIRST, 2 * GIB, ~round);
		unmap(FIRST, 2 * GIB);
	}
}

static void move(char *from, char *to, int flags)
{
	char *got = mremap(from, GIB, GIB, MREMAP_MAYMOVE | MREMAP_FIXED | flags,
			   to);

	CHECK(got == to, "mremap: %s", strerror(errno));
}

/* The PMD table moves to another address, and its old one is used again. */
static void move_and_again(void)
{
	for (unsigned long round = 1; round < 4; round++) {
		map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
		store(FIRST, GIB, round);
		move(FIRST, SECOND, 0);
		map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
		expect_zero(FIRST, GIB);
		store(FIRST, GIB, ~round);
		expect_stored(SECOND, GIB, round);
		unmap(SECOND, GIB);
		/* And back, to where a table was. */
		move(FIRST, SECOND, 0);
		move(SECOND, FIRST, 0);
		expect_stored(FIRST, GIB, ~round);
		unmap(FIRST, GIB);
	}
}

/* The same, and the old VMA stays with what it has cached. */
static void move_and_keep(void)
{
	for (unsigned long round = 1; round < 4; round++) {
		map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
		store(FIRST, GIB, round);
		move(FIRST, SECOND, MREMAP_DONTUNMAP);
		expect_zero(FIRST, GIB);
		store(FIRST, GIB, ~round);
		expect_stored(SECOND, GIB, round);
		store(SECOND, GIB, round + 1);
		expect_stored(FIRST, GIB, ~round);
		unmap(FIRST, GIB);
		unmap(SECOND, GIB);
	}
}

static void map_over(void)
{
	for (unsigned long round = 1; round < 4; round++) {
		map_at(FIRST, 2 * GIB, PROT_READ | PROT_WRITE);
		store(FIRST, 2 * GIB, round);
		map_at(FIRST + GIB, GIB, PROT_READ | PROT_WRITE);
		expect_zero(FIRST + GIB, GIB);
		expect_stored(FIRST, GIB, round);
		store(FIRST, 2 * GIB, ~round);
		expect_stored(FIRST, 2 * GIB, ~round);
	}
	unmap(FIRST, 2 * GIB);
}

static void child_of_fork(void *salt)
{
	expect_stored(FIRST, GIB, *(unsigned long *)salt);
	store(FIRST, GIB, ~*(unsigned long *)salt);
	expect_stored(FIRST, GIB, ~*(unsigned long *)salt);
	unmap(FIRST, GIB);
	map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
	store(FIRST, GIB, 1);
	expect_stored(FIRST, GIB, 1);
}

/* A child's tables are its own, at the parent's addresses. */
static void fork_and_exit(void)
{
	map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
	for (unsigned long round = 1; round < 4; round++) {
		store(FIRST, GIB, round);
		in_child(child_of_fork, &round);
		expect_stored(FIRST, GIB, round);
	}
	unmap(FIRST, GIB);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "unmap", unmap_and_again },
	{ "merge", merge_again },
	{ "move", move_and_again },
	{ "keep", move_and_keep },
	{ "over", map_over },
	{ "fork", fork_and_exit },
};

#define CASES	(sizeof(cases) / sizeof(cases[0]))

/* Runs cases with the oracle, and returns how often it objected. */
static long run(const char *only)
{
	long all = 0;
	bool known = false;

	for (unsigned int i = 0; i < CASES; i++) {
		long hits, mismatches;

		if (only && strcmp(only, cases[i].name))
			continue;
		known = true;
		hits = number_in(STATS, "pmd_hits");
		mismatches = number_in(STATS, "oracle_mismatches");
		cases[i].run();
		hits = number_in(STATS, "pmd_hits") - hits;
		mismatches = number_in(STATS, "oracle_mismatches") - mismatches;
		printf("%s_hits=%ld\n", cases[i].name, hits);
		printf("%s_mismatches=%ld\n", cases[i].name, mismatches);
		CHECK(hits > 0, "no hits: is the cache on?");
		all += mismatches;
	}
	if (!known)
		quit(USAGE, "no case %s", only);
	return all;
}

static void switch_on(const char *kind)
{
	must_put(DIRECTORY "kind", kind);
	must_put(DIRECTORY "oracle", "1");
	must_put(DIRECTORY "enabled", "1");
}

static void switch_off(void)
{
	must_put(DIRECTORY "enabled", "0");
	must_put(DIRECTORY "oracle", "0");
}

static void check_switches(void)
{
	static const char *const nonsense[] = {
		"2", "-1", "on", "1x", "", " ", "11111111111111111111111111111111111",
	};

	for (unsigned int i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		if (!*nonsense[i])
			continue;
		must_refuse(DIRECTORY "enabled", nonsense[i]);
		must_refuse(DIRECTORY "oracle", nonsense[i]);
		must_refuse(DIRECTORY "kind", nonsense[i]);
		must_refuse(DIRECTORY "timing", nonsense[i]);
		if (!access(DEBUGFS "mutation", W_OK))
			must_refuse(DEBUGFS "mutation", nonsense[i]);
	}
	must_refuse(DIRECTORY "kind", "vmas");
	CHECK(put(STATS, "0"), "the counters can be written");
}

/*
 * Without memory for its cache, a VMA goes without, and is none the worse. The
 * hits are those of all processes: the shell that started this one has caches
 * from earlier runs, and copies its last pages after a fork while this runs.
 */
static void check_no_memory(void)
{
	long caches, hits = number_in(STATS, "pmd_hits");

	must_put(DEBUGFS "mutation", "no-memory");
	caches = number_in(STATS, "vma_caches");
	switch_on("vma");
	map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
	store(FIRST, GIB, 1);
	expect_stored(FIRST, GIB, 1);
	hits = number_in(STATS, "pmd_hits") - hits;
	caches = number_in(STATS, "vma_caches") - caches;
	must_put(DEBUGFS "mutation", "none");
	CHECK(hits < (long)(GIB / STEP / 2) && !caches, "%ld hits, %ld caches",
	      hits, caches);
	unmap(FIRST, GIB);
	unmap_and_again();
	CHECK(number_in(STATS, "pmd_hits") > 0, "no hits with memory");
	switch_off();
}

/* A walk that is timed takes some time, and each one is. */
static void check_timing(void)
{
	long timed, ticks;

	map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
	must_put(DIRECTORY "timing", "1");
	timed = number_in(STATS, "timed_walks");
	ticks = number_in(STATS, "walk_ticks");
	store(FIRST, GIB, 1);
	timed = number_in(STATS, "timed_walks") - timed;
	ticks = number_in(STATS, "walk_ticks") - ticks;
	must_put(DIRECTORY "timing", "0");
	unmap(FIRST, GIB);
	printf("timed_walks=%ld\n", timed);
	CHECK(timed >= (long)(2 * GIB / STEP) && ticks >= timed,
	      "%ld walks were timed, %ld ticks", timed, ticks);
	timed = number_in(STATS, "timed_walks");
	map_at(FIRST, GIB, PROT_READ | PROT_WRITE);
	store(FIRST, GIB, 1);
	unmap(FIRST, GIB);
	CHECK(number_in(STATS, "timed_walks") == timed, "timed while it is off");
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	long mismatches;

	if (access(STATS, R_OK))
		quit(SKIP, "this kernel has no translation cache");
	stay_on_one_cpu();
	if (!strcmp(what, "switches") && count == 2) {
		check_switches();
		check_timing();
	} else if (!strcmp(what, "no-memory") && count == 2) {
		if (access(DEBUGFS "mutation", W_OK))
			quit(SKIP, "this kernel has no mutations");
		check_no_memory();
	} else if (!strcmp(what, "check") && (count == 3 || count == 4)) {
		switch_on(arguments[2]);
		mismatches = run(count == 4 ? arguments[3] : NULL);
		switch_off();
		CHECK(!mismatches, "%ld walks differ from the cache", mismatches);
	} else if (!strcmp(what, "mutation") && count == 4) {
		if (access(DEBUGFS "mutation", W_OK))
			quit(SKIP, "this kernel has no mutations");
		CHECK(put(DEBUGFS "mutation", arguments[2]) == EBUSY,
		      "a mutation without the oracle");
		switch_on(arguments[3]);
		must_put(DEBUGFS "mutation", arguments[2]);
		CHECK(put(DIRECTORY "oracle", "0") == EBUSY,
		      "the oracle can be switched off under a mutation");
		mismatches = run(NULL);
		must_put(DEBUGFS "mutation", "none");
		switch_off();
		CHECK(mismatches, "nothing noticed %s", arguments[2]);
	} else {
		quit(USAGE, "usage: walk_cache check KIND [CASE] | mutation NAME KIND | switches | no-memory");
	}
	return PASS;
}
