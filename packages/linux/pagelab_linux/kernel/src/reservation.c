// SPDX-License-Identifier: GPL-2.0
/*
 * Reservation of 32 KiB groups of anonymous memory, after Margaritov et al.,
 * "PTEMagnet": the first fault in an aligned group of eight pages allocates
 * eight contiguous frames and takes one. Faults on the others take theirs.
 *
 * A reserved page belongs to its process's tree and is charged to nobody; it
 * is charged to the memory cgroup of the process when a fault takes it. So a
 * cgroup reaches its limit at the same fault as without reservations. What
 * they may hold beyond all limits is bounded by "limit", and the shrinker
 * gives it back under pressure.
 */
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/mempolicy.h>
#include <linux/mm_inline.h>
#include <linux/percpu_counter.h>
#include <linux/rmap.h>
#include <linux/seq_file.h>
#include <linux/shrinker.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>

#include "core.h"
#include "reservation.h"
#include "trace.h"

/*
 * Without reclaim, as published: a group is worth no more than free memory.
 * Not from ZONE_MOVABLE or highmem, since reserved pages cannot be migrated.
 */
#define GROUP_GFP	((GFP_USER | __GFP_MOVABLE | __GFP_NOMEMALLOC | \
			  __GFP_NOWARN) & ~__GFP_RECLAIM)

/*
 * Reserved pages are at most this part of memory until "limit" says else. A
 * region touched at random has 65 % of its pages reserved at the worst time.
 */
#define LIMIT_PART	4

DEFINE_STATIC_KEY_FALSE(pagelab_resv_on);
DEFINE_STATIC_KEY_FALSE(pagelab_resv_used);

static DEFINE_PER_CPU(unsigned long [RESV_NR_STATS], stats);
static struct percpu_counter reserved;
static unsigned long limit;

static bool released(enum resv_stat stat)
{
	return stat >= RESV_UNMAPPED && stat <= RESV_MISPLACED;
}

/* Counts, and takes released pages off those that are reserved. */
void resv_count(enum resv_stat stat, unsigned long by)
{
	if (!by)
		return;
	this_cpu_add(stats[stat], by);
	if (released(stat)) {
		percpu_counter_sub(&reserved, by);
		trace_pagelab_resv_release(stat, by);
	}
}

unsigned long resv_reserved(void)
{
	return percpu_counter_sum_positive(&reserved);
}

/* Takes the page of @address out of its group, if it is reserved. */
static struct page *take(unsigned long *slot, unsigned long address)
{
	unsigned int index = (address >> PAGE_SHIFT) & GROUP_MASK;
	unsigned long group = READ_ONCE(*slot), rest;

	do {
		if (!(group & BIT(index)))
			return NULL;
		rest = group & ~BIT(index);
		if (!(rest & ((1UL << GROUP_PAGES) - 1)))
			rest = 0;
	} while (!try_cmpxchg(slot, &group, rest));
	return pfn_to_page(PHYS_PFN(group)) + index;
}

#ifdef CONFIG_NUMA
/* Interleaving spreads single pages, which a group must not. */
static bool interleaved(const struct mempolicy *policy)
{
	return policy->mode == MPOL_INTERLEAVE ||
	       policy->mode == MPOL_WEIGHTED_INTERLEAVE;
}

/*
 * The group was placed by the policy of its first fault. mbind(), a cpuset or
 * another thread's policy may forbid its node since.
 */
static bool node_allowed(struct vm_area_struct *vma, unsigned long address,
			 int node)
{
	struct mempolicy *policy;
	bool allowed = true;
	pgoff_t index;

	if (nr_online_nodes == 1)
		return true;
	policy = get_vma_policy(vma, address, 0, &index);
	if (policy->mode == MPOL_BIND)
		allowed = node_isset(node, policy->nodes);
	else if (interleaved(policy))
		allowed = false;
	mpol_cond_put(policy);
	return allowed && node_isset(node, cpuset_current_mems_allowed);
}

static struct page *allocate_block(struct vm_area_struct *vma,
				   unsigned long address)
{
	struct page *block = NULL;
	struct mempolicy *policy;
	pgoff_t index;

	policy = get_vma_policy(vma, address, GROUP_ORDER, &index);
	if (nr_online_nodes == 1 || !interleaved(policy))
		block = alloc_pages_mpol(GROUP_GFP, GROUP_ORDER, policy, index,
					 numa_node_id());
	mpol_cond_put(policy);
	return block;
}
#else
static bool node_allowed(struct vm_area_struct *vma, unsigned long address,
			 int node)
{
	return true;
}

