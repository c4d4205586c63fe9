/* One way of using memory at a time, so that its faults can be counted: mappings CASE FILE. FILE holds at least 256 pages;
   `none` does nothing, for comparison. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 256, BYTES = PAGES * PAGE };

static int file;

/* Where windows of fault-around begin at a mapping's start, natively and under a recorder. */
#define ALIGNED ((void *)0x600000000)

static volatile char *map_at(void *hint, int protection, int flags)
{
   void *at = mmap(hint, BYTES, protection, flags, flags & MAP_ANONYMOUS ? -1 : file, 0);
   if (at == MAP_FAILED) {
      perror("mmap");
      exit(2);
   }
   return at;
}

static volatile char *map(int protection, int flags)
{
   return map_at(NULL, protection, flags);
}

static void read_all(volatile char *at)
{
   for (int i = 0; i < PAGES; i++)
      (void)at[i * PAGE];
}

static void write_all(volatile char *at)
{
   for (int i = 0; i < PAGES; i++)
      at[i * PAGE] = 1;
}

/* The child runs `first`, ends, and then the parent writes. */
static void fork_and_write(volatile char *at, void (*first)(volatile char *))
{
   pid_t child = fork();
   if (child == 0) {
      first(at);
      _exit(0);
   }
   waitpid(child, NULL, 0);
   write_all(at);
}

enum { READ = PROT_READ, BOTH = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static void none(void) {}
static void anon_write(void) { write_all(map(BOTH, ANON)); }
static void anon_read(void) { read_all(map(BOTH, ANON)); }
static void anon_populate(void) { write_all(map(BOTH, ANON | MAP_POPULATE)); }
static void anon_populate_only(void) { map(BOTH, ANON | MAP_POPULATE); }
static void file_read(void) { read_all(map(READ, MAP_PRIVATE)); }
static void file_write(void) { write_all(map(BOTH, MAP_PRIVATE)); }
static void file_populate(void) { read_all(map(READ, MAP_PRIVATE | MAP_POPULATE)); }
static void file_populate_write(void) { write_all(map(BOTH, MAP_PRIVATE | MAP_POPULATE)); }
static void file_populate_only(void) { map(READ, MAP_PRIVATE | MAP_POPULATE); }
static void shared_read(void) { read_all(map(BOTH, MAP_SHARED)); }
static void shared_write(void) { write_all(map(BOTH, MAP_SHARED)); }
static void shmem_read(void) { read_all(map(BOTH, MAP_SHARED | MAP_ANONYMOUS)); }
static void shmem_write(void) { write_all(map(BOTH, MAP_SHARED | MAP_ANONYMOUS)); }

static void anon_read_write(void)
{
   volatile char *at = map(BOTH, ANON);
   read_all(at);
   write_all(at);
}

static void file_read_write(void)
{
   volatile char *at = map(BOTH, MAP_PRIVATE);
   read_all(at);
   write_all(at);
}

static void shared_read_write(void)
{
   volatile char *at = map(BOTH, MAP_SHARED);
   read_all(at);
   write_all(at);
}

static void shmem_read_write(void)
{
   volatile char *at = map(BOTH, MAP_SHARED | MAP_ANONYMOUS);
   read_all(at);
   write_all(at);
}

/* From the middle of a window, so that its start is the mapping's. */
static void file_part(void)
{
   volatile char *at = map_at(ALIGNED, READ, MAP_PRIVATE);
   munmap((void *)at, 5 * PAGE);
   for (int i = 5; i < PAGES; i++)
      (void)at[i * PAGE];
}

static void file_backwards(void)
{
   volatile char *at = map(READ, MAP_PRIVATE);
   for (int i = PAGES - 1; i >= 0; i--)
      (void)at[i * PAGE];
}

static void dontneed(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   madvise((void *)at, BYTES / 2, MADV_DONTNEED);
   write_all(at);
}

static void remap(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   write_all(mremap((void *)at, BYTES, 2 * BYTES, MREMAP_MAYMOVE));
}

static void protect(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   mprotect((void *)at, BYTES, PROT_READ);
   mprotect((void *)at, BYTES, BOTH);
   write_all(at);
}

static void protect_none(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   mprotect((void *)at, BYTES, PROT_NONE);
   mprotect((void *)at, BYTES, BOTH);
   read_all(at);
   write_all(at);
}

static void protect_file(void)
{
   volatile char *at = map(READ, MAP_PRIVATE);
   read_all(at);
   mprotect((void *)at, BYTES, BOTH);
   write_all(at);
}

static void locked(void)
{
   volatile char *at = map(BOTH, ANON);
   mlock((void *)at, BYTES);
   write_all(at);
}

static void heap(void)
{
   char *at = sbrk(BYTES);
   write_all(at);
   sbrk(-BYTES / 2);
   sbrk(BYTES / 2);
   write_all(at);
}

static void stack(void)
{
   volatile char here[BYTES];
   write_all(here);
}

static void read_call(void)
{
   char *at = (char *)map(BOTH, ANON);
   if (read(file, at, BYTES) != BYTES)
      exit(2);
}

static void write_call(void)
{
   char *at = (char *)map(BOTH, ANON);
   int pipes[2];
   if (pipe(pipes) != 0)
      exit(2);
   for (int i = 0; i < PAGES; i++)
      if (write(pipes[1], at + i * PAGE, 64) != 64 || read(pipes[0], at + i * PAGE, 64) != 64)
         exit(2);
}

static void fork_both(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   fork_and_write(at, write_all);
}

static void fork_read(void)
{
   volatile char *at = map(BOTH, ANON);
   write_all(at);
   fork_and_write(at, read_all);
}

static void fork_zero(void)
{
   volatile char *at = map(BOTH, ANON);
   read_all(at);
   fork_and_write(at, read_all);
}

static void fork_file(void)
{
   volatile char *at = map(BOTH, MAP_PRIVATE);
   read_all(at);
   fork_and_write(at, read_all);
}

static void fork_file_written(void)
{
   volatile char *at = map(BOTH, MAP_PRIVATE);
   read_all(at);
   at[0] = 1;
   fork_and_write(at, read_all);
}

static void fork_shared(void)
{
   volatile char *at = map(BOTH, MAP_SHARED | MAP_ANONYMOUS);
   write_all(at);
   fork_and_write(at, write_all);
}

#define CASE(name) {#name, name}
static const struct {
   const char *name;
   void (*run)(void);
} cases[] = {
   CASE(none), CASE(anon_write), CASE(anon_read), CASE(anon_read_write), CASE(anon_populate),
   CASE(anon_populate_only), CASE(file_read), CASE(file_write), CASE(file_read_write), CASE(file_part),
   CASE(file_backwards), CASE(file_populate), CASE(file_populate_write), CASE(file_populate_only), CASE(shared_read),
   CASE(shared_write), CASE(shared_read_write), CASE(shmem_read), CASE(shmem_write), CASE(shmem_read_write),
   CASE(dontneed), CASE(remap), CASE(protect), CASE(protect_none), CASE(protect_file), CASE(locked), CASE(heap),
   CASE(stack), CASE(read_call), CASE(write_call), CASE(fork_both), CASE(fork_read), CASE(fork_zero), CASE(fork_file),
   CASE(fork_file_written), CASE(fork_shared),
};

int main(int argc, char **argv)
{
   if (argc != 3 || (file = open(argv[2], O_RDWR)) < 0)
      return 2;
   for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      if (strcmp(cases[i].name, argv[1]) == 0) {
         cases[i].run();
         return 0;
      }
   return 2;
}
