/* What the programs share: numbers as arguments, memory, threads, random numbers, and the end with an error. */
#ifndef PROGRAM_H
#define PROGRAM_H

#define _XOPEN_SOURCE 700 /* barriers are POSIX's, not C11's: include this file first */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 64 };

struct argument {
   const char *name;
   uint64_t value; /* the default, until the arguments are read */
   uint64_t least, most;
};

/* Reads the program's arguments instead of the defaults. Bad ones end the program with status 2. */
static inline void read_arguments(int argc, char **argv, struct argument *known, int count)
{
   const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

   for (int at = 1; at < argc; at++) {
      struct argument *this = &known[at - 1];
      char *end = NULL;

      errno = 0;
      if (at <= count && argv[at][0] >= '0' && argv[at][0] <= '9')
         this->value = strtoull(argv[at], &end, 10);
      if (end && *end == '\0' && errno == 0 && this->value >= this->least && this->value <= this->most)
         continue;
      if (at <= count)
         fprintf(stderr, "%s: %s is '%s'; it must be a whole number from %llu to %llu\n", program, this->name, argv[at],
                 (unsigned long long)this->least, (unsigned long long)this->most);
      else
         fprintf(stderr, "%s: '%s' is one argument too many\n", program, argv[at]);
      fprintf(stderr, "usage: %s", program);
      for (int i = 0; i < count; i++)
         fprintf(stderr, " [%s", known[i].name);
      for (int i = 0; i < count; i++)
         fputc(']', stderr);
      fputc('\n', stderr);
      exit(2);
   }
}

static inline _Noreturn void fail(const char *why)
{
   fprintf(stderr, "error: %s\n", why);
   exit(1);
}

/* New memory, or that of `old` with another size. */
static inline void *resized(void *old, size_t bytes)
{
   void *memory = realloc(old, bytes ? bytes : 1);

   if (!memory)
      fail("there is not enough memory");
   return memory;
}

static inline void *allocate(size_t bytes)
{
   return resized(NULL, bytes);
}

static inline pthread_t started(void *(*work)(void *), void *argument)
{
   pthread_t thread;

   if (pthread_create(&thread, NULL, work, argument) != 0)
      fail("a thread cannot be started");
   return thread;
}

/* Calls `work` with the numbers of all threads at once. The calling thread is number 0. */
static inline void in_parallel(size_t threads, void *(*work)(void *))
{
   pthread_t others[MOST_THREADS];

   for (size_t i = 1; i < threads; i++)
      others[i] = started(work, (void *)i);
   work((void *)0);
   for (size_t i = 1; i < threads; i++)
      pthread_join(others[i], NULL);
}

/* The first of COUNT things that a thread works on. */
static inline size_t part(size_t things, size_t thread, size_t threads)
{
   return things * thread / threads;
}

/* The random number with this index (splitmix64). */
static inline uint64_t random_number(uint64_t index)
{
   uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;

   x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
   x = (x ^ x >> 27) * 0x94d049bb133111ebu;
   return x ^ x >> 31;
}

/* The same as a fraction of 1. */
static inline double random_fraction(uint64_t index)
{
   return (double)(random_number(index) >> 11) * 0x1p-53;
}

#endif
