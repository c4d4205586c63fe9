// SPDX-License-Identifier: GPL-2.0
/*
 * Rings of zeroed pages, one for each CPU, after Tirumalasetty et al.,
 * "Reducing Minor Page Fault Overheads through Enhanced Page Walker": what a
 * fault need not do itself is done before it and after it by a thread. This
 * is the part in software (section 4.8) within the fault's own handler.
 *
 * Before a fault, the thread allocates and zeroes the page. After it, the
 * thread puts the page on its LRU list. What stays in the fault, and why, is
 * in Documentation-pagelab.rst.
 *
 * A ring is replaced as a whole: faults see it within a section that disables
 * preemption, and it is emptied after all of these have ended.
 */
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/mempolicy.h>
#include <linux/mm_inline.h>
#include <linux/pagevec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/topology.h>

#include "core.h"
#include "rings.h"
#include "trace.h"

/*
 * A page in a ring is worth no more than free memory: nothing is reclaimed for
 * it. Of the CPU's node alone, since the page of a fault that finds none here
 * is placed by the task's policy. Not from ZONE_MOVABLE, since it cannot be
 * migrated.
 */
#define RING_GFP	((GFP_USER | __GFP_MOVABLE | __GFP_NOMEMALLOC | \
			  __GFP_NOWARN | __GFP_THISNODE) & ~__GFP_RECLAIM)

bool ring_by_call, ring_defers_rss, ring_any_node, ring_arms;

/* How many pages are filled between two looks at free memory. */
#define WATERMARK_PAGES	32

DEFINE_STATIC_KEY_FALSE(pagelab_rings_on);
DEFINE_PER_CPU(struct pagelab_ring __rcu *, pagelab_rings);
DEFINE_PER_CPU(unsigned long [RING_NR_STATS], ring_stats);

static struct ring_entry *entry_at(struct pagelab_ring *ring,
				   unsigned int index)
{
	return &ring->entry[index & ring->mask];
}

/* The ring of this CPU, or NULL. Preemption is disabled. */
static struct pagelab_ring *own_ring(void)
{
	return rcu_dereference_sched(*this_cpu_ptr(&pagelab_rings));
}

#ifdef CONFIG_NUMA
/*
 * Whether the task's and the VMA's policy and the cpuset place this page on
 * this node. Interleaving chooses a node for each page, so its pages are left
 * to the allocator.
 */
static bool placed_on(struct vm_area_struct *vma, unsigned long address,
		      int node)
{
	struct mempolicy *policy;
	bool allowed = true;
	pgoff_t index;

	if (nr_online_nodes == 1 || pagelab_left_out(PAGELAB_RING_NODE))
		return true;
	policy = get_vma_policy(vma, address, 0, &index);
	switch (policy->mode) {
	case MPOL_PREFERRED:
		allowed = node == first_node(policy->nodes);
		/* Of a task without a policy, the CPU's node comes first. */
		if (policy->flags & MPOL_F_MORON)
			allowed |= READ_ONCE(ring_any_node);
		break;
	case MPOL_PREFERRED_MANY:
	case MPOL_BIND:
		/* set_mempolicy_home_node() */
		allowed = node_isset(node, policy->nodes) &&
			  (policy->home_node == NUMA_NO_NODE ||
			   policy->home_node == node);
		break;
	case MPOL_INTERLEAVE:
	case MPOL_WEIGHTED_INTERLEAVE:
		allowed = false;
		break;
	}
	mpol_cond_put(policy);
	return allowed && node_isset(node, cpuset_current_mems_allowed);
}
#else
static bool placed_on(struct vm_area_struct *vma, unsigned long address,
		      int node)
{
	return true;
}
#endif

/* Whether faults of the mapping are served, by what the process asked for. */
bool ring_asked_for(const struct vm_area_struct *vma)
{
	if (!READ_ONCE(ring_by_call) || pagelab_left_out(PAGELAB_RING_ASK))
		return true;
	return (vma->vm_flags & VM_PAGELAB_RINGS) &&
	       READ_ONCE(vma->vm_mm->pagelab_ring.asked);
}

/* A page that may not go to this fault stays for the next one. */
struct folio *ring_take(struct vm_area_struct *vma, unsigned long address)
{
	enum ring_stat stat = RING_MISSES;
	struct pagelab_ring *ring;
	struct page *page = NULL;

