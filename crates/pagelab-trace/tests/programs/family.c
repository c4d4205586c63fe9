/* A forked child that stores and ends with code 3, a vforked one that executes /bin/true, and a thread that stores; each
   store goes to the page whose address is printed first, at an offset of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t *page;

static void *in_thread(void *unused)
{
   page[2] = 2;
   return unused;
}

int main(void)
{
   pthread_t thread;
   int status;

   page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   printf("%p\n", (void *)page);
   fflush(stdout);
   page[0] = 1;
   pid_t child = fork();
   if (child == 0) {
      page[1] = 1;
      _exit(3);
   }
   waitpid(child, &status, 0);
   page[3] = 3;
   child = vfork();
   if (child == 0) {
      execl("/bin/true", "true", (char *)NULL);
      _exit(9);
   }
   waitpid(child, &status, 0);
   page[4] = 4;
   pthread_create(&thread, NULL, in_thread, NULL);
   pthread_join(thread, NULL);
   page[5] = 5;
   return 0;
}
