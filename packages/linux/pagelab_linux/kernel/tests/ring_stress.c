// SPDX-License-Identifier: GPL-2.0
/*
 * ring_stress ROUNDS THREADS [switch]: threads that touch, drop, lock and unmap
 * memory and fork, while rings are resized, LRU batches are drained, and a CPU
 * goes and comes. With "switch", rings are also switched off and on.
 *
 * Each page must be zero when it is first touched, and hold what was stored to
 * it. In the end no page may be missing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>

#include "rings.h"

#define PR_PAGELAB_RINGS	0x70670001

#define PAGES		192UL
#define MAX_THREADS	16
#define TOLERATED_PAGES	4096L	/* of free memory: stacks, tables, slabs */

static unsigned long rounds;
static volatile bool done;
static unsigned long operations;

struct worker {
	pthread_t thread;
	uint64_t random;
};

static void child(void *start)
{
	expect_all(start, PAGES, 1);
	for (size_t i = 0; i < PAGES; i += 2)
		store_page((char *)start + i * PAGE, 2);
	for (size_t i = 0; i < PAGES; i++)
		expect_page((char *)start + i * PAGE, i & 1 ? 1 + i : 2);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (unsigned long round = 0; round < rounds; round++) {
		char *start = map_pages(PAGES);
		uint64_t random = next_random(&worker->random);

		if (random & 1)
			CHECK(!start[random % PAGES * PAGE], "not zero");
		store_all(start, PAGES, 1);
		if (random & 2) {
			CHECK(!madvise(start, PAGES * PAGE, MADV_DONTNEED), "madvise");
			store_all(start, PAGES, 1);
		}
		if (random & 4)
			CHECK(!mlock(start, PAGES * PAGE / 2), "mlock: %s", strerror(errno));
		if (!(random & 0x38))
			in_child(child, start);
		expect_all(start, PAGES, 1);
		munmap(start, PAGES * PAGE);
		__atomic_add_fetch(&operations, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *disturb(void *switching)
{
	static const unsigned long sizes[] = { 16, 256, 2048, 64 };
	static const unsigned long periods[] = { 100, 2000, 20000 };
	unsigned long turn = 0, cpu = sysconf(_SC_NPROCESSORS_CONF) - 1;
	char path[64];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%lu/online", cpu);
	for (; !done; turn++) {
		put_number(SYSCTL_PAGES, sizes[turn % 4]);
		put_number(SYSCTL_PERIOD, periods[turn % 3]);
		usleep(20000);
		if (switching)
			must_put(DIRECTORY "enabled", turn & 1 ? "1" : "0");
		drain_all();
		if (cpu && turn % 4 == 3)
			must_put(path, turn & 4 ? "1" : "0");
	}
	printf("turns=%lu\n", turn);
	if (cpu)
		must_put(path, "1");
	return NULL;
}

int main(int count, char **arguments)
{
	struct worker workers[MAX_THREADS];
	unsigned long threads;
	pthread_t disturber;
	long before, lost;
	bool switching;

	if (count < 3 || count > 4)
		quit(USAGE, "usage: ring_stress ROUNDS THREADS [switch]");
	switching = count == 4 && !strcmp(arguments[3], "switch");
	rounds = whole_number(arguments[1], "ROUNDS");
	threads = whole_number(arguments[2], "THREADS");
	if (!threads || threads > MAX_THREADS)
		quit(USAGE, "THREADS must be 1 to %d", MAX_THREADS);
	if (access(STATS, R_OK))
		quit(SKIP, "this kernel has no %s", DIRECTORY);
	drain_all();
	before = free_pages();
	must_put(DIRECTORY "enabled", "1");
	/* Matters only if rings are for processes that ask. */
	CHECK(!prctl(PR_PAGELAB_RINGS, 1UL, 0UL, 0UL, 0UL), "prctl: %s", strerror(errno));
	for (unsigned long i = 0; i < threads; i++) {
		workers[i].random = 88172645463325252ULL + i * 7919;
		CHECK(!pthread_create(&workers[i].thread, NULL, work, &workers[i]),
		      "no thread");
	}
	CHECK(!pthread_create(&disturber, NULL, disturb, switching ? &rounds : NULL),
	      "no thread");
	for (unsigned long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	done = true;
	pthread_join(disturber, NULL);

	must_put(DIRECTORY "enabled", "0");
	drain_all();
	lost = before - free_pages();
	printf("operations=%lu\nlost=%ld\n", operations, lost);
	printf("hits=%ld\nmisses=%ld\n", stat_of("hits"), stat_of("misses"));
	printf("deferred=%ld\naccounted=%ld\ndrained=%ld\n", stat_of("deferred"),
	       stat_of("accounted"), stat_of("drained"));
	CHECK(!stat_of("ready"), "%ld ready", stat_of("ready"));
	CHECK(stat_of("deferred") == stat_of("accounted") + stat_of("drained"),
	      "deferred pages were lost");
	printf("armed=%ld\nrss_deferred=%ld\n", stat_of("armed"), stat_of("rss_deferred"));
	CHECK(stat_of("rss_deferred") == stat_of("rss_by_thread") + stat_of("rss_at_unmap") +
	      stat_of("rss_at_exit"), "deferred counts were lost");
	CHECK(stat_of("filled") == stat_of("hits") + stat_of("given_back_switch") +
	      stat_of("given_back_offline") + stat_of("given_back_shrinker") +
	      stat_of("given_back_unused"),
	      "ready pages were lost");
	CHECK(lost < TOLERATED_PAGES, "%ld free pages lost", lost);
	return PASS;
}
