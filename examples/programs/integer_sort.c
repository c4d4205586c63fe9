/* Ranks integers by counting, as Integer Sort of the NAS Parallel Benchmarks does.
 *
 *    integer_sort [THREADS [LOG2_KEYS [ITERATIONS]]]
 *
 * The default is as large as class B: 2^25 keys below 2^21. Memory is first touched in these phases:
 *
 *    1. Each thread makes its part of the keys. Each key is a sum of four random numbers, and takes a while.
 *    2. Each thread sets its part of the buffer to 0: page after page, at full speed.
 *    3. The first ranking touches the counts of keys, a sixteenth of the above.
 *    4. The other rankings, and the sort at the end, touch nothing new.
 */
#include "program.h"

#include <stdatomic.h>

enum { BUCKET_BITS = 10, BUCKETS = 1 << BUCKET_BITS, LOG2_KEYS_PER_VALUE = 4, RANDOM_BITS = 46, NUMBERS_PER_KEY = 4 };
static const uint64_t MASK = (1ull << RANDOM_BITS) - 1, SEED = 314159265, MULTIPLIER = 1220703125; /* 5^13 */

static struct argument arguments[] = {
   {"THREADS", 2, 1, MOST_THREADS}, {"LOG2_KEYS", 25, 14, 31}, {"ITERATIONS", 10, 1, 1000}};
static size_t threads, keys_count, values;
static int value_bits, shift;
static uint32_t *keys, *buffer, *ranks;
static uint32_t counts[MOST_THREADS][BUCKETS], begins[BUCKETS + 1];
static atomic_size_t next_bucket;
static pthread_barrier_t all;

/* The linear congruential generator of the benchmark, after so many steps. */
static uint64_t generator_at(uint64_t steps)
{
   uint64_t state = SEED, power = MULTIPLIER;

   for (; steps; steps >>= 1, power = power * power & MASK)
      if (steps & 1)
         state = state * power & MASK;
   return state;
}

static void make(size_t first, size_t end)
{
   uint64_t state = generator_at(NUMBERS_PER_KEY * first);
   int sum_bits = RANDOM_BITS + 2;

   for (size_t i = first; i < end; i++) {
      uint64_t sum = 0;

      for (int number = 0; number < NUMBERS_PER_KEY; number++)
         sum += state = state * MULTIPLIER & MASK;
      keys[i] = (uint32_t)(sum >> (sum_bits - value_bits));
   }
   memset(buffer + first, 0, (end - first) * sizeof *buffer);
}

/* Gives each value below `values` the number of keys that are not larger, in `ranks`. */
static void rank(size_t thread, uint32_t iteration, size_t first, size_t end)
{
   uint32_t next[BUCKETS], *mine = counts[thread];

   if (thread == 0) {
      keys[iteration] = iteration;
      keys[iteration + 1000] = (uint32_t)values - 1 - iteration;
      atomic_store(&next_bucket, 0);
   }
   pthread_barrier_wait(&all);
   memset(mine, 0, sizeof counts[0]);
   for (size_t i = first; i < end; i++)
      mine[keys[i] >> shift]++;
   pthread_barrier_wait(&all);
   for (uint32_t bucket = 0, at = 0; bucket < BUCKETS; bucket++)
      for (size_t other = 0; other < threads; other++) {
         if (other == 0 && thread == 0)
            begins[bucket] = at;
         if (other == thread)
            next[bucket] = at;
         at += counts[other][bucket];
      }
   for (size_t i = first; i < end; i++)
      buffer[next[keys[i] >> shift]++] = keys[i];
   pthread_barrier_wait(&all);
   for (size_t bucket; (bucket = atomic_fetch_add(&next_bucket, 1)) < BUCKETS;) {
      uint32_t *bucket_ranks = ranks + (bucket << shift), count = begins[bucket];

      memset(bucket_ranks, 0, sizeof *bucket_ranks << shift);
      for (uint32_t i = begins[bucket]; i < begins[bucket + 1]; i++)
         ranks[buffer[i]]++;
      for (size_t value = 0; value < (size_t)1 << shift; value++)
         count = bucket_ranks[value] += count;
   }
   pthread_barrier_wait(&all);
}

static void *work(void *number)
{
   size_t thread = (size_t)number;
   size_t first = part(keys_count, thread, threads), end = part(keys_count, thread + 1, threads);

   make(first, end);
   pthread_barrier_wait(&all);
   for (uint32_t iteration = 0; iteration <= arguments[2].value; iteration++)
      rank(thread, iteration, first, end);
   /* Puts the keys in order, by their ranks. */
   for (size_t bucket = part(BUCKETS, thread, threads); bucket < part(BUCKETS, thread + 1, threads); bucket++)
      for (uint32_t i = begins[bucket]; i < begins[bucket + 1]; i++)
         keys[--ranks[buffer[i]]] = buffer[i];
   return NULL;
}

int main(int argc, char **argv)
{
   uint64_t checksum = 0;

   read_arguments(argc, argv, arguments, 3);
   threads = arguments[0].value;
   keys_count = (size_t)1 << arguments[1].value;
   value_bits = (int)arguments[1].value - LOG2_KEYS_PER_VALUE;
   values = (size_t)1 << value_bits;
   shift = value_bits - BUCKET_BITS;
   keys = allocate(keys_count * sizeof *keys);
   buffer = allocate(keys_count * sizeof *buffer);
   ranks = allocate(values * sizeof *ranks);
   begins[BUCKETS] = (uint32_t)keys_count;
   pthread_barrier_init(&all, NULL, (unsigned)threads);
   in_parallel(threads, work);

   for (size_t i = 0; i < keys_count; i++) {
      if (i > 0 && keys[i - 1] > keys[i])
         fail("the keys are not sorted");
      checksum += keys[i] * (uint64_t)(i + 1);
   }
   printf("integer_sort: 2^%llu keys, sorted, checksum %016llx\n", (unsigned long long)arguments[1].value,
          (unsigned long long)checksum);
   return 0;
}
