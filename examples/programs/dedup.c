/* Finds what a stream repeats and compresses the rest, in stages as `dedup` of PARSEC does.
 *
 *    dedup [THREADS [MEBIBYTES]]
 *
 * Memory is first touched in these phases:
 *
 *    1. The first thread makes the input, page after page. (PARSEC's reads a file into memory, too.)
 *    2. Then all stages run at once. One thread copies the input into buffers of 32 MiB. Each is new memory, which is
 *       given back to the kernel after its last use.
 *    3. THREADS threads cut the buffers into chunks, where a rolling hash says so.
 *    4. THREADS threads look the chunks up by their hash, in a table that keeps growing.
 *    5. THREADS threads compress new chunks into memory of their own.
 *    6. The first thread puts the results in order, checks them, adds them up and frees them. How much of that goes back
 *       to the kernel is up to the C library.
 */
#include "program.h"

#include <stdatomic.h>

#include "lz.h"
#include "queue.h"

enum { MEBIBYTE = 1 << 20, BUFFER = 32, PIECE = MEBIBYTE };                  /* a buffer in mebibytes, a piece in bytes */
enum { LEAST = 1 << 10, MOST = 1 << 15, BOUNDARY = (1 << 12) - 1 };          /* a chunk; bits of the hash at its end */
enum { WORDS = 1 << 8, BLOCK = 1 << 13, BUCKETS = 1 << 14, REFERENCE = 8 }; /* the input; the table; the output */
enum { PIECES, CHUNKS, NEW_CHUNKS, RESULTS, QUEUES };

struct buffer {
   atomic_size_t users;
   unsigned char bytes[];
};

struct entry {
   struct entry *next;
   uint64_t hash;
   size_t length, packed_length;
   unsigned char *packed; /* from its arrival at the last stage until it is written */
   int is_written;
};

/* A piece of the stream, or a chunk of it. */
struct chunk {
   size_t piece, number, length;
   int is_last, is_new;
   struct buffer *buffer;
   unsigned char *bytes, *packed;
   struct entry *entry;
};

static struct argument arguments[] = {{"THREADS", 2, 1, MOST_THREADS / 3}, {"MEBIBYTES", 128, 1, 1 << 20}};
static unsigned char *input;
static struct queue queues[QUEUES];
static pthread_mutex_t locks[BUCKETS];
static struct entry *table[BUCKETS];

static uint64_t hash_of(const unsigned char *bytes, size_t length)
{
   uint64_t hash = length;

   for (size_t at = 0; at < length; at += sizeof hash) {
      uint64_t word = 0;

      memcpy(&word, bytes + at, length - at < sizeof word ? length - at : sizeof word);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
   }
   return hash;
}

static void release(struct buffer *buffer)
{
   if (atomic_fetch_sub(&buffer->users, 1) == 1)
      free(buffer);
}

/* Makes blocks of words. A third of them repeat the end of an earlier one. */
static void make_input(size_t bytes)
{
   uint64_t block = 0, seed = 0, words = 0;

   for (size_t at = 0; at < bytes; words--) {
      uint64_t random, letters;

      if (words == 0) {
         random = random_number(block);
         words = BLOCK + random % BLOCK;
         seed = random % 3 == 0 ? random / 3 % (block + 1) : block;
         block++;
      }
      random = random_number(seed << 32 | words);
      letters = random_number(random % WORDS * (random >> 32) >> 32); /* words of small number are more frequent */
      for (size_t left = 2 + letters % 8; left > 0 && at < bytes; left--, letters >>= 6)
         input[at++] = left == 1 ? ' ' : (unsigned char)('a' + letters % 26);
   }
}

static void *read_input(void *unused)
{
   for (size_t at = 0, mebibytes = arguments[1].value, many; at < mebibytes; at += many) {
      struct buffer *buffer;

      many = mebibytes - at < BUFFER ? mebibytes - at : BUFFER;
      buffer = allocate(sizeof *buffer + many * MEBIBYTE);
      atomic_init(&buffer->users, many);
      memcpy(buffer->bytes, input + at * MEBIBYTE, many * MEBIBYTE);
      for (size_t i = 0; i < many; i++) {
         struct chunk *piece = allocate(sizeof *piece);

         *piece = (struct chunk){.piece = at + i, .buffer = buffer, .bytes = buffer->bytes + i * PIECE};
         put(&queues[PIECES], piece);
      }
   }
   leave(&queues[PIECES]);
   return unused;
}

static void *cut(void *unused)
{
   for (struct chunk *piece; (piece = take(&queues[PIECES])); free(piece)) {
      for (size_t begin = 0, end = 0, number = 0; begin < PIECE; begin = end, number++) {
         struct chunk *chunk = allocate(sizeof *chunk);
         uint64_t hash = 0;

         do
            hash = (hash << 1) + random_number(piece->bytes[end++]);
         while (end < PIECE && end < begin + MOST && (end < begin + LEAST || (hash >> 40 & BOUNDARY) != 0));
         *chunk = (struct chunk){.piece = piece->piece, .number = number, .length = end - begin, .is_last = end == PIECE};
         chunk->bytes = piece->bytes + begin;
         chunk->buffer = piece->buffer;
         atomic_fetch_add(&chunk->buffer->users, 1);
         put(&queues[CHUNKS], chunk);
      }
      release(piece->buffer);
   }
   leave(&queues[CHUNKS]);
   return unused;
}

