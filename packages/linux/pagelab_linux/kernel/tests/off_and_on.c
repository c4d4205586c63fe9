// SPDX-License-Identifier: GPL-2.0
/*
 * off_and_on KIND PROGRAM ARGUMENT...: runs a program of others with all
 * mechanisms off, and then with all on, with the translation cache of KIND and
 * its oracle. KIND "rings" leaves reservations off, which come before rings.
 * Both times the program must pass, or skip, with as many results. In the end
 * no page may be reserved or in a ring, no VMA have two caches, and the oracle
 * have nothing to say.
 *
 * Results are lines "ok" and "not ok", as the kernel's selftests print them,
 * or the operations of stress-ng with --metrics-brief, which may be more than
 * were asked for. A program without either is one result.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/wait.h>

#include "switches.h"

#define WALK		DEBUGFS "walk_cache/"
#define RESERVATIONS	DEBUGFS "reservations/"
#define RINGS		DEBUGFS "rings/"
#define OUTPUT		"/tmp/output"

struct result {
	int status;
	long passed, skipped, failed;
	long operations;
};

static void run_into_file(char **arguments)
{
	char path[256];
	int file = open(OUTPUT, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (file < 0 || dup2(file, 1) < 0 || dup2(file, 2) < 0)
		_exit(FAIL);
	close(file);
	snprintf(path, sizeof(path), "/tests/%s", arguments[0]);
	execv(path, arguments);
	perror(path);
	_exit(FAIL);
}

static void count_line(struct result *result, const char *line)
{
	char name[64];
	double seconds[3];
	long operations;

	if (!strncmp(line, "not ok ", 7)) {
		result->failed++;
		printf("said=%s\n", line);
	} else if (!strncmp(line, "ok ", 3)) {
		if (strstr(line, "# SKIP"))
			result->skipped++;
		else
			result->passed++;
	} else if (sscanf(line, "stress-ng: metrc: [%*d] %63s %ld %lf %lf %lf",
			  name, &operations, seconds, seconds + 1,
			  seconds + 2) == 5) {
		result->operations += operations;
	}
}

static struct result run(char **arguments)
{
	struct result result = { 0 };
	char line[512], last[512] = "";
	pid_t child;
	FILE *file;

	fflush(stdout);
	child = fork();
	if (!child)
		run_into_file(arguments);
	CHECK(child > 0 && waitpid(child, &result.status, 0) == child,
	      "%s cannot be run", arguments[0]);
	file = fopen(OUTPUT, "r");
	CHECK(file, "%s: %s", OUTPUT, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		count_line(&result, line);
		if (*line)
			strcpy(last, line);
	}
	fclose(file);
	if (result.status && result.status != SKIP << 8)
		printf("said=%s\n", last);
	/* Some selftests say what they found by their status alone. */
	if (!result.status && !result.passed && !result.operations)
		result.passed = 1;
	return result;
}

static void show(const char *when, const struct result *result)
{
	printf("%s_status=%x\n%s_passed=%ld\n%s_skipped=%ld\n%s_failed=%ld\n%s_operations=%ld\n",
	       when, result->status, when, result->passed, when,
	       result->skipped, when, result->failed, when, result->operations);
}

/* Mappings of all processes. */
static long mappings(void)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	long lines = 0;

	CHECK(folder, "/proc: %s", strerror(errno));
	while ((entry = readdir(folder))) {
		char path[300];
		FILE *file;
		int c;

		if (*entry->d_name < '1' || *entry->d_name > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/maps", entry->d_name);
		file = fopen(path, "r");
		while (file && (c = fgetc(file)) != EOF)
			lines += c == '\n';
		if (file)
			fclose(file);
	}
	closedir(folder);
	return lines;
}

static void switch_on(const char *kind)
{
	bool rings = !strcmp(kind, "rings");

	must_put(WALK "kind", rings ? "cpu" : kind);
	must_put(WALK "oracle", "1");
	must_put(WALK "enabled", "1");
	must_put(RESERVATIONS "enabled", rings ? "0" : "1");
	must_put(RINGS "enabled", "1");
}

static void switch_off(void)
{
	must_put(RINGS "enabled", "0");
	must_put(RESERVATIONS "enabled", "0");
	must_put(WALK "enabled", "0");
	must_put(WALK "oracle", "0");
}

static long walk(const char *name)
{
	return number_in(WALK "stats", name);
}

static long reservation(const char *name)
{
	return number_in(RESERVATIONS "stats", name);
}

static long ring(const char *name)
{
	return number_in(RINGS "stats", name);
}

/* A process that ended may be torn down a little later. */
static void expect_nothing_left(void)
{
	long caches, most;

	for (int wait = 0; reservation("reserved") && wait < 100; wait++)
		usleep(100000);
	caches = walk("vma_caches");
	most = mappings();
	printf("reserved=%ld\nin_rings=%ld\nvma_caches=%ld\nmappings=%ld\n",
	       reservation("reserved"), ring("ready"), caches, most);
	CHECK(!reservation("reserved"), "%ld pages still reserved",
	      reservation("reserved"));
	CHECK(!ring("ready"), "%ld pages still in rings", ring("ready"));
	CHECK(caches <= most, "%ld caches of %ld mappings", caches, most);
}

int main(int count, char **arguments)
{
	struct result off, on;
	long checks, mismatches, given, hits;

	if (count < 3)
		quit(USAGE, "usage: off_and_on KIND PROGRAM [ARGUMENT]...");
	if (access(WALK "stats", R_OK) || access(RESERVATIONS "stats", R_OK) ||
	    access(RINGS "stats", R_OK))
		quit(SKIP, "this kernel has no mechanisms");
	off = run(arguments + 2);
	show("off", &off);

	checks = walk("oracle_checks");
	mismatches = walk("oracle_mismatches");
	given = reservation("given");
	hits = ring("hits");
	switch_on(arguments[1]);
	on = run(arguments + 2);
	switch_off();
	show("on", &on);
	checks = walk("oracle_checks") - checks;
	mismatches = walk("oracle_mismatches") - mismatches;
	given = reservation("given") - given;
	hits = ring("hits") - hits;
	printf("checks=%ld\ngiven=%ld\nhits=%ld\n", checks, given, hits);

	expect_nothing_left();
	CHECK(!mismatches, "%ld walks differ from the cache", mismatches);
	CHECK(checks && (given || hits), "the mechanisms had nothing to do");
	CHECK(!off.status || off.status == SKIP << 8,
	      "it ends with status %x while all is off", off.status);
	CHECK(on.status == off.status && on.passed == off.passed &&
	      on.skipped == off.skipped && on.failed == off.failed &&
	      !on.operations == !off.operations,
	      "it ends otherwise with the mechanisms on");
	CHECK(off.passed || off.operations, "it tested nothing");
	return PASS;
}
