// SPDX-License-Identifier: GPL-2.0
/*
 * Which processes have rings: those that asked by a system call (4.1), until
 * they ask for the opposite (4.7), end, or are stopped since they have too
 * much memory (4.9).
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>

#include "core.h"
#include "rings.h"

/* Address spaces that asked; under the lock, as is their flag. */
static LIST_HEAD(asking);
static DEFINE_SPINLOCK(asking_lock);

/* Whether it changed anything. */
static bool set_asked(struct mm_struct *mm, bool on)
{
	bool changed;

	spin_lock(&asking_lock);
	changed = mm->pagelab_ring.asked != on;
	if (changed) {
		WRITE_ONCE(mm->pagelab_ring.asked, on);
		if (on)
			list_add_tail(&mm->pagelab_ring.list, &asking);
		else
			list_del_init(&mm->pagelab_ring.list);
	}
	spin_unlock(&asking_lock);
	return changed;
}

/*
 * prctl(PR_PAGELAB_RINGS). Mappings that exist keep what they are: those made
 * before the first call are never served, those made after it are again after
 * another one.
 */
int pagelab_ring_call(unsigned long on)
{
	struct mm_struct *mm = current->mm;

	if (on > 1)
		return -EINVAL;
	if (mmap_write_lock_killable(mm))
		return -EINTR;
	if (!set_asked(mm, on))
		ring_count(RING_REPEATED, 1);
	if (on)
		mm->def_flags |= VM_PAGELAB_RINGS;
	else
		mm->def_flags &= ~VM_PAGELAB_RINGS;
	mmap_write_unlock(mm);
	return 0;
}

/* Of dup_mmap(): the child has what its parent has. */
void pagelab_ring_fork(struct mm_struct *mm, const struct mm_struct *from)
{
	mm->def_flags |= from->def_flags & VM_PAGELAB_RINGS;
	if (READ_ONCE(from->pagelab_ring.asked))
		set_asked(mm, true);
}

/*
 * After exit_mmap(). A ring that is being replaced is not found by the scan;
 * who replaces it counts its pages.
 */
void pagelab_ring_mm_exit(struct mm_struct *mm)
{
	if (READ_ONCE(mm->pagelab_ring.asked))
		set_asked(mm, false);
	/* Pairs with the release in count_owed_page(). */
	while (atomic_read_acquire(&mm->pagelab_ring.owed)) {
		pagelab_ring_count_owed(mm, PAGELAB_RING_EXIT);
		if (atomic_read(&mm->pagelab_ring.owed))
			schedule_timeout_uninterruptible(1);
	}
}

/* Whether rings are to be full. */
bool ring_is_needed(void)
{
	return !READ_ONCE(ring_by_call) || !list_empty_careful(&asking);
}

/* The thread's look at how much memory the asking processes have. */
void ring_limit_processes(unsigned int percent)
{
	unsigned long limit = totalram_pages() / 100 * percent;
	struct mm_struct *mm, *next;

	if (!READ_ONCE(ring_by_call) || pagelab_left_out(PAGELAB_RING_LIMIT))
		return;
	spin_lock(&asking_lock);
	list_for_each_entry_safe(mm, next, &asking, pagelab_ring.list) {
		if (get_mm_rss(mm) <= limit)
			continue;
		list_del_init(&mm->pagelab_ring.list);
		ring_count(RING_STOPPED, 1);
		/* It may end without the lock from here on. */
		smp_store_release(&mm->pagelab_ring.asked, false);
	}
	spin_unlock(&asking_lock);
}