static void *look_up(void *unused)
{
   for (struct chunk *chunk; (chunk = take(&queues[CHUNKS]));) {
      uint64_t hash = hash_of(chunk->bytes, chunk->length);
      struct entry **at = &table[hash % BUCKETS];

      pthread_mutex_lock(&locks[hash % BUCKETS]);
      while (*at && ((*at)->hash != hash || (*at)->length != chunk->length))
         at = &(*at)->next;
      if (!*at) {
         *at = allocate(sizeof **at);
         **at = (struct entry){.hash = hash, .length = chunk->length};
         chunk->is_new = 1;
      }
      chunk->entry = *at;
      pthread_mutex_unlock(&locks[hash % BUCKETS]);
      if (!chunk->is_new)
         release(chunk->buffer);
      put(&queues[chunk->is_new ? NEW_CHUNKS : RESULTS], chunk);
   }
   leave(&queues[NEW_CHUNKS]);
   leave(&queues[RESULTS]);
   return unused;
}

static void *compress(void *unused)
{
   for (struct chunk *chunk; (chunk = take(&queues[NEW_CHUNKS]));) {
      unsigned char *packed = allocate(packed_limit(chunk->length));

      chunk->entry->packed_length = pack(chunk->bytes, chunk->length, packed);
      chunk->packed = resized(packed, chunk->entry->packed_length);
      release(chunk->buffer);
      put(&queues[RESULTS], chunk);
   }
   leave(&queues[RESULTS]);
   return unused;
}

/* Writes a chunk, or where it was before: the bytes that this takes. */
static size_t written(struct entry *entry, uint64_t *checksum)
{
   unsigned char plain[MOST];
   size_t length = entry->packed_length;

   if (entry->is_written) {
      *checksum = random_number(*checksum ^ entry->hash);
      return REFERENCE;
   }
   if (unpack(entry->packed, length, plain) != entry->length || hash_of(plain, entry->length) != entry->hash)
      fail("a chunk does not come back from its compressed form");
   *checksum = random_number(*checksum ^ hash_of(entry->packed, length));
   free(entry->packed);
   entry->is_written = 1;
   return length;
}

/* Writes all results in the order of the stream, whatever the order of their arrival. Prints what they come to. */
static void write_output(size_t pieces)
{
   struct chunk ***waiting = memset(allocate(pieces * sizeof *waiting), 0, pieces * sizeof *waiting);
   size_t piece = 0, number = 0, chunks = 0, new_chunks = 0, bytes = 0, most = PIECE / LEAST + 1;
   uint64_t checksum = 0;

   for (struct chunk *chunk; (chunk = take(&queues[RESULTS])); chunks++) {
      if (!waiting[chunk->piece])
         waiting[chunk->piece] = memset(allocate(most * sizeof chunk), 0, most * sizeof chunk);
      waiting[chunk->piece][chunk->number] = chunk;
      if (chunk->is_new)
         chunk->entry->packed = chunk->packed;
      new_chunks += (size_t)chunk->is_new;
      while (piece < pieces && waiting[piece] && (chunk = waiting[piece][number]) &&
             (chunk->entry->packed || chunk->entry->is_written)) {
         bytes += written(chunk->entry, &checksum);
         number++;
         if (chunk->is_last) {
            free(waiting[piece++]);
            number = 0;
         }
         free(chunk);
      }
   }
   if (piece != pieces)
      fail("a piece of the stream is missing");
   free(waiting);
   printf("dedup: %zu MiB, %zu chunks, %zu of them new, %zu bytes, checksum %016llx\n", pieces, chunks, new_chunks, bytes,
          (unsigned long long)checksum);
}

int main(int argc, char **argv)
{
   void *(*const stages[])(void *) = {cut, look_up, compress};
   pthread_t all[MOST_THREADS];
   size_t threads;

   read_arguments(argc, argv, arguments, 2);
   threads = arguments[0].value;
   input = allocate(arguments[1].value * MEBIBYTE);
   make_input(arguments[1].value * MEBIBYTE);
   for (int i = 0; i < QUEUES; i++)
      open_queue(&queues[i], i == PIECES ? 1 : i == RESULTS ? 2 * threads : threads);
   for (int i = 0; i < BUCKETS; i++)
      pthread_mutex_init(&locks[i], NULL);
   all[0] = started(read_input, NULL);
   for (size_t i = 0; i < 3 * threads; i++)
      all[i + 1] = started(stages[i / threads], NULL);
   write_output(arguments[1].value);
   for (size_t i = 0; i <= 3 * threads; i++)
      pthread_join(all[i], NULL);
   return 0;
}
