/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hooks of pagelab's mechanisms in the page-fault path.
 *
 * See mm/pagelab/Documentation-pagelab.rst for what each does and why it is
 * correct. What stands here is what must be inline: the tests of static keys
 * and the look-up of the translation cache.
 */
#ifndef _LINUX_PAGELAB_H
#define _LINUX_PAGELAB_H

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <asm/tsc.h>

/* What a test can have left out, one at a time: debugfs pagelab/mutation. */
enum pagelab_mutation {
	PAGELAB_MUTATION_NONE,
	PAGELAB_WALK_FREE_PMD,		/* free_pmd_range() */
	PAGELAB_WALK_MOVE_PUD,		/* move_normal_pud() */
	PAGELAB_WALK_FORK,		/* mm_init() of a copied mm */
	PAGELAB_RESV_UNMAP,		/* unmap_vmas() */
	PAGELAB_RESV_ZAP,		/* zap_page_range_single() */
	PAGELAB_RESV_COW,		/* wp_page_copy() */
	PAGELAB_RESV_SHRINK,		/* the shrinker */
	PAGELAB_NO_MEMORY,		/* what the mechanisms' own data take */
	PAGELAB_RING_ZERO,		/* zeroing of a ring's pages */
	PAGELAB_RING_NODE,		/* the check of a page's node */
	PAGELAB_RING_DRAIN,		/* lru_add_drain_cpu() */
	PAGELAB_RING_DISABLE,		/* giving back on switching off */
	PAGELAB_RING_OFFLINE,		/* giving back of a CPU offline */
	PAGELAB_RING_SHRINK,		/* the shrinker */
	PAGELAB_RING_ASK,		/* the look whether the process asked */
	PAGELAB_RING_UNMAP,		/* unmap_vmas() */
	PAGELAB_RING_EXIT,		/* ... and the count at the exit */
	PAGELAB_RING_LIMIT,		/* the limit of a process */
	PAGELAB_RING_LOCK,		/* the lock bit of an armed entry */
	PAGELAB_LBA_BLOCK,		/* the right block's address */
	PAGELAB_LBA_JOIN,		/* the search for a miss under way */
	PAGELAB_LBA_STATUS,		/* the look at a read's status */
	PAGELAB_LBA_WITHDRAW,		/* unmap_page_range() */
	PAGELAB_LBA_RELEASE,		/* of a page that it took away */
	PAGELAB_LBA_CHARGE,		/* kpted's charge to the process's cgroup */
	PAGELAB_NR_MUTATIONS
};

#ifdef CONFIG_PAGELAB_WALK_CACHE

enum pagelab_walk_level {
	PAGELAB_WALK_MISS,
	PAGELAB_WALK_PUD,		/* vmf->pud is known */
	PAGELAB_WALK_PMD,		/* vmf->pmd is known, vmf->pud is not */
};

#define PAGELAB_WALK_SLOTS	(1UL << CONFIG_PAGELAB_WALK_CACHE_BITS)

/*
 * @tag holds all bits of the address above the level, so that a match is
 * exact. The paper compares each level's own nine bits, and mixes up regions
 * whose upper levels share a slot.
 * @gen is the generation of the mm at the fill. No two address spaces and no
 * two times of one share a value, so it also says whose entry this is.
 */
struct pagelab_walk_entry {
	unsigned int seq;		/* odd while written; caches of VMAs */
	unsigned long tag;
	unsigned long gen;
	void *entry;
};

struct pagelab_walk_vma {
	struct pagelab_walk_entry pmd[PAGELAB_WALK_SLOTS];
	struct pagelab_walk_entry pud[PAGELAB_WALK_SLOTS];
};

struct pagelab_walk_counters {
	unsigned long pmd_hits;
	unsigned long pud_hits;
	unsigned long misses;
	unsigned long invalidations;
	unsigned long checks;
	unsigned long mismatches;
	unsigned long timed;
	unsigned long ticks;
};

/*
 * The caches of a CPU: of PMD entries, of PUD entries and of PMD tables. Not
 * one structure, so that a slot is at a fixed offset from its index.
 */
