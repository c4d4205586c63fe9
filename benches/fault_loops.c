/* How many page faults per second do N threads or processes take, with 4 KiB pages?
 *
 *    cc -O2 -pthread -o fault_loops benches/fault_loops.c && ./fault_loops LOOP threads|processes N [ROUNDS [SWITCH]]
 *
 * Each task writes one word in each page of its 16 MiB, ROUNDS times. LOOP says whose mapping it is, and what is timed:
 *
 *    one       all tasks share one anonymous mapping, each has its part of it; only the touches are timed
 *    apart     each task has an anonymous mapping, which borders on no other; only the touches are timed
 *    anonymous as apart, but each round maps and unmaps, which is timed, too
 *    private   the same with a private mapping of the task's file in memory (every touch copies a page)
 *    shared    the same with a shared mapping of that file, whose pages exist
 *
 * Where only touches are timed, all tasks begin a round together and give their pages back between rounds. Every task
 * stays on a CPU of its own. Huge pages are off. Prints faults per second of all tasks together, the share of the timed
 * seconds in which the tasks were on their CPUs (less than 1 if others needed these), and the faults that the kernel
 * counted per page.
 *
 * SWITCH is a file that gets a 1 before what is timed and a 0 after it. With /proc/sys/kernel/lock_stat, a kernel that
 * counts acquisitions of locks counts those of what is timed.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, BYTES = PAGES * PAGE, MOST_TASKS = 1024, MOST_ROUNDS = 100000 };
enum loop { ONE, APART, ANONYMOUS, PRIVATE, SHARED, LOOPS };
static const char *const LOOP_NAMES[LOOPS] = {"one", "apart", "anonymous", "private", "shared"};

struct result {
   double seconds, cpu_seconds;
   long faults;
};

/* In memory that forked tasks share. */
struct board {
   pthread_barrier_t barrier;
   struct result results[MOST_TASKS];
};

static struct board *board;
static enum loop loop;
static int tasks, cpus[MOST_TASKS];
static int counting = -1; /* the switch, if there is one */
static long rounds;
static char *parts;

static void fail(const char *why)
{
   fprintf(stderr, "fault_loops: %s\n", why);
   exit(1);
}

