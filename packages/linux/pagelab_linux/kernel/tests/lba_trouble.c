// SPDX-License-Identifier: GPL-2.0
/*
 * lba_trouble [CASE...]: what mappings of /dev/pagelab-lba refuse, and what
 * happens to them in trouble: failing and vanishing drives, processes that end
 * with misses under way, memory cgroups at their limit. All cases without a
 * word.
 *
 * lba_trouble nodes: pages are of the drive's node. Needs two.
 *
 * lba_trouble reaper: the OOM reaper takes pages without metadata of a process
 * that cannot end yet.
 *
 * lba_trouble mutation NAME: the case that is to notice what is left out.
 *
 * lba_trouble stress SECONDS [switch]: threads that read, while others discard,
 * protect, unmap and end, kpted and kpoold run, and the switch changes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "lba.h"

#define PAGES		1024UL
#define SLOW		100000000UL	/* ns */
#define THREADS		4
#define CGROUP		"/sys/fs/cgroup/lba/"

#define REFUSED(call, error) \
	do { \
		errno = 0; \
		CHECK((long)(call) == -1 && errno == (error), #call ": %s", strerror(errno)); \
	} while (0)

static void other_process(void *argument)
{
	const struct lba_map *map = argument;

	CHECK(signal_of(map->memory, 0) == SIGSEGV, "a child has the mapping");
	REFUSED(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, map->file, 0), EPERM);
}

static void check_refused_mappings(void)
{
	struct lba_map map = { .drive = make_drive(PAGES, 0, 1) };
	size_t size = PAGES * PAGE;

	fill_drive(&map.drive);
	map.file = lba_open_drive(&map.drive);
	REFUSED(mmap(NULL, size, PROT_READ, MAP_SHARED, map.file, 0), EINVAL);
	REFUSED(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, map.file, 0), EACCES);
	REFUSED(mmap(NULL, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, map.file, 0), EACCES);
	REFUSED(mmap(NULL, size + PAGE, PROT_READ, MAP_PRIVATE, map.file, 0), ENXIO);
	REFUSED(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, map.file, size), ENXIO);
	REFUSED(mmap(NULL, size, PROT_READ, MAP_PRIVATE, map.file, PAGE), ENXIO);
	map_part(&map, 0, PAGES);
	must_put(LBA_DIRECTORY "kpoold", "1");
	REFUSED(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, map.file, 0), EBUSY);

	for (int with_metadata = 0; with_metadata < 2; with_metadata++) {
		check_pages(&map);
		REFUSED(mprotect(map.memory, size, PROT_READ | PROT_WRITE), EACCES);
		REFUSED(mprotect(map.memory, size, PROT_READ | PROT_EXEC), EACCES);
		CHECK(signal_of(map.memory, 1) == SIGSEGV, "a store is possible");
		REFUSED(mremap(map.memory, size, 2 * size, MREMAP_MAYMOVE), EFAULT);
		REFUSED(mremap(map.memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)0x100000000000UL),
			EINVAL);
		check_pages(&map);
		must_put(LBA_DIRECTORY "kpted", "1");
	}
	remove_map(&map);
}

/* Refused with and without metadata, and the process is none the worse; not what copies nothing. */
static void check_fork(void)
{
	struct lba_map map = make_map(PAGES, 0);
	size_t size = PAGES * PAGE;
	int status;
	pid_t child;

	for (int with_metadata = 0; with_metadata < 2; with_metadata++) {
		check_pages(&map);
		REFUSED(fork(), ENOMEM);
		check_pages(&map);
		must_put(LBA_DIRECTORY "kpted", "1");
	}
	child = vfork();
	if (!child)
		_exit(*(volatile uint64_t *)map.memory == word_of(0, 0) ? PASS : FAIL);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
	      "a child of vfork() cannot read");
	CHECK(!madvise(map.memory, size, MADV_DONTFORK), "madvise: %s", strerror(errno));
	in_child(other_process, &map);
	CHECK(!madvise(map.memory, size, MADV_DOFORK), "madvise: %s", strerror(errno));
	REFUSED(fork(), ENOMEM);
	check_pages(&map);
	remove_map(&map);
}

