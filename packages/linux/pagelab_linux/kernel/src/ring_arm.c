// SPDX-License-Identifier: GPL-2.0
/*
 * Armed entries (3.2, 4.3): a short-lived worker goes through each new mapping
 * of a process that asked, builds the tables and writes a word into each empty
 * entry. The word has a lock bit and the owner's number, as published. It is a
 * PTE marker, which all that walk page tables know: mincore(), mprotect(),
 * mremap(), fork(), userfaultfd. The permissions are the VMA's.
 *
 * The engine is software in the fault. It locks the entry before it takes a
 * page, so that of two threads one takes it, and the other one tries its access
 * again (4.9).
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/workqueue.h>
#include <asm/pgalloc.h>

#include "core.h"
#include "rings.h"

/* Of a marker's offset. The kernel's own markers have the bits below. */
#define ARMED		BIT(2)
#define ARMED_LOCK	BIT(3)
#define OWNER_SHIFT	8

DEFINE_STATIC_KEY_FALSE(pagelab_rings_arm);

struct arming {
	struct work_struct work;
	struct mm_struct *mm;		/* by mmgrab() */
	unsigned long start, end;
	pid_t owner;
};

static pte_t word(unsigned long offset)
{
	return swp_entry_to_pte(swp_entry(SWP_PTE_MARKER, offset));
}

bool __pagelab_ring_armed(pte_t pte)
{
	swp_entry_t entry;

	if (pte_none(pte) || pte_present(pte))
		return false;
	entry = pte_to_swp_entry(pte);
	return is_pte_marker_entry(entry) && (swp_offset(entry) & ARMED);
}

static bool may_be_armed(const struct vm_area_struct *vma)
{
	return (vma->vm_flags & VM_PAGELAB_RINGS) &&
	       vma_is_anonymous((struct vm_area_struct *)vma) &&
	       !(vma->vm_flags & (VM_SHARED | VM_LOCKED | VM_GROWSDOWN |
				  VM_UFFD_MISSING | VM_UFFD_WP));
}

/* The last-level table of @address, made if there is none. */
static pmd_t *table_of(struct mm_struct *mm, unsigned long address)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d = p4d_alloc(mm, pgd, address);
	pud_t *pud = p4d ? pud_alloc(mm, p4d, address) : NULL;
	pmd_t *pmd = pud ? pmd_alloc(mm, pud, address) : NULL;

	return !pmd || pte_alloc(mm, pmd) ? NULL : pmd;
}

/* Arms what is empty of one table. Caller holds the mmap_lock for reading. */
static void arm_table(struct arming *arming, unsigned long start,
		      unsigned long end)
{
	pmd_t *pmd = table_of(arming->mm, start);
	pte_t armed = word(ARMED | (unsigned long)arming->owner << OWNER_SHIFT);
	unsigned long count = 0;
	spinlock_t *lock;
	pte_t *first, *pte;

	/* A huge page has no table. */
	first = pmd ? pte_offset_map_lock(arming->mm, pmd, start, &lock) : NULL;
	if (!first)
		return;
	for (pte = first; start < end; pte++, start += PAGE_SIZE)
		if (pte_none(ptep_get(pte))) {
			set_pte_at(arming->mm, start, pte, armed);
			count++;
		}
	pte_unmap_unlock(first, lock);
	ring_count(RING_ARMED, count);
}

/* One step; the lock is free in between. Whether there is more to do. */
static bool arm_some(struct arming *arming)
{
	struct mm_struct *mm = arming->mm;
	struct vm_area_struct *vma;
	unsigned long end;

	if (!mmget_not_zero(mm))
		return false;
	mmap_read_lock(mm);
	vma = find_vma(mm, arming->start);
	if (vma)
		arming->start = max(arming->start, vma->vm_start);
	if (!vma || arming->start >= arming->end ||
	    !READ_ONCE(mm->pagelab_ring.asked)) {
		arming->start = arming->end;
	} else {
		end = min(pmd_addr_end(arming->start, arming->end),
			  vma->vm_end);
		if (may_be_armed(vma))
			arm_table(arming, arming->start, end);
		arming->start = end;
	}
	mmap_read_unlock(mm);
	mmput(mm);
	cond_resched();
	return arming->start < arming->end;
}

