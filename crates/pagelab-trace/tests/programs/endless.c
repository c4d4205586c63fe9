/* Stores for ever; closes every descriptor first, as daemons do. Ends on SIGINT with code 5. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void on_interrupt(int signal)
{
   (void)signal;
   _exit(5);
}

int main(void)
{
   volatile uint64_t *array = malloc(1 << 20);

   signal(SIGINT, on_interrupt);
   for (int fd = 3; fd < 2048; fd++)
      close(fd);
   for (uint64_t i = 0;; i++)
      array[i % (1 << 17)] = i;
}
