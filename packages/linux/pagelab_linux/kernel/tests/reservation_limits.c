// SPDX-License-Identifier: GPL-2.0
/*
 * reservation_limits CASE...: reservations where memory is limited or placed.
 *
 * cgroup     a memory cgroup is charged for what was touched, and no more
 * nodes      pages follow mbind(); needs two nodes
 * pressure   reserved pages are given back before anything is killed; needs a
 *            guest whose memory it may fill
 *
 * reservation_limits mutation resv-shrink: the shrinker does nothing, which
 * "pressure" must notice.
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/syscall.h>

#include "reservations.h"

#define CGROUP		"/sys/fs/cgroup/reservations/"
#define CGROUP_PAGES	512UL		/* touched, one of each group */
#define CGROUP_LIMIT	"8388608"	/* half of these and what is reserved */

#define MPOL_BIND	2
#define MPOL_F_NODE	1
#define MPOL_F_ADDR	2

static void touch_in_cgroup(void *unused)
{
	size_t size = CGROUP_PAGES * GROUP;
	long groups = stat_of("groups"), charged;
	char *start = map_groups(size);

	(void)unused;
	must_put(CGROUP "cgroup.procs", "0");
	touch_one_each(start, size, 1);
	groups = stat_of("groups") - groups;
	charged = number_in(CGROUP "memory.stat", "anon") / (long)PAGE;
	printf("cgroup_groups=%ld\ncgroup_anon_pages=%ld\n", groups, charged);
	CHECK(groups >= (long)CGROUP_PAGES, "%ld groups", groups);
	CHECK(near(charged, CGROUP_PAGES), "%ld pages charged", charged);
	expect_one_each(start, size, 1);
	for (char *at = start; at < start + size / 8; at += PAGE)
		touch_aside(at);
	charged = number_in(CGROUP "memory.stat", "anon") / (long)PAGE;
	printf("cgroup_anon_pages_later=%ld\n", charged);
	CHECK(near(charged, CGROUP_PAGES + CGROUP_PAGES / 8 * 7),
	      "%ld pages charged", charged);
}

static void check_cgroup(void)
{
	long mapped;

	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (mkdir(CGROUP, 0755) || access(CGROUP "memory.max", W_OK))
		quit(SKIP, "no memory cgroup: %s", strerror(errno));
	must_put(CGROUP "memory.max", CGROUP_LIMIT);
	in_child(touch_in_cgroup, NULL);
	mapped = number_in(CGROUP "memory.stat", "anon") / (long)PAGE;
	CHECK(!mapped, "%ld pages still charged", mapped);
	CHECK(!rmdir(CGROUP), "rmdir: %s", strerror(errno));
}

static void bind_to(char *start, size_t size, unsigned long node)
{
	unsigned long mask = 1UL << node;

	CHECK(!syscall(SYS_mbind, start, size, MPOL_BIND, &mask, 64UL, 0UL),
	      "mbind: %s", strerror(errno));
}

static int node_of(char *page)
{
	int node = -1;

	CHECK(!syscall(SYS_get_mempolicy, &node, NULL, 0UL, page,
		       MPOL_F_NODE | MPOL_F_ADDR), "get_mempolicy: %s",
	      strerror(errno));
	return node;
}

static void touch_rest(char *start, size_t size)
{
	for (char *at = start; at < start + size; at += PAGE)
		touch_aside(at);
}

static void check_nodes(void)
{
	size_t size = 8 * MIB;
	long misplaced = stat_of("released_node");

	for (unsigned long node = 0; node < 2; node++) {
		char *start = map_groups(size);

		bind_to(start, size, node);
		touch_one_each(start, size, 1);
		touch_rest(start, size);
		for (char *at = start; at < start + size; at += PAGE)
			CHECK(node_of(at) == (int)node, "%p on node %d",
			      (void *)at, node_of(at));
		CHECK(contiguous_groups(start, size) >= size / GROUP * 9 / 10,
		      "%lu groups contiguous", contiguous_groups(start, size));
		munmap(start, size);

		start = map_groups(size);
		bind_to(start, size, node);
		touch_one_each(start, size, 1);
		bind_to(start, size, 1 - node);
		for (unsigned long group = 0; group < size / GROUP; group++)
			for (unsigned long i = 1; i < GROUP_PAGES; i++) {
				char *at = start + group * GROUP +
					   (group + i) % GROUP_PAGES * PAGE;

				*(volatile char *)at = 1;
				CHECK(node_of(at) == 1 - (int)node,
				      "%p on node %d", (void *)at, node_of(at));
			}
		expect_one_each(start, size, 1);
		munmap(start, size);
	}
	misplaced = stat_of("released_node") - misplaced;
	printf("released_node=%ld\n", misplaced);
	CHECK(near(misplaced, 2 * 7 * size / GROUP), "%ld released", misplaced);
}

/*
 * Reserves a half of free memory, and then touches three quarters of what was
 * free. Without the shrinker this process would be killed.
 */
static void check_pressure(void)
{
	long pages = number_in("/proc/meminfo", "MemFree") / 4, limit;
	long shrunk = stat_of("released_shrinker");
	size_t sparse, dense;
	char *start, *rest, words[32];
	FILE *file = fopen(DIRECTORY "limit", "r");

	CHECK(file && fscanf(file, "%ld", &limit) == 1, "no limit");
	fclose(file);
	snprintf(words, sizeof(words), "%ld", pages);
	must_put(DIRECTORY "limit", words);
	sparse = pages / 2 / GROUP_PAGES * GROUP;
	dense = pages * 3 / 4 * PAGE;
	start = map_groups(sparse);
	rest = mmap(NULL, dense, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		    MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(rest != MAP_FAILED, "mmap: %s", strerror(errno));
	/* It asks for this itself: it is the one that is to be killed. */
	put("/proc/self/oom_score_adj", "1000");

	touch_one_each(start, sparse, 1);
	printf("reserved_before=%ld\n", stat_of("reserved"));
	for (size_t at = 0; at < dense; at += PAGE)
		store_page(rest + at, 2);
	for (size_t at = 0; at < dense; at += PAGE)
		expect_page(rest + at, 2);
	expect_one_each(start, sparse, 1);
	shrunk = stat_of("released_shrinker") - shrunk;
	printf("released_shrinker=%ld\n", shrunk);
	CHECK(shrunk > 0, "nothing released under pressure");
	munmap(start, sparse);
	munmap(rest, dense);
	snprintf(words, sizeof(words), "%ld", limit);
	must_put(DIRECTORY "limit", words);
}

static const struct reservation_case cases[] = {
	{ "cgroup", NULL, check_cgroup },
	{ "nodes", NULL, check_nodes },
	{ "pressure", "resv-shrink", check_pressure },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	if (count < 2)
		quit(USAGE, "usage: reservation_limits cgroup | nodes | pressure | mutation resv-shrink");
	return run_cases(cases, count, arguments);
}
