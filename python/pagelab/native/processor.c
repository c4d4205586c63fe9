// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Measures the processor that it runs on, and prints lines `NAME ARGUMENT VALUE VALUE…`: one value per repetition.
 *
 * Times are in nanoseconds of this thread's CPU time. `chain NAME` is the time of a cycle, as a chain of dependent instructions tells it; the
 * arguments are those of `CHAINS` in crates/pagelab-host/src/clock.rs, which also says why one chain is not enough. The first of them is timed
 * beside each repetition of the others, behind a colon, so that changes of the clock fall on both. `chase` times a load whose
 * address depends on the load before (a random cycle of lines, as lmbench's lat_mem_rd), in memory of 2 MiB pages;
 * `pages` touches one line per page, on a line of its own in each, with pages of 4 KiB and of 2 MiB; `pieces` does so for each 4 KiB of
 * pages of 2 MiB; `parallel` makes k such chases at once; `read` sums memory up. `zero4K` and `zero2M` zero memory with `rep stosb`, a page
 * at a time and in an irregular order; `stream4K` and `stream2M` do so with non-temporal stores; `copy4K` and `copy2M` copy one half of memory
 * to the other with `rep movsb`. Their times are per byte, and their argument is the memory's size: pages are cold if it is much larger than the
 * caches. `transfer A-B` is the time in which a modified line moves between two CPUs that change it in turns with a compare-and-exchange; it is
 * half of a round trip; its line is printed several times, since a host may move virtual CPUs. `cpuid` prints the leaves that describe caches and TLBs. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64UL
#define HUGE_BYTES (2UL << 20)
#define MOST_CHASES 32

static uint64_t state = 0x9e3779b97f4a7c15u;

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016. */
static uint64_t draw(uint64_t below) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint64_t)(((unsigned __int128)(state * 0x2545f4914f6cdd1du) * below) >> 64);
}

/* Of this thread's own time: other programs may run in between. */
static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

