// SPDX-License-Identifier: GPL-2.0
/*
 * storage sequential|random MIB: loads from each 4 KiB page of a drive that is
 * mapped and not in memory, once, then once more.
 *
 * The first pass faults and reads on each page, the second does neither. The
 * drive is null_blk without contents, which is done when a read is submitted.
 * If pagelab/lba/enabled is 1, /dev/pagelab-lba maps it. Else it is mapped
 * itself, with MADV_RANDOM, which means no read-ahead.
 *
 * Where the periods of kpted or kpoold are 0, their work is done outside the
 * passes. Their time stamps are printed in either case.
 */
#define _GNU_SOURCE
#include "lba.h"

static uint32_t *order_of(const char *name, unsigned long pages)
{
	uint32_t *order = malloc(pages * sizeof(*order));
	uint64_t state = 88172645463325252ULL;

	if (!order)
		quit(FAIL, "no memory for %lu pages", pages);
	if (strcmp(name, "sequential") && strcmp(name, "random"))
		quit(USAGE, "no order %s: sequential or random", name);
	for (unsigned long i = 0; i < pages; i++) {
		unsigned long j = *name == 'r' ? next_random(&state) % (i + 1) : i;

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

static uint64_t load_all(volatile char *memory, const uint32_t *order, unsigned long pages)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < pages; i++)
		(void)memory[order[i] * PAGE];
	return ticks() - began;
}

static long major_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

static int by_device(void)
{
	return !access(LBA_DIRECTORY "enabled", R_OK) && number_of(LBA_DIRECTORY "enabled") == 1;
}

static void map_plain(struct lba_map *map)
{
	map->file = open(map->drive.path, O_RDONLY);
	CHECK(map->file >= 0, "%s: %s", map->drive.path, strerror(errno));
	map_part(map, 0, map->drive.pages);
	CHECK(!madvise(map->memory, map->pages * PAGE, MADV_RANDOM), "madvise: %s", strerror(errno));
}

static void measure(struct lba_map *map, const uint32_t *order)
{
	long faults = major_faults(), reads = reads_of(&map->drive);
	uint64_t faulting, present;

	load_all(map->memory, order, 0);
	trace_begin();
	faulting = load_all(map->memory, order, map->pages);
	trace_end();
	faults = major_faults() - faults;
	reads = reads_of(&map->drive) - reads;
	present = load_all(map->memory, order, map->pages);
	CHECK(faults == (long)map->pages && reads == faults, "%ld faults and %ld reads for %lu pages", faults, reads,
	      map->pages);
	printf("faults=%ld\nticks=%lu\nloop_ticks=%lu\n", faults, faulting - present, present);
}

int main(int count, char **arguments)
{
	struct lba_map map = { 0 };
	long kpted, kpoold;
	uint32_t *order;

	if (count != 3 || !whole_number(arguments[2], "MIB"))
		quit(USAGE, "usage: storage sequential|random MIB, at least 1");
	mount_devices();
	map.drive = make_drive(whole_number(arguments[2], "MIB") * MIB / PAGE, 0, 0);
	order = order_of(arguments[1], map.drive.pages);
	if (!by_device()) {
		map_plain(&map);
		measure(&map, order);
		return PASS;
	}
	map.file = lba_open_drive(&map.drive);
	map_part(&map, 0, map.drive.pages);
	kpted = lba_stat("kpted_ticks");
	kpoold = lba_stat("kpoold_ticks");
	must_put(LBA_DIRECTORY "kpoold", "1");
	measure(&map, order);
	must_put(LBA_DIRECTORY "kpted", "1");
	CHECK(!lba_stat("pending"), "%ld pages are pending", lba_stat("pending"));
	printf("kpted_ticks=%ld\nkpoold_ticks=%ld\n", lba_stat("kpted_ticks") - kpted,
	       lba_stat("kpoold_ticks") - kpoold);
	return PASS;
}
