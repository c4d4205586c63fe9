// SPDX-License-Identifier: GPL-2.0
/*
 * A cache of pointers to page-table entries for the walks of page faults,
 * after Wu and Patel, "Accelerating Fault-Triggered Page Table Walks Using
 * Software Translation Caches": direct-mapped, indexed by the low bits of each
 * level's offset (section 4), one cache per VMA. In its place there may be one
 * per CPU, or one per CPU that holds whole PMD tables.
 *
 * Why an entry of the current generation is right: a fault holds the lock of
 * its VMA or the mmap_lock for reading. free_pgtables() frees a PMD table only
 * when no VMA is left in its 1 GiB, and move_normal_pud() moves one with the
 * VMA locked for writing. Both give the mm a new generation, and the locks
 * order that before any later fault in the range. A PUD table is freed only
 * after the PMD tables below it, and entries are made only when one of these
 * exists, so its invalidation is theirs.
 */
#include <linux/init.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "core.h"
#include "trace.h"

enum kind { KIND_VMA, KIND_CPU, KIND_CPU_TABLE };

static const char *const kind_names[] = { "vma", "cpu", "cpu-table", NULL };

DEFINE_STATIC_KEY_FALSE(pagelab_walk_on);
DEFINE_STATIC_KEY_FALSE(pagelab_walk_per_vma);
DEFINE_STATIC_KEY_FALSE(pagelab_walk_tables);
DEFINE_STATIC_KEY_FALSE(pagelab_walk_oracle);
DEFINE_STATIC_KEY_FALSE(pagelab_walk_timing);

DEFINE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_pmds);
DEFINE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_puds);
DEFINE_PER_CPU_ALIGNED(pagelab_walk_slots, pagelab_walk_pmd_tables);
DEFINE_PER_CPU_ALIGNED(struct pagelab_walk_counters, pagelab_walk_count);

/* The last generation given out. 2^64 of them do not come to an end. */
static atomic_long_t generations = ATOMIC_LONG_INIT(0);
static atomic_long_t vma_caches = ATOMIC_LONG_INIT(0);

/* No mm has this generation: an entry of it matches nothing. */
#define GENERATION_NEVER	ULONG_MAX

static void make_empty(struct pagelab_walk_entry *entries)
{
	unsigned long i;

	for (i = 0; i < PAGELAB_WALK_SLOTS; i++)
		entries[i].gen = GENERATION_NEVER;
}

/* Allocates the cache of a VMA. Another thread may do so meanwhile. */
static struct pagelab_walk_vma *vma_cache(struct vm_area_struct *vma)
{
	struct pagelab_walk_vma *cache, *other;

	cache = READ_ONCE(vma->pagelab_walk);
	if (likely(cache))
		return cache;
	if (pagelab_left_out(PAGELAB_NO_MEMORY))
		return NULL;
	cache = kzalloc(sizeof(*cache), GFP_KERNEL_ACCOUNT | __GFP_NORETRY |
			__GFP_NOWARN);
	if (!cache)
		return NULL;
	make_empty(cache->pmd);
	make_empty(cache->pud);
	other = cmpxchg(&vma->pagelab_walk, NULL, cache);
	if (other) {
		kfree(cache);
		return other;
	}
	atomic_long_inc(&vma_caches);
	return cache;
}

void pagelab_walk_vma_free(struct vm_area_struct *vma)
{
	if (!vma->pagelab_walk)
		return;
	kfree(vma->pagelab_walk);
	vma->pagelab_walk = NULL;
	atomic_long_dec(&vma_caches);
}

static void fill_shared(struct pagelab_walk_entry *slots, unsigned long tag,
			unsigned long gen, void *entry)
{
	struct pagelab_walk_entry *slot = pagelab_walk_slot(slots, tag);
	unsigned int seq = READ_ONCE(slot->seq);

	/* The walk began at this entry, as that of a PUD level that hit. */
	if (READ_ONCE(slot->tag) == tag && READ_ONCE(slot->gen) == gen)
		return;
	/* Another thread fills this slot now: its entry is as good. */
	if ((seq & 1) || cmpxchg(&slot->seq, seq, seq + 1) != seq)
		return;
	WRITE_ONCE(slot->tag, tag);
	WRITE_ONCE(slot->gen, gen);
	WRITE_ONCE(slot->entry, entry);
	/* Pairs with the reader's acquire in pagelab_walk_match_shared(). */
	smp_store_release(&slot->seq, seq + 2);
}

