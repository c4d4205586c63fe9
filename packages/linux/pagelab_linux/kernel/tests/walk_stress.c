// SPDX-License-Identifier: GPL-2.0
/*
 * walk_stress ROUNDS THREADS [switch]: threads that fault in one mapping and
 * in their own, while these are unmapped, moved and mapped again, children are
 * forked, and, with "switch", the cache's switches change.
 *
 * Each thread's own mapping shares a 512 GiB table with the others'. The
 * oracle is on. Each page must hold what was stored to it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

#include "switches.h"

#define DIRECTORY	DEBUGFS "walk_cache/"
#define STATS		DIRECTORY "stats"

#define COMMON		((char *)0x200000000000UL)
#define COMMON_SIZE	(4 * GIB)
#define OWN		((char *)0x280000000000UL)
#define TOUCHES		24
#define MAX_THREADS	16

static unsigned long rounds;
static volatile bool done;
static unsigned long operations, threads, children;

struct worker {
	pthread_t thread;
	unsigned int index;
	uint64_t random;
};

static void *map_at(char *address, size_t size)
{
	char *got = mmap(address, size, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	CHECK(got == address, "mmap: %s", strerror(errno));
	return got;
}

/* All threads agree on what a page of the common mapping holds. */
static void touch_common(struct worker *worker)
{
	for (int i = 0; i < TOUCHES; i++) {
		unsigned long page = next_random(&worker->random) % (COMMON_SIZE / PAGE);
		unsigned long *at = (unsigned long *)(COMMON + page / 64 * 64 * PAGE);
		unsigned long now = __atomic_load_n(at, __ATOMIC_RELAXED);
		unsigned long right = (unsigned long)at ^ 0x5a5a5a5aUL;

		CHECK(!now || now == right, "%p holds %lx, not %lx", (void *)at,
		      now, right);
		__atomic_store_n(at, right, __ATOMIC_RELAXED);
	}
}

static void touch_own(char *base, unsigned long salt, bool fresh)
{
	for (unsigned long i = 0; i < TOUCHES; i++) {
		unsigned long *at = (unsigned long *)(base + i * (GIB / TOUCHES / PAGE) * PAGE);

		CHECK(*at == (fresh ? 0 : salt + i), "%p holds %lx, not %lx",
		      (void *)at, *at, fresh ? 0 : salt + i);
		*at = salt + i;
	}
}

static void move(char *from, char *to)
{
	CHECK(mremap(from, GIB, GIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to,
	      "mremap: %s", strerror(errno));
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	char *here = OWN + worker->index * 2 * GIB, *there = here + GIB;

	for (unsigned long round = 1; round <= rounds; round++) {
		unsigned long salt = round << 20 | worker->index << 8;

		map_at(here, GIB);
		touch_own(here, salt, true);
		touch_common(worker);
		if (next_random(&worker->random) & 1) {
			move(here, there);
			map_at(here, GIB);
			touch_own(here, ~salt, true);
			touch_own(there, salt, false);
			munmap(there, GIB);
			touch_own(here, ~salt, false);
		}
		touch_common(worker);
		if (next_random(&worker->random) & 1)
			munmap(here, GIB);
		__atomic_add_fetch(&operations, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void child(void *unused)
{
	struct worker worker = { .random = 88172645463325252ULL };

	(void)unused;
	touch_common(&worker);
	munmap(COMMON + GIB, GIB);
	map_at(COMMON + GIB, GIB);
	touch_common(&worker);
}

/* A fork stops all others, so there is one for each round of all threads. */
static void *disturb(void *switching)
{
	static const char *const kinds[] = { "vma", "cpu", "cpu-table" };
	unsigned long turn = 0;

	while (!done) {
		if (__atomic_load_n(&operations, __ATOMIC_RELAXED) <
		    children * threads) {
			usleep(1000);
			continue;
		}
		in_child(child, NULL);
		children++;
		if (!switching)
			continue;
		must_put(DIRECTORY "kind", kinds[turn++ % 3]);
		must_put(DIRECTORY "enabled", "0");
		must_put(DIRECTORY "oracle", turn & 1 ? "1" : "0");
		must_put(DIRECTORY "enabled", "1");
	}
	return NULL;
}

int main(int count, char **arguments)
{
	struct worker workers[MAX_THREADS];
	pthread_t disturber;
	bool switching;
	long mismatches;

	if (count < 3 || count > 4)
		quit(USAGE, "usage: walk_stress ROUNDS THREADS [switch]");
	rounds = whole_number(arguments[1], "ROUNDS");
	threads = whole_number(arguments[2], "THREADS");
	switching = count == 4 && !strcmp(arguments[3], "switch");
	if (!threads || threads > MAX_THREADS)
		quit(USAGE, "THREADS must be 1 to %d", MAX_THREADS);
	if (access(STATS, R_OK))
		quit(SKIP, "this kernel has no translation cache");
	must_put(DIRECTORY "oracle", "1");
	must_put(DIRECTORY "enabled", "1");
	mismatches = number_in(STATS, "oracle_mismatches");

	map_at(COMMON, COMMON_SIZE);
	for (unsigned int i = 0; i < threads; i++) {
		workers[i].index = i;
		workers[i].random = 88172645463325252ULL + i * 7919;
		CHECK(!pthread_create(&workers[i].thread, NULL, work, &workers[i]),
		      "no thread");
	}
	CHECK(!pthread_create(&disturber, NULL, disturb, switching ? &rounds : NULL),
	      "no thread");
	for (unsigned int i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	done = true;
	pthread_join(disturber, NULL);

	must_put(DIRECTORY "enabled", "0");
	must_put(DIRECTORY "oracle", "0");
	mismatches = number_in(STATS, "oracle_mismatches") - mismatches;
	printf("operations=%lu\n", operations);
	printf("children=%lu\n", children);
	printf("checks=%ld\n", number_in(STATS, "oracle_checks"));
	printf("mismatches=%ld\n", mismatches);
	CHECK(!mismatches, "%ld walks differ from the cache", mismatches);
	return PASS;
}
