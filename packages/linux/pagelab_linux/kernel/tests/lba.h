/* SPDX-License-Identifier: GPL-2.0 */
/* Drives of null_blk with known contents, and mappings of them by /dev/pagelab-lba. */
#ifndef PAGELAB_LBA_TEST_H
#define PAGELAB_LBA_TEST_H

#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "switches.h"

#define LBA_DEVICE	"/dev/pagelab-lba"
#define LBA_OPEN	_IO(0xb8, 0x70) /* as in kernel/src/lba.h */
#define LBA_DIRECTORY	DEBUGFS "lba/"
#define LBA_STATS	LBA_DIRECTORY "stats"
#define CONFIGFS	"/sys/kernel/config"

struct drive {
	char name[32];
	char path[64];
	unsigned long pages;
};

struct lba_map {
	struct drive drive;
	int file;
	unsigned long first, pages; /* of the drive */
	char *memory;
};

static inline void configure(const struct drive *drive, const char *key, const char *value)
{
	char path[160];

	snprintf(path, sizeof(path), CONFIGFS "/nullb/%s/%s", drive->name, key);
	must_put(path, value);
}

/* The initramfs has few nodes of devices, and nobody mounts configfs. */
static inline void mount_devices(void)
{
	if (access("/dev/pagelab-lba", F_OK))
		mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	if (access(CONFIGFS "/nullb", F_OK) && mount("configfs", CONFIGFS, "configfs", 0, NULL))
		quit(SKIP, "no configfs: %s", strerror(errno));
}

/* @nanoseconds: what a read takes; 0: it is done when it is submitted. @node: of memory, where the drive is. */
static inline struct drive make_drive_at(int node, unsigned long pages, unsigned long nanoseconds, int memory_backed)
{
	static int made;
	struct drive drive = { .pages = pages };
	char path[160], number[32];

	snprintf(drive.name, sizeof(drive.name), "test%d-%d", getpid(), made++);
	snprintf(drive.path, sizeof(drive.path), "/dev/%s", drive.name);
	snprintf(path, sizeof(path), CONFIGFS "/nullb/%s", drive.name);
	CHECK(!mkdir(path, 0700), "%s: %s", path, strerror(errno));
	snprintf(number, sizeof(number), "%lu", (pages * PAGE + MIB - 1) / MIB);
	configure(&drive, "size", number);
	configure(&drive, "blocksize", "4096");
	configure(&drive, "memory_backed", memory_backed ? "1" : "0");
	snprintf(number, sizeof(number), "%d", node);
	configure(&drive, "home_node", number);
	snprintf(number, sizeof(number), "%lu", nanoseconds);
	configure(&drive, "completion_nsec", number);
	configure(&drive, "irqmode", nanoseconds ? "2" : "0");
	configure(&drive, "power", "1");
	return drive;
}

static inline struct drive make_drive(unsigned long pages, unsigned long nanoseconds, int memory_backed)
{
	return make_drive_at(0, pages, nanoseconds, memory_backed);
}

static inline void remove_drive(const struct drive *drive)
{
	char path[160];

	snprintf(path, sizeof(path), CONFIGFS "/nullb/%s", drive->name);
	CHECK(!rmdir(path), "rmdir %s: %s", path, strerror(errno));
}

static inline uint64_t word_of(unsigned long page, unsigned long word)
{
	return (page + 1) * 0x9e3779b97f4a7c15ULL + word;
}

/* Each word of the drive tells its page and its place there. */
static inline void fill_drive(const struct drive *drive)
{
	int file = open(drive->path, O_WRONLY);
	uint64_t words[PAGE / 8];

	CHECK(file >= 0, "%s: %s", drive->path, strerror(errno));
	for (unsigned long page = 0; page < drive->pages; page++) {
		for (unsigned long word = 0; word < PAGE / 8; word++)
			words[word] = word_of(page, word);
		CHECK(write(file, words, PAGE) == (ssize_t)PAGE, "%s: %s", drive->path, strerror(errno));
	}
	CHECK(!fsync(file) && !ioctl(file, BLKFLSBUF, 0), "%s: %s", drive->path, strerror(errno));
	close(file);
}

/* Reads that the drive has completed. */
static inline long reads_of(const struct drive *drive)
{
	char path[96];
	long reads = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", drive->name);
	file = fopen(path, "r");
	CHECK(file && fscanf(file, "%ld", &reads) == 1, "%s: %s", path, strerror(errno));
	fclose(file);
	return reads;
}

/* A file of one number. */
static inline long number_of(const char *path)
{
	long number;
	FILE *file = fopen(path, "r");

	CHECK(file && fscanf(file, "%ld", &number) == 1, "%s: %s", path, strerror(errno));
	fclose(file);
	return number;
}

static inline long lba_stat(const char *name)
{
	return number_in(LBA_STATS, name);
}

/* The threads do nothing by themselves; what they would do is written to their files. */
static inline void lba_by_hand(void)
{
	must_put(LBA_DIRECTORY "kpted_ms", "0");
	must_put(LBA_DIRECTORY "kpoold_ms", "0");
	must_put(LBA_DIRECTORY "queue_pages", "4096");
	must_put(LBA_DIRECTORY "enabled", "1");
}

