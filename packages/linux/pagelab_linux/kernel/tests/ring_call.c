// SPDX-License-Identifier: GPL-2.0
/*
 * ring_call [CASE...]: which processes are served from rings, and the RSS
 * counters that are corrected later.
 *
 * ring_call mutation NAME: a part is left out, and the case for it must fail.
 * ring_call after-exec: what exec() leaves of the call; for the case "fork".
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "rings.h"

#define PR_PAGELAB_RINGS	0x70670001
#define SYSCTL_LIMIT		"/proc/sys/vm/pagelab/ring_limit_percent"
#define PAGES			512UL
#define RING			2048UL

static void call(unsigned long on)
{
	CHECK(!prctl(PR_PAGELAB_RINGS, on, 0UL, 0UL, 0UL), "prctl: %s", strerror(errno));
}

static void must_not_call(unsigned long on, unsigned long more)
{
	CHECK(prctl(PR_PAGELAB_RINGS, on, more, 0UL, 0UL) == -1 && errno == EINVAL,
	      "prctl with %lu and %lu", on, more);
}

static long hits_of(char *start, size_t pages)
{
	long hits = stat_of("hits");

	store_all(start, pages, 1);
	return stat_of("hits") - hits;
}

static void expect_hits(const char *when, long hits, long expected)
{
	printf("%s=%ld\n", when, hits);
	CHECK(near(hits, expected), "%ld hits and not %ld: %s", hits, expected, when);
}

static void all_again(void)
{
	must_put(DIRECTORY "processes", "all");
	must_put(DIRECTORY "defer", "lru");
}

/* Rings for who asks; nobody does, so they are empty. */
static void by_call(void)
{
	/* A case that failed may have left others. */
	all_again();
	restart(RING, 2000);
	must_put(DIRECTORY "processes", "by-call");
	wait_ready(0);
}

static void ask(void)
{
	call(1);
	wait_ready(cpus_online() * RING);
}

static void check_call(void)
{
	char *before, *after, *later;
	long repeated;

	must_refuse(DIRECTORY "processes", "some");
	must_not_call(2, 0);
	must_not_call(1, 1);
	by_call();
	stay_on(0);
	before = map_pages(2 * PAGES);
	expect_hits("not_asked", hits_of(before, PAGES), 0);
	ask();
	/* A hole keeps mappings apart. */
	map_pages(1);
	after = map_pages(3 * PAGES);
	expect_hits("mapped_before", hits_of(before + PAGES * PAGE, PAGES), 0);
	expect_hits("mapped_after", hits_of(after, PAGES), PAGES);
	repeated = stat_of("calls_repeated");
	call(1);
	call(0);
	call(0);
	CHECK(stat_of("calls_repeated") - repeated == 2, "%ld calls repeated",
	      stat_of("calls_repeated") - repeated);
	/* The last one that asked: the thread frees what is ready. */
	wait_ready(0);
	later = map_pages(PAGES);
	expect_hits("disabled", hits_of(after + PAGES * PAGE, PAGES), 0);
	ask();
	expect_hits("mapped_while_disabled", hits_of(later, PAGES), 0);
	expect_hits("enabled_again", hits_of(after + 2 * PAGES * PAGE, PAGES), PAGES);
	expect_all(before, PAGES, 1);
	expect_all(before + PAGES * PAGE, PAGES, 1);
	call(0);
	all_again();
	munmap(before, 2 * PAGES * PAGE);
	munmap(after, 3 * PAGES * PAGE);
	munmap(later, PAGES * PAGE);
}

static void in_copy(void *mapped)
{
	expect_hits("inherited_mapping", hits_of(mapped, PAGES), PAGES);
	expect_hits("inherited", hits_of(map_pages(PAGES), PAGES), PAGES);
	execl("/proc/self/exe", "ring_call", "after-exec", NULL);
	quit(FAIL, "exec: %s", strerror(errno));
}

static int after_exec(void)
{
	expect_hits("after_exec", hits_of(map_pages(PAGES), PAGES), 0);
	fflush(stdout);
	return PASS;
}

static void check_fork(void)
{
	char *mapped;

	by_call();
	stay_on(0);
	ask();
	mapped = map_pages(PAGES);
	in_child(in_copy, mapped);
	/* Its end leaves its parent's call as it was. */
	expect_hits("parent", hits_of(mapped, PAGES), PAGES);
	call(0);
	all_again();
	munmap(mapped, PAGES * PAGE);
}

static long resident(void)
{
	return number_in("/proc/self/status", "RssAnon") / 4;
}

