// SPDX-License-Identifier: GPL-2.0
/*
 * Misses of a mapping of /dev/pagelab-lba, after Lee, Jin et al., "A Case for
 * Hardware-Based Demand Paging": the page fault stands for the walker that
 * found an entry with a block's address, and this file for the unit. It takes
 * a register, a free page, reads the block into it, maps it and marks it. All
 * metadata is left to kpted.
 *
 * Where the unit cannot, it raises a page fault: here, the fault goes on as
 * any fault on a mapped file, by filemap_fault().
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/pagemap.h>

#include "core.h"
#include "../internal.h"
#include "lba.h"
#include "trace.h"

enum entered { ENTERED, UNDER_WAY, ALL_BUSY };

static bool find(const struct lba_unit *unit, const struct lba_file *file,
		 unsigned long index)
{
	unsigned int i;

	for_each_set_bit(i, &unit->busy, UNIT_REGISTERS)
		if (unit->registers[i].index == index &&
		    unit->registers[i].file == file)
			return true;
	return false;
}

static bool under_way(struct lba_unit *unit, const struct lba_file *file,
		      unsigned long index)
{
	bool found;

	spin_lock(&unit->lock);
	found = find(unit, file, index);
	spin_unlock(&unit->lock);
	return found;
}

static enum entered enter(struct lba_unit *unit, const struct lba_file *file,
			  unsigned long index, unsigned int *number)
{
	enum entered entered = ENTERED;

	spin_lock(&unit->lock);
	if (!pagelab_left_out(PAGELAB_LBA_JOIN) && find(unit, file, index)) {
		entered = UNDER_WAY;
	} else if (unit->busy == GENMASK(UNIT_REGISTERS - 1, 0)) {
		entered = ALL_BUSY;
	} else {
		*number = ffz(unit->busy);
		__set_bit(*number, &unit->busy);
		unit->registers[*number].file = file;
		unit->registers[*number].index = index;
	}
	spin_unlock(&unit->lock);
	return entered;
}

static void leave(struct lba_unit *unit, unsigned int number)
{
	spin_lock(&unit->lock);
	__clear_bit(number, &unit->busy);
	spin_unlock(&unit->lock);
	if (wq_has_sleeper(&unit->freed))
		wake_up_all(&unit->freed);
}

static int read_block(struct lba_file *file, struct page *page, sector_t block)
{
	struct bio_vec vector;
	struct bio bio;
	int error;

	bio_init(&bio, file_bdev(file->device), &vector, 1, REQ_OP_READ);
	bio.bi_iter.bi_sector = block;
	__bio_add_page(&bio, page, PAGE_SIZE, 0);
	error = submit_bio_wait(&bio);
	bio_uninit(&bio);
	return error;
}

/* The kernel's own path reads by this. */
static int lba_read_folio(struct file *opened, struct folio *folio)
{
	struct lba_file *file = opened->private_data;
	int error;

	error = read_block(file, folio_page(folio, 0),
			   (sector_t)folio->index << PAGE_SECTORS_SHIFT);
	folio_end_read(folio, !error);
	return error;
}

const struct address_space_operations lba_aops = {
	.read_folio	= lba_read_folio,
	.dirty_folio	= noop_dirty_folio,
	.migrate_folio	= filemap_migrate_folio,
};

/*
 * The entry is the kernel's before the fault goes on: a fault that has
 * returned to be tried again may have lost its mapping and this file.
 */
static vm_fault_t kernel_fault(struct vm_fault *vmf, unsigned long *entry)
{
	lba_set_state(entry, ENTRY_PRESENT);
	lba_count(LBA_KERNEL, 1);
	return filemap_fault(vmf);
}

/*
 * Maps what was read, without any metadata, and marks it. The mark is visible
 * before the number of zaps under way is read. __pagelab_lba_zap() does the
 * same the other way round, so one of the two sees the other.
 */
static vm_fault_t map_pending(struct vm_fault *vmf, struct lba_file *file,
			      unsigned long index, struct folio *folio)
{
	struct vm_area_struct *vma = vmf->vma;
	vm_fault_t result = VM_FAULT_NOPAGE;
	spinlock_t *lock;
	pte_t *pte;

	if (pmd_none(*vmf->pmd))
		pmd_install(vma->vm_mm, vmf->pmd, &vmf->prealloc_pte);
	pte = pte_offset_map_lock(vma->vm_mm, vmf->pmd, vmf->address, &lock);
	if (!pte || !pte_none(ptep_get(pte))) {
		folio_put(folio);
		goto out;
	}
	lba_mark_pending(file, index);
	smp_mb__after_atomic();
	if (unlikely(atomic_read(&file->zaps))) {
		lba_unmark_pending(file, index, ENTRY_LBA);
		result = 0;
		goto out;
	}
	set_pte_at(vma->vm_mm, vmf->address, pte,
		   pte_mkyoung(mk_pte(&folio->page, vma->vm_page_prot)));
	update_mmu_cache(vma, vmf->address, pte);
	lba_count(LBA_MAPPED, 1);
	result |= VM_FAULT_MAJOR;
out:
	if (pte)
		pte_unmap_unlock(pte, lock);
	return result;
}

