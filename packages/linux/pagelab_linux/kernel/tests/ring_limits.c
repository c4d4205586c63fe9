// SPDX-License-Identifier: GPL-2.0
/*
 * ring_limits CASE...: rings where memory is limited or placed, and CPUs go.
 *
 * kill       a cgroup's limit kills at the same page as without rings
 * no-memory  without memory for rings there are none, or the old ones stay
 * nodes      pages follow mbind(), the task's policy and the cpuset; needs two
 *            nodes with a CPU each
 * remote     a ring has pages of another node, if it may and its own is full
 * offline    a CPU that goes offline gives its ring back; needs two CPUs
 * pressure   rings are given back before anything is killed; needs two CPUs,
 *            and a guest whose memory it may fill
 *
 * ring_limits mutation NAME: a part is left out, and its case must fail.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "rings.h"

#define PAGES		512UL
#define CGROUP		"/sys/fs/cgroup/rings/"
#define CGROUP_LIMIT	"8388608"
#define LIMIT_PAGES	2048UL
#define OTHER_CPU	"/sys/devices/system/cpu/cpu1/online"

#define MPOL_DEFAULT	0
#define MPOL_PREFERRED	1
#define MPOL_BIND	2
#define MPOL_INTERLEAVE	3
#define MPOL_F_NODE	1
#define MPOL_F_ADDR	2

static void make_cgroup(const char *controller)
{
	put("/sys/fs/cgroup/cgroup.subtree_control", controller);
	CHECK(!mkdir(CGROUP, 0755), "mkdir: %s", strerror(errno));
}

/* Touches pages in the cgroup until it is killed; returns how many. */
static unsigned long touch_until_killed(void)
{
	unsigned long *touched, last;
	pid_t child;
	int status;
	char *start;

	touched = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED |
		       MAP_ANONYMOUS, -1, 0);
	CHECK(touched != MAP_FAILED, "mmap: %s", strerror(errno));
	*touched = 0;
	start = map_pages(2 * LIMIT_PAGES);
	make_cgroup("+memory");
	must_put(CGROUP "memory.max", CGROUP_LIMIT);
	child = fork();
	CHECK(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		must_put(CGROUP "cgroup.procs", "0");
		for (size_t i = 0; i < 2 * LIMIT_PAGES; i++) {
			*(volatile char *)(start + i * PAGE) = 1;
			++*touched;
		}
		_exit(PASS);
	}
	CHECK(waitpid(child, &status, 0) == child, "waitpid");
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	      "the child ended with status %x", status);
	CHECK(!rmdir(CGROUP), "rmdir: %s", strerror(errno));
	last = *touched;
	munmap(touched, PAGE);
	munmap(start, 2 * LIMIT_PAGES * PAGE);
	return last;
}

static void check_kill(void)
{
	unsigned long with, without;
	long hits;

	stay_on(0);
	must_put(DIRECTORY "enabled", "0");
	without = touch_until_killed();
	restart(2 * LIMIT_PAGES, LONG_PERIOD);
	hits = stat_of("hits");
	with = touch_until_killed();
	hits = stat_of("hits") - hits;
	printf("killed_without=%lu\nkilled_with=%lu\nkilled_hits=%ld\n", without,
	       with, hits);
	CHECK(hits >= (long)with, "%ld hits for %lu pages", hits, with);
	CHECK(with == without, "killed at page %lu, and at %lu without rings",
	      with, without);
}

/* Refused as a whole: what was there before serves on. */
static void check_no_memory(void)
{
	char *start = map_pages(PAGES);
	long hits;

	if (access(DEBUGFS "mutation", W_OK))
		quit(SKIP, "this kernel has no mutations");
	stay_on(0);
	must_put(DIRECTORY "enabled", "0");
	must_put(DEBUGFS "mutation", "no-memory");
	must_refuse_for(ENOMEM, DIRECTORY "enabled", "1");
	CHECK(!number_of(DIRECTORY "enabled") && !stat_of("ready"), "rings are on, %ld pages ready", stat_of("ready"));
	must_put(DEBUGFS "mutation", "none");

	restart(PAGES, LONG_PERIOD);
	must_put(DEBUGFS "mutation", "no-memory");
	must_refuse_for(ENOMEM, SYSCTL_PAGES, "2048");
	must_put(DEBUGFS "mutation", "none");
	CHECK(number_of(SYSCTL_PAGES) == PAGES, "rings of %lu pages", number_of(SYSCTL_PAGES));
	hits = stat_of("hits");
	store_all(start, PAGES / 2, 1);
	hits = stat_of("hits") - hits;
	CHECK(near(hits, PAGES / 2), "%ld hits", hits);
	munmap(start, PAGES * PAGE);
}

