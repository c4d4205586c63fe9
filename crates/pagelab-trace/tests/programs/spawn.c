/* Starts a program twice by posix_spawn(3), which waits until the child has executed it (CLONE_VFORK), with an environment of
   100 strings that execve reads. */

#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

int main(int argc, char** argv)
{
   char text[100][16], *environment[101] = {0};
   int i, status;

   for (i = 0; i < 100; i++) {
      snprintf(text[i], sizeof text[i], "V%d=%d", i, i);
      environment[i] = text[i];
   }
   for (i = 0; i < 2; i++) {
      pid_t pid;
      if (argc < 2 || posix_spawn(&pid, argv[1], NULL, NULL, argv + 1, environment) != 0)
         return 1;
      if (waitpid(pid, &status, 0) != pid || status != 0)
         return 2;
   }
   return 0;
}
