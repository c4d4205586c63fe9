// SPDX-License-Identifier: GPL-2.0
/*
 * ring_arm [CASE...]: armed entries of mappings, what takes them away, and
 * that each is served once.
 *
 * ring_arm mutation NAME: a part is left out, and the case for it must fail.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>

#include "rings.h"

#define PR_PAGELAB_RINGS	0x70670001
#define PAGES			512UL
#define RING			2048UL
#define SHARED_PAGES		8192UL
#define SHARED_RING		16384UL
#define ROUNDS			24
#define SWAPPED			(1ULL << 62)
#define OFFSET_SHIFT		5
#define OFFSET_MASK		((1ULL << 50) - 1)
#define ARMED			4	/* of the offset, as is the owner */
#define OWNER_SHIFT		8

static void call(unsigned long on)
{
	CHECK(!prctl(PR_PAGELAB_RINGS, on, 0UL, 0UL, 0UL), "prctl: %s", strerror(errno));
}

/* How many of these pages have an armed entry whose owner this process is. */
static size_t armed_for(const char *start, size_t pages, pid_t owner)
{
	int file = open("/proc/self/pagemap", O_RDONLY);
	size_t count = 0;
	uint64_t word;

	CHECK(file >= 0, "pagemap: %s", strerror(errno));
	for (size_t i = 0; i < pages; i++) {
		CHECK(pread(file, &word, sizeof(word), ((unsigned long)start / PAGE + i) *
			    sizeof(word)) == sizeof(word), "pagemap: %s", strerror(errno));
		if (word & PRESENT || !(word & SWAPPED))
			continue;
		word = word >> OFFSET_SHIFT & OFFSET_MASK;
		count += (word & ARMED) && word >> OWNER_SHIFT == (uint64_t)owner;
	}
	close(file);
	return count;
}

static size_t armed(const char *start, size_t pages)
{
	return armed_for(start, pages, getpid());
}

static char *map_armed(size_t pages)
{
	char *start = map_pages(pages);

	for (int i = 0; i < 400 && armed(start, pages) < pages; i++)
		usleep(5000);
	CHECK(armed(start, pages) == pages, "%zu of %zu entries armed", armed(start, pages), pages);
	return start;
}

static long hits_of(char *start, size_t pages)
{
	long hits = stat_of("hits");

	store_all(start, pages, 1);
	return stat_of("hits") - hits;
}

static void begin(unsigned long ring)
{
	must_refuse(DIRECTORY "entries", "some");
	/* A case that failed may have left others. */
	must_put(DIRECTORY "processes", "all");
	must_put(DIRECTORY "entries", "any");
	stay_on(0);
	restart(ring, 2000);
	must_put(DIRECTORY "entries", "armed");
	must_put(DIRECTORY "processes", "by-call");
	call(1);
	wait_ready(cpus_online() * ring);
}

static void end(void)
{
	call(0);
	must_put(DIRECTORY "processes", "all");
	must_put(DIRECTORY "entries", "any");
}

/* Stores and loads take pages; an entry that is emptied is not armed again. */
static void check_serve(void)
{
	char *start, *loaded;
	long hits, unarmed;

	begin(RING);
	start = map_armed(PAGES);
	hits = hits_of(start, PAGES);
	expect_all(start, PAGES, 1);
	printf("armed_hits=%ld\n", hits);
	CHECK(near(hits, PAGES), "%ld hits", hits);
	CHECK(!armed(start, PAGES), "%zu entries armed", armed(start, PAGES));

	loaded = map_armed(PAGES);
	hits = stat_of("hits");
	for (size_t i = 0; i < PAGES; i++)
		CHECK(!*(volatile char *)(loaded + i * PAGE), "not zero");
	hits = stat_of("hits") - hits;
	printf("loaded_hits=%ld\n", hits);
	CHECK(near(hits, PAGES), "%ld hits of loads", hits);

	CHECK(!madvise(start, PAGES * PAGE, MADV_DONTNEED), "madvise: %s", strerror(errno));
	unarmed = stat_of("unarmed");
	hits = hits_of(start, PAGES);
	unarmed = stat_of("unarmed") - unarmed;
	printf("emptied_hits=%ld\nunarmed=%ld\n", hits, unarmed);
	CHECK(near(hits, 0) && near(unarmed, PAGES), "%ld hits, %ld unarmed", hits, unarmed);
	munmap(start, PAGES * PAGE);
	munmap(loaded, PAGES * PAGE);
	munmap(map_armed(PAGES), PAGES * PAGE);
	end();
}

