// SPDX-License-Identifier: GPL-2.0
/*
 * reservations [CASE...]: which frames pages get, what they hold, and that
 * reserved pages come back.
 *
 * reservations mutation NAME: a release is left out, and the case for it must
 * fail.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "reservations.h"

#define SIZE		(32 * MIB)
#define GROUPS		((long)(SIZE / GROUP))
#define THREADS		4
#define ROUNDS		4
#define TOLERATED_PAGES	2048L	/* of free memory: tables, slabs */

/* Stores to all pages in random order, with another's faults in between. */
static void touch_all_random(char *start, char *other, uint64_t seed)
{
	unsigned long pages = SIZE / PAGE;
	uint32_t *order = malloc(pages * sizeof(*order));

	CHECK(order, "no memory");
	for (unsigned long i = 0; i < pages; i++)
		order[i] = i;
	for (unsigned long i = pages - 1; i; i--) {
		unsigned long j = next_random(&seed) % (i + 1);
		uint32_t held = order[i];

		order[i] = order[j];
		order[j] = held;
	}
	for (unsigned long i = 0; i < pages; i++) {
		first_store(start + order[i] * PAGE, i);
		other[i * PAGE] = 1;
	}
	for (unsigned long i = 0; i < pages; i++)
		expect_page(start + order[i] * PAGE, i);
	free(order);
}

static void check_contiguity(void)
{
	char *start = map_groups(SIZE), *other = map_groups(SIZE);
	long later = stat_of("given_later"), contiguous;

	touch_all_random(start, other, 88172645463325252ULL);
	contiguous = contiguous_groups(start, SIZE);
	later = stat_of("given_later") - later;
	printf("contiguous=%ld\ncontiguous_of=%ld\n", contiguous, GROUPS);
	printf("given_later=%ld\n", later);
	munmap(start, SIZE);
	munmap(other, SIZE);
	/* No reservation is made where memory is short or a CPU's lists are. */
	CHECK(contiguous >= GROUPS * 99 / 100, "%ld of %ld groups contiguous",
	      contiguous, GROUPS);
	CHECK(later >= 7 * GROUPS, "%ld pages from reservations", later);
}

static void expect_released(const char *reason, long before, long pages)
{
	long released = stat_of(reason) - before;

	printf("%s=%ld\n", reason, released);
	CHECK(near(released, pages), "%s: %ld pages, not %ld", reason, released,
	      pages);
}

static void reserve_and_unmap(void)
{
	long reserved = stat_of("reserved"), before = stat_of("released_unmap");
	char *start = map_groups(SIZE);

	touch_one_each(start, SIZE, 1);
	CHECK(near(stat_of("reserved") - reserved, 7 * GROUPS), "%ld reserved",
	      stat_of("reserved") - reserved);
	expect_one_each(start, SIZE, 1);
	munmap(start, SIZE);
	expect_released("released_unmap", before, 7 * GROUPS);
	CHECK(near(stat_of("reserved"), reserved), "%ld reserved in the end",
	      stat_of("reserved"));
}

/* A round that lost what it reserved would lose 7168 pages. */
static void check_unmap(void)
{
	long before = free_pages(), lost;

	for (int i = 0; i < ROUNDS; i++)
		reserve_and_unmap();
	lost = before - free_pages();
	printf("lost=%ld\n", lost);
	CHECK(lost < TOLERATED_PAGES, "%ld free pages lost", lost);
}

/* Half of a group goes, and takes the group's reservation with it. */
static void check_partial_unmap(void)
{
	char *start = map_groups(4 * GROUP);
	long reserved = stat_of("reserved"), groups = stat_of("groups");

	touch_one_each(start, 4 * GROUP, 1);
	munmap(start + GROUP + 4 * PAGE, GROUP);
	expect_page(start, 1);
	expect_page(start + GROUP + PAGE, 1);
	expect_page(start + 3 * GROUP + 3 * PAGE, 1);
	CHECK(stat_of("reserved") - reserved == 14, "%ld reserved",
	      stat_of("reserved") - reserved);
	groups = stat_of("groups");
	/* The rest of its group is no group of a VMA any more. */
	store_page(start + GROUP, 2);
	expect_page(start + GROUP, 2);
	CHECK(stat_of("groups") == groups, "a group across the end of a VMA");
	munmap(start, 4 * GROUP);
	CHECK(near(stat_of("reserved"), reserved), "%ld reserved in the end",
	      stat_of("reserved"));
}

