// SPDX-License-Identifier: GPL-2.0
/*
 * rings [CASE...]: what pages of rings hold, that they are accounted for as
 * others are, and that they come back.
 *
 * rings mutation NAME: a part is left out, and the case for it must fail.
 */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "rings.h"

#define PAGES		512UL
#define ROUNDS		4
#define TOLERATED_PAGES	2048L	/* of free memory: tables, slabs */
#define CGROUP		"/sys/fs/cgroup/rings/"

/* Frees memory that is not zero, for the rings to be filled from. */
static void leave_dirty_memory(void)
{
	size_t pages = 16384;
	char *start = map_pages(pages);

	memset(start, 0x5a, pages * PAGE);
	munmap(start, pages * PAGE);
}

/* Each page is zero when it is first touched, whoever had it before. */
static void check_zero(void)
{
	long hits;

	leave_dirty_memory();
	restart(PAGES, 2000);
	hits = stat_of("hits");
	for (int round = 0; round < ROUNDS; round++) {
		char *start = map_pages(PAGES);

		store_all(start, PAGES, round);
		expect_all(start, PAGES, round);
		munmap(start, PAGES * PAGE);
		wait_ready(cpus_online() * PAGES);
	}
	hits = stat_of("hits") - hits;
	printf("hits=%ld\nhits_of=%lu\n", hits, ROUNDS * PAGES);
	CHECK(hits >= (long)(ROUNDS * PAGES * 9 / 10), "%ld hits", hits);
}

/* A store after a load takes the zero page's place from the ring, too. */
static void check_replaced(void)
{
	char *start = map_pages(PAGES);
	long hits;

	restart(2 * PAGES, LONG_PERIOD);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(!*(volatile char *)(start + i * PAGE), "not zero");
	hits = stat_of("hits");
	store_all(start, PAGES, 1);
	expect_all(start, PAGES, 1);
	hits = stat_of("hits") - hits;
	printf("replaced_hits=%ld\n", hits);
	CHECK(near(hits, PAGES), "%ld hits for %lu pages", hits, PAGES);
	munmap(start, PAGES * PAGE);
}

static void touch_and_count(void *unused)
{
	long hits = stat_of("hits"), resident, charged;
	char *start = map_pages(PAGES);

	(void)unused;
	must_put(CGROUP "cgroup.procs", "0");
	resident = number_in("/proc/self/status", "RssAnon");
	charged = number_in(CGROUP "memory.stat", "anon");
	store_all(start, PAGES, 1);
	hits = stat_of("hits") - hits;
	resident = number_in("/proc/self/status", "RssAnon") - resident;
	charged = number_in(CGROUP "memory.stat", "anon") - charged;
	printf("accounted_hits=%ld\nresident=%ld\ncharged=%ld\n", hits,
	       resident / 4, charged / (long)PAGE);
	CHECK(near(hits, PAGES), "%ld hits for %lu pages", hits, PAGES);
	CHECK(near(resident / 4, PAGES), "%ld KiB resident", resident);
	CHECK(near(charged / (long)PAGE, PAGES), "%ld bytes charged", charged);
	CHECK((long)number_of(CGROUP "memory.current") >= charged,
	      "%lu bytes in all", number_of(CGROUP "memory.current"));
	munmap(start, PAGES / 2 * PAGE);
	drain_all();
	charged = number_in(CGROUP "memory.stat", "anon");
	CHECK(near(charged / (long)PAGE, PAGES / 2), "%ld bytes left", charged);
	expect_all(start + PAGES / 2 * PAGE, PAGES / 2, 1 + PAGES / 2);
}

/* Pages are in the process's and the cgroup's counters from the fault on. */
static void check_accounts(void)
{
	long charged;

	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	CHECK(!mkdir(CGROUP, 0755), "mkdir: %s", strerror(errno));
	restart(2 * PAGES, LONG_PERIOD);
	in_child(touch_and_count, NULL);
	drain_all();
	charged = number_in(CGROUP "memory.stat", "anon");
	CHECK(!charged, "%ld bytes charged after the exit", charged);
	CHECK(!rmdir(CGROUP), "rmdir: %s", strerror(errno));
}