static void defer_rss(void)
{
	must_refuse(DIRECTORY "defer", "rss");
	all_again();
	must_put(DIRECTORY "defer", "lru-rss");
	restart(RING, LONG_PERIOD);
}

/* Counted by a drain, or ahead of the unmapping, which drains its own CPU's ring alone. */
static void check_rss(void)
{
	char *first = map_pages(PAGES), *second = map_pages(PAGES);
	long before, deferred, counted, unmapped, scanned;

	stay_on(0);
	defer_rss();
	drain_all();
	before = resident();
	store_all(first, PAGES, 1);
	deferred = resident() - before;
	drain_all();
	counted = resident() - before;
	printf("rss_deferred=%ld\nrss_counted=%ld\n", deferred, counted);
	CHECK(near(deferred, 0), "%ld pages counted at once", deferred);
	CHECK(near(counted, PAGES), "%ld pages counted", counted);

	put_number(SYSCTL_PERIOD, LONG_PERIOD);
	usleep(5000);
	scanned = stat_of("rss_at_unmap");
	store_all(second, PAGES, 1);
	stay_on(cpus_online() - 1);
	munmap(second, PAGES * PAGE);
	unmapped = resident() - before;
	scanned = stat_of("rss_at_unmap") - scanned;
	printf("rss_unmapped=%ld\nrss_at_unmap=%ld\n", unmapped, scanned);
	CHECK(near(unmapped, PAGES), "%ld pages left after unmapping", unmapped);
	CHECK(near(scanned, PAGES), "%ld pages found by the scan", scanned);
	expect_all(first, PAGES, 1);
	CHECK(!madvise(first, PAGES * PAGE, MADV_DONTNEED), "madvise: %s", strerror(errno));
	CHECK(near(resident(), before), "%ld pages more at the end", resident() - before);
	all_again();
	munmap(first, PAGES * PAGE);
}

static void touch_and_end(void *unused)
{
	(void)unused;
	stay_on(0);
	store_all(map_pages(PAGES), PAGES, 1);
	stay_on(cpus_online() - 1);
}

/* The kernel itself reports a counter that is not zero at the end. */
static void check_exit(void)
{
	long deferred, counted;

	defer_rss();
	deferred = stat_of("rss_deferred");
	counted = stat_of("rss_at_unmap") + stat_of("rss_at_exit");
	in_child(touch_and_end, NULL);
	deferred = stat_of("rss_deferred") - deferred;
	counted = stat_of("rss_at_unmap") + stat_of("rss_at_exit") - counted;
	printf("exit_deferred=%ld\nexit_counted=%ld\n", deferred, counted);
	CHECK(deferred >= (long)PAGES, "%ld pages deferred", deferred);
	CHECK(counted >= (long)PAGES / 2, "%ld pages counted at the end", counted);
	all_again();
}

/* 1 % of memory: a process that asked and has more is not served any more. */
static void check_limit(void)
{
	size_t pages = number_in("/proc/meminfo", "MemTotal") / 4 / 50;
	char *large, *more;
	long stopped;

	must_refuse(SYSCTL_LIMIT, "0");
	must_refuse(SYSCTL_LIMIT, "101");
	CHECK(number_of(SYSCTL_LIMIT) == 80, "%lu percent", number_of(SYSCTL_LIMIT));
	stay_on(0);
	by_call();
	ask();
	large = map_pages(pages);
	more = map_pages(2 * PAGES);
	expect_hits("below_limit", hits_of(more, PAGES), PAGES);
	stopped = stat_of("stopped");
	put_number(SYSCTL_LIMIT, 1);
	store_all(large, pages, 1);
	usleep(100000);
	stopped = stat_of("stopped") - stopped;
	printf("stopped=%ld\n", stopped);
	CHECK(stopped == 1, "%ld processes stopped", stopped);
	expect_hits("above_limit", hits_of(more + PAGES * PAGE, PAGES), 0);
	expect_all(large, pages, 1);
	put_number(SYSCTL_LIMIT, 80);
	call(0);
	all_again();
	munmap(large, pages * PAGE);
	munmap(more, 2 * PAGES * PAGE);
}

static const struct reservation_case cases[] = {
	{ "call", "ring-ask", check_call },
	{ "fork", NULL, check_fork },
	{ "rss", "ring-unmap", check_rss },
	{ "exit", NULL, check_exit },
	{ "limit", "ring-limit", check_limit },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "after-exec"))
		return after_exec();
	return run_cases(cases, count, arguments);
}