static void check_zap(void)
{
	char *start = map_groups(SIZE);
	long before = stat_of("released_zap");

	touch_one_each(start, SIZE, 1);
	CHECK(!madvise(start, SIZE, MADV_DONTNEED), "madvise");
	expect_released("released_zap", before, 7 * GROUPS);
	touch_one_each(start, SIZE, 2);
	expect_one_each(start, SIZE, 2);
	munmap(start, SIZE);
}

static void touch_and_leave(void *unused)
{
	(void)unused;
	touch_one_each(map_groups(SIZE), SIZE, 1);
	CHECK(stat_of("reserved") >= 7 * GROUPS, "nothing reserved");
}

static void check_exit(void)
{
	long reserved = stat_of("reserved"), nodes = stat_of("nodes");

	in_child(touch_and_leave, NULL);
	CHECK(near(stat_of("reserved"), reserved), "%ld reserved after an exit",
	      stat_of("reserved") - reserved);
	CHECK(stat_of("nodes") == nodes, "%ld nodes after an exit",
	      stat_of("nodes") - nodes);
}

static void child_reads(void *start)
{
	expect_one_each(start, SIZE, 1);
	/* Its own pages, in groups the parent has reserved for itself. */
	store_page((char *)start + 2 * PAGE, 3);
	expect_page((char *)start + 2 * PAGE, 3);
}

static void check_cow(void)
{
	char *start = map_groups(SIZE);
	int ends[2], status;
	pid_t child;
	char byte;
	long before;

	touch_one_each(start, SIZE, 1);
	in_child(child_reads, start);
	CHECK(!pipe(ends), "pipe");
	child = fork();
	if (!child) {
		close(ends[1]);
		if (read(ends[0], &byte, 1))
			_exit(FAIL);
		expect_one_each(start, SIZE, 1);
		_exit(PASS);
	}
	before = stat_of("released_cow");
	for (unsigned long group = 0; group * GROUP < SIZE; group++)
		store_page(start + group * GROUP + group % GROUP_PAGES * PAGE, 2);
	close(ends[0]);
	close(ends[1]);
	CHECK(waitpid(child, &status, 0) == child && !status,
	      "the child sees what its parent stored: %x", status);
	expect_one_each(start, SIZE, 2);
	expect_released("released_cow", before, 7 * GROUPS);
	munmap(start, SIZE);
}

static void check_limit(void)
{
	char *start = map_groups(SIZE), words[32];
	long limit, before, groups;
	FILE *file = fopen(DIRECTORY "limit", "r");

	CHECK(file && fscanf(file, "%ld", &limit) == 1, "no limit");
	fclose(file);
	touch_one_each(start, SIZE / 2, 1);
	before = stat_of("released_limit");
	must_put(DIRECTORY "limit", "0");
	CHECK(stat_of("released_limit") - before >= 7 * GROUPS / 2,
	      "%ld released", stat_of("released_limit") - before);
	CHECK(!stat_of("reserved"), "%ld reserved", stat_of("reserved"));
	groups = stat_of("groups");
	before = stat_of("over_limit");
	touch_one_each(start + SIZE / 2, SIZE / 2, 1);
	CHECK(stat_of("groups") == groups, "groups beyond the limit");
	CHECK(stat_of("over_limit") > before, "the limit is not counted");
	expect_one_each(start, SIZE, 1);
	must_refuse(DIRECTORY "limit", "-1");
	must_refuse(DIRECTORY "limit", "many");
	must_refuse(DIRECTORY "limit", "1000000000000");
	snprintf(words, sizeof(words), "%ld", limit);
	must_put(DIRECTORY "limit", words);
	munmap(start, SIZE);
}

static void check_switches(void)
{
	char *start = map_groups(SIZE);

	must_refuse(DIRECTORY "enabled", "2");
	must_refuse(DIRECTORY "enabled", "yes");
	must_refuse(DIRECTORY "enabled", " 1");
	touch_one_each(start, SIZE, 1);
	must_put(DIRECTORY "enabled", "0");
	CHECK(!stat_of("reserved"), "%ld reserved", stat_of("reserved"));
	for (char *at = start; at < start + SIZE; at += PAGE)
		touch_aside(at);
	expect_one_each(start, SIZE, 1);
	must_put(DIRECTORY "enabled", "1");
	munmap(start, SIZE);
}