/* Memory of one page size, touched. */
static char *memory(size_t bytes, int huge) {
    size_t whole = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    char *room = mmap(NULL, whole + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        fprintf(stderr, "there is not enough memory: %zu MiB are needed\n", (whole + HUGE_BYTES) >> 20);
        exit(1);
    }
    char *start = (char *)(((uintptr_t)room + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    madvise(start, whole, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(start, 1, whole);
    return start;
}

/* KiB of this process in huge pages. */
static unsigned long huge_kib(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    unsigned long value = 0;
    char line[256];
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %lu", &value) == 1) break;
    if (file) fclose(file);
    return value;
}

/* Links `count` places, `at(number)` bytes from the start, into one random cycle (Sattolo's algorithm), and returns their order. */
static uint32_t *ordered_cycle(char *start, size_t count, size_t (*at)(size_t)) {
    uint32_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t i = count - 1; i; i--) {
        size_t other = draw(i);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < count; i++) *(char **)(start + at(order[i])) = start + at(order[(i + 1) % count]);
    return order;
}

static void link_cycle(char *start, size_t count, size_t (*at)(size_t)) { free(ordered_cycle(start, count, at)); }

static size_t line_at(size_t number) { return number * LINE; }

/* The line differs from page to page, or all would be in few sets of the caches; by a hash (Knuth, TAOCP 6.4), as pages in a row have
 * frames in a row, whose numbers are a part of the set's. */
static size_t small_page_at(size_t number) { return number * 4096 + ((uint32_t)number * 2654435761u >> 20) % 64 * LINE; }
static size_t large_page_at(size_t number) { return number * HUGE_BYTES + number * 677 % 32768 * LINE; }

/* The address where a chase ends goes there, so that the compiler keeps it. */
static void *volatile kept;

/* Goes on from `at`: starting at the same place each time would find the lines that the last steps left in the caches. */
static double chase_ns(char **from, size_t steps) {
    char *at = *from;
    double begin = now_ns();
    for (size_t i = 0; i < steps; i++) at = *(char **)at;
    double time = now_ns() - begin;
    *from = kept = at;
    return time / (double)steps;
}

/* Nanoseconds per cycle of N times eight instructions, each of which needs the result of the one before and takes `latency` cycles. */
#define EIGHT(instruction)                                                                                                        \
    instruction "\n\t" instruction "\n\t" instruction "\n\t" instruction "\n\t"                                                   \
    instruction "\n\t" instruction "\n\t" instruction "\n\t" instruction
#define CHAIN(function, latency, instruction)                                                                                     \
    static double function(size_t turns) {                                                                                        \
        uint64_t value = 3, other = 5;                                                                                            \
        double begin = now_ns();                                                                                                  \
        for (size_t i = 0; i < turns / (latency); i++) __asm__ volatile(EIGHT(instruction) : "+r"(value) : "r"(other) : "cc");    \
        return (now_ns() - begin) / (double)(turns / (latency) * 8 * (latency));                                                  \
    }
CHAIN(additions_ns, 1, "add %1, %0")
CHAIN(exclusive_or_ns, 1, "xor %1, %0")
CHAIN(rotations_ns, 1, "rol $7, %0")
CHAIN(multiplications_ns, 3, "imul %k1, %k0")

static const struct {
    const char *name;
    double (*time)(size_t turns);
} CHAINS[] = {
    {"additions-of-registers", additions_ns},
    {"exclusive-or", exclusive_or_ns},
    {"rotations", rotations_ns},
    {"multiplications", multiplications_ns},
};
#define CHAIN_COUNT (sizeof CHAINS / sizeof *CHAINS)
#define CHAIN_ROUNDS 41

static double clock_ns(void) { return CHAINS[0].time(2000000); }

/* Alternately, so that changes of the clock affect all. */
static void chains(void) {
    double times[CHAIN_COUNT][CHAIN_ROUNDS];
    for (int round = 0; round < CHAIN_ROUNDS; round++)
        for (size_t i = 0; i < CHAIN_COUNT; i++) times[i][round] = CHAINS[i].time(50000);
    for (size_t i = 0; i < CHAIN_COUNT; i++) {
        printf("chain %s", CHAINS[i].name);
        for (int round = 0; round < CHAIN_ROUNDS; round++) printf(" %.5f", times[i][round]);
        printf("\n");
    }
}

/* k independent chases through one cycle, from places far apart, which go on from there. */
static double parallel_ns(char **places, size_t chases, size_t steps) {
    char *at[MOST_CHASES];
    memcpy(at, places, chases * sizeof *at);
    double begin = now_ns();
    for (size_t i = 0; i < steps; i++)
        for (size_t k = 0; k < chases; k++) at[k] = *(char **)at[k];
    double time = now_ns() - begin;
    for (size_t k = 0; k < chases; k++) places[k] = kept = at[k];
    return time / (double)(steps * chases);
}

static double read_ns_per_byte(const char *start, size_t bytes) {
    const uint64_t *words = (const uint64_t *)start;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    double begin = now_ns();
    for (size_t i = 0; i < bytes / 8; i += 4) {
        a += words[i];
        b += words[i + 1];
        c += words[i + 2];
        d += words[i + 3];
    }
    double time = now_ns() - begin;
    kept = (void *)(uintptr_t)(a + b + c + d);
    return time / (double)bytes;
}

static void zero(char *to, const char *from, size_t bytes) {
    (void)from;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0) : "memory");
}

static void copy(char *to, const char *from, size_t bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/* As Linux orders them: the stores of one operation are complete before the next begins. */
static void stream(char *to, const char *from, size_t bytes) {
    (void)from;
    for (size_t at = 0; at < bytes; at += 16) _mm_stream_si128((__m128i *)(to + at), _mm_setzero_si128());
    _mm_sfence();
}

static const struct {
    const char *name;
    void (*work)(char *, const char *, size_t);
    size_t page;
    /* Parts of memory: what is written, and what is read. */
    size_t parts;
    /* Whether it is timed in memory of all sizes, or in the largest only. */
    int all_sizes;
} BULK[] = {
    {"zero4K", zero, 4096, 1, 1},         {"zero2M", zero, HUGE_BYTES, 1, 0}, {"stream4K", stream, 4096, 1, 0},
    {"stream2M", stream, HUGE_BYTES, 1, 0}, {"copy4K", copy, 4096, 2, 1},     {"copy2M", copy, HUGE_BYTES, 2, 0},
};
#define BULK_BYTES (32UL << 20)

/* The order of pages is a permutation, as the number of pages is a power of two and the factor odd (Knuth, TAOCP 6.4). `from` counts pages, and
 * goes on where the repetition before ended. */
static double bulk_ns_per_byte(size_t kind, char *start, size_t bytes, size_t *from) {
    size_t page = BULK[kind].page, written = bytes / BULK[kind].parts, pages = written / page, turns = BULK_BYTES / page;
    double begin = now_ns();
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = (*from + turn) * 2654435761u % pages * page;
        BULK[kind].work(start + at, start + written * (BULK[kind].parts - 1) + at, page);
    }
    *from += turns;
    return (now_ns() - begin) / (double)(turns * page);
}

