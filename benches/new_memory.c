/* How far from the core are the lines of new memory, with small pages and with huge ones?
 *
 *    cc -O2 -o new_memory benches/new_memory.c && ./new_memory [ROUNDS]
 *
 * The kernel zeroes a page when it is first touched. Each round maps 32 MiB, touches each 4 KiB, and loads its 64 lines at
 * once, each load depending on the one before. The lines are loaded in order, which prefetchers follow, or at random.
 * Small and huge pages take turns. Prints nanoseconds per load, the fault not included: the least and the median of all
 * rounds, and how much longer huge pages take than small ones in the same round, with the 95 % interval of the sign test.
 * Fails if the kernel does not give the huge pages.
 */
#define _GNU_SOURCE

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

enum { LINE = 64, PAGE = 4096, HUGE = 2 << 20, BYTES = 32 << 20, LINES = PAGE / LINE, MOST_ROUNDS = 1000 };
enum order { IN_ORDER, RANDOM, ORDERS };
static const char *const ORDER_NAMES[ORDERS] = {"in order", "at random"};

static uint64_t state = 88172645463325252u;

/* Marsaglia's xorshift64. */
static uint64_t random_below(uint64_t end)
{
   state ^= state << 13;
   state ^= state >> 7;
   state ^= state << 17;
   return state % end;
}

static void fail(const char *why)
{
   fprintf(stderr, "new_memory: %s\n", why);
   exit(1);
}

static double seconds(void)
{
   struct timespec now;

   clock_gettime(CLOCK_MONOTONIC, &now);
   return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double ticks_per_ns(void)
{
   double begin = seconds(), end;
   uint64_t ticks = __rdtsc();

   while ((end = seconds()) < begin + 0.05)
      ;
   return (double)(__rdtsc() - ticks) / (end - begin) / 1e9;
}

static int compare(const void *one, const void *other)
{
   double a = *(const double *)one, b = *(const double *)other;

   return (a > b) - (a < b);
}

/* Ticks for the loads of one new page. Its bytes are zero, so adding them changes no address. */
static uint64_t ticks_of_page(char *page, enum order order)
{
   size_t lines[LINES];
   uint64_t value = 0, begin;

   for (size_t i = 0; i < LINES; i++) {
      size_t other = order == RANDOM ? random_below(i + 1) : i;

      lines[i] = lines[other];
      lines[other] = i;
   }
   *(volatile char *)page = 0; /* the fault and the TLB entry */
   _mm_lfence();
   begin = __rdtsc();
   _mm_lfence();
   for (size_t i = 0; i < LINES; i++)
      value += *(volatile uint64_t *)(page + lines[i] * LINE + value);
   _mm_lfence();
   return __rdtsc() - begin;
}

/* Bytes in huge pages of the whole process. */
static size_t huge_bytes(void)
{
   FILE *sums = fopen("/proc/self/smaps_rollup", "r");
   char line[4096];
   size_t kib = 0;

   if (!sums)
      fail("/proc/self/smaps_rollup cannot be read");
   while (fgets(line, sizeof line, sums) && sscanf(line, "AnonHugePages: %zu kB", &kib) != 1)
      ;
   fclose(sums);
   return kib << 10;
}

static double ticks_per_load(int huge, enum order order)
{
   char *raw = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   char *memory = (char *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
   uint64_t ticks = 0;

   if (raw == MAP_FAILED)
      fail("no memory");
   if (madvise(memory, BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
      fail("this kernel has no transparent huge pages");
   for (size_t at = 0; at < BYTES; at += PAGE)
      ticks += ticks_of_page(memory + at, order);
   if (huge_bytes() != (huge ? BYTES : 0))
      fail("the kernel did not give the pages that were asked for");
   munmap(raw, BYTES + HUGE);
   return (double)ticks / (BYTES / LINE);
}

/* How many of the sorted values to leave out at each end, so that the rest holds the median in 95 % of cases. */
static int left_out(int rounds)
{
   double chance = 1, tail = 0;
   int out = 0;

   for (int i = 0; i < rounds; i++)
      chance /= 2;
   for (; 2 * out < rounds - 1; out++) {
      tail += chance;
      if (2 * tail > 0.05)
         break;
      chance = chance * (rounds - out) / (out + 1);
   }
   return out ? out - 1 : 0;
}

int main(int argc, char **argv)
{
   int rounds = argc > 1 ? atoi(argv[1]) : 61;
   double per_ns;

   if (rounds < 6 || rounds > MOST_ROUNDS)
      fail("ROUNDS must be from 6 to 1000");
   per_ns = ticks_per_ns();
   printf("| lines | 4 KiB pages | 2 MiB pages | longer with 2 MiB |\n|---|---|---|---|\n");
   for (int order = 0; order < ORDERS; order++) {
      static double ns[2][MOST_ROUNDS], longer[MOST_ROUNDS];
      int out = left_out(rounds);

      for (int round = 0; round < rounds; round++) {
         for (int turn = 0; turn < 2; turn++) {
            int huge = (round + turn) & 1;

            ns[huge][round] = ticks_per_load(huge, order) / per_ns;
         }
         longer[round] = ns[1][round] - ns[0][round];
      }
      for (int huge = 0; huge < 2; huge++)
         qsort(ns[huge], (size_t)rounds, sizeof *ns[huge], compare);
      qsort(longer, (size_t)rounds, sizeof *longer, compare);
      printf("| %s | %.1f, %.1f | %.1f, %.1f | %+.1f (%+.1f to %+.1f) |\n", ORDER_NAMES[order], ns[0][0],
             ns[0][rounds / 2], ns[1][0], ns[1][rounds / 2], longer[rounds / 2], longer[out], longer[rounds - 1 - out]);
   }
   return 0;
}
