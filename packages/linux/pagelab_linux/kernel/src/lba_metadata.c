// SPDX-License-Identifier: GPL-2.0
/*
 * What the fast path leaves undone, and kpted, which does it: page cache,
 * charge, LRU list, reverse map and the process's counters.
 *
 * Until then a mapped page is known to nobody but its PTE. Who finds pages by
 * LRU lists or reverse maps does not find it. Who takes away the PTEs of a range
 * goes through unmap_page_range(), which takes such pages away first and gives
 * them back: a clean page can be read again.
 */
#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/timex.h>

#include <asm/tlbflush.h>

#include "core.h"
#include "../internal.h"
#include "lba.h"
#include "trace.h"

/* Chosen: the paper states no period. */
#define PERIOD_MS	1000
#define LONGEST_MS	600000

/* As many pages may be without metadata as this part of memory. */
#define LIMIT_PART	16

/* Never waits for a page of another process to be written. */
#define FINISH_GFP	(GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN)

static struct pagelab_pace pace = PAGELAB_PACE(pace, PERIOD_MS, LONGEST_MS);
static unsigned long pending_limit;
static atomic_long_t pending;
static bool kpted_hurried;

unsigned long lba_pending_pages(void)
{
	return atomic_long_read(&pending);
}

/* Whether one more page may go without metadata. At half the limit kpted comes. */
bool lba_may_defer(void)
{
	unsigned long now = lba_pending_pages();

	if (unlikely(now > READ_ONCE(pending_limit) / 2))
		lba_hurry_kpted();
	if (likely(now < READ_ONCE(pending_limit)))
		return true;
	lba_count(LBA_OVER_LIMIT, 1);
	return false;
}

/* Upwards, as kpted clears downwards: a mark made meanwhile is not lost. */
void lba_mark_pending(struct lba_file *file, unsigned long index)
{
	unsigned long pmd = index >> (PMD_SHIFT - PAGE_SHIFT);
	unsigned long pud = index >> (PUD_SHIFT - PAGE_SHIFT);

	lba_set_state(&file->entries[index], ENTRY_STATE);
	if (!test_bit(pmd, file->pmds))
		set_bit(pmd, file->pmds);
	if (!test_bit(pud, file->puds))
		set_bit(pud, file->puds);
	atomic_long_inc(&pending);
	atomic_inc(&file->pending);
}

void lba_unmark_pending(struct lba_file *file, unsigned long index,
			unsigned long state)
{
	lba_set_state(&file->entries[index], state);
	atomic_dec(&file->pending);
	atomic_long_dec(&pending);
}

/* The PTE of a pending page, locked, or NULL if it is pending no more. */
static pte_t *pending_pte(struct lba_file *file, unsigned long index,
			  spinlock_t **lock)
{
	unsigned long address = lba_address(file, index);
	pmd_t *pmd = mm_find_pmd(file->mm, address);
	pte_t *pte;

	pte = pmd ? pte_offset_map_lock(file->mm, pmd, address, lock) : NULL;
	if (!pte)
		return NULL;
	if (lba_pending(READ_ONCE(file->entries[index])) &&
	    pte_present(ptep_get(pte)))
		return pte;
	pte_unmap_unlock(pte, *lock);
	return NULL;
}

/* Takes a pending page out of the page table. Its reference is the caller's. */
static struct folio *take_away(struct lba_file *file, unsigned long index,
			       pte_t *pte, unsigned long state)
{
	pte_t was = ptep_get_and_clear(file->mm, lba_address(file, index), pte);

	lba_unmark_pending(file, index, state);
	return page_folio(pte_page(was));
}

static void flush_and_free(struct lba_file *file, unsigned long index,
			   unsigned long end, struct folio_batch *folios)
{
	if (!folio_batch_count(folios))
		return;
	flush_tlb_mm_range(file->mm, lba_address(file, index),
			   lba_address(file, end), PAGE_SHIFT, false);
	lba_count(LBA_WITHDRAWN, folio_batch_count(folios));
	if (pagelab_left_out(PAGELAB_LBA_RELEASE))
		folio_batch_reinit(folios);
	else
		folios_put(folios);
}

