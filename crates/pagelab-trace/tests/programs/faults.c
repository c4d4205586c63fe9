/* Stores through a bad pointer, catches the signal and goes on: prints how often. Then raises SIGSEGV for good. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile int caught;
static char *page;

static void on_fault(int signal, siginfo_t *information, void *context)
{
   (void)signal;
   (void)information;
   (void)context;
   caught++;
   mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

int main(void)
{
   struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
   struct sigaction standard = {.sa_handler = SIG_DFL};
   page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   sigaction(SIGSEGV, &action, NULL);
   for (int i = 0; i < 3; i++) {
      *(volatile char *)page = 1;
      mprotect(page, 4096, PROT_NONE);
   }
   printf("%d\n", caught);
   fflush(stdout);
   sigaction(SIGSEGV, &standard, NULL);
   *(volatile char *)page = 1;
   return 0;
}
