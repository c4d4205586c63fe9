/* SPDX-License-Identifier: GPL-2.0 */
/* Hooks of the rings of zeroed pages; by way of linux/pagelab.h. */
#ifndef _LINUX_PAGELAB_RINGS_H
#define _LINUX_PAGELAB_RINGS_H

#ifdef CONFIG_PAGELAB_RINGS

struct folio_batch;

/* prctl(): whether what the process maps from now on is served from rings. */
#define PR_PAGELAB_RINGS	0x70670001

/* Mapped after that call, in vma->vm_flags and mm->def_flags. */
#define VM_PAGELAB_RINGS	BIT(45)

/* What a fault left to the thread. */
#define PAGELAB_DEFERRED_LRU	1U
#define PAGELAB_DEFERRED_RSS	2U

DECLARE_STATIC_KEY_FALSE(pagelab_rings_on);
/* Set when entries are first armed, and never cleared. */
DECLARE_STATIC_KEY_FALSE(pagelab_rings_arm);

struct folio *__pagelab_ring_take(struct vm_area_struct *vma,
				  unsigned long address);
unsigned int __pagelab_ring_defer(struct folio *folio,
				  struct vm_area_struct *vma);
bool __pagelab_ring_armed(pte_t pte);
struct folio *__pagelab_ring_engine(struct vm_fault *vmf);
bool pagelab_ring_lock(struct vm_fault *vmf);
void pagelab_ring_unlock(struct vm_fault *vmf, vm_fault_t result);
bool __pagelab_ring_serves(struct vm_fault *vmf);
void __pagelab_ring_mapped(struct vm_area_struct *vma, unsigned long start,
			   unsigned long size);
void pagelab_ring_count_owed(struct mm_struct *mm, enum pagelab_mutation where);
void pagelab_ring_fork(struct mm_struct *mm, const struct mm_struct *from);
void pagelab_ring_mm_exit(struct mm_struct *mm);
int pagelab_ring_call(unsigned long on);
bool __pagelab_ring_needs_drain(int cpu);
/* Of mm/swap.c: puts folios on LRU lists, and drops their references. */
void pagelab_lru_add(struct folio_batch *fbatch);
unsigned int __pagelab_ring_drain(int cpu, struct folio_batch *batch);

/* A zeroed page for an anonymous fault, or NULL: allocate one. */
static __always_inline struct folio *
pagelab_ring_take(struct vm_area_struct *vma, unsigned long address)
{
	if (!static_branch_unlikely(&pagelab_rings_on))
		return NULL;
	return __pagelab_ring_take(vma, address);
}

/* What the thread will do of folio_add_lru_vma() and add_mm_counter(). */
static __always_inline unsigned int
pagelab_ring_defer(struct folio *folio, struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&pagelab_rings_on) ||
	    folio_test_large(folio) || (vma->vm_flags & VM_LOCKED))
		return 0;
	return __pagelab_ring_defer(folio, vma);
}

/* Whether the entry, which is not present, is armed. */
static __always_inline bool pagelab_ring_armed(pte_t pte)
{
	return static_branch_unlikely(&pagelab_rings_arm) &&
	       __pagelab_ring_armed(pte);
}

/* Whether a load gets a page of its own, as the engine gives it. */
static __always_inline bool pagelab_ring_serves(struct vm_fault *vmf)
{
	return static_branch_unlikely(&pagelab_rings_arm) &&
	       __pagelab_ring_serves(vmf);
}

/* A zeroed and charged page for a fault on an armed entry, or NULL. */
static __always_inline struct folio *
pagelab_ring_engine(struct vm_fault *vmf)
{
	return static_branch_unlikely(&pagelab_rings_arm) ?
		__pagelab_ring_engine(vmf) : NULL;
}

/* After a mapping was made or grew by this range. */
static __always_inline void
pagelab_ring_mapped(struct vm_area_struct *vma, unsigned long start,
		    unsigned long size)
{
	if (static_branch_unlikely(&pagelab_rings_arm) &&
	    (vma->vm_flags & VM_PAGELAB_RINGS))
		__pagelab_ring_mapped(vma, start, size);
}

/* Before pages of the process are taken away that its counter may lack. */
static inline void pagelab_ring_unmap(struct mm_struct *mm)
{
	if (unlikely(atomic_read(&mm->pagelab_ring.owed)))
		pagelab_ring_count_owed(mm, PAGELAB_RING_UNMAP);
}

static inline void pagelab_ring_mm_init(struct mm_struct *mm)
{
	INIT_LIST_HEAD(&mm->pagelab_ring.list);
	mm->pagelab_ring.asked = false;
	atomic_set(&mm->pagelab_ring.owed, 0);
}

static __always_inline bool pagelab_ring_needs_drain(int cpu)
{
	return static_branch_unlikely(&pagelab_rings_on) &&
	       __pagelab_ring_needs_drain(cpu);
}

/* Moves pages that wait for an LRU list to @batch; returns how many. */
static __always_inline unsigned int
pagelab_ring_drain(int cpu, struct folio_batch *batch)
{
	if (!static_branch_unlikely(&pagelab_rings_on))
		return 0;
	return __pagelab_ring_drain(cpu, batch);
}

#else /* !CONFIG_PAGELAB_RINGS */

static inline struct folio *pagelab_ring_take(struct vm_area_struct *vma,
					      unsigned long address)
{
	return NULL;
}

#define PAGELAB_DEFERRED_LRU	1U
#define PAGELAB_DEFERRED_RSS	2U

static inline unsigned int pagelab_ring_defer(struct folio *folio,
					      struct vm_area_struct *vma)
{
	return 0;
}

static inline bool pagelab_ring_armed(pte_t pte)
{
	return false;
}

static inline bool pagelab_ring_serves(struct vm_fault *vmf)
{
	return false;
}

static inline struct folio *pagelab_ring_engine(struct vm_fault *vmf)
{
	return NULL;
}

static inline bool pagelab_ring_lock(struct vm_fault *vmf)
{
	return true;
}

static inline void pagelab_ring_unlock(struct vm_fault *vmf, vm_fault_t result)
{
}

static inline void pagelab_ring_mapped(struct vm_area_struct *vma,
				       unsigned long start, unsigned long size)
{
}

static inline void pagelab_ring_unmap(struct mm_struct *mm)
{
}

static inline void pagelab_ring_fork(struct mm_struct *mm,
				     const struct mm_struct *from)
{
}

static inline void pagelab_ring_mm_init(struct mm_struct *mm)
{
}

static inline void pagelab_ring_mm_exit(struct mm_struct *mm)
{
}

static inline bool pagelab_ring_needs_drain(int cpu)
{
	return false;
}

static inline unsigned int pagelab_ring_drain(int cpu,
					      struct folio_batch *batch)
{
	return 0;
}

#endif /* CONFIG_PAGELAB_RINGS */

#endif /* _LINUX_PAGELAB_RINGS_H */