static void fill_own(struct pagelab_walk_entry *slots, unsigned long tag,
		     unsigned long gen, void *entry)
{
	struct pagelab_walk_entry *slot = pagelab_walk_slot(slots, tag);

	if (slot->tag == tag && slot->gen == gen)
		return;
	slot->tag = tag;
	slot->gen = gen;
	slot->entry = entry;
}

static void fill_cpu(struct vm_fault *vmf, unsigned long gen, pmd_t *table)
{
	unsigned long pmd_tag = vmf->address >> PMD_SHIFT;
	unsigned long pud_tag = vmf->address >> PUD_SHIFT;

	preempt_disable();
	if (static_branch_unlikely(&pagelab_walk_tables)) {
		fill_own(*this_cpu_ptr(&pagelab_walk_pmd_tables), pud_tag, gen,
			 table);
	} else {
		fill_own(*this_cpu_ptr(&pagelab_walk_pmds), pmd_tag, gen,
			 vmf->pmd);
		fill_own(*this_cpu_ptr(&pagelab_walk_puds), pud_tag, gen,
			 vmf->pud);
	}
	preempt_enable();
}

static void fill_vma(struct vm_fault *vmf, unsigned long gen)
{
	struct pagelab_walk_vma *cache = vma_cache(vmf->vma);

	if (!cache)
		return;
	fill_shared(cache->pmd, vmf->address >> PMD_SHIFT, gen, vmf->pmd);
	fill_shared(cache->pud, vmf->address >> PUD_SHIFT, gen, vmf->pud);
}

/*
 * After a walk that found or made the PMD table of @vmf. @gen was read before
 * it. The first such walk of an mm gives it a generation and no entry.
 */
void pagelab_walk_fill(struct vm_fault *vmf, unsigned long gen)
{
	struct mm_struct *mm = vmf->vma->vm_mm;

	this_cpu_inc(pagelab_walk_count.misses);
	if (unlikely(!gen)) {
		cmpxchg(&mm->pagelab_walk_gen, 0,
			(unsigned long)atomic_long_inc_return(&generations));
		return;
	}
	if (static_branch_unlikely(&pagelab_walk_per_vma))
		fill_vma(vmf, gen);
	else
		fill_cpu(vmf, gen, vmf->pmd - pmd_index(vmf->address));
}

/*
 * Each value is stored once. If two threads invalidate together, entries of
 * the generation that remains were made after both had cleared their entries
 * of the page table.
 */
void __pagelab_walk_invalidate(struct mm_struct *mm,
			       enum pagelab_mutation where)
{
	if (pagelab_left_out(where))
		return;
	WRITE_ONCE(mm->pagelab_walk_gen, atomic_long_inc_return(&generations));
	this_cpu_inc(pagelab_walk_count.invalidations);
}

/* dup_mm() copies the whole structure, generation included. */
void pagelab_walk_mm_init(struct mm_struct *mm)
{
	if (!pagelab_left_out(PAGELAB_WALK_FORK))
		mm->pagelab_walk_gen = 0;
}

/* After an invalidation was left out: no process may keep what it hides. */
void pagelab_walk_invalidate_all(void)
{
	struct task_struct *leader, *task;

	rcu_read_lock();
	for_each_process_thread(leader, task) {
		task_lock(task);
		if (task->mm)
			pagelab_walk_invalidate(task->mm,
						PAGELAB_MUTATION_NONE);
		task_unlock(task);
	}
	rcu_read_unlock();
}

/* The walk of __handle_mm_fault() without its allocations. */
static void *walk_to(struct mm_struct *mm, unsigned long address,
		     enum pagelab_walk_level level)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(READ_ONCE(*pgd)))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (p4d_none(READ_ONCE(*p4d)))
		return NULL;
	pud = pud_offset(p4d, address);
	if (level == PAGELAB_WALK_PUD)
		return pud;
	if (pud_none(READ_ONCE(*pud)) || pud_leaf(READ_ONCE(*pud)))
		return NULL;
	return pmd_offset(pud, address);
}

/*
 * The oracle. After a mismatch the fault goes on with a walk, so that the
 * kernel survives the report.
 */
