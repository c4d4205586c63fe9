/* meeting ROUNDS: threads that have to wait for each other: one that waits for a condition, one that waits for a lock, one
   that is joined, and one that is detached. Prints the addresses of what they share. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static unsigned rounds;
/* Whose turn it is, written under the lock; what each has stored since, a page apart from all else. */
static volatile unsigned long shared[512] __attribute__((aligned(4096)));

/* Microseconds in which whoever is to wait comes to wait. */
enum { LONG = 700000 };

enum { TURN, SUM, DETACHED, BEFORE, AFTER };

/* Takes turns with the first thread, each waiting on the condition for the other. */
static void *take_turns(void *number)
{
   unsigned long own = (unsigned long)number;

   for (unsigned i = 0; i < rounds; i++) {
      pthread_mutex_lock(&lock);
      while (shared[TURN] != own)
         pthread_cond_wait(&turn, &lock);
      shared[SUM]++;
      shared[TURN] = !own;
      pthread_cond_signal(&turn);
      pthread_mutex_unlock(&lock);
   }
   return number;
}

/* Takes the lock that the first thread holds while it sleeps. */
static void *wait_for_lock(void *unused)
{
   pthread_mutex_lock(&lock);
   shared[AFTER] = shared[BEFORE];
   pthread_mutex_unlock(&lock);
   usleep(LONG);
   return unused;
}

static void *detached(void *unused)
{
   usleep(LONG);
   pthread_mutex_lock(&lock);
   shared[DETACHED] = 1;
   pthread_cond_broadcast(&turn);
   pthread_mutex_unlock(&lock);
   return unused;
}

int main(int argc, char **argv)
{
   pthread_t other, locked, alone;

   rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20;
   pthread_create(&other, NULL, take_turns, (void *)1);
   take_turns((void *)0);
   pthread_join(other, NULL);

   pthread_mutex_lock(&lock);
   pthread_create(&locked, NULL, wait_for_lock, NULL);
   usleep(LONG);
   shared[BEFORE] = 7;
   pthread_mutex_unlock(&lock);
   pthread_join(locked, NULL);

   pthread_create(&alone, NULL, detached, NULL);
   pthread_detach(alone);
   pthread_mutex_lock(&lock);
   while (!shared[DETACHED])
      pthread_cond_wait(&turn, &lock);
   pthread_mutex_unlock(&lock);
   printf("%p %lu %lu\n", (void *)shared, shared[SUM], shared[AFTER]);
   return 0;
}
