/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _MM_PAGELAB_RINGS_H
#define _MM_PAGELAB_RINGS_H

#include <linux/percpu.h>
#include <linux/pagelab.h>
#include <linux/spinlock.h>

/*
 * An entry of a ring, of 16 bytes as in the paper. @page is a zeroed page for
 * the next fault. @used is a page that a fault has mapped and that no LRU list
 * has yet; the list holds a reference to it.
 */
struct ring_entry {
	struct page *page;
	struct folio *used;
};

/*
 * The ring of a CPU. Indices count on and on; the low bits are the entry.
 *
 * @page of entries @tail to @head is set. The CPU's faults take at @tail.
 * Whoever holds ring_mutex fills at @head, and gives back from there. A page
 * is taken by exchanging it with NULL, so that one of both gets it.
 *
 * @used of entries @out to @in is set. The CPU's faults add at @in. Whoever
 * holds @lock takes at @out.
 */
struct pagelab_ring {
	unsigned int mask;		/* number of entries less one */
	unsigned int tail;
	unsigned int in;
	unsigned int head ____cacheline_aligned_in_smp;
	unsigned int out;
	spinlock_t lock;		/* of @out */
	struct pagelab_ring *next;	/* of those that are to be freed */
	/*
	 * Of each entry, the process whose counter lacks its used page, or
	 * NULL. Behind the entries, so that these keep their 16 bytes.
	 */
	struct mm_struct **owner;
	struct ring_entry entry[] ____cacheline_aligned_in_smp;
};

enum ring_stat {
	RING_HITS,			/* pages given to faults */
	RING_MISSES,			/* faults that found no page */
	RING_MISPLACED,			/* ... that may not have this node's */
	RING_NOT_ASKED,			/* faults of who did not ask for rings */
	RING_ARMED,			/* entries armed */
	RING_UNARMED,			/* faults of entries that are not */
	RING_JOINED,			/* ... of ones that another one locked */
	RING_DEFERRED,			/* pages that faults left off the LRU */
	RING_RSS_DEFERRED,		/* ... and out of the RSS counter */
	RING_RSS_THREAD,		/* counted with their LRU list */
	RING_RSS_UNMAP,			/* ... before an unmapping */
	RING_RSS_EXIT,			/* ... at the exit */
	RING_ACCOUNTED,			/* pages the thread put there */
	RING_DRAINED,			/* pages lru_add_drain() put there */
	RING_FILLED,			/* pages allocated */
	RING_FILLED_REMOTE,		/* ... on another node than the CPU's */
	RING_SHRUNK,			/* pages given back, by reason */
	RING_RESIZED,			/* rings switched off or resized */
	RING_OFFLINED,
	RING_UNUSED,			/* no process asks for them any more */
	RING_REPEATED,			/* calls that found it as they want it */
	RING_STOPPED,			/* processes that were over the limit */
	RING_NO_MEMORY,			/* refills cut short */
	RING_PASSES,
	RING_NR_STATS
};

DECLARE_PER_CPU(struct pagelab_ring __rcu *, pagelab_rings);
DECLARE_PER_CPU(unsigned long [RING_NR_STATS], ring_stats);

/* What the switches say. */
extern bool ring_by_call, ring_defers_rss, ring_any_node, ring_arms;

#define ring_count(stat, by)	this_cpu_add(ring_stats[stat], by)

struct pagelab_ring *ring_create(int cpu, unsigned int pages);
unsigned int ring_ready(const struct pagelab_ring *ring);
void ring_fill(struct pagelab_ring *ring, int cpu);
unsigned int ring_give_back(struct pagelab_ring *ring, unsigned int pages,
			    enum ring_stat why);
void ring_account(struct pagelab_ring *ring);
bool ring_asked_for(const struct vm_area_struct *vma);
struct folio *ring_take(struct vm_area_struct *vma, unsigned long address);
bool ring_has_page(void);
bool ring_is_needed(void);
void ring_limit_processes(unsigned int percent);

#endif /* _MM_PAGELAB_RINGS_H */