	if (!ring_asked_for(vma)) {
		ring_count(RING_NOT_ASKED, 1);
		return NULL;
	}
	preempt_disable();
	ring = own_ring();
	if (ring)
		page = READ_ONCE(entry_at(ring, ring->tail)->page);
	if (page && !placed_on(vma, address, page_to_nid(page))) {
		stat = RING_MISPLACED;
	} else if (page) {
		/* Reads what ring_fill() released; or it was given back. */
		page = xchg(&entry_at(ring, ring->tail)->page, NULL);
		if (page) {
			ring->tail++;
			stat = RING_HITS;
		}
	}
	__this_cpu_inc(ring_stats[stat]);
	preempt_enable();
	return stat == RING_HITS ? page_folio(page) : NULL;
}

/* In the place of vma_alloc_zeroed_movable_folio(). */
struct folio *__pagelab_ring_take(struct vm_area_struct *vma,
				  unsigned long address)
{
	/* Armed entries were served before, by pagelab_ring_engine(). */
	return READ_ONCE(ring_arms) ? NULL : ring_take(vma, address);
}

/* Whether this CPU's ring has one; another thread may take it. */
bool ring_has_page(void)
{
	struct pagelab_ring *ring;
	bool has;

	preempt_disable();
	ring = own_ring();
	has = ring && READ_ONCE(entry_at(ring, ring->tail)->page);
	preempt_enable();
	return has;
}

/*
 * In the place of folio_add_lru(): leaves the page to the thread, like the
 * batch of folio_add_lru() but for as many as the ring has entries. Where the
 * switch says so, in the place of add_mm_counter(), too. Returns what it did.
 * Caller holds the lock of the page table, and maps the page before it drops
 * that.
 */
unsigned int __pagelab_ring_defer(struct folio *folio,
				  struct vm_area_struct *vma)
{
	unsigned int deferred = 0;
	struct pagelab_ring *ring;
	struct ring_entry *entry;

	if (!ring_asked_for(vma))
		return 0;
	preempt_disable();
	ring = own_ring();
	entry = ring ? entry_at(ring, ring->in) : NULL;
	/* lru_cache_disable() waits for this section, and drains after it. */
	if (entry && !READ_ONCE(entry->used) && !lru_cache_disabled()) {
		if (lru_gen_enabled() && lru_gen_in_fault() &&
		    !(current->flags & PF_MEMALLOC))
			folio_set_active(folio);
		folio_get(folio);
		deferred = PAGELAB_DEFERRED_LRU;
		if (READ_ONCE(ring_defers_rss)) {
			atomic_inc(&vma->vm_mm->pagelab_ring.owed);
			ring->owner[ring->in & ring->mask] = vma->vm_mm;
			__this_cpu_inc(ring_stats[RING_RSS_DEFERRED]);
			deferred |= PAGELAB_DEFERRED_RSS;
		}
		/* Pairs with the acquire in used_pages() and count_owed_of_ring(). */
		smp_store_release(&entry->used, folio);
		ring->in++;
		__this_cpu_inc(ring_stats[RING_DEFERRED]);
	}
	preempt_enable();
	return deferred;
}

/*
 * Counts the used page of an entry. Caller holds the ring's lock. The process
 * may end as soon as nothing is owed to it.
 */
static void count_owed_page(struct pagelab_ring *ring, unsigned int at,
			 enum ring_stat stat)
{
	struct mm_struct *mm = ring->owner[at & ring->mask];

	if (!mm)
		return;
	ring->owner[at & ring->mask] = NULL;
	if (stat != RING_RSS_EXIT || !pagelab_left_out(PAGELAB_RING_EXIT))
		add_mm_counter(mm, MM_ANONPAGES, 1);
	ring_count(stat, 1);
	/* Pairs with the acquire in pagelab_ring_mm_exit(). */
	atomic_dec_return_release(&mm->pagelab_ring.owed);
}

/* The scan of one ring for used entries of a process. */
static void count_owed_of_ring(struct pagelab_ring *ring, struct mm_struct *mm,
			       enum ring_stat stat)
{
	unsigned int at;