/* Deferred pages are on LRU lists once somebody drains, from whichever CPU. */
static void check_drain(void)
{
	char *start = map_pages(PAGES);
	long deferred, drained;
	size_t listed;

	stay_on(0);
	restart(2 * PAGES, LONG_PERIOD);
	deferred = stat_of("deferred");
	drained = stat_of("drained");
	store_all(start, PAGES, 1);
	deferred = stat_of("deferred") - deferred;
	stay_on(cpus_online() - 1);
	drain_all();
	listed = pages_with(start, PAGES, FLAG_LRU);
	drained = stat_of("drained") - drained;
	printf("deferred=%ld\ndrained=%ld\nlisted=%zu\n", deferred, drained, listed);
	CHECK(near(deferred, PAGES), "%ld pages deferred", deferred);
	CHECK(listed == PAGES, "%zu of %lu pages on LRU lists", listed, PAGES);
	stay_on(0);
	munmap(start, PAGES * PAGE);
}

/* The thread puts them there if nobody drains; its own batch may hold some. */
static void check_pass(void)
{
	char *start = map_pages(PAGES);
	long accounted;
	size_t listed;

	restart(2 * PAGES, LONG_PERIOD);
	accounted = stat_of("accounted");
	store_all(start, PAGES, 1);
	put_number(SYSCTL_PERIOD, 2000);
	wait_ready(cpus_online() * 2 * PAGES);
	usleep(20000);
	listed = pages_with(start, PAGES, FLAG_LRU);
	accounted = stat_of("accounted") - accounted;
	printf("accounted=%ld\nlisted_by_thread=%zu\n", accounted, listed);
	CHECK(accounted >= (long)PAGES, "%ld pages accounted for", accounted);
	CHECK(listed >= PAGES - 31, "%zu of %lu pages on LRU lists", listed, PAGES);
	munmap(start, PAGES * PAGE);
}

/* Pages beyond the ring's are allocated as ever. */
static void check_exhaustion(void)
{
	char *start = map_pages(2 * PAGES);
	long hits, misses;

	stay_on(0);
	restart(64, LONG_PERIOD);
	hits = stat_of("hits");
	misses = stat_of("misses");
	store_all(start, 2 * PAGES, 1);
	expect_all(start, 2 * PAGES, 1);
	hits = stat_of("hits") - hits;
	misses = stat_of("misses") - misses;
	printf("exhausted_hits=%ld\nexhausted_misses=%ld\n", hits, misses);
	/* More than 64 if the period ends meanwhile. */
	CHECK(hits >= 64 && hits <= 8 * 64, "%ld hits of a ring of 64", hits);
	CHECK(hits + misses >= (long)(2 * PAGES), "%ld hits, %ld misses", hits, misses);
	munmap(start, 2 * PAGES * PAGE);
}

static void check_locked(void)
{
	long before = number_in("/proc/meminfo", "Mlocked"), locked;
	char *start = map_pages(2 * PAGES);

	restart(4 * PAGES, LONG_PERIOD);
	/* Locked when they are touched, and locked while they are deferred. */
	CHECK(!mlock2(start, PAGES * PAGE, MLOCK_ONFAULT), "mlock2: %s",
	      strerror(errno));
	store_all(start, 2 * PAGES, 1);
	CHECK(!mlock(start + PAGES * PAGE, PAGES * PAGE), "mlock: %s",
	      strerror(errno));
	drain_all();
	locked = number_in("/proc/meminfo", "Mlocked") - before;
	printf("locked=%ld\n", locked / 4);
	CHECK(near(locked / 4, 2 * PAGES), "%ld KiB locked", locked);
	expect_all(start, 2 * PAGES, 1);
	munmap(start, 2 * PAGES * PAGE);
	drain_all();
	locked = number_in("/proc/meminfo", "Mlocked") - before;
	CHECK(near(locked / 4, 0), "%ld KiB locked in the end", locked);
}

