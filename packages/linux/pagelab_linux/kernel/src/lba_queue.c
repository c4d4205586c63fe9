// SPDX-License-Identifier: GPL-2.0
/*
 * The queues of free pages, one for each unit, and kpoold, which fills them.
 *
 * They are filled without reclaim, from what is free anyway. The shrinker
 * takes their pages back, after which kpoold leaves them alone for a while.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/timex.h>

#include "core.h"
#include "lba.h"

/* Queued pages cannot be migrated, so none comes from ZONE_MOVABLE. */
#define QUEUE_GFP	((GFP_USER | __GFP_MOVABLE | __GFP_NOMEMALLOC | \
			  __GFP_NOWARN) & ~__GFP_RECLAIM)

/* Chosen: the paper states neither sizes nor the period. */
#define QUEUE_PAGES	4096
#define FAULT_FILLS	64
#define PERIOD_MS	4
#define LONGEST_MS	60000

/* All queues together may hold this part of memory. */
#define LARGEST_PART	16

/* kpoold leaves the queues alone for so long after the shrinker came. */
#define PAUSE		HZ

static struct lba_unit *units;
static unsigned long queue_pages = QUEUE_PAGES;
static struct pagelab_pace pace = PAGELAB_PACE(pace, PERIOD_MS, LONGEST_MS);
static unsigned long paused_until;

/* The unit of a drive's node; a drive without one has the first. */
struct lba_unit *lba_unit_of(int node)
{
	if (node < 0 || node >= nr_node_ids || !node_online(node))
		node = first_online_node;
	return &units[node];
}

struct page *lba_take(struct lba_unit *unit)
{
	struct page *page;

	spin_lock(&unit->queue_lock);
	page = list_first_entry_or_null(&unit->queue, struct page, lru);
	if (page) {
		list_del(&page->lru);
		unit->queued--;
	}
	spin_unlock(&unit->queue_lock);
	return page;
}

static bool wanted(void)
{
	return static_key_enabled(&pagelab_lba_on) && lba_files_open();
}

/* Adds up to @most pages. Returns how many. */
static unsigned long fill(struct lba_unit *unit, unsigned long most)
{
	unsigned long filled = 0;
	struct page *page;

	while (filled < most && wanted() &&
	       READ_ONCE(unit->queued) < READ_ONCE(queue_pages)) {
		page = alloc_pages_node(unit->node, QUEUE_GFP, 0);
		if (!page)
			break;
		spin_lock(&unit->queue_lock);
		list_add_tail(&page->lru, &unit->queue);
		unit->queued++;
		spin_unlock(&unit->queue_lock);
		filled++;
		cond_resched();
	}
	return filled;
}

/* Gives pages back until at most @keep are left. Returns how many. */
static unsigned long drain(struct lba_unit *unit, unsigned long keep,
			   unsigned long most)
{
	unsigned long drained = 0;
	struct page *page;

	while (drained < most && READ_ONCE(unit->queued) > keep) {
		page = lba_take(unit);
		if (!page)
			break;
		__free_page(page);
		drained++;
		cond_resched();
	}
	return drained;
}

/* What the fault that found the queue empty does for the next ones. */
void lba_fill_by_fault(struct lba_unit *unit)
{
	lba_count(LBA_FILLED_BY_FAULTS, fill(unit, FAULT_FILLS));
}

unsigned long lba_queued(void)
{
	unsigned long sum = 0;
	int node;

	for_each_online_node(node)
		sum += READ_ONCE(units[node].queued);
	return sum;
}

/* Brings all queues to the length that they are to have now. */
static void adjust(void)
{
	cycles_t began = get_cycles();
	unsigned long filled = 0;
	int node;

	for_each_online_node(node) {
		drain(&units[node], wanted() ? READ_ONCE(queue_pages) : 0,
		      ULONG_MAX);
		filled += fill(&units[node], ULONG_MAX);
	}
	lba_count(LBA_FILLED, filled);
	lba_count(LBA_KPOOLD_TICKS, get_cycles() - began);
}

void lba_wake_kpoold(void)
{
	pagelab_wake(&pace);
}

/* Without a period nothing is filled, and what is not wanted is drained. */
static int kpoold(void *unused)
{
	while (!kthread_should_stop()) {
		pagelab_pause(&pace, wanted());
		if (wanted() && (!READ_ONCE(pace.period_ms) ||
				 time_before(jiffies, READ_ONCE(paused_until))))
			continue;
		adjust();
	}
	return 0;
}

static unsigned long shrink_count(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	return lba_queued() + lba_pending_pages() ?: SHRINK_EMPTY;
}

/* Pages that kpted has not seen cannot leave memory: it comes early. */
static unsigned long shrink_scan(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	unsigned long freed = 0;
	int node;

	WRITE_ONCE(paused_until, jiffies + PAUSE);
	for_each_online_node(node)
		freed += drain(&units[node], 0, control->nr_to_scan - freed);
	lba_count(LBA_SHRUNK, freed);
	if (lba_pending_pages())
		lba_hurry_kpted();
	return freed ?: SHRINK_STOP;
}

static int pages_get(void *unused, u64 *pages)
{
	*pages = READ_ONCE(queue_pages);
	return 0;
}

static int pages_set(void *unused, u64 pages)
{
	if (pages > MOST_QUEUED ||
	    pages * num_online_nodes() > totalram_pages() / LARGEST_PART)
		return -EINVAL;
	WRITE_ONCE(queue_pages, pages);
	lba_wake_kpoold();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(pages_operations, pages_get, pages_set, "%llu\n");

int lba_queue_init(struct dentry *dir)
{
	struct task_struct *thread;
	struct shrinker *shrinker;
	int node;

	units = kcalloc(nr_node_ids, sizeof(*units), GFP_KERNEL);
	shrinker = shrinker_alloc(0, "pagelab-lba");
	if (!units || !shrinker)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++) {
		units[node].node = node;
		spin_lock_init(&units[node].lock);
		spin_lock_init(&units[node].queue_lock);
		init_waitqueue_head(&units[node].freed);
		INIT_LIST_HEAD(&units[node].queue);
	}
	queue_pages = min(queue_pages, totalram_pages() / LARGEST_PART /
			  num_online_nodes());
	shrinker->count_objects = shrink_count;
	shrinker->scan_objects = shrink_scan;
	shrinker->seeks = 0;
	shrinker_register(shrinker);
	thread = kthread_run(kpoold, NULL, "kpoold");
	if (IS_ERR(thread))
		return PTR_ERR(thread);

	debugfs_create_file_unsafe("queue_pages", 0644, dir, NULL,
				   &pages_operations);
	pagelab_pace_files("kpoold", dir, &pace, adjust);
	return 0;
}