static void check_no_memory(void)
{
	struct lba_map map = { .drive = make_drive(PAGES, 0, 1) };

	if (access(DEBUGFS "mutation", W_OK))
		quit(SKIP, "this kernel has no mutations");
	fill_drive(&map.drive);
	map.file = lba_open_drive(&map.drive);
	must_put(DEBUGFS "mutation", "no-memory");
	REFUSED(mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, map.file, 0), ENOMEM);
	must_put(DEBUGFS "mutation", "none");
	map_part(&map, 0, PAGES);
	check_pages(&map);
	remove_map(&map);
}

static void expect_node(const struct lba_map *map, int node)
{
	static void *pages[PAGES];
	static int nodes[PAGES];

	for (unsigned long i = 0; i < PAGES; i++)
		pages[i] = map->memory + i * PAGE;
	CHECK(!syscall(SYS_move_pages, 0, PAGES, pages, NULL, nodes, 0), "move_pages: %s", strerror(errno));
	for (unsigned long i = 0; i < PAGES; i++)
		CHECK(nodes[i] == node, "page %lu is on node %d and not %d", i, nodes[i], node);
}

/* Whichever CPU misses. */
static void check_nodes(void)
{
	for (int node = 0; node < 2; node++) {
		struct drive drive = make_drive_at(node, PAGES, 0, 1);
		struct lba_map map;
		long mapped = lba_stat("mapped");

		fill_drive(&drive);
		map = map_drive(drive);
		check_pages(&map);
		CHECK(lba_stat("mapped") - mapped == (long)PAGES, "%ld pages mapped", lba_stat("mapped") - mapped);
		expect_node(&map, node);
		must_put(LBA_DIRECTORY "kpted", "1");
		expect_node(&map, node);
		remove_map(&map);
	}
}

static void check_refused_arguments(void)
{
	struct drive drive = make_drive(PAGES, 0, 1);
	int control = open(LBA_DEVICE, O_RDONLY), first, file;

	REFUSED(ioctl(control, LBA_OPEN, -1L), EBADF);
	REFUSED(ioctl(control, LBA_OPEN, 999L), EBADF);
	REFUSED(ioctl(control, LBA_OPEN, (long)control), ENOTBLK);
	REFUSED(ioctl(control, _IO(0xb8, 0x71), 0L), ENOTTY);
	REFUSED(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, control, 0), ENODEV);
	file = open(drive.path, O_WRONLY);
	REFUSED(ioctl(control, LBA_OPEN, (long)file), EBADF);
	close(file);
	file = open(drive.path, O_RDONLY);
	first = lba_open(file);
	CHECK(first >= 0, "%s", strerror(-first));
	REFUSED(ioctl(control, LBA_OPEN, (long)file), EBUSY);
	close(first);
	first = lba_open(file);
	CHECK(first >= 0, "after it was closed: %s", strerror(-first));
	close(first);
	close(file);
	close(control);
	remove_drive(&drive);

	must_refuse(LBA_DIRECTORY "enabled", "2");
	must_refuse(LBA_DIRECTORY "enabled", "yes");
	must_refuse(LBA_DIRECTORY "kpted_ms", "600001");
	must_refuse(LBA_DIRECTORY "kpted_ms", "often");
	must_refuse(LBA_DIRECTORY "kpoold_ms", "60001");
	must_refuse(LBA_DIRECTORY "queue_pages", "65537");
	must_refuse(LBA_DIRECTORY "queue_pages", "-1");
	must_refuse(LBA_DIRECTORY "pending_limit", "99999999999");
	must_refuse(LBA_DIRECTORY "kpted", "0");
	must_refuse(LBA_DIRECTORY "kpoold", "2");
}

