// Programs whose memory is known, for the tests of `pagelab observe`: observed MODE SECONDS.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const size_t MIB = 1 << 20;
static volatile uint64_t sum;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

// Memory at a multiple of 2 MiB, with pages of 4 KiB or as advised.
static char *map(size_t size, int advice)
{
	char *memory = mmap(NULL, size + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t begin = ((uintptr_t)memory + 2 * MIB - 1) & -(2 * MIB);

	if (memory == MAP_FAILED || madvise(memory, size + 2 * MIB, advice)) {
		perror("memory");
		exit(1);
	}
	// What is around it would be a part of the same mapping.
	munmap(memory, begin - (uintptr_t)memory);
	munmap((char *)begin + size, (uintptr_t)memory + 2 * MIB - begin);
	return (char *)begin;
}

static void read_pages(const char *memory, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		sum += memory[at];
}

static void hot(double end)
{
	char *memory = map(64 * MIB, MADV_NOHUGEPAGE);

	memset(memory, 1, 64 * MIB);
	while (now(CLOCK_MONOTONIC) < end)
		read_pages(memory, 64 * MIB);
}

// As hot, but its pages may become huge: later, whatever the mode of huge pages.
static void plain(double end)
{
	char *memory = map(64 * MIB, MADV_NOHUGEPAGE);

	memset(memory, 1, 64 * MIB);
	madvise(memory, 64 * MIB, MADV_HUGEPAGE);
	while (now(CLOCK_MONOTONIC) < end)
		read_pages(memory, 64 * MIB);
}

static void sparse(double end)
{
	char *memory = map(1024 * MIB, MADV_NOHUGEPAGE);

	while (now(CLOCK_MONOTONIC) < end)
		for (size_t at = 0; at < 1024 * MIB; at += 256 << 10)
			memory[at] = 1;
}

// 32 MiB per second of 64 MiB, again and again, whatever the load of the machine.
static void streaming(double end)
{
	char *memory = map(64 * MIB, MADV_NOHUGEPAGE);
	double begin = now(CLOCK_MONOTONIC), time;
	size_t done = 0;

	memset(memory, 1, 64 * MIB);
	while ((time = now(CLOCK_MONOTONIC)) < end) {
		size_t wanted = (size_t)((time - begin) * 32 * MIB) / PAGE;

		for (; done < wanted; done++)
			sum += memory[done * PAGE % (64 * MIB)];
	}
}

// 16 MiB, and twice as much from half of the time on.
static void doubling(double end)
{
	double begin = now(CLOCK_MONOTONIC), time;
	char *memory = map(32 * MIB, MADV_NOHUGEPAGE);

	memset(memory, 1, 32 * MIB);
	while ((time = now(CLOCK_MONOTONIC)) < end)
		read_pages(memory, time < (begin + end) / 2 ? 16 * MIB : 32 * MIB);
}

static void cold_huge(double end)
{
	char *memory = map(64 * MIB, MADV_HUGEPAGE);

	memset(memory, 1, 64 * MIB);
	while (now(CLOCK_MONOTONIC) < end)
		read_pages(memory, 8 * MIB);
}

__attribute__((noinline)) static void touch_fresh(char *memory, size_t from, size_t to)
{
	for (size_t page = from; page < to; page++)
		memory[page % 1024 * PAGE] = 1;
}

// 5,000 faults per second, whatever the load of the machine, also after a pause; prints how many.
static void rate(double end)
{
	char *memory = map(1024 * PAGE, MADV_NOHUGEPAGE);
	double begin = now(CLOCK_MONOTONIC), time;
	size_t done = 0;

	while ((time = now(CLOCK_MONOTONIC)) < end) {
		size_t wanted = (time - begin) * 5000;

		for (; done < wanted; done++) {
			char *page = memory + done % 1024 * PAGE;

			madvise(page, PAGE, MADV_DONTNEED);
			touch_fresh(page, 0, 1);
		}
	}
	printf("%zu\n", done);
}

// A third of the CPU time in faults, as the program measures it itself; prints the share.
static void share(double end)
{
	char *memory = map(8 * MIB, MADV_NOHUGEPAGE);
	double begin = now(CLOCK_PROCESS_CPUTIME_ID), in_faults = 0;

	while (now(CLOCK_MONOTONIC) < end) {
		double before = now(CLOCK_PROCESS_CPUTIME_ID), after;

		touch_fresh(memory, 0, 1024);
		after = now(CLOCK_PROCESS_CPUTIME_ID);
		in_faults += after - before;
		madvise(memory, 8 * MIB, MADV_DONTNEED);
		while (now(CLOCK_PROCESS_CPUTIME_ID) - begin < 3 * in_faults)
			sum++;
	}
	printf("%f\n", in_faults / (now(CLOCK_PROCESS_CPUTIME_ID) - begin));
}

// 40,000 mappings of a page each.
static void many(double end)
{
	char *memory = map(40000 * (size_t)PAGE, MADV_NOHUGEPAGE);

	for (size_t page = 0; page < 40000; page += 2)
		mprotect(memory + page * PAGE, PAGE, PROT_READ);
	while (now(CLOCK_MONOTONIC) < end)
		sum++;
}

static void idle(double end)
{
	while (now(CLOCK_MONOTONIC) < end)
		usleep(10000);
}

// Two processes that hand a byte to each other.
static void switching(double end)
{
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		exit(1);
	if (!fork()) {
		close(there[1]);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	while (now(CLOCK_MONOTONIC) < end)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			exit(1);
}

static const struct {
	const char *name;
	void (*run)(double end);
} MODES[] = { { "hot", hot },   { "sparse", sparse }, { "streaming", streaming }, { "doubling", doubling },
	      { "many", many }, { "rate", rate },     { "cold_huge", cold_huge }, { "share", share },
	      { "idle", idle },   { "plain", plain },
	      { "switching", switching } };

int main(int count, char **arguments)
{
	for (size_t n = 0; count == 3 && n < sizeof(MODES) / sizeof(*MODES); n++)
		if (!strcmp(arguments[1], MODES[n].name)) {
			MODES[n].run(now(CLOCK_MONOTONIC) + atof(arguments[2]));
			return 0;
		}
	return 1;
}