static double seconds(clockid_t clock)
{
   struct timespec now;

   clock_gettime(clock, &now);
   return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What this task, not its process, has had. */
static long minor_faults(void)
{
   struct rusage usage;

   getrusage(RUSAGE_THREAD, &usage);
   return usage.ru_minflt;
}

static char *map(size_t bytes, int flags, int file)
{
   char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

   if (at == MAP_FAILED)
      fail("no memory for the mappings");
   return at;
}

/* A mapping with an unmapped page on each side, so that the kernel merges it with no other. */
static char *map_apart(void)
{
   char *at = map(BYTES + 2 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

   munmap(at, PAGE);
   munmap(at + PAGE + BYTES, PAGE);
   return at + PAGE;
}

static void touch(char *at)
{
   for (size_t page = 0; page < PAGES; page++)
      *(volatile uint64_t *)(at + page * PAGE) = page + 1;
}

static int file_in_memory(void)
{
   int file = memfd_create("fault_loops", 0);
   char *at;

   if (file < 0 || ftruncate(file, BYTES))
      fail("cannot make a file in memory");
   at = map(BYTES, MAP_SHARED, file);
   touch(at);
   munmap(at, BYTES);
   return file;
}

static void begin(struct result *result)
{
   result->seconds -= seconds(CLOCK_MONOTONIC);
   result->cpu_seconds -= seconds(CLOCK_THREAD_CPUTIME_ID);
   result->faults -= minor_faults();
}

static void end(struct result *result)
{
   result->faults += minor_faults();
   result->cpu_seconds += seconds(CLOCK_THREAD_CPUTIME_ID);
   result->seconds += seconds(CLOCK_MONOTONIC);
}

/* The first task writes to the switch. The others wait for it, so that what they do next counts as well. */
static void turn(int n, const char *text)
{
   if (counting < 0)
      return;
   if (n == 0 && pwrite(counting, text, strlen(text), 0) < 0)
      fail("SWITCH cannot be written");
   pthread_barrier_wait(&board->barrier);
}

static void touch_only(int n, char *at, struct result *result)
{
   /* A first round makes what the kernel needs once, such as page tables. */
   for (long round = -1; round < rounds; round++) {
      struct result measured = {0};

      pthread_barrier_wait(&board->barrier);
      if (round >= 0)
         turn(n, "1\n");
      begin(&measured);
      touch(at);
      end(&measured);
      pthread_barrier_wait(&board->barrier);
      if (round >= 0)
         turn(n, "0\n");
      if (madvise(at, BYTES, MADV_DONTNEED))
         fail("the kernel does not take pages back");
      if (round >= 0) {
         result->seconds += measured.seconds;
         result->cpu_seconds += measured.cpu_seconds;
         result->faults += measured.faults;
      }
   }
}

static void map_and_touch(int n, struct result *result)
{
   int file = loop == ANONYMOUS ? -1 : file_in_memory();
   int flags = loop == ANONYMOUS ? MAP_PRIVATE | MAP_ANONYMOUS : loop == PRIVATE ? MAP_PRIVATE : MAP_SHARED;

   pthread_barrier_wait(&board->barrier);
   turn(n, "1\n");
   begin(result);
   for (long round = 0; round < rounds; round++) {
      char *at = map(BYTES, flags, file);

      touch(at);
      munmap(at, BYTES);
   }
   end(result);
   if (counting >= 0) {
      pthread_barrier_wait(&board->barrier);
      turn(n, "0\n");
   }
}

static void *task(void *number)
{
   int n = (int)(intptr_t)number;
   cpu_set_t own;

   CPU_ZERO(&own);
   CPU_SET(cpus[n], &own);
   if (sched_setaffinity(0, sizeof own, &own))
      fail("a task may not run on its CPU");
   if (loop == ONE)
      touch_only(n, parts + (size_t)n * BYTES, &board->results[n]);
   else if (loop == APART)
      touch_only(n, map_apart(), &board->results[n]);
   else
      map_and_touch(n, &board->results[n]);
   return NULL;
}

static void run_threads(void)
{
   static pthread_t threads[MOST_TASKS];

   for (int n = 0; n < tasks; n++)
      if (pthread_create(&threads[n], NULL, task, (void *)(intptr_t)n))
         fail("no thread more");
   for (int n = 0; n < tasks; n++)
      pthread_join(threads[n], NULL);
}

static void run_processes(void)
{
   for (int n = 0; n < tasks; n++) {
      pid_t child = fork();

      if (child < 0)
         fail("no process more");
      if (child == 0) {
         /* Without this, the others would wait for ever for a child when one has failed. */
         prctl(PR_SET_PDEATHSIG, SIGKILL);
         task((void *)(intptr_t)n);
         _exit(0);
      }
   }
   for (int n = 0, status; n < tasks; n++)
      if (wait(&status) < 0 || status != 0)
         fail("a process failed");
}

static long number(const char *text, const char *what, long most)
{
   char *rest;
   long value = strtol(text, &rest, 10);

   if (*text == 0 || *rest != 0 || value < 1 || value > most) {
      fprintf(stderr, "fault_loops: %s must be from 1 to %ld\n", what, most);
      exit(1);
   }
   return value;
}

static void choose_cpus(void)
{
   cpu_set_t allowed;
   int chosen = 0;

   if (sched_getaffinity(0, sizeof allowed, &allowed))
      fail("cannot ask for the CPUs");
   for (int cpu = 0; cpu < CPU_SETSIZE && chosen < tasks; cpu++)
      if (CPU_ISSET(cpu, &allowed))
         cpus[chosen++] = cpu;
   if (chosen < tasks)
      fail("there are fewer CPUs than tasks");
}

static void print(void)
{
   double rate = 0, share = 0, faults = 0;

   for (int n = 0; n < tasks; n++) {
      const struct result *result = &board->results[n];

      rate += (double)PAGES * (double)rounds / result->seconds;
      share += result->cpu_seconds / result->seconds / tasks;
      faults += (double)result->faults / (double)PAGES / (double)rounds / tasks;
   }
   printf("%.0f %.3f %.4f\n", rate, share, faults);
}

int main(int argc, char **argv)
{
   pthread_barrierattr_t attributes;
   int threads;

   if (argc < 4 || argc > 6)
      fail("usage: fault_loops one|apart|anonymous|private|shared threads|processes N [ROUNDS [SWITCH]]");
   for (loop = ONE; loop < LOOPS && strcmp(argv[1], LOOP_NAMES[loop]) != 0; loop++)
      ;
   if (loop == LOOPS)
      fail("LOOP must be one, apart, anonymous, private or shared");
   threads = strcmp(argv[2], "threads") == 0;
   if (!threads && strcmp(argv[2], "processes") != 0)
      fail("tasks are threads or processes");
   if (!threads && loop == ONE)
      fail("processes cannot share one anonymous mapping");
   tasks = (int)number(argv[3], "N", MOST_TASKS);
   rounds = argc > 4 ? number(argv[4], "ROUNDS", MOST_ROUNDS) : 50;
   if (argc == 6 && (counting = open(argv[5], O_WRONLY)) < 0)
      fail("SWITCH cannot be opened for writing");
   choose_cpus();
   if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
      fail("huge pages cannot be disabled");
   board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
   if (board == MAP_FAILED)
      fail("no memory for the results");
   pthread_barrierattr_init(&attributes);
   pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
   pthread_barrier_init(&board->barrier, &attributes, (unsigned)tasks);
   if (loop == ONE)
      parts = map((size_t)tasks * BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
   if (threads)
      run_threads();
   else
      run_processes();
   print();
   return 0;
}