static int node_of(char *page)
{
	int node = -1;

	CHECK(!syscall(SYS_get_mempolicy, &node, NULL, 0UL, page,
		       MPOL_F_NODE | MPOL_F_ADDR), "get_mempolicy: %s",
	      strerror(errno));
	return node;
}

static void expect_nodes(const char *start, int node)
{
	for (size_t i = 0; i < PAGES; i++)
		CHECK(node_of((char *)start + i * PAGE) == node,
		      "page %zu on node %d, not %d", i,
		      node_of((char *)start + i * PAGE), node);
}

static void set_policy(int mode, unsigned long nodes)
{
	CHECK(!syscall(SYS_set_mempolicy, mode, nodes ? &nodes : NULL,
		       nodes ? 64UL : 0UL), "set_mempolicy: %s", strerror(errno));
}

static void check_bound(int node)
{
	unsigned long mask = 1UL << node;
	char *start = map_pages(PAGES);

	CHECK(!syscall(SYS_mbind, start, PAGES * PAGE, MPOL_BIND, &mask, 64UL, 0UL),
	      "mbind: %s", strerror(errno));
	store_all(start, PAGES, 1);
	expect_nodes(start, node);
	munmap(start, PAGES * PAGE);
}

static void check_policy(int mode, unsigned long nodes, int node)
{
	char *start = map_pages(PAGES);

	set_policy(mode, nodes);
	store_all(start, PAGES, 1);
	set_policy(MPOL_DEFAULT, 0);
	expect_nodes(start, node);
	munmap(start, PAGES * PAGE);
}

static void check_interleaved(void)
{
	char *start = map_pages(PAGES);
	long second = 0;

	set_policy(MPOL_INTERLEAVE, 3);
	store_all(start, PAGES, 1);
	set_policy(MPOL_DEFAULT, 0);
	for (size_t i = 0; i < PAGES; i++)
		second += node_of(start + i * PAGE);
	printf("interleaved=%ld\n", second);
	CHECK(near(second, PAGES / 2), "%ld pages on the second node", second);
	munmap(start, PAGES * PAGE);
}

static void touch_in_cpuset(void *unused)
{
	char *start = map_pages(PAGES);

	(void)unused;
	must_put(CGROUP "cgroup.procs", "0");
	stay_on(0);
	store_all(start, PAGES, 1);
	expect_nodes(start, 1);
}

/* All from the CPU of node 0, whose ring has pages of node 0. */
static void check_nodes(void)
{
	long hits, misplaced;

	stay_on(0);
	restart(4 * PAGES, LONG_PERIOD);
	hits = stat_of("hits");
	check_policy(MPOL_DEFAULT, 0, 0);
	check_bound(0);
	check_policy(MPOL_PREFERRED, 1, 0);
	hits = stat_of("hits") - hits;
	misplaced = stat_of("misplaced");
	check_bound(1);
	check_policy(MPOL_PREFERRED, 2, 1);
	check_policy(MPOL_BIND, 2, 1);
	check_interleaved();
	misplaced = stat_of("misplaced") - misplaced;
	make_cgroup("+cpuset");
	must_put(CGROUP "cpuset.mems", "1");
	in_child(touch_in_cpuset, NULL);
	CHECK(!rmdir(CGROUP), "rmdir: %s", strerror(errno));
	printf("placed_hits=%ld\nmisplaced=%ld\n", hits, misplaced);
	CHECK(near(hits, 3 * PAGES), "%ld hits", hits);
	CHECK(misplaced >= (long)(4 * PAGES), "%ld misplaced", misplaced);
}

static long free_of_node(int node)
{
	char path[64], line[128];
	long free = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	file = fopen(path, "r");
	CHECK(file, "%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Node %*d MemFree: %ld", &free) == 1)
			break;
	fclose(file);
	return free / 4;
}

/* Hits of as many faults as the ring has pages, a few passes after the last. */
static long hits_later(char *start)
{
	long hits;

	usleep(100000);
	hits = stat_of("hits");
	store_all(start, PAGES / 2, 1);
	return stat_of("hits") - hits;
}

