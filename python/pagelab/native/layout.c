// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Gives a program's memory the page sizes of a layout. Loaded by LD_PRELOAD before the program starts; its children
 * load it as well.
 *
 * The allocator's settings (GLIBC_TUNABLES, set by layouts.py) make one large heap of all that malloc gives out, as
 * Mosalloc does (Agbarya et al., MICRO 2020). The heap is advised before the program touches it, and each anonymous
 * private mapping when it is made. What the C library maps for itself (stacks of threads) keeps the host's page sizes.
 *
 * PAGELAB_LAYOUT holds five numbers: heap permille, from, to (bytes of the heap), mmap permille, span (bytes of the
 * heap and of each mapping that shares are made in; 0: no limit). Pieces of 2 MiB are huge in the stated share, evenly.
 * PAGELAB_LAYOUT_REPORT names a file: at its end, a process adds a line with its anonymous and huge memory, the extent
 * of the heap that it touched, and how much of that it touched (KiB). A program may touch the end of a large block
 * first, as sort does, so shares are made within the extent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_BYTES (2UL << 20)

struct rule {
    unsigned long permille, from, to;
};

static struct {
    int active;
    struct rule heap, mmap;
    unsigned long span, heap_start, heap_end;
} layout;

static unsigned long round_up(unsigned long value) { return (value + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1); }

static int advise(unsigned long from, unsigned long to, int huge) {
    int saved = errno;
    long done = syscall(SYS_madvise, from, to - from, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    errno = saved;
    return done == 0;
}

/* Whether the piece of this number is huge: in every prefix of pieces the share is right to within one piece. */
static int is_huge(const struct rule *rule, unsigned long piece) {
    unsigned long at = piece * HUGE_BYTES;
    if (at < rule->from || at >= rule->to) return 0;
    return (piece + 1) * rule->permille / 1000 > piece * rule->permille / 1000;
}

/* Advises a range; neighbouring pieces of one kind by one call, since each call may split a mapping. */
static void apply(const struct rule *rule, unsigned long start, unsigned long end) {
    unsigned long first = round_up(start), limit = end;
    /* Where nothing is huge, prctl has forbidden it, and recordings are without advice. */
    if (layout.heap.permille == 0 && layout.mmap.permille == 0) return;
    if (rule->permille >= 1000 && rule->from == 0 && rule->to == ~0UL) {
        advise(start, end, 1);
        return;
    }
    advise(start, end, 0);
    if (rule->permille == 0) return;
    if (layout.span && limit - start > layout.span) limit = start + layout.span;
    for (unsigned long at = first; at + HUGE_BYTES <= limit;) {
        int huge = is_huge(rule, (at - first) / HUGE_BYTES);
        unsigned long next = at + HUGE_BYTES;
        while (next + HUGE_BYTES <= limit && is_huge(rule, (next - first) / HUGE_BYTES) == huge) next += HUGE_BYTES;
        if (huge) advise(at, next, 1);
        at = next;
    }
}

/* The end of the mapping that holds an address, 0 if it is not found. */
static unsigned long end_of_mapping(unsigned long address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long from, to, end = 0;
    char line[512];
    if (!maps) return 0;
    while (!end && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= address && address < to) end = to;
    fclose(maps);
    return end;
}

static void *map(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

static void *mapped(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    int ours = layout.active && (flags & MAP_ANONYMOUS) && (flags & MAP_TYPE) == MAP_PRIVATE &&
               !(flags & (MAP_HUGETLB | MAP_GROWSDOWN | MAP_STACK));
    int placed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    char *got;
    if (!ours) return map(address, length, protection, flags, file, offset);
    if (placed || address || length < HUGE_BYTES || length > SIZE_MAX - HUGE_BYTES || (flags & MAP_POPULATE)) {
        got = map(address, length, protection, flags, file, offset);
    } else {
        /* Aligned: mapped with room to spare, whose ends go back at once. */
        size_t whole = (length + 4095) & ~4095UL;
        char *room = map(NULL, whole + HUGE_BYTES, protection, flags, file, offset);
        if (room == MAP_FAILED) return map(address, length, protection, flags, file, offset);
        got = (char *)round_up((unsigned long)room);
        if (got > room) syscall(SYS_munmap, room, got - room);
        syscall(SYS_munmap, got + whole, room + HUGE_BYTES - got);
    }
    if (got != MAP_FAILED) {
        unsigned long start = (unsigned long)got;
        apply(&layout.mmap, start, start + ((length + 4095) & ~4095UL));
    }
    return got;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    return mapped(address, length, protection, flags, file, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    return mapped(address, length, protection, flags, file, offset);
}

/* Of a program's own advice, that on page sizes is not followed: the layout decides. */
int madvise(void *address, size_t length, int advice) {
    if (layout.active && (advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE)) return 0;
    return (int)syscall(SYS_madvise, address, length, advice);
}

/* A line that cannot be written is missing from the report: there is nobody to tell within the program. */
static void append(const char *path, const char *line, size_t size) {
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0) return;
    (void)!write(file, line, size);
    close(file);
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("PAGELAB_LAYOUT");
    if (!text || sscanf(text, "%lu %lu %lu %lu %lu", &layout.heap.permille, &layout.heap.from, &layout.heap.to,
                        &layout.mmap.permille, &layout.span) != 5)
        return;
    layout.mmap.to = ~0UL;
    layout.active = 1;
    /* The first allocation makes the heap, with all the room that the tunable top_pad asks for. */
    void *first = malloc(1 << 12);
    unsigned long end = end_of_mapping((unsigned long)first);
    layout.heap_start = (unsigned long)first & ~4095UL;
    layout.heap_end = end;
    if (end) apply(&layout.heap, layout.heap_start, end);
    free(first);
    const char *report = getenv("PAGELAB_LAYOUT_REPORT");
    if (report) {
        char line[64];
        append(report, line, snprintf(line, sizeof line, "begins %d\n", (int)getpid()));
    }
}

/* Pages of the mappings that hold the heap that are present or swapped out; `start` becomes the first one's address. */
static unsigned long pages_of_heap(unsigned long *start) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    unsigned long from, to, value, sum = 0;
    char line[512];
    int inside = 0;
    if (!maps) return 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            inside = from < layout.heap_end && to > layout.heap_start;
            if (inside && from < *start) *start = from;
        } else if (inside && (sscanf(line, "Rss: %lu", &value) == 1 || sscanf(line, "Swap: %lu", &value) == 1)) {
            sum += value / 4;
        }
    }
    fclose(maps);
    return sum;
}

