/* Sorts random keys by 12 bits at a time, as `radix` of Splash-2x does.
 *
 *    radix_sort [THREADS [KEYS]]
 *
 * Memory is first touched in these phases:
 *
 *    1. Two arrays of 8-byte keys are allocated. Nothing is touched.
 *    2. Each thread writes its part of the first array: page after page, at the pace of the random numbers.
 *    3. The first permutation moves the keys to the second array. Each thread writes to 4,096 places at once, so that
 *       the faults of half of the memory come close together.
 *    4. The other passes, and the check at the end, touch nothing new.
 */
#include "program.h"

enum { DIGIT_BITS = 12, DIGITS = 1 << DIGIT_BITS, KEY_BITS = 31 };

static struct argument arguments[] = {{"THREADS", 2, 1, MOST_THREADS}, {"KEYS", 3 << 23, 1, 1ull << 32}};
static uint64_t *arrays[2];
static size_t counts[MOST_THREADS][DIGITS];
static uint64_t sums[MOST_THREADS];
static pthread_barrier_t all;

static size_t digit(uint64_t key, int shift)
{
   return key >> shift & (DIGITS - 1);
}

static void *sort(void *number)
{
   size_t thread = (size_t)number, threads = arguments[0].value, keys = arguments[1].value;
   size_t first = part(keys, thread, threads), end = part(keys, thread + 1, threads);
   size_t next[DIGITS], *mine = counts[thread];
   uint64_t *from = arrays[0], *to = arrays[1], *other;

   for (size_t i = first; i < end; i++)
      sums[thread] += from[i] = random_number(i) >> (64 - KEY_BITS);
   for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
      memset(mine, 0, sizeof counts[0]);
      for (size_t i = first; i < end; i++)
         mine[digit(from[i], shift)]++;
      pthread_barrier_wait(&all);
      for (size_t d = 0, at = 0; d < DIGITS; d++)
         for (size_t sorter = 0; sorter < threads; sorter++) {
            if (sorter == thread)
               next[d] = at;
            at += counts[sorter][d];
         }
      for (size_t i = first; i < end; i++)
         to[next[digit(from[i], shift)]++] = from[i];
      pthread_barrier_wait(&all);
      other = from;
      from = to;
      to = other;
   }
   return NULL;
}

int main(int argc, char **argv)
{
   uint64_t *sorted, checksum = 0, sum = 0;
   size_t threads, keys;
   int passes = (KEY_BITS + DIGIT_BITS - 1) / DIGIT_BITS;

   read_arguments(argc, argv, arguments, 2);
   threads = arguments[0].value;
   keys = arguments[1].value;
   for (int i = 0; i < 2; i++)
      arrays[i] = allocate(keys * sizeof *arrays[i]);
   pthread_barrier_init(&all, NULL, (unsigned)threads);
   in_parallel(threads, sort);

   sorted = arrays[passes % 2];
   for (size_t i = 0; i < keys; i++) {
      if (i > 0 && sorted[i - 1] > sorted[i])
         fail("the keys are not sorted");
      checksum += sorted[i] * (i + 1);
      sum += sorted[i];
   }
   for (size_t thread = 0; thread < threads; thread++)
      sum -= sums[thread];
   if (sum != 0)
      fail("the sorted keys are not those that were made");
   printf("radix_sort: %zu keys, sorted, checksum %016llx\n", keys, (unsigned long long)checksum);
   return 0;
}
