/* A queue between two stages of a pipeline, with a limit. */
#ifndef QUEUE_H
#define QUEUE_H

#include "program.h"

enum { QUEUE_LIMIT = 256 };

struct queue {
   pthread_mutex_t lock;
   pthread_cond_t changed;
   void *things[QUEUE_LIMIT];
   size_t first, count, writers;
};

static inline void open_queue(struct queue *queue, size_t writers)
{
   pthread_mutex_init(&queue->lock, NULL);
   pthread_cond_init(&queue->changed, NULL);
   queue->first = queue->count = 0;
   queue->writers = writers;
}

static inline void put(struct queue *queue, void *thing)
{
   pthread_mutex_lock(&queue->lock);
   while (queue->count == QUEUE_LIMIT)
      pthread_cond_wait(&queue->changed, &queue->lock);
   queue->things[(queue->first + queue->count++) % QUEUE_LIMIT] = thing;
   pthread_cond_broadcast(&queue->changed);
   pthread_mutex_unlock(&queue->lock);
}

/* The next thing, or NULL if no more will come. */
static inline void *take(struct queue *queue)
{
   void *thing = NULL;

   pthread_mutex_lock(&queue->lock);
   while (queue->count == 0 && queue->writers > 0)
      pthread_cond_wait(&queue->changed, &queue->lock);
   if (queue->count > 0) {
      thing = queue->things[queue->first];
      queue->first = (queue->first + 1) % QUEUE_LIMIT;
      queue->count--;
      pthread_cond_broadcast(&queue->changed);
   }
   pthread_mutex_unlock(&queue->lock);
   return thing;
}

/* One of the writers puts nothing more. */
static inline void leave(struct queue *queue)
{
   pthread_mutex_lock(&queue->lock);
   queue->writers--;
   pthread_cond_broadcast(&queue->changed);
   pthread_mutex_unlock(&queue->lock);
}

#endif
