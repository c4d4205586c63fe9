/* Calls, jumps between frames and stacks, and allocations of known sizes, for the recording of call stacks. */

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE 4096
#define KEEP __attribute__((noinline, noclone))

static char area[64 * PAGE];
static jmp_buf back;
static ucontext_t outside, inside;
static volatile int sink;

/* One access of its own per call, so that it is no tail call. */
KEEP void touch(volatile char* page) { *page = 1; sink++; }

KEEP void from_first(void) { touch(area + 1 * PAGE); sink++; }
KEEP void from_second(void) { touch(area + 2 * PAGE); sink++; }

KEEP void leaves(int depth) {
   if (depth == 0)
      longjmp(back, 1);
   leaves(depth - 1);
   sink++;
}

KEEP void after_jump(void) { touch(area + 3 * PAGE); sink++; }

KEEP void coroutine(void) {
   touch(area + 4 * PAGE);
   swapcontext(&inside, &outside);
   touch(area + 5 * PAGE);
   sink++;
}

KEEP void between(void) { touch(area + 6 * PAGE); sink++; }

KEEP void on_signal(int number) { (void)number; touch(area + 7 * PAGE); sink++; }

KEEP void after_signal(void) { touch(area + 8 * PAGE); sink++; }

KEEP void* in_thread(void* number) { touch(area + (9 + (long)number) * PAGE); sink++; return NULL; }

KEEP char* allocates(void) { return malloc(300 * PAGE); }
KEEP char* clears(void) { return calloc(200, PAGE); }
KEEP char* grows(char* block) { return realloc(block, 400 * PAGE); }
KEEP char* maps(void) { return mmap(NULL, 50 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

KEEP char* aligns(void) {
   void* block = NULL;
   return posix_memalign(&block, 2 << 20, 100 * PAGE) == 0 ? block : NULL;
}

KEEP void memory(void) {
   char *first = allocates(), *second = clears(), *third = aligns(), *fourth = maps();
   for (int page = 0; page < 20; page++) {
      touch(first + page * PAGE);
      touch(third + page * PAGE);
      touch(fourth + page * PAGE);
   }
   second = grows(second);
   for (int page = 300; page < 320; page++)
      touch(second + page * PAGE);
   free(first);
   free(second);
   free(third);
}

KEEP void go_to_stacks(void) {
   static char stack[16 * PAGE];
   getcontext(&inside);
   inside.uc_stack.ss_sp = stack;
   inside.uc_stack.ss_size = sizeof stack;
   inside.uc_link = &outside;
   makecontext(&inside, coroutine, 0);
   swapcontext(&outside, &inside);
   between();
   swapcontext(&outside, &inside);
   sink++;
}

KEEP void take_signal(void) {
   stack_t other = {.ss_sp = malloc(16 * PAGE), .ss_size = 16 * PAGE};
   struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
   sigaltstack(&other, NULL);
   sigaction(SIGUSR1, &action, NULL);
   raise(SIGUSR1);
   after_signal();
}

int main(int arguments, char** texts) {
   (void)texts;
   from_first();
   from_second();
   if (!setjmp(back))
      leaves(20);
   after_jump();
   go_to_stacks();
   take_signal();
   memory();
   if (arguments > 1) {
      pthread_t threads[2];
      for (long number = 0; number < 2; number++)
         pthread_create(&threads[number], NULL, in_thread, (void*)number);
      for (long number = 0; number < 2; number++)
         pthread_join(threads[number], NULL);
   }
   return 0;
}