static void bulk(int repeats, size_t most) {
    char *start = memory(most, 1);
    for (size_t kind = 0; kind < sizeof BULK / sizeof *BULK; kind++)
        for (size_t bytes = BULK[kind].all_sizes ? 8192 : most; bytes <= most; bytes *= 2) {
            size_t from = 0;
            bulk_ns_per_byte(kind, start, bytes, &from);
            printf("%s %zu", BULK[kind].name, bytes);
            for (int i = 0; i < repeats; i++) printf(" %.6f:%.5f", bulk_ns_per_byte(kind, start, bytes, &from), clock_ns());
            printf("\n");
            fflush(stdout);
        }
    munmap(start, most);
}

static void cpuid(unsigned leaf, unsigned part) {
    unsigned a, b, c, d;
    if (__get_cpuid_count(leaf, part, &a, &b, &c, &d)) printf("cpuid %x.%u %u %u %u %u\n", leaf, part, a, b, c, d);
}

static void repeat_chase(const char *name, size_t argument, char *start, size_t count, int repeats) {
    size_t steps = 300000;
    char *at = start;
    chase_ns(&at, count < 2 * steps ? count : 2 * steps);
    printf("%s %zu", name, argument);
    /* The clock is taken beside it: cycles are the quotient. */
    for (int i = 0; i < repeats; i++) printf(" %.4f:%.5f", chase_ns(&at, steps), clock_ns());
    printf("\n");
    fflush(stdout);
}

static void chases(int repeats, size_t most) {
    char *start = memory(most, 1);
    printf("huge %zu %lu\n", most >> 10, huge_kib());
    for (size_t bytes = 4096; bytes <= most; bytes *= 2) {
        for (size_t part = 2; part < 4; part++) {
            size_t size = bytes / 2 * part;
            if (size > most) break;
            link_cycle(start, size / LINE, line_at);
            repeat_chase("chase", size, start, size / LINE, repeats);
        }
    }
    munmap(start, most);
}

static void small_pages(const char *name, int repeats, size_t most, int huge) {
    char *start = memory(most * 4096, huge);
    for (size_t count = 8; count <= most; count *= 2)
        for (size_t part = 2; part < 4 && count / 2 * part <= most; part++) {
            link_cycle(start, count / 2 * part, small_page_at);
            repeat_chase(name, count / 2 * part, start, count / 2 * part, repeats);
        }
    munmap(start, most * 4096);
}

static void pages(int repeats, size_t most_small, size_t most_large) {
    small_pages("pages4K", repeats, most_small, 0);
    small_pages("pieces", repeats, most_small, 1);
    char *large = memory(most_large * HUGE_BYTES, 1);
    for (size_t count = 8; count <= most_large; count *= 2) {
        link_cycle(large, count, large_page_at);
        repeat_chase("pages2M", count, large, count, repeats);
    }
    munmap(large, most_large * HUGE_BYTES);
}

static void parallel(int repeats, size_t bytes) {
    size_t count = bytes / LINE;
    char *start = memory(bytes, 1), *places[MOST_CHASES];
    uint32_t *order = ordered_cycle(start, count, line_at);
    for (size_t chases = 1; chases <= MOST_CHASES; chases += chases < 16 ? 1 : 4) {
        /* Far apart, so that none comes to where another has been, and after other memory than that of the count before. */
        for (size_t k = 0; k < chases; k++) places[k] = start + line_at(order[k * (count / chases)]);
        read_ns_per_byte(start, bytes);
        printf("parallel %zu", chases);
        for (int i = 0; i < repeats; i++) printf(" %.4f:%.5f", parallel_ns(places, chases, 200000 / chases), clock_ns());
        printf("\n");
        fflush(stdout);
    }
    free(order);
    printf("read %zu", bytes);
    for (int i = 0; i < repeats; i++) printf(" %.6f:%.5f", read_ns_per_byte(start, bytes), clock_ns());
    printf("\n");
    munmap(start, bytes);
}