static struct page *allocate_block(struct vm_area_struct *vma,
				   unsigned long address)
{
	return alloc_pages(GROUP_GFP, GROUP_ORDER);
}
#endif

/*
 * Whether nothing of the group is mapped yet. After a part of it was freed
 * and is touched again, seven frames would be reserved for nothing.
 */
static bool group_untouched(struct vm_fault *vmf, unsigned long start)
{
	bool untouched = true;
	pte_t *pte;
	int i;

	pte = pte_offset_map(vmf->pmd, start);
	if (!pte)
		return false;
	for (i = 0; untouched && i < GROUP_PAGES; i++)
		untouched = pte_none(ptep_get_lockless(pte + i));
	pte_unmap(pte);
	return untouched;
}

/*
 * A group must lie in its VMA, so that unmapping either touches the other.
 * exec() moves its temporary stack without unmap_vmas(). A fault that goes to
 * userfaultfd maps no page.
 */
static bool group_possible(struct vm_fault *vmf, unsigned long start)
{
	struct vm_area_struct *vma = vmf->vma;

	if (start < vma->vm_start || start + GROUP_SIZE > vma->vm_end ||
	    vma_is_temporary_stack(vma) || userfaultfd_armed(vma))
		return false;
	return group_untouched(vmf, start);
}

/* Reserves the group of the fault, and takes the fault's page. */
static struct page *reserve(struct vm_fault *vmf)
{
	unsigned long start = ALIGN_DOWN(vmf->address, GROUP_SIZE);
	unsigned int index = (vmf->address >> PAGE_SHIFT) & GROUP_MASK;
	struct pagelab_resv *tree = NULL;
	unsigned long *slot, rest;
	struct page *block;
	int i;

	if (!group_possible(vmf, start))
		return NULL;
	if (percpu_counter_read_positive(&reserved) + GROUP_PAGES >
	    READ_ONCE(limit)) {
		resv_count(RESV_OVER_LIMIT, 1);
		return NULL;
	}
	if (!pagelab_left_out(PAGELAB_NO_MEMORY))
		tree = resv_tree_of(vmf->vma->vm_mm);
	slot = tree ? resv_make(tree, start) : NULL;
	block = slot ? allocate_block(vmf->vma, start) : NULL;
	if (!block) {
		resv_count(RESV_NO_BLOCK, 1);
		return NULL;
	}
	split_page(block, GROUP_ORDER);
	rest = ((1UL << GROUP_PAGES) - 1) & ~BIT(index);
	if (cmpxchg(slot, 0, PFN_PHYS(page_to_pfn(block)) | rest)) {
		for (i = 0; i < GROUP_PAGES; i++)
			__free_page(block + i);
		resv_count(RESV_RACES, 1);
		return NULL;
	}
	resv_count(RESV_GROUPS, 1);
	percpu_counter_add(&reserved, GROUP_PAGES - 1);
	trace_pagelab_resv_reserve(start, page_to_pfn(block),
				   page_to_nid(block));
	return block + index;
}

/* The page of the fault out of an earlier reservation. */
static struct page *take_reserved(struct vm_fault *vmf)
{
	struct pagelab_resv *tree = READ_ONCE(vmf->vma->vm_mm->pagelab_resv);
	unsigned long *slot = tree ? resv_find(tree, vmf->address) : NULL;
	struct page *page = slot ? take(slot, vmf->address) : NULL;

	if (!page)
		return NULL;
	percpu_counter_dec(&reserved);
	this_cpu_inc(stats[RESV_GIVEN_LATER]);
	if (likely(node_allowed(vmf->vma, vmf->address, page_to_nid(page))))
		return page;
	__free_page(page);
	this_cpu_dec(stats[RESV_GIVEN_LATER]);
	this_cpu_inc(stats[RESV_MISPLACED]);
	resv_count(RESV_MISPLACED, resv_drop(slot));
	return NULL;
}

/*
 * As folio_prealloc() with need_zero. The page's reference passes from the
 * tree to the caller. Only this page is zeroed and charged.
 */
struct folio *__pagelab_resv_alloc(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct page *page = take_reserved(vmf);
	struct folio *folio;

	if (!page)
		page = reserve(vmf);
	if (!page)
		return NULL;
	this_cpu_inc(stats[RESV_GIVEN]);
	folio = page_folio(page);
	if (mem_cgroup_charge(folio, vma->vm_mm, GFP_KERNEL)) {
		resv_count(RESV_NOT_CHARGED, 1);
		folio_put(folio);
		return NULL;
	}
	folio_throttle_swaprate(folio, GFP_KERNEL);
	if (!want_init_on_alloc(GROUP_GFP))
		clear_user_highpage(page, vmf->address);
	return folio;
}