/* Node 0 is filled; the ring of its CPU is not, until it may have others' pages. */
static void check_remote(void)
{
	size_t filler = free_of_node(0);
	char *start = map_pages(2 * PAGES), *fill = map_pages(filler);
	long local, remote, second = 0;

	stay_on(0);
	must_refuse(DIRECTORY "nodes", "remote");
	restart(PAGES, 2000);
	set_policy(MPOL_PREFERRED, 1);
	for (size_t i = 0; i < filler; i++)
		*(volatile char *)(fill + i * PAGE) = 1;
	set_policy(MPOL_DEFAULT, 0);
	remote = stat_of("filled_remote");
	/* What the ring had until then. */
	hits_later(start + PAGES * PAGE);
	hits_later(start + (PAGES + PAGES / 2) * PAGE);
	local = hits_later(start);
	CHECK(stat_of("filled_remote") == remote, "pages of the other node");
	must_put(DIRECTORY "nodes", "prefer-local");
	remote = hits_later(start + PAGES / 2 * PAGE);
	for (size_t i = 0; i < PAGES / 2; i++)
		second += node_of(start + (PAGES / 2 + i) * PAGE);
	printf("local_hits=%ld\nprefer_local_hits=%ld\nother_node=%ld\nfilled_remote=%ld\n",
	       local, remote, second, stat_of("filled_remote"));
	must_put(DIRECTORY "nodes", "local");
	CHECK(local <= 64, "%ld hits with the node full", local);
	CHECK(remote >= (long)PAGES / 2 - 8, "%ld hits", remote);
	CHECK(second >= (long)PAGES / 2 - 64, "%ld pages on the other node", second);
	munmap(fill, filler * PAGE);
	munmap(start, 2 * PAGES * PAGE);
}

/* Ready pages and deferred ones of the CPU that goes. */
static void check_offline(void)
{
	char *start = map_pages(PAGES);
	long given_back;
	size_t listed;

	stay_on(1);
	restart(2 * PAGES, LONG_PERIOD);
	store_all(start, PAGES, 1);
	stay_on(0);
	given_back = stat_of("given_back_offline");
	must_put(OTHER_CPU, "0");
	given_back = stat_of("given_back_offline") - given_back;
	drain_all();
	listed = pages_with(start, PAGES, FLAG_LRU);
	printf("given_back_offline=%ld\nlisted=%zu\nready_online=%ld\n", given_back,
	       listed, stat_of("ready"));
	CHECK(given_back >= (long)PAGES - 64, "%ld pages given back", given_back);
	CHECK(stat_of("ready") <= (long)(2 * PAGES), "%ld ready", stat_of("ready"));
	CHECK(listed == PAGES, "%zu of %lu pages on LRU lists", listed, PAGES);
	expect_all(start, PAGES, 1);
	must_put(OTHER_CPU, "1");
	put_number(SYSCTL_PERIOD, 2000);
	wait_ready(2 * 2 * PAGES);
	munmap(start, PAGES * PAGE);
}

/*
 * Touches what is free, all of its own CPU's ring, and a half of the other
 * CPU's, which it gets through the shrinker alone.
 */
static void check_pressure(void)
{
	size_t pages = 8192, touched;
	long shrunk;
	char *start;

	stay_on(0);
	restart(pages, LONG_PERIOD);
	shrunk = stat_of("given_back_shrinker");
	touched = number_in("/proc/meminfo", "MemFree") / 4 + pages + pages / 2;
	start = map_pages(touched);
	/* It asks for this itself: it is the one that is to be killed. */
	put("/proc/self/oom_score_adj", "1000");
	for (size_t i = 0; i < touched; i++)
		store_page(start + i * PAGE, 2);
	for (size_t i = 0; i < touched; i++)
		expect_page(start + i * PAGE, 2);
	shrunk = stat_of("given_back_shrinker") - shrunk;
	printf("given_back_shrinker=%ld\n", shrunk);
	CHECK(shrunk >= (long)pages / 4, "%ld given back", shrunk);
	munmap(start, touched * PAGE);
	put_number(SYSCTL_PERIOD, 2000);
	wait_ready(cpus_online() * pages);
}

static const struct reservation_case cases[] = {
	{ "kill", NULL, check_kill },
	{ "no-memory", NULL, check_no_memory },
	{ "nodes", "ring-node", check_nodes },
	{ "remote", NULL, check_remote },
	{ "offline", "ring-offline", check_offline },
	{ "pressure", "ring-shrink", check_pressure },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	if (count < 2)
		quit(USAGE, "usage: ring_limits kill | no-memory | nodes | remote | offline | pressure | mutation NAME");
	return run_cases(cases, count, arguments);
}