	spin_lock(&ring->lock);
	for (at = ring->out; at - ring->out <= ring->mask; at++) {
		/* Pairs with the release in __pagelab_ring_defer(). */
		if (!smp_load_acquire(&entry_at(ring, at)->used))
			break;
		if (ring->owner[at & ring->mask] == mm)
			count_owed_page(ring, at, stat);
	}
	spin_unlock(&ring->lock);
}

/*
 * As zap_pte_range() of the paper (4.6): looks through all rings, and only if
 * they have something. Faults of the unmapped range have ended, but for those
 * beside MADV_DONTNEED, which may count below zero until the next pass.
 */
void pagelab_ring_count_owed(struct mm_struct *mm, enum pagelab_mutation where)
{
	enum ring_stat stat = where == PAGELAB_RING_UNMAP ? RING_RSS_UNMAP :
							    RING_RSS_EXIT;
	struct pagelab_ring *ring;
	int cpu;

	if (where == PAGELAB_RING_UNMAP &&
	    (pagelab_left_out(PAGELAB_RING_UNMAP) ||
	     pagelab_left_out(PAGELAB_RING_EXIT)))
		return;
	for_each_possible_cpu(cpu) {
		if (!atomic_read(&mm->pagelab_ring.owed))
			break;
		rcu_read_lock();
		ring = rcu_dereference(per_cpu(pagelab_rings, cpu));
		if (ring)
			count_owed_of_ring(ring, mm, stat);
		rcu_read_unlock();
	}
}

/*
 * Puts the oldest used pages of a ring in @batch, and says how many. Caller
 * holds the ring's lock, and leaves the entries as they are until others find
 * the pages elsewhere: cpu_needs_drain() asks here first.
 */
static unsigned int used_pages(struct pagelab_ring *ring,
			       struct folio_batch *batch)
{
	unsigned int at = ring->out;
	struct folio *folio;

	while (folio_batch_space(batch)) {
		/* Pairs with the release in __pagelab_ring_defer(). */
		folio = smp_load_acquire(&entry_at(ring, at)->used);
		/* A full ring leads back to the first one. */
		if (!folio || at - ring->out > ring->mask)
			break;
		folio_batch_add(batch, folio);
		count_owed_page(ring, at, RING_RSS_THREAD);
		at++;
	}
	return at - ring->out;
}

/* From here on faults may use the entries again. */
static void used_done(struct pagelab_ring *ring, unsigned int pages)
{
	while (pages--) {
		smp_store_release(&entry_at(ring, ring->out)->used, NULL);
		ring->out++;
	}
}

static bool has_used(struct pagelab_ring *ring)
{
	return READ_ONCE(entry_at(ring, READ_ONCE(ring->out))->used);
}

/* For cpu_needs_drain(). */
bool __pagelab_ring_needs_drain(int cpu)
{
	struct pagelab_ring *ring;
	bool needs;

	rcu_read_lock();
	ring = rcu_dereference(per_cpu(pagelab_rings, cpu));
	needs = ring && has_used(ring);
	rcu_read_unlock();
	return needs;
}

/*
 * For lru_add_drain_cpu(), which puts what is in @batch on LRU lists and asks
 * again until there is no more.
 */
unsigned int __pagelab_ring_drain(int cpu, struct folio_batch *batch)
{
	struct pagelab_ring *ring;
	unsigned int pages = 0;

	if (pagelab_left_out(PAGELAB_RING_DRAIN))
		return 0;
	rcu_read_lock();
	ring = rcu_dereference(per_cpu(pagelab_rings, cpu));
	if (ring && has_used(ring)) {
		spin_lock(&ring->lock);
		pages = used_pages(ring, batch);
		/* They are in the CPU's batch. */
		used_done(ring, pages);
		spin_unlock(&ring->lock);
	}
	rcu_read_unlock();
	if (pages)
		ring_count(RING_DRAINED, pages);
	return pages;
}

/*
 * The thread's part after faults. Not by way of its own CPU's batch, which a
 * drain of the ring's CPU would not find: who drains that while pages are on
 * their way waits for the lock, and finds them on their lists.
 */
void ring_account(struct pagelab_ring *ring)
{
	struct folio_batch batch;
	unsigned int pages;

	folio_batch_init(&batch);
	while (has_used(ring)) {
		spin_lock(&ring->lock);
		pages = used_pages(ring, &batch);
		pagelab_lru_add(&batch);
		used_done(ring, pages);
		spin_unlock(&ring->lock);
		ring_count(RING_ACCOUNTED, pages);
		cond_resched();
	}
}