static enum resv_stat stat_of(enum pagelab_mutation where)
{
	switch (where) {
	case PAGELAB_RESV_ZAP:
		return RESV_ZAPPED;
	case PAGELAB_RESV_COW:
		return RESV_COWED;
	default:
		return RESV_UNMAPPED;
	}
}

void __pagelab_resv_release(struct mm_struct *mm, unsigned long start,
			    unsigned long end, enum pagelab_mutation where)
{
	unsigned long pages;

	if (pagelab_left_out(where))
		return;
	pages = resv_drop_range(mm->pagelab_resv, start, end,
				where == PAGELAB_RESV_UNMAP);
	resv_count(stat_of(where), pages);
}

static unsigned long shrink_count(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return percpu_counter_read_positive(&reserved) ?: SHRINK_EMPTY;
}

static unsigned long shrink_scan(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	if (pagelab_left_out(PAGELAB_RESV_SHRINK))
		return SHRINK_STOP;
	return resv_reclaim(control->nr_to_scan, RESV_SHRUNK) ?: SHRINK_STOP;
}

static unsigned int enabled_get(void)
{
	return static_key_enabled(&pagelab_resv_on);
}

/*
 * A fault on its way may still reserve a group after the switch is off. It
 * goes with its mapping, as every group does.
 */
static int enabled_set(unsigned int on)
{
	if (on) {
		static_branch_enable(&pagelab_resv_used);
		static_branch_enable(&pagelab_resv_on);
		return 0;
	}
	static_branch_disable(&pagelab_resv_on);
	resv_reclaim(ULONG_MAX, RESV_SWITCHED_OFF);
	return 0;
}

static const struct pagelab_choice enabled_choice = {
	.names = pagelab_off_on, .get = enabled_get, .set = enabled_set,
};

static int limit_get(void *unused, u64 *pages)
{
	*pages = READ_ONCE(limit);
	return 0;
}

static int limit_set(void *unused, u64 pages)
{
	unsigned long now;

	if (pages > totalram_pages())
		return -EINVAL;
	mutex_lock(&pagelab_mutex);
	WRITE_ONCE(limit, pages);
	now = resv_reserved();
	if (now > pages)
		resv_reclaim(now - pages, RESV_LIMITED);
	mutex_unlock(&pagelab_mutex);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(limit_operations, limit_get, limit_set, "%llu\n");

static const char *const stat_names[RESV_NR_STATS] = {
	[RESV_GROUPS]		= "groups",
	[RESV_GIVEN]		= "given",
	[RESV_GIVEN_LATER]	= "given_later",
	[RESV_UNMAPPED]		= "released_unmap",
	[RESV_ZAPPED]		= "released_zap",
	[RESV_COWED]		= "released_cow",
	[RESV_EXITED]		= "released_exit",
	[RESV_SHRUNK]		= "released_shrinker",
	[RESV_LIMITED]		= "released_limit",
	[RESV_SWITCHED_OFF]	= "released_disable",
	[RESV_MISPLACED]	= "released_node",
	[RESV_NO_BLOCK]		= "no_block",
	[RESV_OVER_LIMIT]	= "over_limit",
	[RESV_RACES]		= "races",
	[RESV_NOT_CHARGED]	= "not_charged",
};

static int stats_show(struct seq_file *file, void *unused)
{
	unsigned long sum;
	int cpu, i;

	seq_printf(file, "reserved %lu\nnodes %lu\n", resv_reserved(),
		   resv_nodes());
	for (i = 0; i < RESV_NR_STATS; i++) {
		sum = 0;
		for_each_possible_cpu(cpu)
			sum += per_cpu(stats[i], cpu);
		seq_printf(file, "%s %lu\n", stat_names[i], sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int __init reservation_init(void)
{
	struct dentry *dir = pagelab_dir("reservations");
	struct shrinker *shrinker;
	int error;

	limit = totalram_pages() / LIMIT_PART;
	error = resv_tree_init() ?: percpu_counter_init(&reserved, 0, GFP_KERNEL);
	if (error)
		return error;
	shrinker = shrinker_alloc(0, "pagelab-reservations");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = shrink_count;
	shrinker->scan_objects = shrink_scan;
	/* Nothing has to be read again for what it frees: trim it first. */
	shrinker->seeks = 0;
	shrinker_register(shrinker);

	pagelab_choice_file("enabled", dir, &enabled_choice);
	debugfs_create_file_unsafe("limit", 0644, dir, NULL, &limit_operations);
	debugfs_create_file("stats", 0444, dir, NULL, &stats_fops);
	return 0;
}
late_initcall(reservation_init);