/* A round that lost its rings would lose 4096 pages of each CPU. */
static void check_disable(void)
{
	long before, lost;

	must_put(DIRECTORY "enabled", "0");
	before = free_pages();
	for (int round = 0; round < ROUNDS; round++) {
		restart(4096, 2000);
		must_put(DIRECTORY "enabled", "0");
		CHECK(!stat_of("ready"), "%ld ready", stat_of("ready"));
	}
	lost = before - free_pages();
	printf("lost=%ld\n", lost);
	CHECK(lost < TOLERATED_PAGES, "%ld free pages lost", lost);
	must_put(DIRECTORY "enabled", "1");
}

/* A size that all CPUs' rings together may not have. */
static void refuse_size_beyond_memory(void)
{
	unsigned long quarter = number_in("/proc/meminfo", "MemTotal") / 16;
	unsigned long pages = 32768;
	char word[32];

	snprintf(word, sizeof(word), "%lu", pages);
	if (pages * sysconf(_SC_NPROCESSORS_CONF) > quarter)
		must_refuse(SYSCTL_PAGES, word);
}

static void check_switches(void)
{
	static const char *const sizes[] = {
		"0", "8", "17", "48", "65536", "-1", "many", "4294967552",
	};
	static const char *const periods[] = { "0", "99", "1000001", "-1", "soon" };
	long given_back;

	restart(256, 2000);
	must_refuse(DIRECTORY "enabled", "2");
	must_refuse(DIRECTORY "enabled", "yes");
	must_refuse(DIRECTORY "enabled", " 1");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		must_refuse(SYSCTL_PAGES, sizes[i]);
	for (size_t i = 0; i < sizeof(periods) / sizeof(*periods); i++)
		must_refuse(SYSCTL_PERIOD, periods[i]);
	refuse_size_beyond_memory();
	CHECK(number_of(SYSCTL_PAGES) == 256, "%lu pages", number_of(SYSCTL_PAGES));
	CHECK(number_of(SYSCTL_PERIOD) == 2000, "%lu us", number_of(SYSCTL_PERIOD));
	/* A new size takes effect at once. */
	given_back = stat_of("given_back_switch");
	put_number(SYSCTL_PAGES, 1024);
	wait_ready(cpus_online() * 1024);
	put_number(SYSCTL_PAGES, 16);
	wait_ready(cpus_online() * 16);
	given_back = stat_of("given_back_switch") - given_back;
	CHECK(given_back >= cpus_online() * (256 + 1024) * 9 / 10,
	      "%ld pages given back", given_back);
	must_put(DIRECTORY "enabled", "1");
	must_put(DIRECTORY "enabled", "0");
	must_put(DIRECTORY "enabled", "0");
	CHECK(!stat_of("ready"), "%ld ready", stat_of("ready"));
	must_put(DIRECTORY "enabled", "1");
}

/* Reservations come first: the ring's pages would break their groups. */
static void check_order(void)
{
	static const char *const other = DEBUGFS "reservations/enabled";
	size_t size = PAGES * PAGE;
	char *start = map_groups(size);
	long hits;

	if (access(other, W_OK))
		return;
	restart(2 * PAGES, LONG_PERIOD);
	must_put(other, "1");
	hits = stat_of("hits");
	store_all(start, PAGES, 1);
	hits = stat_of("hits") - hits;
	printf("hits_beside_reservations=%ld\n", hits);
	CHECK(near(hits, 0), "%ld hits", hits);
	CHECK(contiguous_groups(start, size) >= size / GROUP * 9 / 10,
	      "%lu groups contiguous", contiguous_groups(start, size));
	must_put(other, "0");
	munmap(start, size);
}

static const struct reservation_case cases[] = {
	{ "zero", "ring-zero", check_zero },
	{ "replaced", NULL, check_replaced },
	{ "accounts", NULL, check_accounts },
	{ "drain", "ring-drain", check_drain },
	{ "pass", NULL, check_pass },
	{ "exhaustion", NULL, check_exhaustion },
	{ "locked", NULL, check_locked },
	{ "disable", "ring-disable", check_disable },
	{ "switches", NULL, check_switches },
	{ "order", NULL, check_order },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	return run_cases(cases, count, arguments);
}
