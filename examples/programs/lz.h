/* A small compressor of the kind of LZ77.
 *
 * A byte b below 128 stands before b + 1 plain bytes. Another one says that b - 124 bytes are those of before; two bytes
 * follow, which say how far back.
 */
#ifndef LZ_H
#define LZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LITERALS = 128, SHORTEST = 4, LONGEST = SHORTEST + 127 };

/* The most that this many bytes can become. */
static inline size_t packed_limit(size_t length)
{
   return length + length / LITERALS + 1;
}

/* Compresses less than 64 KiB, into `packed_limit` bytes at most. */
static inline size_t pack(const unsigned char *from, size_t length, unsigned char *to)
{
   uint16_t seen[1 << 12] = {0}; /* by a hash of four bytes: where they were last, and 1 */
   size_t size = 0, plain = 0, at = 0;

   while (at < length) {
      size_t same = 0, match = 0;
      uint32_t word;

      if (at + SHORTEST <= length) {
         memcpy(&word, from + at, sizeof word);
         word = word * 2654435761u >> 20;
         match = seen[word];
         seen[word] = (uint16_t)(at + 1);
      }
      if (match-- > 0)
         while (same < LONGEST && at + same < length && from[match + same] == from[at + same])
            same++;
      if (same < SHORTEST) {
         same = 0;
         if (++at - plain < LITERALS && at < length)
            continue;
      }
      if (at > plain) {
         to[size++] = (unsigned char)(at - plain - 1);
         memcpy(to + size, from + plain, at - plain);
         size += at - plain;
      }
      if (same > 0) {
         to[size++] = (unsigned char)(LITERALS + same - SHORTEST);
         to[size++] = (unsigned char)(at - match);
         to[size++] = (unsigned char)((at - match) >> 8);
         at += same;
      }
      plain = at;
   }
   return size;
}

/* The inverse. */
static inline size_t unpack(const unsigned char *from, size_t length, unsigned char *to)
{
   size_t size = 0;

   for (size_t at = 0; at < length;) {
      size_t many = from[at++];

      if (many < LITERALS) {
         memcpy(to + size, from + at, many + 1);
         at += many + 1;
         size += many + 1;
      } else {
         size_t distance = from[at] | (size_t)from[at + 1] << 8;

         at += 2;
         for (many -= LITERALS - SHORTEST; many > 0; many--, size++)
            to[size] = to[size - distance];
      }
   }
   return size;
}

#endif
