/* SPDX-License-Identifier: GPL-2.0 */
/* How test programs set pagelab's switches and read its counters. */
#ifndef PAGELAB_SWITCHES_H
#define PAGELAB_SWITCHES_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

#define DEBUGFS		"/sys/kernel/debug/pagelab/"
#define GIB		(1UL << 30)

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) \
			quit(FAIL, __VA_ARGS__); \
	} while (0)

/* 0, or the error of the write. */
static inline int put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	int error = 0;

	if (file < 0)
		return errno;
	if (write(file, text, strlen(text)) != (ssize_t)strlen(text))
		error = errno;
	close(file);
	return error;
}

static inline void must_put(const char *path, const char *text)
{
	int error = put(path, text);

	if (error)
		quit(FAIL, "%s to %s: %s", text, path, strerror(error));
}

static inline void must_refuse_for(int expected, const char *path, const char *text)
{
	int error = put(path, text);

	if (error != expected)
		quit(FAIL, "%s to %s: %s and not %s", text, path, strerror(error), strerror(expected));
	printf("refused=%s\n", text);
}

static inline void must_refuse(const char *path, const char *text)
{
	must_refuse_for(EINVAL, path, text);
}

/* The number after @name in a file of lines "name number" or "name: number". */
static inline long number_in(const char *path, const char *name)
{
	char line[256], word[128];
	long number, value = -1;
	FILE *file = fopen(path, "r");

	if (!file)
		quit(FAIL, "%s: %s", path, strerror(errno));
	while (value < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "%127[^: ]%*[: ]%ld", word, &number) == 2 &&
		    !strcmp(word, name))
			value = number;
	fclose(file);
	if (value < 0)
		quit(FAIL, "no %s in %s", name, path);
	return value;
}

/* Caches of a CPU are asked again only by what runs on it. */
static inline void stay_on_one_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		quit(FAIL, "sched_setaffinity: %s", strerror(errno));
}

/* Runs a part in a process of its own, and fails if it does. */
static inline void in_child(void (*part)(void *), void *argument)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0)
		quit(FAIL, "fork: %s", strerror(errno));
	if (!child) {
		part(argument);
		fflush(stdout);
		_exit(PASS);
	}
	if (waitpid(child, &status, 0) != child)
		quit(FAIL, "waitpid: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		quit(FAIL, "a child ended with status %x", status);
}

#endif