struct share {
	char *start;
	unsigned long first;
};

/* Each thread takes every fourth page: two of each group. */
static void *touch_share(void *argument)
{
	struct share *share = argument;

	for (unsigned long page = share->first; page < SIZE / PAGE; page += THREADS)
		first_store(share->start + page * PAGE, share->first);
	return NULL;
}

static void check_threads(void)
{
	char *start = map_groups(SIZE);
	long reserved = stat_of("reserved");
	pthread_t threads[THREADS];
	struct share shares[THREADS];

	for (unsigned long i = 0; i < THREADS; i++) {
		shares[i] = (struct share){ start, i };
		CHECK(!pthread_create(&threads[i], NULL, touch_share, &shares[i]),
		      "no thread");
	}
	for (unsigned long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned long page = 0; page < SIZE / PAGE; page++)
		expect_page(start + page * PAGE, page % THREADS);
	printf("threads_contiguous=%lu\n", contiguous_groups(start, SIZE));
	munmap(start, SIZE);
	CHECK(near(stat_of("reserved"), reserved), "%ld reserved in the end",
	      stat_of("reserved") - reserved);
}

static volatile bool stop;

static void *touch_again_and_again(void *argument)
{
	unsigned long *rounds = argument;

	for (; !stop; ++*rounds) {
		char *start = map_groups(SIZE / 16);

		touch_one_each(start, SIZE / 16, *rounds);
		expect_one_each(start, SIZE / 16, *rounds);
		munmap(start, SIZE / 16);
	}
	return NULL;
}

/* Switched off and on, and limited, while threads fault. */
static void check_toggle(void)
{
	unsigned long rounds[THREADS] = { 0 };
	pthread_t threads[THREADS];
	long limit;
	char words[32];
	FILE *file = fopen(DIRECTORY "limit", "r");

	CHECK(file && fscanf(file, "%ld", &limit) == 1, "no limit");
	fclose(file);
	snprintf(words, sizeof(words), "%ld", limit);
	stop = false;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, touch_again_and_again,
				      &rounds[i]), "no thread");
	for (int i = 0; i < 40; i++) {
		must_put(DIRECTORY "enabled", i & 1 ? "1" : "0");
		must_put(DIRECTORY "limit", i & 2 ? "64" : words);
		usleep(20000);
	}
	stop = true;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		CHECK(rounds[i], "a thread came to nothing");
	}
	must_put(DIRECTORY "limit", words);
	must_put(DIRECTORY "enabled", "0");
	CHECK(!stat_of("reserved"), "%ld reserved while it is off",
	      stat_of("reserved"));
	must_put(DIRECTORY "enabled", "1");
	printf("toggle_rounds=%lu\n", rounds[0] + rounds[1] + rounds[2] + rounds[3]);
}

/* Neither blocks nor nodes: each page is had singly, and it is counted. */
static void check_no_memory(void)
{
	long groups, without;
	char *start;

	if (access(DEBUGFS "mutation", W_OK))
		return;
	must_put(DEBUGFS "mutation", "no-memory");
	groups = stat_of("groups");
	without = stat_of("no_block");
	start = map_groups(SIZE);
	touch_one_each(start, SIZE, 1);
	expect_one_each(start, SIZE, 1);
	groups = stat_of("groups") - groups;
	without = stat_of("no_block") - without;
	must_put(DEBUGFS "mutation", "none");
	munmap(start, SIZE);
	CHECK(!groups && without >= GROUPS, "%ld groups, %ld without", groups,
	      without);
}

static const struct reservation_case cases[] = {
	{ "contiguity", NULL, check_contiguity },
	{ "unmap", "resv-unmap", check_unmap },
	{ "partial", NULL, check_partial_unmap },
	{ "zap", "resv-zap", check_zap },
	{ "exit", NULL, check_exit },
	{ "cow", "resv-cow", check_cow },
	{ "limit", NULL, check_limit },
	{ "switches", NULL, check_switches },
	{ "threads", NULL, check_threads },
	{ "toggle", NULL, check_toggle },
	{ "no-memory", NULL, check_no_memory },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	return run_cases(cases, count, arguments);
}
