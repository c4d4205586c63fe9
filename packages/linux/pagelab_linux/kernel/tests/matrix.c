// SPDX-License-Identifier: GPL-2.0
/*
 * matrix N: multiplies two N by N matrices of doubles, all in fresh anonymous
 * memory, as in the evaluation of the software translation cache.
 *
 * The pass is made twice on the same memory: the first one faults, the second
 * does not. The difference is what the faults took.
 */
#include <sys/mman.h>

#include "guest.h"

static double *fresh(unsigned long n)
{
	double *matrix = mmap(NULL, n * n * sizeof(double), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (matrix == MAP_FAILED)
		quit(FAIL, "mmap: %s", strerror(errno));
	return matrix;
}

static uint64_t multiply(double *a, double *b, double *c, unsigned long n)
{
	uint64_t began = ticks();

	for (unsigned long i = 0; i < n; i++)
		for (unsigned long j = 0; j < n; j++) {
			a[i * n + j] = i + 1;
			b[i * n + j] = j + 1;
		}
	for (unsigned long i = 0; i < n; i++)
		for (unsigned long j = 0; j < n; j++) {
			double sum = 0;

			for (unsigned long k = 0; k < n; k++)
				sum += a[i * n + k] * b[k * n + j];
			c[i * n + j] = sum;
		}
	return ticks() - began;
}

int main(int count, char **arguments)
{
	unsigned long n;
	double *a, *b, *c;
	uint64_t faulting, present;
	long before, faults;

	if (count != 2)
		quit(USAGE, "usage: matrix N");
	n = whole_number(arguments[1], "N");
	if (!n)
		quit(USAGE, "N must be at least 1");
	a = fresh(n);
	b = fresh(n);
	c = fresh(n);
	before = minor_faults();
	trace_begin();
	faulting = multiply(a, b, c, n);
	trace_take_off();
	present = multiply(a, b, c, n);
	trace_end();
	faults = minor_faults() - before;
	/* Row i of a is i + 1 throughout, column j of b is j + 1. */
	for (unsigned long i = 0; i < n; i++)
		for (unsigned long j = 0; j < n; j++)
			if (c[i * n + j] != (double)n * (i + 1) * (j + 1))
				quit(FAIL, "element %lu, %lu is wrong", i, j);
	printf("faults=%ld\n", faults);
	printf("ticks=%lu\n", faulting - present);
	printf("loop_ticks=%lu\n", present);
	return PASS;
}
