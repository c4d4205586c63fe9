// Threads that wait for words in ways that the C library does not: each wake but the first has one that is like it before. Prints
// the address of the first of `marks`, to which main stores between two wakes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ANY 0xffffffffu

typedef struct {
    pthread_t id;
    int *word;
    unsigned bits;
    // 0 for none.
    long timeout_ns;
    volatile int tid;
} Waiter;

static volatile long marks[3];
static int y, z;

static long futex(int *word, int op, unsigned value, uintptr_t timeout_or_count, int *other, unsigned bits) {
    return syscall(SYS_futex, word, op, value, timeout_or_count, other, bits);
}

static void *waits(void *argument) {
    Waiter *waiter = argument;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += waiter->timeout_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    waiter->tid = (int)syscall(SYS_gettid);
    futex(waiter->word, FUTEX_WAIT_BITSET, 0, waiter->timeout_ns ? (uintptr_t)&until : 0, NULL, waiter->bits);
    return NULL;
}

// Begins a thread and returns when it waits.
static void begin(Waiter *waiter, int *word, unsigned bits, long timeout_ns) {
    *waiter = (Waiter){.word = word, .bits = bits, .timeout_ns = timeout_ns};
    pthread_create(&waiter->id, NULL, waits, waiter);
    for (;;) {
        char name[64], text[32] = {0};
        long number = 0;
        void *at = NULL;
        usleep(1000);
        if (waiter->tid == 0)
            continue;
        snprintf(name, sizeof name, "/proc/self/task/%d/syscall", waiter->tid);
        int file = open(name, O_RDONLY);
        ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
        close(file);
        if (length <= 0)
            exit(3);
        if (sscanf(text, "%ld %p", &number, &at) == 2 && number == SYS_futex && at == (void *)word)
            return;
    }
}

static void wakes(int *word, unsigned bits, long expected) {
    if (futex(word, FUTEX_WAKE_BITSET, 1, 0, NULL, bits) != expected)
        exit(4);
}

static void join(Waiter *waiter) {
    pthread_join(waiter->id, NULL);
}

int main(void) {
    Waiter first, second;
    int file = memfd_create("word", 0);
    if (file < 0 || ftruncate(file, 4096) != 0)
        return 2;
    int *x = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int *alias = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    printf("%p\n", (void *)marks);
    fflush(stdout);

    // The thread that is woken waits at the word's other address; the one that waits at this one goes on by itself.
    begin(&first, alias, ANY, 0);
    begin(&second, x, ANY, 500000000);
    wakes(x, ANY, 1);
    join(&first);
    join(&second);

    // The same by bits: the second wake is the one that the second thread waits for.
    begin(&first, alias, 2, 0);
    begin(&second, x, 1, 0);
    wakes(x, 2, 1);
    join(&first);
    // A wake of nobody: the private futex at the address is another one.
    if (futex(x, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 1, 0, NULL, ANY) != 0)
        return 6;
    marks[0] = 1;
    wakes(x, 1, 1);
    join(&second);

    // A wake of one is used up when one goes on.
    begin(&first, x, ANY, 0);
    begin(&second, x, ANY, 0);
    wakes(x, ANY, 1);
    join(&first);
    marks[1] = 1;
    wakes(x, ANY, 1);
    join(&second);

    // The second thread is moved to another word, and woken there.
    begin(&first, &y, ANY, 0);
    begin(&second, &y, ANY, 0);
    if (futex(&y, FUTEX_CMP_REQUEUE, 1, 1, &z, 0) != 2)
        return 5;
    join(&first);
    marks[2] = 1;
    wakes(&z, ANY, 1);
    join(&second);
    return 0;
}
