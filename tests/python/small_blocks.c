/* Many small blocks, below the end of the heap that Valgrind gives and beyond it, and a part of the heap that no allocator knows. */

#include <stdlib.h>
#include <unistd.h>

#define PAGE 4096
#define KEEP __attribute__((noinline, noclone))

enum { IN_HEAP = 30000, BEYOND = 150000, BYTES = 100, OWN_PAGES = 50 };

static volatile int sink;
static char* blocks[IN_HEAP];

KEEP char* makes_few(void) {
   char* block = malloc(BYTES);
   sink++;
   return block;
}

KEEP char* makes_many(void) {
   char* block = calloc(1, BYTES);
   sink++;
   return block;
}

/* It touches all of a page before anything is allocated there. */
KEEP void own_part(volatile char* part) {
   for (int page = 0; page < OWN_PAGES; page++)
      part[page * PAGE] = 1;
   sink++;
}

KEEP void releases(void) {
   for (int block = 0; block < IN_HEAP; block++)
      free(blocks[block]);
   sink++;
}

int main(void) {
   own_part(sbrk(OWN_PAGES * PAGE));
   for (int block = 0; block < IN_HEAP; block++)
      blocks[block] = makes_few();
   releases();
   for (int block = 0; block < BEYOND; block++)
      makes_many()[0] = 1;
   return 0;
}
