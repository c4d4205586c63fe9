/* A Kronecker graph with 16 edges per vertex, each in both directions, made by all threads of a program at once. */
#ifndef KRONECKER_H
#define KRONECKER_H

#include "program.h"

#include <stdatomic.h>

enum { EDGES_PER_VERTEX = 16, BLOCK = 64 };

struct graph {
   size_t threads, scale, vertices, edges_count;
   uint32_t (*edges)[2], *names;   /* names: per vertex of the generator, that of the graph */
   atomic_uint *degrees;           /* per vertex */
   size_t *all_begin, *begin;      /* per vertex: where its neighbours begin, in the first array and in the second */
   uint32_t *all, *neighbours;     /* with repeated ones; sorted and without */
   atomic_size_t next;
   pthread_barrier_t barrier;
};

/* Allocates what a graph begins with. */
static inline void begin_graph(struct graph *graph, size_t threads, size_t scale)
{
   graph->threads = threads;
   graph->scale = scale;
   graph->vertices = (size_t)1 << scale;
   graph->edges_count = graph->vertices * EDGES_PER_VERTEX;
   graph->edges = allocate(graph->edges_count * sizeof *graph->edges);
   graph->names = allocate(graph->vertices * sizeof *graph->names);
   graph->degrees = allocate(graph->vertices * sizeof *graph->degrees);
   pthread_barrier_init(&graph->barrier, NULL, (unsigned)threads);
   for (size_t v = 0; v < graph->vertices; v++) { /* a random permutation */
      size_t other = random_number(~v) % (v + 1);

      graph->names[v] = graph->names[other];
      graph->names[other] = (uint32_t)v;
      atomic_init(&graph->degrees[v], 0);
   }
}

/* Waits for all threads. They then share out what begins here. */
static inline void meet(struct graph *graph, size_t thread, size_t from)
{
   pthread_barrier_wait(&graph->barrier);
   if (thread == 0)
      atomic_store(&graph->next, from);
   pthread_barrier_wait(&graph->barrier);
}

/* The next few things for this thread, if there are any before `end`. */
static inline int share(struct graph *graph, size_t *from, size_t *to, size_t end)
{
   *from = atomic_fetch_add(&graph->next, BLOCK);
   *to = *from + BLOCK < end ? *from + BLOCK : end;
   return *from < end;
}

static inline int compare_vertices(const void *one, const void *other)
{
   uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

   return (a > b) - (a < b);
}

/* Where each vertex's neighbours begin, by the degrees, which become 0. */
static inline size_t *begins(struct graph *graph)
{
   size_t *begin = allocate((graph->vertices + 1) * sizeof *begin);

   begin[0] = 0;
   for (size_t v = 0; v < graph->vertices; v++)
      begin[v + 1] = begin[v] + atomic_exchange(&graph->degrees[v], 0);
   return begin;
}

static inline void make_edge(struct graph *graph, size_t edge)
{
   uint32_t ends[2] = {0, 0};

   for (size_t bit = 0; bit < graph->scale; bit++) {
      double random = random_fraction(edge * graph->scale + bit);

      ends[0] = ends[0] << 1 | (random >= 0.76);
      ends[1] = ends[1] << 1 | ((random >= 0.57 && random < 0.76) || random >= 0.95);
   }
   for (int i = 0; i < 2; i++) {
      graph->edges[edge][i] = graph->names[ends[i]];
      atomic_fetch_add(&graph->degrees[graph->names[ends[i]]], 1);
   }
}

/* Sorts the neighbours of a vertex. Repeated ones and the vertex itself go. */
static inline void tidy(struct graph *graph, uint32_t v)
{
   uint32_t *its = graph->all + graph->all_begin[v], kept = 0;
   size_t degree = graph->degrees[v];

   qsort(its, degree, sizeof *its, compare_vertices);
   for (size_t i = 0; i < degree; i++)
      if (its[i] != v && (kept == 0 || its[i] != its[kept - 1]))
         its[kept++] = its[i];
   graph->degrees[v] = kept;
}

/* Makes the graph. All threads call this. */
static inline void build(struct graph *graph, size_t thread)
{
   size_t first = part(graph->edges_count, thread, graph->threads), from, to;
   size_t end = part(graph->edges_count, thread + 1, graph->threads);

   for (size_t edge = first; edge < end; edge++)
      make_edge(graph, edge);
   pthread_barrier_wait(&graph->barrier);
   if (thread == 0) {
      graph->all_begin = begins(graph);
      graph->all = allocate(2 * graph->edges_count * sizeof *graph->all);
   }
   pthread_barrier_wait(&graph->barrier);
   for (size_t edge = first; edge < end; edge++)
      for (int i = 0; i < 2; i++) {
         uint32_t v = graph->edges[edge][i];

         graph->all[graph->all_begin[v] + atomic_fetch_add(&graph->degrees[v], 1)] = graph->edges[edge][1 - i];
      }
   meet(graph, thread, 0);
   if (thread == 0)
      free(graph->edges);
   while (share(graph, &from, &to, graph->vertices))
      for (; from < to; from++)
         tidy(graph, (uint32_t)from);
   pthread_barrier_wait(&graph->barrier);
   if (thread == 0) {
      graph->begin = begins(graph);
      graph->neighbours = allocate(graph->begin[graph->vertices] * sizeof *graph->neighbours);
   }
   meet(graph, thread, 0);
   while (share(graph, &from, &to, graph->vertices))
      for (; from < to; from++)
         memcpy(graph->neighbours + graph->begin[from], graph->all + graph->all_begin[from],
                (graph->begin[from + 1] - graph->begin[from]) * sizeof *graph->neighbours);
   pthread_barrier_wait(&graph->barrier);
   if (thread == 0) {
      free(graph->all);
      free(graph->all_begin);
   }
   pthread_barrier_wait(&graph->barrier);
}

#endif