/* Pending pages of a range go, and their blocks' addresses count again. */
static void withdraw(struct lba_file *file, unsigned long index,
		     unsigned long end)
{
	unsigned long first = index;
	struct folio_batch folios;
	spinlock_t *lock;
	pte_t *pte;

	folio_batch_init(&folios);
	trace_pagelab_lba_withdraw(lba_address(file, index), end - index);
	for (; index < end && atomic_read(&file->pending); index++) {
		if (!lba_pending(READ_ONCE(file->entries[index])))
			continue;
		pte = pending_pte(file, index, &lock);
		if (!pte)
			continue;
		folio_batch_add(&folios, take_away(file, index, pte,
						   ENTRY_LBA));
		pte_unmap_unlock(pte, lock);
		if (!folio_batch_space(&folios)) {
			flush_and_free(file, first, index + 1, &folios);
			first = index + 1;
		}
	}
	flush_and_free(file, first, index, &folios);
}

/*
 * Before the PTEs of a range are taken away. Neither sleeps nor allocates: the
 * OOM reaper comes here. mremap() may have moved the VMA, until ours refuses.
 */
void __pagelab_lba_zap(struct vm_area_struct *vma, unsigned long start,
		       unsigned long end)
{
	struct lba_file *file = vma->vm_file->private_data;

	atomic_inc(&file->zaps);
	smp_mb__after_atomic();
	start = max(start, file->start);
	end = min(end, lba_address(file, file->nr));
	if (start < end && !pagelab_left_out(PAGELAB_LBA_WITHDRAW))
		withdraw(file, (start - file->start) >> PAGE_SHIFT,
			 (end - file->start) >> PAGE_SHIFT);
}

void __pagelab_lba_zapped(struct vm_area_struct *vma)
{
	struct lba_file *file = vma->vm_file->private_data;

	atomic_dec(&file->zaps);
}

/* A folio with all metadata but the reverse map gets that, if still mapped. */
static bool add_rmap(struct lba_file *file, struct vm_area_struct *vma,
		     unsigned long index, struct folio *folio)
{
	spinlock_t *lock;
	pte_t *pte = pending_pte(file, index, &lock);
	bool same;

	if (!pte)
		return false;
	same = pte_pfn(ptep_get(pte)) == folio_pfn(folio);
	if (same) {
		folio_add_file_rmap_pte(folio, &folio->page, vma);
		inc_mm_counter(file->mm, mm_counter_file(folio));
		lba_unmark_pending(file, index, ENTRY_PRESENT);
	}
	pte_unmap_unlock(pte, lock);
	return same;
}

/*
 * There is no memory for the metadata, or the cgroup's limit is reached. The
 * next miss of the page is the kernel's, which can wait and kill.
 */
static void give_up(struct lba_file *file, unsigned long index)
{
	struct folio_batch folios;
	spinlock_t *lock;
	pte_t *pte = pending_pte(file, index, &lock);

	if (!pte)
		return;
	folio_batch_init(&folios);
	folio_batch_add(&folios, take_away(file, index, pte, 0));
	pte_unmap_unlock(pte, lock);
	lba_count(LBA_NOT_FINISHED, 1);
	flush_and_free(file, index, index + 1, &folios);
}

/* What a fault would have done. The mmap_lock is held for reading. */
static bool finish(struct lba_file *file, struct vm_area_struct *vma,
		   unsigned long index)
{
	unsigned long address = lba_address(file, index);
	struct folio *folio;
	spinlock_t *lock;
	bool finished;
	pte_t *pte;

	pte = pending_pte(file, index, &lock);
	if (!pte)
		return false;
	folio = page_folio(pte_page(ptep_get(pte)));
	folio_get(folio);
	pte_unmap_unlock(pte, lock);

	if (filemap_add_folio(file->mapping, folio,
			      linear_page_index(vma, address), FINISH_GFP)) {
		give_up(file, index);
		folio_put(folio);
		return false;
	}
	finished = add_rmap(file, vma, index, folio);
	if (!finished)
		filemap_remove_folio(folio);
	folio_unlock(folio);
	folio_put(folio);
	return finished;
}