/* The side whose turn it is; neither its neighbours nor what a prefetcher pairs with its line are used. */
static _Alignas(4096) struct { int side; char rest[4092]; } turn;
enum { FIRST, SECOND, NOBODY };

static bool stay_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

/* Gives the turn to the other side as soon as it is this side's. False if there are no turns any more. */
static bool pass(int from, int to) {
    for (int seen = from; !__atomic_compare_exchange_n(&turn.side, &seen, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); seen = from)
        if (seen == NOBODY) return false;
    return true;
}

static void *second_side(void *unused) {
    while (pass(SECOND, FIRST)) {}
    return unused;
}

/* A thread that begins on its CPU: this one may never let another thread run on its own. */
static bool start_second_side(pthread_t *thread, int cpu) {
    pthread_attr_t attributes;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (pthread_attr_init(&attributes)) return false;
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    bool started = pthread_create(thread, &attributes, second_side, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* Round trips between this thread, on one CPU, and a thread on the other one. */
static void transfers_of(const char *pair, int first, int second, int repeats) {
    enum { ROUND_TRIPS = 10000 };
    pthread_t other;
    turn.side = FIRST;
    if (!stay_on(first) || !start_second_side(&other, second)) return;
    /* The first repetition waits until the other thread runs. */
    for (int i = -1; i < repeats; i++) {
        double begin = now_ns();
        int round_trip = 0;
        while (round_trip < ROUND_TRIPS && pass(FIRST, SECOND)) round_trip++;
        double end = now_ns();
        if (round_trip < ROUND_TRIPS) break;
        if (i == 0) printf("transfer %s", pair);
        if (i >= 0) printf(" %.4f:%.5f", (end - begin) / 2 / ROUND_TRIPS, clock_ns());
        if (i == repeats - 1) printf("\n");
    }
    __atomic_store_n(&turn.side, NOBODY, __ATOMIC_SEQ_CST);
    pthread_join(other, NULL);
}

/* Between all pairs `CPU-CPU`; this thread stays on its CPU afterwards. */
static void transfers(int count, char **pairs, int repeats) {
    int own = sched_getcpu(), first, second;
    for (int i = 0; i < count; i++)
        if (sscanf(pairs[i], "%d-%d", &first, &second) == 2) transfers_of(pairs[i], first, second, repeats);
    fflush(stdout);
    stay_on(own);
}

int main(int count, char **words) {
    static const unsigned leaves[][2] = {{0, 0},    {1, 0},          {2, 0},          {4, 0},          {4, 1},
                                         {4, 2},    {4, 3},          {7, 0},           {0x18, 0},       {0x18, 1},       {0x18, 2},
                                         {0x18, 3}, {0x18, 4},       {0x18, 5},       {0x18, 6},       {0x18, 7},
                                         {0x18, 8}, {0x80000005, 0}, {0x80000006, 0}, {0x80000008, 0}, {0x80000019, 0},
                                         {0x8000001d, 0}, {0x8000001d, 1}, {0x8000001d, 2}, {0x8000001d, 3},
                                         {0x80000021, 0}};
    if (count < 4) {
        fprintf(stderr, "usage: processor REPEATS MEBIBYTES LARGE_PAGES [CPU-CPU…]\n");
        return 2;
    }
    int repeats = atoi(words[1]);
    size_t most = (size_t)atol(words[2]) << 20, large_pages = (size_t)atol(words[3]);
    stay_on(sched_getcpu());
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++) cpuid(leaves[i][0], leaves[i][1]);
    chains();
    transfers(count - 4, words + 4, repeats);
    chases(repeats, most);
    transfers(count - 4, words + 4, repeats);
    pages(repeats, most / 4096 / 4, large_pages);
    parallel(repeats, most);
    transfers(count - 4, words + 4, repeats);
    bulk(repeats, most);
    transfers(count - 4, words + 4, repeats);
    return 0;
}
