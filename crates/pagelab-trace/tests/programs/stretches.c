/* Writes the pages of an array, calls work() twice on a part of it, and reads the array again. Prints the array's address. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64

static volatile long *array;

static volatile long *page(long number) {
    return array + number * PAGE / sizeof(long);
}

__attribute__((noinline)) void work(long first) {
    for (long i = 0; i < 100; i++)
        page(first)[i] = i;
}

__attribute__((noinline)) void tear_down(void) {
    for (long round = 0; round < 3; round++)
        for (long i = 0; i < PAGES; i++)
            (void)*page(i);
}

int main(int argc, char **argv) {
    array = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%p\n", (void *)array);
    fflush(stdout);
    for (long round = 0; round < 3; round++)
        for (long i = 0; i < PAGES; i++) {
            (void)*page(i);
            *page(i) = i;
        }
    madvise((void *)page(8), PAGE, MADV_DONTNEED);
    *page(8) = 1;
    pid_t child = fork();
    if (child == 0) {
        *page(9) = 2;
        _exit(0);
    }
    waitpid(child, 0, 0);
    *page(9) = 3;
    *page(9) = 4;
    work(10);
    tear_down();
    work(20);
    tear_down();
    return 0;
}