/* Pages 3 and 4 cannot be read, and then they can. */
static void check_errors(void)
{
	struct lba_map map = make_map(PAGES, 0);
	long failed = lba_stat("failed");

	configure(&map.drive, "badblocks", "+24-39");
	for (unsigned long page = 0; page < PAGES; page++) {
		if (page != 3 && page != 4)
			check_page(&map, page);
		else
			CHECK(signal_of(map.memory + page * PAGE, 0) == SIGBUS, "page %lu can be read", page);
	}
	CHECK(lba_stat("failed") - failed == 2, "%ld reads failed", lba_stat("failed") - failed);
	must_put(LBA_DIRECTORY "kpted", "1");
	CHECK(signal_of(map.memory + 3 * PAGE, 0) == SIGBUS, "page 3 can be read");
	configure(&map.drive, "badblocks", "-24-39");
	check_pages(&map);
	remove_map(&map);
}

/* The drive goes; what is in memory stays. */
static void check_drive_removed(void)
{
	struct lba_map map = make_map(PAGES, 0);

	for (unsigned long page = 0; page < PAGES / 2; page++)
		check_page(&map, page);
	configure(&map.drive, "power", "0");
	for (unsigned long page = 0; page < PAGES / 2; page++)
		check_page(&map, page);
	CHECK(signal_of(map.memory + PAGES / 2 * PAGE, 0) == SIGBUS, "a drive that is gone can be read");
	must_put(LBA_DIRECTORY "kpted", "1");
	CHECK(signal_of(map.memory + (PAGES - 1) * PAGE, 0) == SIGBUS, "a drive that is gone can be read");
	remove_map(&map);
}

static void *read_until_unmapped(void *argument)
{
	struct lba_map *map = argument;

	for (unsigned long page = 0; page < map->pages; page++)
		if (signal_of(map->memory + page * PAGE, 0) == SIGSEGV)
			return NULL;
	return argument;
}

static void start_readers(struct lba_map *map, pthread_t *readers)
{
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&readers[i], NULL, read_until_unmapped, map), "pthread_create");
	usleep(SLOW / 1000 * 5 / 2);
}

static void check_unmapped_under_way(void)
{
	struct lba_map map = make_map(PAGES, SLOW);
	pthread_t readers[THREADS];
	void *all;

	start_readers(&map, readers);
	CHECK(!munmap(map.memory, map.pages * PAGE), "munmap: %s", strerror(errno));
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
	for (int i = 0; i < THREADS; i++) {
		pthread_join(readers[i], &all);
		CHECK(!all, "a reader read what is unmapped");
	}
	close(map.file);
	remove_drive(&map.drive);
}

static void ends_under_way(void *argument)
{
	struct lba_map map = { .drive = *(struct drive *)argument };
	pthread_t readers[THREADS];

	map.file = lba_open_drive(&map.drive);
	map_part(&map, 0, map.drive.pages);
	must_put(LBA_DIRECTORY "kpoold", "1");
	start_readers(&map, readers);
	fflush(stdout);
	_exit(PASS);
}

/* The process ends while it waits for reads. */
static void check_exit(void)
{
	struct drive drive = make_drive(PAGES, SLOW, 1);

	for (int round = 0; round < 3; round++)
		in_child(ends_under_way, &drive);
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
	for (int wait = 0; wait < 500 && lba_stat("queued"); wait++)
		usleep(20000);
	CHECK(!lba_stat("queued"), "%ld pages are queued", lba_stat("queued"));
	remove_drive(&drive);
}

static void wait_for_kpted(void)
{
	for (int wait = 0; wait < 1000 && lba_stat("pending"); wait++)
		usleep(20000);
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
}

static void charged(void *unused)
{
	struct lba_map map = make_map(PAGES, 0);
	long pages;

	(void)unused;
	must_put(CGROUP "cgroup.procs", "0");
	touch_pages(&map);
	pages = number_in(CGROUP "memory.stat", "file_mapped") / (long)PAGE;
	CHECK(pages < (long)PAGES / 2, "%ld pages charged before kpted has seen them", pages);
	must_put(LBA_DIRECTORY "kpted_ms", "20");
	wait_for_kpted();
	pages = number_in(CGROUP "memory.stat", "file_mapped") / (long)PAGE;
	printf("charged_pages=%ld\n", pages);
	CHECK(pages >= (long)PAGES * 7 / 8, "%ld of %lu pages charged", pages, PAGES);
	remove_map(&map);
}