typedef struct pagelab_walk_entry pagelab_walk_slots[PAGELAB_WALK_SLOTS];
DECLARE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_pmds);
DECLARE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_puds);
DECLARE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_pmd_tables);
DECLARE_PER_CPU_ALIGNED(struct pagelab_walk_counters, pagelab_walk_count);
DECLARE_STATIC_KEY_FALSE(pagelab_walk_on);
DECLARE_STATIC_KEY_FALSE(pagelab_walk_per_vma);
DECLARE_STATIC_KEY_FALSE(pagelab_walk_tables);
DECLARE_STATIC_KEY_FALSE(pagelab_walk_oracle);
DECLARE_STATIC_KEY_FALSE(pagelab_walk_timing);

bool pagelab_walk_check(struct vm_fault *vmf, enum pagelab_walk_level level);
void pagelab_walk_fill(struct vm_fault *vmf, unsigned long gen);
void __pagelab_walk_invalidate(struct mm_struct *mm,
			       enum pagelab_mutation where);
void pagelab_walk_mm_init(struct mm_struct *mm);
void pagelab_walk_vma_free(struct vm_area_struct *vma);

static __always_inline struct pagelab_walk_entry *
pagelab_walk_slot(struct pagelab_walk_entry *slots, unsigned long tag)
{
	return &slots[tag & (PAGELAB_WALK_SLOTS - 1)];
}

/*
 * For entries that only this CPU writes. A macro, so that each part is read
 * relative to the CPU's segment, at an offset that the compiler knows.
 */
#define pagelab_walk_match(array, wanted, now, found)			\
({									\
	unsigned long __tag = (wanted);					\
	unsigned long __i = __tag & (PAGELAB_WALK_SLOTS - 1);		\
	bool __hit;							\
									\
	preempt_disable();						\
	__hit = __this_cpu_read(array[__i].tag) == __tag && \
		__this_cpu_read(array[__i].gen) == (now); \
	if (__hit)							\
		*(found) = __this_cpu_read(array[__i].entry); \
	preempt_enable();						\
	__hit;								\
})

/* For entries that any thread of the process may write meanwhile. */
static __always_inline bool
pagelab_walk_match_shared(struct pagelab_walk_entry *slots, unsigned long tag,
			  unsigned long gen, void **entry)
{
	struct pagelab_walk_entry *slot = pagelab_walk_slot(slots, tag);
	/* Pairs with the release in fill_shared(). */
	unsigned int seq = smp_load_acquire(&slot->seq);

	if (READ_ONCE(slot->tag) != tag || READ_ONCE(slot->gen) != gen)
		return false;
	*entry = READ_ONCE(slot->entry);
	/* All was read before the count is read again. */
	smp_rmb();
	return likely(READ_ONCE(slot->seq) == (seq & ~1U));
}

/* Each caller gives a constant level, so that a hit takes no further tests. */
static __always_inline enum pagelab_walk_level
pagelab_walk_hit(struct vm_fault *vmf, enum pagelab_walk_level level,
		 void *entry)
{
	if (level == PAGELAB_WALK_PMD) {
		vmf->pmd = entry;
		this_cpu_inc(pagelab_walk_count.pmd_hits);
	} else {
		vmf->pud = entry;
		this_cpu_inc(pagelab_walk_count.pud_hits);
	}
	if (static_branch_unlikely(&pagelab_walk_oracle) &&
	    !pagelab_walk_check(vmf, level))
		return PAGELAB_WALK_MISS;
	return level;
}

static __always_inline enum pagelab_walk_level
pagelab_walk_find_vma(struct vm_fault *vmf, unsigned long gen)
{
	struct pagelab_walk_vma *cache = READ_ONCE(vmf->vma->pagelab_walk);
	void *entry;

	if (!cache)
		return PAGELAB_WALK_MISS;
	if (pagelab_walk_match_shared(cache->pmd, vmf->address >> PMD_SHIFT,
				      gen, &entry))
		return pagelab_walk_hit(vmf, PAGELAB_WALK_PMD, entry);
	if (pagelab_walk_match_shared(cache->pud, vmf->address >> PUD_SHIFT,
				      gen, &entry))
		return pagelab_walk_hit(vmf, PAGELAB_WALK_PUD, entry);
	return PAGELAB_WALK_MISS;
}

