/* Maps a file of two pages, stores to it, syncs it, and gives it other lengths: by its descriptor, and by its path. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char** arguments)
{
   const char* path = arguments[1];
   int pipes[2];
   int file = open(path, O_RDWR);
   (void)count;
   volatile char* data = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
   data[0] = 1;
   if (msync((void*)data, 5000, MS_SYNC) || ftruncate(file, 100) || truncate(path, 12288))
      return 1;
   /* Neither a failed call nor one on something else is an event. */
   if (pipe(pipes) || ftruncate(pipes[0], 5) == 0 || ftruncate(-1, 5) == 0 || truncate("/nowhere", 5) == 0)
      return 2;
   printf("%p\n", (void*)data);
   return 0;
}