static void make_cgroup(const char *limit)
{
	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if ((mkdir(CGROUP, 0755) && errno != EEXIST) || access(CGROUP "memory.max", W_OK))
		quit(SKIP, "no memory cgroup: %s", strerror(errno));
	must_put(CGROUP "memory.max", limit);
}

/* kpted charges the process's cgroup. */
static void check_charge(void)
{
	make_cgroup("max");
	in_child(charged, NULL);
	must_put(LBA_DIRECTORY "kpted_ms", "0");
	rmdir(CGROUP);
}

/* Pages leave memory, and their blocks are read again by the fast path. */
static void limited(void *unused)
{
	struct lba_map map = make_map(8 * PAGES, 0);
	long mapped = lba_stat("mapped"), pages;

	(void)unused;
	must_put(CGROUP "cgroup.procs", "0");
	must_put(LBA_DIRECTORY "kpted_ms", "10");
	must_put(LBA_DIRECTORY "kpoold_ms", "4");
	for (int round = 0; round < 3; round++) {
		check_pages(&map);
		wait_for_kpted();
	}
	pages = number_in(CGROUP "memory.stat", "file") / (long)PAGE;
	mapped = lba_stat("mapped") - mapped;
	printf("mapped=%ld\nstill_charged=%ld\n", mapped, pages);
	CHECK(mapped > 9 * (long)PAGES, "%ld pages were mapped: none left memory", mapped);
	CHECK(pages <= 2 * (long)PAGES, "%ld pages are charged", pages);
	remove_map(&map);
}

static void check_reclaim(void)
{
	make_cgroup("8388608"); /* a quarter of the mapping */
	in_child(limited, NULL);
	lba_by_hand();
	rmdir(CGROUP);
}

#define REAPED_AFTER	2	/* seconds: OOM_REAPER_DELAY of mm/oom_kill.c */

static struct drive quick, slow;

static void *miss_slowly(void *argument)
{
	struct lba_map map = map_drive(slow);

	signal_of(map.memory, 0);
	return argument;
}

/* Has PAGES without metadata, a thread that waits for a read, and more than its cgroup allows. */
static void is_killed(void *unused)
{
	struct lba_map map = map_drive(quick);
	pthread_t waiting;
	char *memory;

	(void)unused;
	check_pages(&map);
	CHECK(!pthread_create(&waiting, NULL, miss_slowly, NULL), "pthread_create");
	usleep(200000);
	memory = mmap(NULL, 4 * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
	must_put(CGROUP "cgroup.procs", "0");
	memset(memory, 1, 4 * PAGES * PAGE);
}

static void check_reaper(void)
{
	long withdrawn = lba_stat("withdrawn");
	int status, tenths = 0;
	pid_t child;

	make_cgroup("8388608");
	quick = make_drive(PAGES, 0, 1);
	fill_drive(&quick);
	slow = make_drive(1, 1000000000UL * 4 * REAPED_AFTER, 1);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		is_killed(NULL);
		_exit(PASS);
	}
	while (lba_stat("withdrawn") - withdrawn < (long)PAGES && !waitpid(child, &status, WNOHANG) && tenths++ < 3000)
		usleep(100000);
	CHECK(lba_stat("withdrawn") - withdrawn == (long)PAGES, "%ld pages withdrawn",
	      lba_stat("withdrawn") - withdrawn);
	CHECK(!waitpid(child, &status, WNOHANG), "the process had ended, status %x", status);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	      "the process ended with status %x", status);
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
	remove_drive(&quick);
	remove_drive(&slow);
	rmdir(CGROUP);
}

static struct {
	struct lba_map map;
	volatile int over;
	unsigned long checked, discarded;
} stress;

