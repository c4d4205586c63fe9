// SPDX-License-Identifier: GPL-2.0
/*
 * tracepoints begin: switches pagelab's tracepoints on.
 *
 * tracepoints expect EVENT...: each of them has come since, and none is unknown. Begins anew.
 *
 * tracepoints end: switches them off. Each that the kernel has was expected once.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "switches.h"

#define TRACING		"/sys/kernel/tracing/"
#define EVENTS		TRACING "events/pagelab/"
#define SEEN		"/tmp/tracepoints/"

static long count_of(const char *event)
{
	char line[512], word[128];
	long count = 0;
	FILE *trace = fopen(TRACING "trace", "r");

	CHECK(trace, TRACING "trace: %s", strerror(errno));
	snprintf(word, sizeof(word), " %s: ", event);
	while (fgets(line, sizeof(line), trace))
		if (line[0] != '#' && strstr(line, word))
			count++;
	fclose(trace);
	return count;
}

static void clear(void)
{
	int file = open(TRACING "trace", O_WRONLY | O_TRUNC);

	CHECK(file >= 0, TRACING "trace: %s", strerror(errno));
	close(file);
}

static void begin(void)
{
	if (access(TRACING "trace", W_OK) && mount("tracefs", TRACING, "tracefs", 0, NULL))
		quit(SKIP, "no tracefs: %s", strerror(errno));
	if (access(EVENTS, F_OK))
		quit(SKIP, "this kernel has no " EVENTS);
	mkdir("/tmp", 0755);
	CHECK(!mkdir(SEEN, 0755), SEEN ": %s", strerror(errno));
	must_put(TRACING "buffer_size_kb", "8192");
	must_put(EVENTS "enable", "1");
	clear();
}

static void expect(const char *event)
{
	char path[256];
	long events = count_of(event);
	int file;

	printf("%s=%ld\n", event, events);
	CHECK(events > 0, "no event %s", event);
	snprintf(path, sizeof(path), SEEN "%s", event);
	file = open(path, O_WRONLY | O_CREAT, 0644);
	CHECK(file >= 0, "%s: %s", path, strerror(errno));
	close(file);
}

static void end(void)
{
	DIR *events = opendir(EVENTS);
	struct dirent *each;
	char path[512];
	int all = 0;

	must_put(EVENTS "enable", "0");
	CHECK(events, EVENTS ": %s", strerror(errno));
	while ((each = readdir(events))) {
		if (strncmp(each->d_name, "pagelab_", 8))
			continue;
		snprintf(path, sizeof(path), SEEN "%s", each->d_name);
		CHECK(!access(path, F_OK), "no test expects %s", each->d_name);
		all++;
	}
	closedir(events);
	printf("events=%d\n", all);
	CHECK(all, "no event");
}

int main(int count, char **arguments)
{
	if (count == 2 && !strcmp(arguments[1], "begin")) {
		begin();
	} else if (count > 2 && !strcmp(arguments[1], "expect")) {
		for (int i = 2; i < count; i++)
			expect(arguments[i]);
		clear();
	} else if (count == 2 && !strcmp(arguments[1], "end")) {
		end();
	} else {
		quit(USAGE, "usage: tracepoints begin | expect EVENT... | end");
	}
	return PASS;
}
