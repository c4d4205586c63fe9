/* A program whose two builds differ in the size of a structure and in the order of its accesses:
 *
 *     cc -O2 -g -o old items.c
 *     cc -O2 -g -DPADDED -DSCATTERED -o new items.c
 */
#include <stdio.h>
#include <stdlib.h>

#define ITEMS (1u << 17)

struct item {
    unsigned key;
    unsigned count;
#ifdef PADDED
    char name[56];
#endif
};

static void __attribute__((noinline)) fill(struct item *items)
{
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i].key = i;
        items[i].count = i & 7;
    }
}

static unsigned long __attribute__((noinline)) sum(const struct item *items)
{
    unsigned long total = 0;
    unsigned at = 0;
    for (unsigned i = 0; i < ITEMS; i++) {
#ifdef SCATTERED
        at = (at * 1664525u + 1013904223u) % ITEMS; /* each item once, in no order that a prefetcher knows */
#else
        at = i;
#endif
        total += items[at].count;
    }
    return total;
}

int main(void)
{
    struct item *items = malloc(ITEMS * sizeof *items);
    if (!items)
        return 1;
    fill(items);
    printf("%lu\n", sum(items));
    free(items);
    return 0;
}