static __always_inline enum pagelab_walk_level
pagelab_walk_find_cpu(struct vm_fault *vmf, unsigned long gen)
{
	void *entry;

	if (static_branch_unlikely(&pagelab_walk_tables)) {
		if (!pagelab_walk_match(pagelab_walk_pmd_tables,
					vmf->address >> PUD_SHIFT, gen, &entry))
			return PAGELAB_WALK_MISS;
		return pagelab_walk_hit(vmf, PAGELAB_WALK_PMD, (pmd_t *)entry +
					pmd_index(vmf->address));
	}
	if (pagelab_walk_match(pagelab_walk_pmds, vmf->address >> PMD_SHIFT,
			       gen, &entry))
		return pagelab_walk_hit(vmf, PAGELAB_WALK_PMD, entry);
	if (pagelab_walk_match(pagelab_walk_puds, vmf->address >> PUD_SHIFT,
			       gen, &entry))
		return pagelab_walk_hit(vmf, PAGELAB_WALK_PUD, entry);
	return PAGELAB_WALK_MISS;
}

/*
 * Looks the faulting address up. @gen is what pagelab_walk_fill() is to be
 * given after the walk of a miss: read before the walk, it makes entries of
 * walks during an invalidation stale.
 */
static __always_inline enum pagelab_walk_level
pagelab_walk_find(struct vm_fault *vmf, unsigned long *gen)
{
	if (!static_branch_unlikely(&pagelab_walk_on))
		return PAGELAB_WALK_MISS;

	*gen = READ_ONCE(vmf->vma->vm_mm->pagelab_walk_gen);
	if (static_branch_unlikely(&pagelab_walk_per_vma))
		return pagelab_walk_find_vma(vmf, *gen);
	return pagelab_walk_find_cpu(vmf, *gen);
}

static __always_inline void pagelab_walk_walked(struct vm_fault *vmf,
						unsigned long gen)
{
	if (static_branch_unlikely(&pagelab_walk_on))
		pagelab_walk_fill(vmf, gen);
}

/* The time stamp at the beginning of a walk, or 0 if walks are not timed. */
static __always_inline u64 pagelab_walk_begin(void)
{
	return static_branch_unlikely(&pagelab_walk_timing) ? rdtsc_ordered() : 0;
}

/* The PMD entry is known, from the cache or by a walk. */
static __always_inline void pagelab_walk_end(u64 began)
{
	if (static_branch_unlikely(&pagelab_walk_timing) && began) {
		this_cpu_add(pagelab_walk_count.ticks, rdtsc_ordered() - began);
		this_cpu_inc(pagelab_walk_count.timed);
	}
}

/* Generation 0: no fault of this mm has ever been cached. */
static inline void pagelab_walk_invalidate(struct mm_struct *mm,
					   enum pagelab_mutation where)
{
	if (READ_ONCE(mm->pagelab_walk_gen))
		__pagelab_walk_invalidate(mm, where);
}

static inline void pagelab_walk_vma_init(struct vm_area_struct *vma)
{
	vma->pagelab_walk = NULL;
}

#else /* !CONFIG_PAGELAB_WALK_CACHE */

enum pagelab_walk_level {
	PAGELAB_WALK_MISS,
	PAGELAB_WALK_PUD,
	PAGELAB_WALK_PMD,
};

static inline enum pagelab_walk_level
pagelab_walk_find(struct vm_fault *vmf, unsigned long *gen)
{
	return PAGELAB_WALK_MISS;
}

static inline void pagelab_walk_walked(struct vm_fault *vmf, unsigned long gen)
{
}

static inline u64 pagelab_walk_begin(void)
{
	return 0;
}

static inline void pagelab_walk_end(u64 began)
{
}

static inline void pagelab_walk_invalidate(struct mm_struct *mm,
					   enum pagelab_mutation where)
{
}

static inline void pagelab_walk_mm_init(struct mm_struct *mm)
{
}

static inline void pagelab_walk_vma_init(struct vm_area_struct *vma)
{
}

static inline void pagelab_walk_vma_free(struct vm_area_struct *vma)
{
}

#endif /* CONFIG_PAGELAB_WALK_CACHE */