/* Entries that are armed stay so, and the kernel serves them. */
static void check_disable(void)
{
	char *start, *later;
	long hits;

	begin(RING);
	start = map_armed(2 * PAGES);
	call(0);
	CHECK(armed(start, 2 * PAGES) == 2 * PAGES, "%zu entries armed", armed(start, 2 * PAGES));
	hits = hits_of(start, PAGES);
	printf("disabled_hits=%ld\n", hits);
	CHECK(near(hits, 0), "%ld hits", hits);
	later = map_pages(PAGES);
	usleep(50000);
	CHECK(!armed(later, PAGES), "%zu entries armed", armed(later, PAGES));
	call(1);
	wait_ready(cpus_online() * RING);
	hits = hits_of(start + PAGES * PAGE, PAGES);
	CHECK(near(hits, PAGES), "%ld hits", hits);
	expect_all(start, PAGES, 1);
	expect_all(start + PAGES * PAGE, PAGES, 1);
	munmap(start, 2 * PAGES * PAGE);
	munmap(later, PAGES * PAGE);
	end();
}

static void in_copy(void *mapped)
{
	CHECK(!armed_for(mapped, PAGES, getppid()), "the parent's entries are armed");
	store_all(mapped, PAGES, 2);
	expect_all(mapped, PAGES, 2);
}

/* What else walks page tables. */
static void check_others(void)
{
	unsigned char in_core[PAGES];
	char *start, *moved;
	size_t resident = 0;

	begin(RING);
	start = map_armed(PAGES);
	CHECK(!mincore(start, PAGES * PAGE, in_core), "mincore: %s", strerror(errno));
	for (size_t i = 0; i < PAGES; i++)
		resident += in_core[i] & 1;
	CHECK(!resident, "%zu armed pages in core", resident);
	in_child(in_copy, start);
	CHECK(armed(start, PAGES) == PAGES, "%zu entries armed", armed(start, PAGES));
	CHECK(!mprotect(start, PAGES * PAGE, PROT_READ), "mprotect: %s", strerror(errno));
	CHECK(!mprotect(start, PAGES * PAGE, PROT_READ | PROT_WRITE), "mprotect: %s", strerror(errno));
	moved = mremap(start, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       start - (1UL << 30));
	CHECK(moved != MAP_FAILED, "mremap: %s", strerror(errno));
	CHECK(armed(moved, PAGES) == PAGES, "%zu entries armed", armed(moved, PAGES));
	CHECK(!madvise(moved, PAGES * PAGE, MADV_WILLNEED), "madvise: %s", strerror(errno));
	CHECK(!madvise(moved, PAGES * PAGE, MADV_FREE), "madvise: %s", strerror(errno));
	CHECK(!mlock(moved, PAGES * PAGE), "mlock: %s", strerror(errno));
	CHECK(!armed(moved, PAGES), "%zu entries armed", armed(moved, PAGES));
	store_all(moved, PAGES, 3);
	expect_all(moved, PAGES, 3);
	munmap(moved, PAGES * PAGE);
	end();
}

static char *shared;
static volatile bool go;

static void *touch_shared(void *cpu)
{
	stay_on((int)(long)cpu);
	while (!go)
		;
	for (size_t i = 0; i < SHARED_PAGES; i++)
		*(volatile char *)(shared + i * PAGE + (long)cpu) = 1;
	return NULL;
}

/* Two threads fault on the same pages: each page takes one of a ring. */
static void check_lock(void)
{
	long surplus = 0, joined, hits;
	pthread_t other;

	begin(SHARED_RING);
	joined = stat_of("joined");
	for (int round = 0; round < ROUNDS && surplus <= 4; round++) {
		shared = map_armed(SHARED_PAGES);
		wait_ready(cpus_online() * SHARED_RING);
		go = false;
		CHECK(!pthread_create(&other, NULL, touch_shared, (void *)(cpus_online() - 1)), "no thread");
		/* The thread's stack. */
		usleep(20000);
		hits = stat_of("hits");
		go = true;
		touch_shared(NULL);
		pthread_join(other, NULL);
		surplus += stat_of("hits") - hits - (long)SHARED_PAGES;
		munmap(shared, SHARED_PAGES * PAGE);
	}
	printf("surplus=%ld\njoined=%ld\n", surplus, stat_of("joined") - joined);
	CHECK(surplus <= 4, "%ld pages taken in vain", surplus);
	end();
}

static const struct reservation_case cases[] = {
	{ "serve", NULL, check_serve },
	{ "disable", NULL, check_disable },
	{ "others", NULL, check_others },
	{ "lock", "ring-lock", check_lock },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	return run_cases(cases, count, arguments);
}
