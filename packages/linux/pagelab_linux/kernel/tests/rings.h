/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of rings share: sizes, waiting, and flags of pages. */
#ifndef PAGELAB_RINGS_H
#define PAGELAB_RINGS_H

#define DIRECTORY	DEBUGFS "rings/"
#define HELD		"ready"

#include "reservations.h"

#define SYSCTL_PAGES	"/proc/sys/vm/pagelab/ring_pages"
#define SYSCTL_PERIOD	"/proc/sys/vm/pagelab/ring_period_us"
#define LONG_PERIOD	1000000UL
#define FLAG_LRU	5	/* of /proc/kpageflags */

static inline void put_number(const char *path, unsigned long number)
{
	char word[32];

	snprintf(word, sizeof(word), "%lu", number);
	must_put(path, word);
}

static inline unsigned long number_of(const char *path)
{
	unsigned long number = 0;
	FILE *file = fopen(path, "r");

	CHECK(file && fscanf(file, "%lu", &number) == 1, "no number in %s", path);
	fclose(file);
	return number;
}

static inline void stay_on(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one), "no CPU %d", cpu);
}

static inline long cpus_online(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN);
}

/* Waits until the rings hold as many pages as they can. */
static inline void wait_ready(long pages)
{
	for (int i = 0; i < 4000; i++) {
		if (stat_of("ready") == pages)
			return;
		usleep(5000);
	}
	quit(FAIL, "%ld pages ready, not %ld", stat_of("ready"), pages);
}

/* New rings of @pages entries, all of them full. The next pass is a period away. */
static inline void restart(unsigned long pages, unsigned long period)
{
	must_put(DIRECTORY "enabled", "0");
	put_number(SYSCTL_PAGES, pages);
	put_number(SYSCTL_PERIOD, period);
	must_put(DIRECTORY "enabled", "1");
	wait_ready(cpus_online() * pages);
	/* The thread goes to its work now, and then sleeps for a whole period. */
	put_number(SYSCTL_PERIOD, period);
	usleep(5000);
}

static inline char *map_pages(size_t pages)
{
	char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(start != MAP_FAILED, "mmap: %s", strerror(errno));
	return start;
}

static inline void store_all(char *start, size_t pages, unsigned long salt)
{
	for (size_t i = 0; i < pages; i++)
		first_store(start + i * PAGE, salt + i);
}

static inline void expect_all(char *start, size_t pages, unsigned long salt)
{
	for (size_t i = 0; i < pages; i++)
		expect_page(start + i * PAGE, salt + i);
}

/* How many of these pages have a flag of /proc/kpageflags. */
static inline size_t pages_with(const char *start, size_t pages, int flag)
{
	int file = open("/proc/kpageflags", O_RDONLY);
	size_t set = 0;
	uint64_t flags;

	CHECK(file >= 0, "kpageflags: %s", strerror(errno));
	for (size_t i = 0; i < pages; i++) {
		CHECK(pread(file, &flags, sizeof(flags), frame_of(start + i * PAGE) *
			    sizeof(flags)) == sizeof(flags), "kpageflags: %s",
		      strerror(errno));
		set += flags >> flag & 1;
	}
	close(file);
	return set;
}

/* What the kernel does before it migrates pages: all CPUs' batches drain. */
static inline void drain_all(void)
{
	must_put("/proc/sys/vm/drop_caches", "1");
}

#endif
