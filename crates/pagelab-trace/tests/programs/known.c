/* Loads, stores and modifies at addresses that it prints, in numbers that it prints, and an mmap, mremap, mprotect
   and munmap between them. known ARRAY_LENGTH */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Runs one instruction, of which %0 is the array, %1 the index and %2 a register, for each index: 4 instructions an
   iteration, whatever the compiler thinks of it. */
#define FOR_EACH(array, n, instruction) \
   do { \
      uint64_t index = 0, value = 0; \
      __asm__ volatile("1: " instruction "\n\tinc %1\n\tcmp %3, %1\n\tjne 1b" \
                       : "+r"(array), "+r"(index), "+r"(value) : "r"(n) : "memory", "cc"); \
   } while (0)

int main(int argc, char **argv)
{
   size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
   uint64_t *a = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

   FOR_EACH(a, n, "movq %2, (%0,%1,8)");
   FOR_EACH(a, n, "movq (%0,%1,8), %2");
   FOR_EACH(a, n, "addq $1, (%0,%1,8)");
   FOR_EACH(a, n, "lock addq $1, (%0,%1,8)");
   uint64_t *b = mremap(a, 1 << 20, 1 << 22, MREMAP_MAYMOVE);
   ((volatile uint64_t *)b)[(1 << 22) / 8 - 1] = n;
   mprotect(b, 4096, PROT_READ);
   madvise((char *)b + 8192, 4096, MADV_DONTNEED);
   munmap((char *)b + (1 << 21), 1 << 21);
   /* Enables and disables the kernel's fault engine. */
   madvise((void *)0x706167651000, 0, MADV_NORMAL);
   madvise((void *)0x706167650000, 0, MADV_NORMAL);
   printf("%p %p\n", (void *)a, (void *)b);
   return 7;
}