/* How many pages are ready; a fault may be taking one. */
unsigned int ring_ready(const struct pagelab_ring *ring)
{
	unsigned int ready = READ_ONCE(ring->head) - READ_ONCE(ring->tail);

	return ready <= ring->mask + 1 ? ready : 0;
}

/* The same for all nodes together: the allocator finds the nearest one. */
static bool any_memory_is_free(void)
{
	struct zone *zone;

	for_each_populated_zone(zone)
		if (zone_idx(zone) <= ZONE_NORMAL &&
		    zone_watermark_ok(zone, 0, high_wmark_pages(zone),
				      ZONE_NORMAL, 0))
			return true;
	return false;
}

/*
 * Whether kswapd sleeps. Below that, a filled ring would take what reclaim has
 * just freed, and be given back again.
 */
static bool memory_is_free(int node)
{
	struct zone *zone, *end = NODE_DATA(node)->node_zones + MAX_NR_ZONES;

	if (READ_ONCE(ring_any_node))
		return any_memory_is_free();
	for (zone = NODE_DATA(node)->node_zones; zone < end; zone++)
		if (managed_zone(zone) && zone_idx(zone) <= ZONE_NORMAL &&
		    zone_watermark_ok(zone, 0, high_wmark_pages(zone),
				      ZONE_NORMAL, 0))
			return true;
	return false;
}

/*
 * The thread's part before faults. Caller holds ring_mutex. Goes on to the
 * first entry that has a page, as published. The published one stops at an
 * entry, too, for which there was no page the time before.
 */
void ring_fill(struct pagelab_ring *ring, int cpu)
{
	gfp_t gfp = RING_GFP;
	unsigned int filled = 0;
	struct page *page;

	if (!pagelab_left_out(PAGELAB_RING_ZERO))
		gfp |= __GFP_ZERO;
	if (READ_ONCE(ring_any_node))
		gfp &= ~__GFP_THISNODE;
	for (; filled <= ring->mask; filled++) {
		struct ring_entry *entry = entry_at(ring, ring->head);

		if (READ_ONCE(entry->page))
			break;
		if (filled % WATERMARK_PAGES == 0 &&
		    !memory_is_free(cpu_to_mem(cpu)))
			break;
		page = alloc_pages_node(cpu_to_mem(cpu), gfp, 0);
		if (!page) {
			ring_count(RING_NO_MEMORY, 1);
			break;
		}
		if (page_to_nid(page) != cpu_to_mem(cpu))
			ring_count(RING_FILLED_REMOTE, 1);
		/* Whoever sees the page sees its zeroes. */
		smp_store_release(&entry->page, page);
		WRITE_ONCE(ring->head, ring->head + 1);
		cond_resched();
	}
	ring_count(RING_FILLED, filled);
	if (filled)
		trace_pagelab_ring_fill(cpu, filled);
}

/*
 * Frees up to @pages, the last ones filled first. Caller holds ring_mutex, or
 * nobody else knows the ring.
 */
unsigned int ring_give_back(struct pagelab_ring *ring, unsigned int pages,
			    enum ring_stat why)
{
	unsigned int freed = 0;
	struct page *page;

	for (; freed < pages; freed++) {
		page = xchg(&entry_at(ring, ring->head - 1)->page, NULL);
		if (!page)
			break;
		WRITE_ONCE(ring->head, ring->head - 1);
		__free_page(page);
	}
	ring_count(why, freed);
	if (freed)
		trace_pagelab_ring_give_back(why, freed);
	return freed;
}

/* An empty ring; the thread fills it. */
struct pagelab_ring *ring_create(int cpu, unsigned int pages)
{
	struct pagelab_ring *ring;

	if (pagelab_left_out(PAGELAB_NO_MEMORY))
		return NULL;
	ring = kvzalloc_node(struct_size(ring, entry, pages) +
			     pages * sizeof(*ring->owner), GFP_KERNEL,
			     cpu_to_mem(cpu));
	if (!ring)
		return NULL;
	ring->owner = (struct mm_struct **)&ring->entry[pages];
	ring->mask = pages - 1;
	spin_lock_init(&ring->lock);
	return ring;
}
