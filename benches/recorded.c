/* Two programs for the benchmark of recordings: they make a known number of accesses.
 *
 *    cc -O2 -o recorded benches/recorded.c && ./recorded gups|stride MILLIONS
 *
 *    gups    adds to words of 64 MiB in a random order
 *    stride  adds to one word of each line of 64 MiB, again and again
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 << 20, WORDS = BYTES / 8, WORDS_PER_LINE = 8 };

int main(int count, char **words)
{
   uint64_t *memory = calloc(WORDS, sizeof *memory);
   uint64_t state = 88172645463325252u, sum = 0;
   long updates;

   if (count != 3 || !memory) {
      fprintf(stderr, "recorded: gups|stride MILLIONS\n");
      return 1;
   }
   updates = atol(words[2]) * 1000000;
   if (strcmp(words[1], "gups") == 0) {
      for (long i = 0; i < updates; i++) {
         /* Marsaglia's xorshift64 */
         state ^= state << 13;
         state ^= state >> 7;
         state ^= state << 17;
         memory[state % WORDS] += state;
      }
   } else {
      for (long i = 0; i < updates; i++)
         memory[i * WORDS_PER_LINE % WORDS]++;
   }
   for (size_t i = 0; i < WORDS; i += 512)
      sum += memory[i];
   printf("%lu\n", (unsigned long)sum);
   return 0;
}
