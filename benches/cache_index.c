/* Do lines at a large power-of-two stride collide in this machine's caches?
 *
 *    cc -O2 -o cache_index benches/cache_index.c && ./cache_index [ROUNDS]
 *
 * A chain of dependent loads goes round N lines in random order. Each line is in a page of its own, and the pages are
 * one stride apart. "same" has all lines at the same page offset, "spread" at random ones. Both use the same pages, so
 * they hit and miss the TLB alike: a difference comes from the caches. A cache whose set is a plain field of the address
 * keeps only a 64th of its lines at one page offset, wherever a host puts the frames of a virtual machine.
 *
 * Pages of 2 MiB and of 4 KiB take turns. Prints nanoseconds per load: the least and the median of all rounds. Other
 * programs can only lengthen a round, so a small least value shows that the lines did fit. Fails if the kernel does not
 * give the huge pages. Takes 2 GiB of memory.
 */
#define _GNU_SOURCE

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, PAGE = 4096, HUGE = 2 << 20, MOST_LINES = 32768, LEAST_LOADS = 40000, MOST_ROUNDS = 1000 };
enum placement { SAME, SPREAD, PLACEMENTS };
static const size_t BYTES = 1u << 30;
static const int OFFSET = 7 * LINE; /* of every line of SAME in its page */

/* What is measured: lines at a stride of bytes. */
static const struct { size_t stride; int lines; } CASES[] = {
   {2 << 20, 16},  {2 << 20, 64},  {2 << 20, 256},   {2 << 20, 512},   {512 << 10, 16},  {512 << 10, 64},
   {512 << 10, 256}, {512 << 10, 1024}, {64 << 10, 16}, {64 << 10, 64}, {64 << 10, 256}, {64 << 10, 1024},
   {PAGE, 1024}, {PAGE, 2048}, {PAGE, 4096}, {PAGE, 8192}, {PAGE, 12288}, {PAGE, 16384}};

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
   fprintf(stderr, "cache_index: %s\n", why);
   exit(1);
}

static double cpu_ns(void)
{
   struct timespec now;

   clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
   return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *one, const void *other)
{
   double a = *(const double *)one, b = *(const double *)other;

   return (a > b) - (a < b);
}

/* Memory in pages of one size, touched in random order, so that small frames are in no order of their addresses. */
static char *map(int advice)
{
   char *raw = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   size_t pages = BYTES / PAGE;
   uint32_t *order = malloc(pages * sizeof *order);
   char *memory;

   if (raw == MAP_FAILED || !order)
      fail("no memory");
   memory = (char *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
   if (madvise(memory, BYTES, advice))
      fail("this kernel has no transparent huge pages");
   for (size_t i = 0; i < pages; i++) {
      size_t other = random_below(i + 1);

      order[i] = order[other];
      order[other] = (uint32_t)i;
   }
   for (size_t i = 0; i < pages; i++)
      memory[(size_t)order[i] * PAGE] = 1;
   free(order);
   return memory;
}

/* Bytes of the mapping that are in huge pages. */
static size_t huge_bytes(const char *memory)
{
   FILE *maps = fopen("/proc/self/smaps", "r");
   char line[4096];
   size_t kib, sum = 0;
   uintptr_t begin, end;
   int inside = 0;

   if (!maps)
      fail("/proc/self/smaps cannot be read");
   while (fgets(line, sizeof line, maps))
      if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
         inside = end > (uintptr_t)memory && begin < (uintptr_t)memory + BYTES;
      else if (inside && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
         sum += kib << 10;
   fclose(maps);
   return sum;
}

/* Makes a chain over lines somewhere in the memory, and gives nanoseconds per load once it has been walked before. */
static double ns_per_load(char *memory, size_t stride, int lines, size_t block, enum placement placement)
{
   static char *chain[MOST_LINES];
   int loads = lines < LEAST_LOADS / 2 ? LEAST_LOADS : 2 * lines;
   void **at;
   double begin;

   for (int i = 0; i < lines; i++) {
      int other = (int)random_below((uint64_t)i + 1);
      size_t offset = placement == SAME ? (size_t)OFFSET : random_below(PAGE / LINE) * LINE;

      chain[i] = chain[other];
      chain[other] = memory + (block + (size_t)i) * stride + offset;
   }
   for (int i = 0; i < lines; i++)
      *(void **)chain[i] = chain[(i + 1) % lines];
   at = (void **)chain[0];
   for (int i = 0; i < 3 * lines; i++)
      at = *(void *volatile *)at;
   begin = cpu_ns();
   for (int i = 0; i < loads; i++)
      at = *(void *volatile *)at;
   return (cpu_ns() - begin) / loads;
}

int main(int argc, char **argv)
{
   int rounds = argc > 1 ? atoi(argv[1]) : 31;
   char *memory[2];

   if (rounds < 1 || rounds > MOST_ROUNDS)
      fail("ROUNDS must be from 1 to 1000");
   memory[0] = map(MADV_HUGEPAGE);
   memory[1] = map(MADV_NOHUGEPAGE);
   if (huge_bytes(memory[0]) != BYTES || huge_bytes(memory[1]) != 0)
      fail("the kernel did not give the pages that were asked for");
   printf("| stride | lines | 2 MiB: same | spread | 4 KiB: same | spread |\n|---|---|---|---|---|---|\n");
   for (size_t number = 0; number < sizeof CASES / sizeof *CASES; number++) {
      static double ns[2][PLACEMENTS][MOST_ROUNDS];
      size_t stride = CASES[number].stride, blocks = BYTES / stride;
      int lines = CASES[number].lines;

      for (int round = 0; round < rounds; round++) {
         size_t block = random_below(blocks - (size_t)lines + 1);

         for (int size = 0; size < 2; size++)
            for (int placement = 0; placement < PLACEMENTS; placement++)
               ns[size][placement][round] = ns_per_load(memory[size], stride, lines, block, placement);
      }
      printf("| %zu KiB | %d |", stride >> 10, lines);
      for (int size = 0; size < 2; size++)
         for (int placement = 0; placement < PLACEMENTS; placement++) {
            double *all = ns[size][placement];

            qsort(all, (size_t)rounds, sizeof *all, compare);
            printf(" %.1f, %.1f |", all[0], all[rounds / 2]);
         }
      printf("\n");
      fflush(stdout);
   }
   return 0;
}
