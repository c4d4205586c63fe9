/* Breadth-first search over a random graph in compressed sparse rows: bfs [VERTICES [DEGREE]]. Prints the number
   of vertices reached. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
   state ^= state << 13;
   state ^= state >> 7;
   state ^= state << 17;
   return state;
}

int main(int argc, char **argv)
{
   uint32_t vertices = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
   uint32_t degree = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 8;
   uint64_t edges = (uint64_t)vertices * degree;
   uint64_t *offset = malloc((vertices + 1) * sizeof *offset);
   uint32_t *target = malloc(edges * sizeof *target);
   uint32_t *distance = malloc(vertices * sizeof *distance);
   uint32_t *queue = malloc(vertices * sizeof *queue);

   for (uint32_t v = 0; v <= vertices; v++)
      offset[v] = (uint64_t)v * degree;
   for (uint64_t e = 0; e < edges; e++)
      target[e] = (uint32_t)(next_random() % vertices);
   for (uint32_t v = 0; v < vertices; v++)
      distance[v] = UINT32_MAX;

   uint32_t head = 0, tail = 0;
   distance[0] = 0;
   queue[tail++] = 0;
   while (head < tail) {
      uint32_t v = queue[head++];
      for (uint64_t e = offset[v]; e < offset[v + 1]; e++) {
         uint32_t w = target[e];
         if (distance[w] == UINT32_MAX) {
            distance[w] = distance[v] + 1;
            queue[tail++] = w;
         }
      }
   }
   printf("%u\n", tail);
   return 0;
}
