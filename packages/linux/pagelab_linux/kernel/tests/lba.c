// SPDX-License-Identifier: GPL-2.0
/*
 * lba [CASE...]: mappings of /dev/pagelab-lba do what a mapping does, and what
 * their documentation says. All cases without a word.
 *
 * lba mutation NAME: the case that is to notice what is left out.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "lba.h"

#define PAGES		1536UL	/* three tables of PTEs and a part of others */
#define SLOW		200000000UL	/* ns; threads miss together meanwhile */
#define FEW_PAGES	8UL
#define THREADS		4
#define REGISTERS	32	/* as in kernel/src/lba.h */
#define ROUNDING	512	/* the kernel's counters of resident pages are kept per CPU */

#define EXPECT(what, actual, expected) \
	do { \
		long actual_ = (actual), expected_ = (expected); \
		CHECK(actual_ == expected_, what ": %ld and not %ld", actual_, expected_); \
	} while (0)

static long resident_file_pages(void)
{
	return number_in("/proc/self/status", "RssFile") / 4;
}

/* In random order: nothing may depend on the one before. */
static void touch_shuffled(const struct lba_map *map)
{
	uint64_t state = 88172645463325252ULL;
	uint32_t *order = malloc(map->pages * sizeof(*order));

	CHECK(order, "no memory");
	for (unsigned long i = 0; i < map->pages; i++) {
		unsigned long j = next_random(&state) % (i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	for (unsigned long i = 0; i < map->pages; i++)
		check_page(map, order[i]);
	free(order);
}

/* One read for each page, the right contents, and metadata when kpted comes. */
static void check_contents(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long reads = reads_of(&map.drive), mapped = lba_stat("mapped");
	long finished = lba_stat("finished"), resident = resident_file_pages(), faults;

	touch_shuffled(&map);
	EXPECT("reads", reads_of(&map.drive) - reads, PAGES);
	EXPECT("mapped", lba_stat("mapped") - mapped, PAGES);
	EXPECT("pending", lba_stat("pending"), PAGES);
	CHECK(resident_file_pages() < resident + (long)PAGES / 2, "pages are counted before kpted has seen them");
	must_put(LBA_DIRECTORY "kpted", "1");
	EXPECT("finished", lba_stat("finished") - finished, PAGES);
	EXPECT("pending after kpted", lba_stat("pending"), 0);
	CHECK(resident_file_pages() >= resident + (long)PAGES - ROUNDING, "%ld resident pages before, %ld after kpted", resident,
	      resident_file_pages());
	faults = minor_faults();
	check_pages(&map);
	EXPECT("faults of the second pass", minor_faults() - faults, 0);
	EXPECT("reads after the second pass", reads_of(&map.drive) - reads, PAGES);
	remove_map(&map);
}

/* Part of a drive, and what mmap() of a descriptor's second time says. */
static void check_part(void)
{
	struct lba_map map = { .drive = make_drive(PAGES, 0, 1) };

	fill_drive(&map.drive);
	map.file = lba_open_drive(&map.drive);
	map_part(&map, 701, 600);
	must_put(LBA_DIRECTORY "kpoold", "1");
	check_pages(&map);
	must_put(LBA_DIRECTORY "kpted", "1");
	check_pages(&map);
	remove_map(&map);
}

/* What a call discards without metadata is read again; with it, it is in the page cache. */
static void check_discard(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long reads = reads_of(&map.drive), withdrawn = lba_stat("withdrawn");

	check_pages(&map);
	CHECK(!mprotect(map.memory, PAGES * PAGE, PROT_NONE) && !mprotect(map.memory, PAGES * PAGE, PROT_READ),
	      "mprotect: %s", strerror(errno));
	check_pages(&map);
	EXPECT("reads after mprotect()", reads_of(&map.drive) - reads, PAGES);
	CHECK(!madvise(map.memory, PAGES * PAGE, MADV_DONTNEED), "madvise: %s", strerror(errno));
	EXPECT("withdrawn", lba_stat("withdrawn") - withdrawn, PAGES);
	EXPECT("pending", lba_stat("pending"), 0);
	check_pages(&map);
	EXPECT("reads after discarding", reads_of(&map.drive) - reads, 2 * PAGES);

	must_put(LBA_DIRECTORY "kpted", "1");
	CHECK(!madvise(map.memory, PAGES * PAGE, MADV_DONTNEED), "madvise: %s", strerror(errno));
	check_pages(&map);
	EXPECT("reads out of the page cache", reads_of(&map.drive) - reads, 2 * PAGES);
	EXPECT("withdrawn after kpted", lba_stat("withdrawn") - withdrawn, PAGES);
	remove_map(&map);
}

/* A mapping in parts, of which some go before kpted has come. */
static void check_unmap(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long withdrawn = lba_stat("withdrawn"), finished = lba_stat("finished");

	check_pages(&map);
	CHECK(!munmap(map.memory + 100 * PAGE, 700 * PAGE), "munmap: %s", strerror(errno));
	EXPECT("withdrawn", lba_stat("withdrawn") - withdrawn, 700);
	EXPECT("pending", lba_stat("pending"), PAGES - 700);
	must_put(LBA_DIRECTORY "kpted", "1");
	EXPECT("finished", lba_stat("finished") - finished, PAGES - 700);
	for (unsigned long page = 0; page < PAGES; page++)
		if (page < 100 || page >= 800)
			check_page(&map, page);
	CHECK(signal_of(map.memory + 100 * PAGE, 0) == SIGSEGV, "an unmapped page can be read");
	remove_map(&map);
}

/* Discarding again and again holds no memory. */
static void check_kept(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long before, after;

	touch_pages(&map);
	before = number_in("/proc/meminfo", "MemFree");
	for (int round = 0; round < 16; round++) {
		CHECK(!madvise(map.memory, PAGES * PAGE, MADV_DONTNEED), "madvise: %s", strerror(errno));
		must_put(LBA_DIRECTORY "kpoold", "1");
		touch_pages(&map);
	}
	after = number_in("/proc/meminfo", "MemFree");
	printf("kept_kib=%ld\n", before - after);
	CHECK(before - after < (long)(8 * PAGES * PAGE / 1024), "%ld KiB are gone", before - after);
	remove_map(&map);
}

struct visit {
	const struct lba_map *map;
	unsigned long first, pages;
	pthread_barrier_t *together;
};

static void *visit(void *argument)
{
	const struct visit *visit = argument;

	for (unsigned long page = visit->first; page < visit->first + visit->pages; page++) {
		pthread_barrier_wait(visit->together);
		check_page(visit->map, page);
	}
	return NULL;
}

/* @apart: each thread has pages of its own. */
static void visit_together(const struct lba_map *map, int threads, unsigned long pages, int apart)
{
	struct visit visits[2 * REGISTERS];
	pthread_t ids[2 * REGISTERS];
	pthread_barrier_t together;

	pthread_barrier_init(&together, NULL, threads);
	for (int i = 0; i < threads; i++) {
		visits[i] = (struct visit){ map, apart ? i * pages : 0, pages, &together };
		CHECK(!pthread_create(&ids[i], NULL, visit, &visits[i]), "pthread_create");
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&together);
}

/* Threads that miss on one page at once make one read. */
static void check_join(void)
{
	struct lba_map map = make_map(FEW_PAGES, SLOW);
	long reads = reads_of(&map.drive), joined = lba_stat("joined");

	visit_together(&map, THREADS, FEW_PAGES, 0);
	EXPECT("reads", reads_of(&map.drive) - reads, FEW_PAGES);
	printf("joined=%ld\n", lba_stat("joined") - joined);
	CHECK(lba_stat("joined") > joined, "no miss waited for another");
	remove_map(&map);
}

/* More misses at once than there are registers. */
static void check_full(void)
{
	struct lba_map map = make_map(REGISTERS + 8, SLOW);
	long reads = reads_of(&map.drive), full = lba_stat("full");

	visit_together(&map, REGISTERS + 8, 1, 1);
	EXPECT("reads", reads_of(&map.drive) - reads, REGISTERS + 8);
	EXPECT("full", lba_stat("full") - full, 8);
	remove_map(&map);
}

/* Without free pages the kernel serves, and fills the queue for the next ones. */
static void check_empty(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long reads = reads_of(&map.drive), empty, mapped;

	must_put(LBA_DIRECTORY "queue_pages", "0");
	must_put(LBA_DIRECTORY "kpoold", "1");
	EXPECT("queued", lba_stat("queued"), 0);
	empty = lba_stat("empty");
	for (unsigned long page = 0; page < PAGES / 2; page++)
		check_page(&map, page);
	EXPECT("empty", lba_stat("empty") - empty, PAGES / 2);
	EXPECT("pending", lba_stat("pending"), 0);

	must_put(LBA_DIRECTORY "queue_pages", "16");
	empty = lba_stat("empty");
	mapped = lba_stat("mapped");
	check_pages(&map);
	printf("empty=%ld\nmapped=%ld\n", lba_stat("empty") - empty, lba_stat("mapped") - mapped);
	EXPECT("empty and mapped", lba_stat("empty") - empty + lba_stat("mapped") - mapped, PAGES / 2);
	CHECK(lba_stat("empty") - empty < (long)PAGES / 16, "the queue is not filled by faults");
	EXPECT("reads", reads_of(&map.drive) - reads, PAGES);
	must_put(LBA_DIRECTORY "queue_pages", "4096");
	remove_map(&map);
}

/* Switched off, the same mapping is served by the kernel alone. */
static void check_off(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long reads = reads_of(&map.drive), mapped = lba_stat("mapped");

	for (unsigned long page = 0; page < PAGES / 3; page++)
		check_page(&map, page);
	must_put(LBA_DIRECTORY "enabled", "0");
	check_pages(&map);
	EXPECT("mapped", lba_stat("mapped") - mapped, PAGES / 3);
	EXPECT("pending", lba_stat("pending"), PAGES / 3);
	EXPECT("reads", reads_of(&map.drive) - reads, PAGES);
	must_put(LBA_DIRECTORY "kpoold", "1");
	EXPECT("queued", lba_stat("queued"), 0);
	must_put(LBA_DIRECTORY "kpted", "1");
	EXPECT("pending after kpted", lba_stat("pending"), 0);
	must_put(LBA_DIRECTORY "enabled", "1");
	check_pages(&map);
	remove_map(&map);
}

/* Beyond the limit of pages without metadata, faults make all of it. */
static void check_limit(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long over = lba_stat("over_limit");
	char before[32];

	snprintf(before, sizeof(before), "%ld", number_of(LBA_DIRECTORY "pending_limit"));

	must_put(LBA_DIRECTORY "pending_limit", "0");
	check_pages(&map);
	EXPECT("over the limit", lba_stat("over_limit") - over, PAGES);
	EXPECT("pending", lba_stat("pending"), 0);
	must_put(LBA_DIRECTORY "pending_limit", before);
	remove_map(&map);
}

/* The threads come by themselves. */
static void check_threads(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long filled = lba_stat("filled");

	must_put(LBA_DIRECTORY "kpted_ms", "20");
	must_put(LBA_DIRECTORY "kpoold_ms", "4");
	check_pages(&map);
	for (int wait = 0; wait < 1000 && (lba_stat("pending") || lba_stat("queued") < 4096); wait++)
		usleep(20000);
	EXPECT("pending", lba_stat("pending"), 0);
	EXPECT("queued", lba_stat("queued"), 4096);
	CHECK(lba_stat("filled") - filled >= (long)PAGES, "kpoold filled %ld pages", lba_stat("filled") - filled);
	check_pages(&map);
	remove_map(&map);
	for (int wait = 0; wait < 1000 && lba_stat("queued"); wait++)
		usleep(20000);
	EXPECT("queued after the last file was closed", lba_stat("queued"), 0);
	lba_by_hand();
}

static const struct lba_case cases[] = {
	{ "contents", "lba-block", check_contents },
	{ "part", NULL, check_part },
	{ "discard", NULL, check_discard },
	{ "unmap", "lba-withdraw", check_unmap },
	{ "kept", "lba-release", check_kept },
	{ "join", "lba-join", check_join },
	{ "full", NULL, check_full },
	{ "empty", NULL, check_empty },
	{ "off", NULL, check_off },
	{ "limit", NULL, check_limit },
	{ "threads", NULL, check_threads },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	lba_begin();
	run_cases(cases, count, arguments);
	must_put(LBA_DIRECTORY "enabled", "0");
	return PASS;
}
