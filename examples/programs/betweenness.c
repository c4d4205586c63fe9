/* Betweenness centrality of a Kronecker graph by Brandes' method, as `bc` of the GAP Benchmark Suite.
 *
 *    betweenness [THREADS [SCALE [SOURCES]]]
 *
 * The graph has 2^SCALE vertices. Memory is first touched in these phases:
 *
 *    1. All threads write the list of edges, at the pace of the random numbers.
 *    2. They put the neighbours of each vertex together. They write to random places, so faults come close together.
 *    3. They sort these, and copy all but repeated ones: page after page. The list and the first copy are freed.
 *    4. Per source, six arrays are allocated, five of them set to 0, and freed. What goes back to the kernel in between
 *       is up to the C library. The searches touch nothing new.
 */
#include "program.h"

#include <math.h>

#include "kronecker.h"

enum { LOCAL = 1024, WORD = 64, UNKNOWN = 0 };

static struct argument arguments[] = {
   {"THREADS", 2, 1, MOST_THREADS}, {"SCALE", 18, 6, 26}, {"SOURCES", 16, 1, 1 << 20}};
static struct graph graph;
static size_t *level; /* per depth: where it begins in the queue */
static uint64_t checksum;
/* Of one source. */
static uint32_t *queue;                      /* vertices by depth */
static atomic_uint *depths;                  /* per vertex: 1 more than its depth, or UNKNOWN */
static _Atomic uint64_t *paths, *successors; /* per vertex: shortest paths; a bit per edge: it leads one deeper */
static float *dependencies, *scores;         /* per vertex */
static atomic_size_t queue_end;

/* Visits the neighbours of a vertex, and queues those that nobody has seen. */
static void visit(uint32_t u)
{
   uint32_t reached[LOCAL];
   unsigned deeper = depths[u] + 1;

   for (size_t edge = graph.begin[u], end = graph.begin[u + 1], count = 0; edge < end; edge++) {
      uint32_t v = graph.neighbours[edge];
      unsigned depth = UNKNOWN;

      if (depths[v] == UNKNOWN && atomic_compare_exchange_strong(&depths[v], &depth, deeper))
         reached[count++] = v;
      if (depths[v] == deeper) {
         atomic_fetch_or(&successors[edge / WORD], 1ull << edge % WORD);
         atomic_fetch_add(&paths[v], paths[u]);
      }
      if (count == LOCAL || (count > 0 && edge + 1 == end)) {
         memcpy(queue + atomic_fetch_add(&queue_end, count), reached, count * sizeof *reached);
         count = 0;
      }
   }
}

/* How much the shortest paths from the source depend on a vertex, by how much they depend on those one deeper. */
static void depend(uint32_t u)
{
   double sum = 0;

   for (size_t edge = graph.begin[u]; edge < graph.begin[u + 1]; edge++)
      if (successors[edge / WORD] >> edge % WORD & 1) {
         uint32_t v = graph.neighbours[edge];

         sum += (double)paths[u] / (double)paths[v] * (1 + dependencies[v]);
      }
   dependencies[u] = (float)sum;
   scores[u] += (float)sum;
}

static void begin_search(uint32_t source)
{
   size_t vertices = graph.vertices, words = graph.begin[vertices] / WORD + 1;

   scores = allocate(vertices * sizeof *scores);
   paths = allocate(vertices * sizeof *paths);
   successors = allocate(words * sizeof *successors);
   queue = allocate(vertices * sizeof *queue);
   depths = allocate(vertices * sizeof *depths);
   dependencies = allocate(vertices * sizeof *dependencies);
   for (size_t word = 0; word < words; word++)
      atomic_init(&successors[word], 0);
   queue[0] = source;
   level[0] = 0;
   queue_end = level[1] = 1;
}

/* Shortest paths from one source, and the dependencies. Returns the number of depths. */
static size_t search(size_t thread)
{
   size_t from = part(graph.vertices, thread, graph.threads), to = part(graph.vertices, thread + 1, graph.threads), depth;

   for (size_t v = from; v < to; v++) {
      atomic_init(&depths[v], v == queue[0] ? 1 : UNKNOWN);
      atomic_init(&paths[v], v == queue[0]);
      dependencies[v] = scores[v] = 0;
   }
   meet(&graph, thread, 0);
   for (depth = 0; level[depth] < level[depth + 1]; depth++) {
      while (share(&graph, &from, &to, level[depth + 1]))
         for (; from < to; from++)
            visit(queue[from]);
      pthread_barrier_wait(&graph.barrier);
      if (thread == 0)
         level[depth + 2] = queue_end;
      meet(&graph, thread, level[depth + 1]);
   }
   for (size_t back = depth; back-- > 1;) {
      meet(&graph, thread, level[back]);
      while (share(&graph, &from, &to, level[back + 1]))
         for (; from < to; from++)
            depend(queue[from]);
   }
   pthread_barrier_wait(&graph.barrier);
   return depth;
}

/* Checks and frees. A shortest path has depth - 1 vertices between its ends, so the sum of all dependencies is known. */
static void end_search(size_t depths_count)
{
   void *const used[] = {scores, (void *)paths, (void *)successors, queue, (void *)depths, dependencies};
   double sum = 0, expected = 0;

   for (size_t depth = 1; depth < depths_count; depth++)
      expected += (double)(depth - 1) * (double)(level[depth + 1] - level[depth]);
   for (size_t v = 0; v < graph.vertices; v++) {
      uint32_t bits;

      memcpy(&bits, &scores[v], sizeof bits);
      checksum = (checksum ^ bits) * 0x9e3779b97f4a7c15u;
      sum += scores[v];
   }
   if (fabs(sum - expected) > 1e-5 * expected)
      fail("the dependencies do not add up to the lengths of the paths");
   for (size_t array = 0; array < sizeof used / sizeof *used; array++)
      free(used[array]);
}

static void *work(void *number)
{
   size_t thread = (size_t)number, tried = 0, depths_count;

   build(&graph, thread);
   for (size_t i = 0; i < arguments[2].value; i++) {
      if (thread == 0) {
         uint32_t source;

         do
            source = (uint32_t)(random_number(tried++) % graph.vertices);
         while (graph.begin[source] == graph.begin[source + 1]);
         begin_search(source);
      }
      pthread_barrier_wait(&graph.barrier);
      depths_count = search(thread);
      if (thread == 0)
         end_search(depths_count);
   }
   return NULL;
}

int main(int argc, char **argv)
{
   read_arguments(argc, argv, arguments, 3);
   begin_graph(&graph, arguments[0].value, arguments[1].value);
   level = allocate((graph.vertices + 2) * sizeof *level);
   in_parallel(graph.threads, work);
   printf("betweenness: 2^%zu vertices, %llu sources, right, checksum %016llx\n", graph.scale,
          (unsigned long long)arguments[2].value, (unsigned long long)checksum);
   return 0;
}