static void arm(struct work_struct *work)
{
	struct arming *arming = container_of(work, struct arming, work);

	while (arm_some(arming))
		;
	mmdrop(arming->mm);
	kfree(arming);
}

/* Caller holds the mmap_lock for writing. Without memory nothing is armed. */
void __pagelab_ring_mapped(struct vm_area_struct *vma, unsigned long start,
			   unsigned long size)
{
	struct arming *arming;

	if (!READ_ONCE(ring_arms) || !may_be_armed(vma) ||
	    !READ_ONCE(vma->vm_mm->pagelab_ring.asked) ||
	    pagelab_left_out(PAGELAB_NO_MEMORY))
		return;
	arming = kmalloc(sizeof(*arming), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!arming)
		return;
	INIT_WORK(&arming->work, arm);
	arming->mm = vma->vm_mm;
	mmgrab(arming->mm);
	arming->start = start;
	arming->end = start + size;
	arming->owner = current->tgid;
	queue_work(system_unbound_wq, &arming->work);
}

/* Replaces the entry of a fault, if it still is what the fault saw. */
static bool replace_entry(struct vm_fault *vmf, pte_t by)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	bool same = false;
	spinlock_t *lock;
	pte_t *pte;

	pte = pte_offset_map_lock(mm, vmf->pmd, vmf->address, &lock);
	if (!pte)
		return false;
	if (pte_same(ptep_get(pte), vmf->orig_pte)) {
		set_pte_at(mm, vmf->address, pte, by);
		vmf->orig_pte = by;
		same = true;
	}
	pte_unmap_unlock(pte, lock);
	return same;
}

static unsigned long offset_of(pte_t armed)
{
	return swp_offset(pte_to_swp_entry(armed));
}

/*
 * Before the fault on an armed entry is served, by whomever. False if another
 * thread does that, or if the entry is another one by now: the access is tried
 * again.
 */
bool pagelab_ring_lock(struct vm_fault *vmf)
{
	unsigned long offset = offset_of(vmf->orig_pte);

	if (pagelab_left_out(PAGELAB_RING_LOCK))
		return true;
	if (!(offset & ARMED_LOCK) &&
	    replace_entry(vmf, word(offset | ARMED_LOCK)))
		return true;
	ring_count(RING_JOINED, 1);
	return false;
}

/* The entry stays armed if the fault failed. The VMA may be gone on a retry. */
void pagelab_ring_unlock(struct vm_fault *vmf, vm_fault_t result)
{
	if (!(result & (VM_FAULT_RETRY | VM_FAULT_COMPLETED)))
		replace_entry(vmf, word(offset_of(vmf->orig_pte) & ~ARMED_LOCK));
}

static bool is_armed(struct vm_fault *vmf)
{
	return (vmf->flags & FAULT_FLAG_ORIG_PTE_VALID) &&
	       __pagelab_ring_armed(vmf->orig_pte);
}

bool __pagelab_ring_serves(struct vm_fault *vmf)
{
	return is_armed(vmf) && READ_ONCE(ring_arms) &&
	       ring_asked_for(vmf->vma) && ring_has_page();
}

struct folio *__pagelab_ring_engine(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct folio *folio;

	if (!READ_ONCE(ring_arms))
		return NULL;
	if (!is_armed(vmf)) {
		if (vma->vm_flags & VM_PAGELAB_RINGS)
			ring_count(RING_UNARMED, 1);
		return NULL;
	}
	folio = ring_take(vma, vmf->address);
	if (!folio)
		return NULL;
	if (mem_cgroup_charge(folio, vma->vm_mm, GFP_KERNEL)) {
		folio_put(folio);
		return NULL;
	}
	folio_throttle_swaprate(folio, GFP_KERNEL);
	return folio;
}