/* The entries of one table of PTEs. */
static unsigned long finish_table(struct lba_file *file, unsigned long pmd)
{
	unsigned long index = pmd << (PMD_SHIFT - PAGE_SHIFT);
	unsigned long end = min(index + PTRS_PER_PTE, file->nr);
	struct vm_area_struct *vma = NULL;
	unsigned long finished = 0;

	mmap_read_lock(file->mm);
	for (; index < end; index++) {
		unsigned long address = lba_address(file, index);

		if (!lba_pending(READ_ONCE(file->entries[index])))
			continue;
		if (!vma || address >= vma->vm_end)
			vma = vma_lookup(file->mm, address);
		/* If it is gone, munmap() will take the page away. */
		if (vma && vma->vm_ops == &pagelab_lba_vm_ops)
			finished += finish(file, vma, index);
	}
	mmap_read_unlock(file->mm);
	cond_resched();
	return finished;
}

/* Follows the marks down, and clears each before it descends. */
static unsigned long finish_marked(struct lba_file *file)
{
	unsigned long pmds = DIV_ROUND_UP(file->nr, PTRS_PER_PTE);
	unsigned long puds = DIV_ROUND_UP(pmds, PTRS_PER_PMD);
	unsigned long finished = 0, pmd, pud, end;

	for (pud = 0; pud < puds; pud++) {
		if (!test_and_clear_bit(pud, file->puds))
			continue;
		end = min((pud + 1) * PTRS_PER_PMD, pmds);
		for (pmd = pud * PTRS_PER_PMD; pmd < end; pmd++)
			if (test_and_clear_bit(pmd, file->pmds))
				finished += finish_table(file, pmd);
	}
	return finished;
}

/* Charged is the cgroup of the process, not that of kpted. */
static int finish_file(struct lba_file *file)
{
	struct mem_cgroup *group, *before;
	unsigned long finished;

	/* Pairs with the release in make_table(). */
	if (!smp_load_acquire(&file->nr) || !mmget_not_zero(file->mm))
		return 0;
	group = pagelab_left_out(PAGELAB_LBA_CHARGE) ?
		NULL : get_mem_cgroup_from_mm(file->mm);
	before = set_active_memcg(group);
	finished = finish_marked(file);
	set_active_memcg(before);
	mem_cgroup_put(group);
	mmput_async(file->mm);

	trace_pagelab_lba_finish(finished);
	lba_count(LBA_FINISHED, finished);
	return 0;
}

static void finish_all(void)
{
	cycles_t began = get_cycles();

	lba_for_each_file(finish_file);
	lba_count(LBA_KPTED_TICKS, get_cycles() - began);
}

/* For it to look again whether a file is open. */
void lba_wake_kpted(void)
{
	pagelab_wake(&pace);
}

/* For a pass at once: memory is short, or too many pages wait. */
void lba_hurry_kpted(void)
{
	WRITE_ONCE(kpted_hurried, true);
	pagelab_wake(&pace);
}

static int kpted(void *unused)
{
	bool due;

	while (!kthread_should_stop()) {
		due = pagelab_pause(&pace, lba_files_open());
		if ((xchg(&kpted_hurried, false) || due) && lba_pending_pages())
			finish_all();
	}
	return 0;
}

static int limit_get(void *unused, u64 *pages)
{
	*pages = READ_ONCE(pending_limit);
	return 0;
}

static int limit_set(void *unused, u64 pages)
{
	if (pages > totalram_pages() / LIMIT_PART)
		return -EINVAL;
	WRITE_ONCE(pending_limit, pages);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(limit_operations, limit_get, limit_set, "%llu\n");

int lba_metadata_init(struct dentry *dir)
{
	struct task_struct *thread;

	pending_limit = totalram_pages() / LIMIT_PART;
	thread = kthread_run(kpted, NULL, "kpted");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	debugfs_create_file_unsafe("pending_limit", 0644, dir, NULL,
				   &limit_operations);
	pagelab_pace_files("kpted", dir, &pace, finish_all);
	return 0;
}