/* The descriptor that the device gives for another, or the error, negative. */
static inline int lba_open(int device)
{
	int control = open(LBA_DEVICE, O_RDONLY), file;

	CHECK(control >= 0, LBA_DEVICE ": %s", strerror(errno));
	file = ioctl(control, LBA_OPEN, (long)device);
	if (file < 0)
		file = -errno;
	close(control);
	return file;
}

static inline int lba_open_drive(const struct drive *drive)
{
	int device = open(drive->path, O_RDONLY), file;

	CHECK(device >= 0, "%s: %s", drive->path, strerror(errno));
	file = lba_open(device);
	close(device);
	CHECK(file >= 0, "%s: %s", drive->path, strerror(-file));
	return file;
}

static inline void map_part(struct lba_map *map, unsigned long first, unsigned long pages)
{
	map->first = first;
	map->pages = pages;
	map->memory = mmap(NULL, pages * PAGE, PROT_READ, MAP_PRIVATE, map->file, first * PAGE);
	CHECK(map->memory != MAP_FAILED, "mmap: %s", strerror(errno));
}

/* The drive mapped whole, with a full queue. */
static inline struct lba_map map_drive(struct drive drive)
{
	struct lba_map map = { .drive = drive, .file = lba_open_drive(&drive) };

	map_part(&map, 0, drive.pages);
	must_put(LBA_DIRECTORY "kpoold", "1");
	return map;
}

/* The same of a drive of its own, with contents. */
static inline struct lba_map make_map(unsigned long pages, unsigned long nanoseconds)
{
	struct drive drive = make_drive(pages, nanoseconds, 1);

	fill_drive(&drive);
	return map_drive(drive);
}

static inline void remove_map(struct lba_map *map)
{
	CHECK(!munmap(map->memory, map->pages * PAGE), "munmap: %s", strerror(errno));
	close(map->file);
	CHECK(!lba_stat("pending"), "%ld pages are pending after munmap()", lba_stat("pending"));
	remove_drive(&map->drive);
}

static inline void check_page(const struct lba_map *map, unsigned long page)
{
	volatile uint64_t *words = (volatile uint64_t *)(map->memory + page * PAGE);

	for (unsigned long word = 0; word < PAGE / 8; word++) {
		uint64_t actual = words[word], expected = word_of(map->first + page, word);

		CHECK(actual == expected, "word %lu of page %lu is %lx and not %lx", word, page, actual, expected);
	}
}

static inline void check_pages(const struct lba_map *map)
{
	for (unsigned long page = 0; page < map->pages; page++)
		check_page(map, page);
}

static inline void touch_pages(const struct lba_map *map)
{
	for (unsigned long page = 0; page < map->pages; page++)
		(void)*(volatile char *)(map->memory + page * PAGE);
}

static __thread sigjmp_buf back_to;
static __thread volatile sig_atomic_t expecting, caught;

static inline void catch(int number)
{
	if (!expecting) {
		signal(number, SIG_DFL);
		return;
	}
	caught = number;
	siglongjmp(back_to, 1);
}

static inline void catch_signals(void)
{
	signal(SIGBUS, catch);
	signal(SIGSEGV, catch);
}

/* The signal that an access ends with; 0: none. */
static inline int signal_of(volatile char *at, int store)
{
	caught = 0;
	expecting = 1;
	if (!sigsetjmp(back_to, 1)) {
		if (store)
			*at = 1;
		else
			(void)*at;
	}
	expecting = 0;
	return caught;
}

struct lba_case {
	const char *name, *mutation; /* which the case is to notice */
	void (*run)(void);
};

static inline void run_case(void *which)
{
	((const struct lba_case *)which)->run();
}

static inline void run_mutation(const struct lba_case *which)
{
	int status;
	pid_t child;

	must_put(DEBUGFS "mutation", which->mutation);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		which->run();
		fflush(stdout);
		_exit(PASS);
	}
	CHECK(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
	must_put(DEBUGFS "mutation", "none");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == FAIL, "nothing noticed %s: status %x", which->mutation,
	      status);
}

/* Arguments: none for all cases, names of cases, or "mutation" and a name. The list ends with a case without name. */
static inline void run_cases(const struct lba_case *cases, int count, char **arguments)
{
	int mutation = count == 3 && !strcmp(arguments[1], "mutation");

	for (int i = mutation ? 2 : 1; i < count || count == 1; i++) {
		const struct lba_case *each = cases;
		int is_listed = 0;

		for (; each->name; each++) {
			if (mutation ? !each->mutation || strcmp(arguments[i], each->mutation) :
				       count > 1 && strcmp(arguments[i], each->name))
				continue;
			is_listed = 1;
			printf("case=%s\n", each->name);
			if (mutation)
				run_mutation(each);
			else
				in_child(run_case, (void *)each);
		}
		if (!is_listed)
			quit(USAGE, "no %s %s", mutation ? "case is to notice" : "case", arguments[i]);
		if (count == 1)
			break;
	}
}

/* Finds the device, or skips the test; from here on its threads do nothing by themselves. */
static inline void lba_begin(void)
{
	mount_devices();
	if (access(LBA_DEVICE, R_OK))
		quit(SKIP, "this kernel has no " LBA_DEVICE);
	catch_signals();
	lba_by_hand();
}

#endif