static void *stress_reader(void *argument)
{
	uint64_t state = (uintptr_t)argument * 0x9e3779b97f4a7c15ULL + 1;
	unsigned long checked = 0;

	for (; !stress.over; checked++)
		check_page(&stress.map, next_random(&state) % stress.map.pages);
	__atomic_add_fetch(&stress.checked, checked, __ATOMIC_RELAXED);
	return NULL;
}

static void *stress_discarder(void *argument)
{
	uint64_t state = (uintptr_t)argument * 0x9e3779b97f4a7c15ULL + 1;
	unsigned long discarded = 0;

	for (; !stress.over; discarded++) {
		unsigned long first = next_random(&state) % stress.map.pages;
		unsigned long pages = 1 + next_random(&state) % (stress.map.pages - first);
		char *at = stress.map.memory + first * PAGE;

		madvise(at, pages * PAGE, discarded % 7 ? MADV_DONTNEED : MADV_PAGEOUT);
		mprotect(at, pages * PAGE, PROT_READ);
		/* Refused, after the kernel has moved the pages there and back. */
		if (discarded % 5 == 0)
			mremap(at, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)0x100000000000UL);
		usleep(500);
	}
	__atomic_add_fetch(&stress.discarded, discarded, __ATOMIC_RELAXED);
	return NULL;
}

/* One mapping's life; half of them end with the process. */
static void stress_once(void *argument)
{
	int number = *(int *)argument;
	pthread_t threads[THREADS + 1];

	stress.map = make_map(2 * PAGES, number % 2 ? 20000 : 0);
	for (int i = 0; i <= THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, i < THREADS ? stress_reader : stress_discarder,
				      (void *)(uintptr_t)(number * 10 + i + 1)), "pthread_create");
	usleep(1500000);
	if (number % 4 >= 2) {
		fflush(stdout);
		_exit(PASS);
	}
	stress.over = 1;
	for (int i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("checked=%lu\ndiscarded=%lu\n", stress.checked, stress.discarded);
	remove_map(&stress.map);
}

static void run_stress(unsigned long seconds, int switching)
{
	static const char *const names[] = { "mapped", "joined", "settled", "empty", "kernel", "finished", "withdrawn" };
	time_t end = time(NULL) + seconds;
	pid_t switcher = 0;

	must_put(LBA_DIRECTORY "kpted_ms", "10");
	must_put(LBA_DIRECTORY "kpoold_ms", "4");
	must_put(LBA_DIRECTORY "queue_pages", "256");
	if (switching && !(switcher = fork()))
		for (int on = 0;; on = !on) {
			must_put(LBA_DIRECTORY "enabled", on ? "1" : "0");
			usleep(30000);
		}
	for (int number = 0; time(NULL) < end; number++)
		in_child(stress_once, &number);
	if (switcher) {
		kill(switcher, SIGKILL);
		waitpid(switcher, NULL, 0);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		printf("%s=%ld\n", names[i], lba_stat(names[i]));
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
}

static const struct lba_case cases[] = {
	{ "mappings", NULL, check_refused_mappings },
	{ "fork", NULL, check_fork },
	{ "arguments", NULL, check_refused_arguments },
	{ "no-memory", NULL, check_no_memory },
	{ "errors", "lba-status", check_errors },
	{ "removed", NULL, check_drive_removed },
	{ "unmapped", NULL, check_unmapped_under_way },
	{ "exit", NULL, check_exit },
	{ "charge", "lba-charge", check_charge },
	{ "reclaim", NULL, check_reclaim },
	{ NULL, NULL, NULL },
};

int main(int count, char **arguments)
{
	lba_begin();
	if (count >= 3 && !strcmp(arguments[1], "stress"))
		run_stress(whole_number(arguments[2], "SECONDS"), count == 4 && !strcmp(arguments[3], "switch"));
	else if (count == 2 && !strcmp(arguments[1], "nodes"))
		check_nodes();
	else if (count == 2 && !strcmp(arguments[1], "reaper"))
		check_reaper();
	else
		run_cases(cases, count, arguments);
	must_put(LBA_DIRECTORY "enabled", "0");
	return PASS;
}