bool pagelab_walk_check(struct vm_fault *vmf, enum pagelab_walk_level level)
{
	void *walked = walk_to(vmf->vma->vm_mm, vmf->address, level);
	void *cached;

	cached = level == PAGELAB_WALK_PMD ? (void *)vmf->pmd : vmf->pud;
	this_cpu_inc(pagelab_walk_count.checks);
	if (likely(cached == walked))
		return true;

	this_cpu_inc(pagelab_walk_count.mismatches);
	trace_pagelab_walk_mismatch(vmf->address, level, cached, walked);
	WARN_ONCE(!pagelab_walk_mutated(),
		  "pagelab: level %d of %lx cached at %p, walked to %p\n",
		  level, vmf->address, cached, walked);
	vmf->pmd = NULL;
	vmf->pud = NULL;
	return false;
}

static void set_key(struct static_key_false *key, bool on)
{
	if (on)
		static_branch_enable(key);
	else
		static_branch_disable(key);
}

static unsigned int enabled_get(void)
{
	return static_key_enabled(&pagelab_walk_on);
}

static int enabled_set(unsigned int on)
{
	set_key(&pagelab_walk_on, on);
	return 0;
}

static unsigned int oracle_get(void)
{
	return static_key_enabled(&pagelab_walk_oracle);
}

static int oracle_set(unsigned int on)
{
	if (!on && pagelab_walk_mutated())
		return -EBUSY;
	set_key(&pagelab_walk_oracle, on);
	return 0;
}

static unsigned int kind_get(void)
{
	if (static_key_enabled(&pagelab_walk_per_vma))
		return KIND_VMA;
	return static_key_enabled(&pagelab_walk_tables) ? KIND_CPU_TABLE :
							  KIND_CPU;
}

/*
 * Entries of one kind are never read as those of another. A fault that began
 * under the old kind may fill the new one; what it found is right there too.
 */
static int kind_set(unsigned int kind)
{
	set_key(&pagelab_walk_tables, kind == KIND_CPU_TABLE);
	set_key(&pagelab_walk_per_vma, kind == KIND_VMA);
	return 0;
}

static unsigned int timing_get(void)
{
	return static_key_enabled(&pagelab_walk_timing);
}

static int timing_set(unsigned int on)
{
	set_key(&pagelab_walk_timing, on);
	return 0;
}

static const struct pagelab_choice enabled_choice = {
	.names = pagelab_off_on, .get = enabled_get, .set = enabled_set,
};

static const struct pagelab_choice oracle_choice = {
	.names = pagelab_off_on, .get = oracle_get, .set = oracle_set,
};

static const struct pagelab_choice timing_choice = {
	.names = pagelab_off_on, .get = timing_get, .set = timing_set,
};

static const struct pagelab_choice kind_choice = {
	.names = kind_names, .get = kind_get, .set = kind_set,
};

static int stats_show(struct seq_file *file, void *unused)
{
	unsigned long pmd = 0, pud = 0, misses = 0, invalidations = 0;
	unsigned long checks = 0, mismatches = 0, timed = 0, ticks = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		struct pagelab_walk_counters *of;

		of = per_cpu_ptr(&pagelab_walk_count, cpu);
		pmd += of->pmd_hits;
		pud += of->pud_hits;
		misses += of->misses;
		invalidations += of->invalidations;
		checks += of->checks;
		mismatches += of->mismatches;
		timed += of->timed;
		ticks += of->ticks;
	}
	seq_printf(file, "pmd_hits %lu\npud_hits %lu\nmisses %lu\n", pmd, pud,
		   misses);
	seq_printf(file, "invalidations %lu\nvma_caches %ld\n", invalidations,
		   atomic_long_read(&vma_caches));
	seq_printf(file, "oracle_checks %lu\noracle_mismatches %lu\n", checks,
		   mismatches);
	seq_printf(file, "timed_walks %lu\nwalk_ticks %lu\n", timed, ticks);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int __init walk_cache_init(void)
{
	struct dentry *dir = pagelab_dir("walk_cache");
	int cpu;

	for_each_possible_cpu(cpu) {
		make_empty(per_cpu(pagelab_walk_pmds, cpu));
		make_empty(per_cpu(pagelab_walk_puds, cpu));
		make_empty(per_cpu(pagelab_walk_pmd_tables, cpu));
	}
	static_branch_enable(&pagelab_walk_per_vma);
	pagelab_choice_file("enabled", dir, &enabled_choice);
	pagelab_choice_file("kind", dir, &kind_choice);
	pagelab_choice_file("oracle", dir, &oracle_choice);
	pagelab_choice_file("timing", dir, &timing_choice);
	debugfs_create_file("stats", 0444, dir, NULL, &stats_fops);
	return 0;
}
late_initcall(walk_cache_init);