#ifdef CONFIG_PAGELAB_RESERVATION

DECLARE_STATIC_KEY_FALSE(pagelab_resv_on);
/* Set when reservations are first switched on, and never cleared. */
DECLARE_STATIC_KEY_FALSE(pagelab_resv_used);

struct folio *__pagelab_resv_alloc(struct vm_fault *vmf);
void __pagelab_resv_release(struct mm_struct *mm, unsigned long start,
			    unsigned long end, enum pagelab_mutation where);
void __pagelab_resv_exit(struct mm_struct *mm);

/* A zeroed and charged page for an anonymous fault, or NULL: allocate one. */
static __always_inline struct folio *pagelab_resv_alloc(struct vm_fault *vmf)
{
	if (!static_branch_unlikely(&pagelab_resv_on))
		return NULL;
	return __pagelab_resv_alloc(vmf);
}

/* Gives back what is reserved for groups that overlap the range. */
static __always_inline void
pagelab_resv_release(struct mm_struct *mm, unsigned long start,
		     unsigned long end, enum pagelab_mutation where)
{
	if (static_branch_unlikely(&pagelab_resv_used) &&
	    READ_ONCE(mm->pagelab_resv))
		__pagelab_resv_release(mm, start, end, where);
}

static inline void pagelab_resv_mm_init(struct mm_struct *mm)
{
	mm->pagelab_resv = NULL;
}

static inline void pagelab_resv_mm_exit(struct mm_struct *mm)
{
	if (mm->pagelab_resv)
		__pagelab_resv_exit(mm);
}

#else /* !CONFIG_PAGELAB_RESERVATION */

static inline struct folio *pagelab_resv_alloc(struct vm_fault *vmf)
{
	return NULL;
}

static inline void pagelab_resv_release(struct mm_struct *mm,
					unsigned long start, unsigned long end,
					enum pagelab_mutation where)
{
}

static inline void pagelab_resv_mm_init(struct mm_struct *mm)
{
}

static inline void pagelab_resv_mm_exit(struct mm_struct *mm)
{
}

#endif /* CONFIG_PAGELAB_RESERVATION */

#include <linux/pagelab_rings.h>

#ifdef CONFIG_PAGELAB_LBA

extern const struct vm_operations_struct pagelab_lba_vm_ops;

int __pagelab_lba_fork(void);

/* Whether fork() may copy the mapping. */
static inline int pagelab_lba_fork(const struct vm_area_struct *vma)
{
	if (unlikely(vma->vm_ops == &pagelab_lba_vm_ops))
		return __pagelab_lba_fork();
	return 0;
}

void __pagelab_lba_zap(struct vm_area_struct *vma, unsigned long start,
		       unsigned long end);
void __pagelab_lba_zapped(struct vm_area_struct *vma);

/* Before and after the PTEs of a range are taken away. */
static inline void pagelab_lba_zap(struct vm_area_struct *vma,
				   unsigned long start, unsigned long end)
{
	if (unlikely(vma->vm_ops == &pagelab_lba_vm_ops))
		__pagelab_lba_zap(vma, start, end);
}

static inline void pagelab_lba_zapped(struct vm_area_struct *vma)
{
	if (unlikely(vma->vm_ops == &pagelab_lba_vm_ops))
		__pagelab_lba_zapped(vma);
}

#else /* !CONFIG_PAGELAB_LBA */

static inline int pagelab_lba_fork(const struct vm_area_struct *vma)
{
	return 0;
}

static inline void pagelab_lba_zap(struct vm_area_struct *vma,
				   unsigned long start, unsigned long end)
{
}

static inline void pagelab_lba_zapped(struct vm_area_struct *vma)
{
}

#endif /* CONFIG_PAGELAB_LBA */

static inline void pagelab_mm_init(struct mm_struct *mm)
{
	pagelab_walk_mm_init(mm);
	pagelab_resv_mm_init(mm);
	pagelab_ring_mm_init(mm);
}

static inline void pagelab_mm_exit(struct mm_struct *mm)
{
	pagelab_resv_mm_exit(mm);
	pagelab_ring_mm_exit(mm);
}

#endif /* _LINUX_PAGELAB_H */