/*
 * While PTEs of the mapping are being taken away, no page without metadata may
 * appear. It gets all of it at once, and the fault ends as any other.
 */
static vm_fault_t settle(struct vm_fault *vmf, struct lba_file *file,
			 unsigned long *entry, struct folio *folio)
{
	int error = filemap_add_folio(file->mapping, folio, vmf->pgoff,
				      vmf->gfp_mask);

	if (error) {
		folio_put(folio);
		return error == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_NOPAGE;
	}
	lba_set_state(entry, ENTRY_PRESENT);
	lba_count(LBA_SETTLED, 1);
	vmf->page = &folio->page;
	return VM_FAULT_LOCKED | VM_FAULT_MAJOR;
}

static bool cached(struct lba_file *file, pgoff_t offset)
{
	void *folio = xa_load(&file->mapping->i_pages, offset);

	return folio && !xa_is_value(folio);
}

/* The miss, with a register that says so. */
static vm_fault_t miss(struct vm_fault *vmf, struct lba_file *file,
		       unsigned long index)
{
	unsigned long *entry = &file->entries[index];
	unsigned long now = READ_ONCE(*entry);
	struct page *page;
	vm_fault_t result;
	int error;

	/* A miss that was under way when this one began. */
	if (lba_pending(now))
		return VM_FAULT_NOPAGE;
	if (now & ENTRY_PRESENT) {
		if (cached(file, vmf->pgoff))
			return kernel_fault(vmf, entry);
		/* It has left memory, so its block's address counts again. */
		now ^= ENTRY_STATE;
		WRITE_ONCE(*entry, now);
	}
	if (!(now & ENTRY_LBA) || !static_branch_likely(&pagelab_lba_on))
		return kernel_fault(vmf, entry);
	if (!lba_may_defer())
		return kernel_fault(vmf, entry);

	page = lba_take(file->unit);
	if (!page) {
		lba_count(LBA_EMPTY, 1);
		lba_fill_by_fault(file->unit);
		return kernel_fault(vmf, entry);
	}
	error = read_block(file, page, now >> ENTRY_BLOCK_SHIFT);
	trace_pagelab_lba_miss(vmf->address, now >> ENTRY_BLOCK_SHIFT, error);
	if (unlikely(error) && !pagelab_left_out(PAGELAB_LBA_STATUS)) {
		lba_count(LBA_FAILED, 1);
		__free_page(page);
		return kernel_fault(vmf, entry);
	}
	__folio_mark_uptodate(page_folio(page));
	result = map_pending(vmf, file, index, page_folio(page));
	return result ?: settle(vmf, file, entry, page_folio(page));
}

static vm_fault_t lba_fault(struct vm_fault *vmf)
{
	struct lba_file *file = vmf->vma->vm_file->private_data;
	struct lba_unit *unit = file->unit;
	unsigned long index = (vmf->address - file->start) >> PAGE_SHIFT;
	enum entered entered;
	unsigned int number;
	vm_fault_t result;

	entered = enter(unit, file, index, &number);
	if (entered == ALL_BUSY) {
		lba_count(LBA_FULL, 1);
		wait_event(unit->freed,
			   (entered = enter(unit, file, index, &number)) !=
			   ALL_BUSY);
	}
	if (entered == UNDER_WAY) {
		lba_count(LBA_JOINED, 1);
		wait_event(unit->freed, !under_way(unit, file, index));
		return VM_FAULT_NOPAGE;
	}
	result = miss(vmf, file, index);
	leave(unit, number);
	return result;
}

/* Called ahead of lba_fault(), so that faults need the VMA's lock alone. */
static vm_fault_t lba_map_pages(struct vm_fault *vmf, pgoff_t first,
				pgoff_t last)
{
	struct lba_file *file = vmf->vma->vm_file->private_data;
	unsigned long index = (vmf->address - file->start) >> PAGE_SHIFT;

	if (READ_ONCE(file->entries[index]) & ENTRY_LBA)
		return 0;
	return filemap_map_pages(vmf, first, last);
}

static int lba_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

const struct vm_operations_struct pagelab_lba_vm_ops = {
	.fault		= lba_fault,
	.map_pages	= lba_map_pages,
	.mremap		= lba_mremap,
};
