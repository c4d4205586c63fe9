/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs of the guest share. A program prints lines KEY=VALUE and
 * ends with PASS, FAIL or SKIP, as the kernel's own selftests do.
 */
#ifndef PAGELAB_GUEST_H
#define PAGELAB_GUEST_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

enum { PASS = 0, FAIL = 1, USAGE = 2, SKIP = 4 };

/* Says why, and ends the program. */
__attribute__((noreturn, format(printf, 2, 3)))
static inline void quit(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("reason=");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
	exit(status);
}

/*
 * The processor's time stamp. With -icount shift=0 it counts the guest's
 * instructions; with KVM it counts cycles.
 */
static inline uint64_t ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

/*
 * Marks between which kernel/plugin/fault_trace.c records faults: no-operations
 * of one instruction each, nopl MARK(%rax,%rax). A program whose passes are
 * so long that interrupts come in both marks the second one as taken off.
 */
static inline void trace_begin(void)
{
	__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long 0x70670001" : : : "memory");
}

static inline void trace_end(void)
{
	__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long 0x70670000" : : : "memory");
}

static inline void trace_take_off(void)
{
	__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .long 0x70670002" : : : "memory");
}

static inline long minor_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static inline uint64_t next_random(uint64_t *state)
{
	/* xorshift64: enough to shuffle, and the same on every run. */
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void shuffle(uint32_t *order, unsigned long entries, uint64_t *state)
{
	for (unsigned long i = entries - 1; i > 0; i--) {
		unsigned long j = next_random(state) % (i + 1);
		uint32_t other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
}

static inline unsigned long whole_number(const char *text, const char *name)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || end == text)
		quit(USAGE, "%s must be a whole number, not %s", name, text);
	return value;
}

#endif
