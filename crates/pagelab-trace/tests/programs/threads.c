/* threads N: starts N threads that all live at once. Prints their number. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t all_are_there;

static void *wait_for_all(void *unused)
{
   pthread_barrier_wait(&all_are_there);
   return unused;
}

int main(int argc, char **argv)
{
   unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
   pthread_t *threads = malloc(count * sizeof *threads);
   pthread_attr_t attributes;

   pthread_attr_init(&attributes);
   pthread_attr_setstacksize(&attributes, 64 << 10);
   pthread_barrier_init(&all_are_there, NULL, count + 1);
   for (unsigned i = 0; i < count; i++)
      if (pthread_create(&threads[i], &attributes, wait_for_all, NULL) != 0)
         return 9;
   pthread_barrier_wait(&all_are_there);
   for (unsigned i = 0; i < count; i++)
      pthread_join(threads[i], NULL);
   printf("%u\n", count);
   return 0;
}
