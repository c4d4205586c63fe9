// SPDX-License-Identifier: GPL-2.0
/*
 * faults KIND MIB [random]: faults of one kind, on each 4 KiB page of a mapping
 * in order or at random, then the same accesses once more, which must not fault.
 *
 * anonymous       stores to fresh memory
 * zero-page       loads from fresh memory
 * from-zero-page  stores to memory that loads have mapped to the zero page
 * zero-and-store  both: loads from fresh memory, then stores to it
 * copy            stores to pages that a child of fork shares
 * reuse           the same after the child is gone
 * file-read       loads from a mapped file, which is in the page cache
 * file-shared     stores to it, mapped shared
 * file-private    stores to it, mapped private
 *
 * The file is in tmpfs. Around a page that a load faults on, the kernel maps
 * others, so that there are fewer faults than pages.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

#define FILE_NAME "/tmp/faults"

struct kind {
	const char *name;
	int loads, stores, file, shared;
	char before; /* 'l': loads, 's': stores, 'f' and 'g': stores, and a fork whose child stays or is gone */
};

static const struct kind kinds[] = {
	{ "anonymous", 0, 1, 0, 0, 0 },	     { "zero-page", 1, 0, 0, 0, 0 }, { "from-zero-page", 0, 1, 0, 0, 'l' },
	{ "zero-and-store", 1, 1, 0, 0, 0 }, { "copy", 0, 1, 0, 0, 'f' },    { "reuse", 0, 1, 0, 0, 'g' },
	{ "file-read", 1, 0, 1, 1, 0 },	     { "file-shared", 0, 1, 1, 1, 0 }, { "file-private", 0, 1, 1, 0, 0 },
};

static uint64_t load_all(volatile char *memory, const uint32_t *order, unsigned long pages)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < pages; i++)
		(void)memory[order[i] * PAGE];
	return ticks() - began;
}

static uint64_t store_all(volatile char *memory, const uint32_t *order, unsigned long pages)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < pages; i++)
		memory[order[i] * PAGE] = 1;
	return ticks() - began;
}

static uint64_t access_all(const struct kind *kind, volatile char *memory, const uint32_t *order, unsigned long pages)
{
	uint64_t took = 0;

	if (kind->loads)
		took += load_all(memory, order, pages);
	if (kind->stores)
		took += store_all(memory, order, pages);
	return took;
}

static char *map(const struct kind *kind, unsigned long pages)
{
	int flags = kind->shared ? MAP_SHARED : MAP_PRIVATE, file = -1;
	char page[PAGE], *memory;

	if (kind->file) {
		file = open(FILE_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
		memset(page, 7, sizeof(page));
		for (unsigned long i = 0; i < pages; i++)
			if (file < 0 || write(file, page, sizeof(page)) != sizeof(page))
				quit(FAIL, "%s: %s", FILE_NAME, strerror(errno));
	} else {
		flags |= MAP_ANONYMOUS | MAP_NORESERVE;
	}
	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
	if (memory == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	if (file >= 0)
		close(file);
	return memory;
}

/* Returns the child, who waits until the pipe is closed, or 0 if there is none. */
static pid_t prepare(const struct kind *kind, char *memory, const uint32_t *order, unsigned long pages, int *keep)
{
	int ends[2];
	pid_t child;
	char byte;

	if (kind->before == 'l')
		load_all(memory, order, pages);
	else if (kind->before)
		store_all(memory, order, pages);
	if (kind->before != 'f' && kind->before != 'g')
		return 0;
	if (pipe(ends))
		quit(FAIL, "pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		quit(FAIL, "fork: %s", strerror(errno));
	if (!child) {
		close(ends[1]);
		if (kind->before == 'f')
			_exit(read(ends[0], &byte, 1) != 0);
		_exit(0);
	}
	close(ends[0]);
	if (kind->before == 'f') {
		*keep = ends[1];
		return child;
	}
	close(ends[1]);
	waitpid(child, NULL, 0);
	return 0;
}

static void measure(const struct kind *kind, const uint32_t *order, unsigned long pages)
{
	char *memory = map(kind, pages);
	uint64_t faulting, present;
	long before, after;
	int keep = -1;
	pid_t child = prepare(kind, memory, order, pages, &keep);

	/* What the measured passes need themselves is to be present: their code, and the stack. */
	access_all(kind, memory, order, 0);
	before = minor_faults();
	trace_begin();
	faulting = access_all(kind, memory, order, pages);
	trace_end();
	after = minor_faults();
	present = access_all(kind, memory, order, pages);
	if (minor_faults() != after)
		quit(FAIL, "%ld faults in the second pass", minor_faults() - after);
	if (child) {
		close(keep);
		waitpid(child, NULL, 0);
	}
	munmap(memory, pages * PAGE);
	unlink(FILE_NAME);
	printf("faults=%ld\n", after - before);
	printf("ticks=%lu\n", faulting - present);
	printf("loop_ticks=%lu\n", present);
}

int main(int count, char **arguments)
{
	uint64_t state = 88172645463325252ULL;
	unsigned long pages;
	uint32_t *order;

	if (count < 3 || count > 4 || (count > 3 && strcmp(arguments[3], "random")))
		quit(USAGE, "usage: faults KIND MIB [random]");
	pages = whole_number(arguments[2], "MIB") * MIB / PAGE;
	if (!pages)
		quit(USAGE, "MIB must be at least 1");
	order = malloc(pages * sizeof(*order));
	if (!order)
		quit(FAIL, "no memory for %lu pages", pages);
	for (unsigned long i = 0; i < pages; i++)
		order[i] = i;
	if (count > 3)
		shuffle(order, pages, &state);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(arguments[1], kinds[i].name))
			continue;
		printf("pages=%lu\n", pages);
		measure(&kinds[i], order, pages);
		return PASS;
	}
	quit(USAGE, "no kind %s", arguments[1]);
}