/* Finds which pages of the heap were touched: their number, and how many pages lie before the end of the last one. */
static void touched_heap(unsigned long *pages, unsigned long *extent) {
    static uint64_t entries[8192];
    unsigned long start = layout.heap_start, at = 0;
    /* The room behind the last touched page is large, and reading it takes longer than short programs. */
    unsigned long all = layout.heap_end ? pages_of_heap(&start) : 0;
    unsigned long first = start / 4096, count = (layout.heap_end - start) / 4096;
    int file = layout.heap_end ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
    *pages = *extent = 0;
    if (file < 0) return;
    while (at < count && *pages < all) {
        size_t wanted = (count - at) * sizeof *entries;
        if (wanted > sizeof entries) wanted = sizeof entries;
        ssize_t got = pread(file, entries, wanted, (off_t)((first + at) * sizeof *entries));
        if (got < (ssize_t)sizeof *entries) break;
        for (size_t entry = 0; entry < (size_t)got / sizeof *entries; entry++, at++)
            /* Present or swapped out. */
            if (entries[entry] >> 62) ++*pages, *extent = at + 1;
    }
    close(file);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("PAGELAB_LAYOUT_REPORT");
    unsigned long anonymous = 0, huge = 0, value, pages, extent;
    char line[256];
    FILE *rollup;
    if (!layout.active || !path || !(rollup = fopen("/proc/self/smaps_rollup", "re"))) return;
    while (fgets(line, sizeof line, rollup)) {
        if (sscanf(line, "Anonymous: %lu", &value) == 1) anonymous = value;
        if (sscanf(line, "AnonHugePages: %lu", &value) == 1) huge = value;
    }
    fclose(rollup);
    touched_heap(&pages, &extent);
    append(path, line, snprintf(line, sizeof line, "ends %d %lu %lu %lu %lu\n", (int)getpid(), anonymous, huge,
                                extent * 4, pages * 4));
}
