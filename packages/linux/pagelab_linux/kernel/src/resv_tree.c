// SPDX-License-Identifier: GPL-2.0
/*
 * The radix tree of a process's reserved groups, and how pages leave it other
 * than to a fault.
 *
 * Inner nodes live as long as the tree. A leaf goes when all its 16 MiB are
 * unmapped, so the leaf of a fault's own VMA stays. The shrinker may read any
 * node: they are freed after a grace period.
 */
#include <linux/percpu_counter.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "reservation.h"

static DEFINE_SPINLOCK(resv_lock);
static LIST_HEAD(trees);
static unsigned long nr_trees;
static struct kmem_cache *node_cache;
static atomic_long_t nodes = ATOMIC_LONG_INIT(0);

#define NODE_GFP	(GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN)

unsigned long resv_nodes(void)
{
	return atomic_long_read(&nodes);
}

static unsigned int slot_at(unsigned long group, int level)
{
	return (group >> (level * NODE_BITS)) & (NODE_SLOTS - 1);
}

static void free_node(struct resv_node *node)
{
	atomic_long_dec(&nodes);
	kfree_rcu(node, rcu);
}

/* The process's tree. The first reservation makes it. */
struct pagelab_resv *resv_tree_of(struct mm_struct *mm)
{
	struct pagelab_resv *tree = READ_ONCE(mm->pagelab_resv);
	struct pagelab_resv *other;

	if (likely(tree))
		return tree;
	tree = kzalloc(sizeof(*tree), NODE_GFP);
	if (!tree)
		return NULL;
	tree->levels = pgtable_l5_enabled() ? 5 : 4;
	refcount_set(&tree->users, 1);
	INIT_LIST_HEAD(&tree->list);
	other = cmpxchg(&mm->pagelab_resv, NULL, tree);
	if (other) {
		kfree(tree);
		return other;
	}
	spin_lock(&resv_lock);
	list_add_tail(&tree->list, &trees);
	nr_trees++;
	spin_unlock(&resv_lock);
	return tree;
}

void resv_put(struct pagelab_resv *tree)
{
	if (refcount_dec_and_test(&tree->users))
		kfree_rcu(tree, root.rcu);
}

/* The slot of the address's group, or NULL if there is no leaf for it. */
unsigned long *resv_find(struct pagelab_resv *tree, unsigned long address)
{
	unsigned long group = address >> GROUP_SHIFT;
	struct resv_node *node = &tree->root;
	int level;

	for (level = tree->levels - 1; level; level--) {
		node = (void *)READ_ONCE(node->slot[slot_at(group, level)]);
		if (!node)
			return NULL;
	}
	return &node->slot[slot_at(group, 0)];
}

unsigned long *resv_make(struct pagelab_resv *tree, unsigned long address)
{
	unsigned long group = address >> GROUP_SHIFT;
	struct resv_node *node = &tree->root, *child;
	unsigned long *link;
	int level;

	for (level = tree->levels - 1; level; level--) {
		link = &node->slot[slot_at(group, level)];
		node = (void *)READ_ONCE(*link);
		if (node)
			continue;
		child = kmem_cache_zalloc(node_cache, NODE_GFP);
		if (!child)
			return NULL;
		node = (void *)cmpxchg(link, 0, (unsigned long)child);
		if (node) {
			kmem_cache_free(node_cache, child);
		} else {
			atomic_long_inc(&nodes);
			node = child;
		}
	}
	return &node->slot[slot_at(group, 0)];
}

/* Frees what is still reserved of one group, and says how many pages. */
unsigned long resv_drop(unsigned long *slot)
{
	unsigned long group, pages = 0;
	struct page *block;
	int i;

	if (!READ_ONCE(*slot))
		return 0;
	group = xchg(slot, 0);
	block = pfn_to_page(PHYS_PFN(group));
	for (i = 0; i < GROUP_PAGES; i++) {
		if (!(group & BIT(i)))
			continue;
		__free_page(block + i);
		pages++;
	}
	return pages;
}

/*
 * The first leaf at or after *@group, or NULL if there is none up to @last.
 * Moves *@group to it. @link is the slot that points to it.
 */
static struct resv_node *next_leaf(struct pagelab_resv *tree,
				   unsigned long *group, unsigned long last,
				   unsigned long **link)
{
	struct resv_node *node, *child;
	int level;

	while (*group <= last) {
		node = &tree->root;
		for (level = tree->levels - 1; level; level--) {
			*link = &node->slot[slot_at(*group, level)];
			child = (void *)READ_ONCE(**link);
			if (!child)
				break;
			node = child;
		}
		if (!level)
			return node;
		/* Nothing below this slot: go to the next one. */
		*group |= BIT(level * NODE_BITS) - 1;
		++*group;
	}
	return NULL;
}

static unsigned long last_group(struct pagelab_resv *tree)
{
	return BIT(tree->levels * NODE_BITS) - 1;
}

/*
 * Drops all groups that overlap [@start, @end). With @prune, no VMA is left in
 * it, and leaves that lie in it are freed.
 */
unsigned long resv_drop_range(struct pagelab_resv *tree, unsigned long start,
			      unsigned long end, bool prune)
{
	unsigned long last = min((end - 1) >> GROUP_SHIFT, last_group(tree));
	unsigned long group = start >> GROUP_SHIFT;
	unsigned long pages = 0, stop, *link;
	struct resv_node *leaf;

	for (; (leaf = next_leaf(tree, &group, last, &link)); group = stop + 1) {
		unsigned long from = round_down(group, NODE_SLOTS);

		stop = min(from + NODE_SLOTS - 1, last);
		for (; group <= stop; group++)
			pages += resv_drop(&leaf->slot[slot_at(group, 0)]);
		if (prune && from << GROUP_SHIFT >= start &&
		    (from + NODE_SLOTS) << GROUP_SHIFT <= end) {
			WRITE_ONCE(*link, 0);
			free_node(leaf);
		}
		cond_resched();
	}
	return pages;
}

static void free_inner(struct resv_node *node, int level)
{
	struct resv_node *child;
	unsigned long i;

	for (i = 0; level && i < NODE_SLOTS; i++) {
		child = (void *)node->slot[i];
		if (!child)
			continue;
		WRITE_ONCE(node->slot[i], 0);
		free_inner(child, level - 1);
		free_node(child);
	}
}

/* From __mmput(), after the last fault. A shrinker may still be at work. */
void __pagelab_resv_exit(struct mm_struct *mm)
{
	struct pagelab_resv *tree = mm->pagelab_resv;

	spin_lock(&resv_lock);
	list_del_init(&tree->list);
	nr_trees--;
	spin_unlock(&resv_lock);

	resv_count(RESV_EXITED, resv_drop_range(tree, 0, ULONG_MAX, false));
	free_inner(&tree->root, tree->levels - 1);
	mm->pagelab_resv = NULL;
	resv_put(tree);
}

/* Frees at least @pages reserved pages of one process if it has as many. */
static unsigned long reclaim_tree(struct pagelab_resv *tree,
				  unsigned long pages)
{
	unsigned long group = READ_ONCE(tree->cursor);
	unsigned long last = last_group(tree);
	unsigned long freed = 0, *link;
	struct resv_node *leaf;
	bool wrapped = !group;

	while (freed < pages) {
		rcu_read_lock();
		leaf = next_leaf(tree, &group, last, &link);
		if (leaf) {
			do {
				freed += resv_drop(&leaf->slot[slot_at(group, 0)]);
				group++;
			} while (freed < pages && slot_at(group, 0));
		}
		rcu_read_unlock();
		if (!leaf) {
			group = 0;
			if (wrapped)
				break;
			wrapped = true;
		}
		cond_resched();
	}
	WRITE_ONCE(tree->cursor, group);
	return freed;
}

/* Frees @pages reserved pages or all there are, each process in its turn. */
unsigned long resv_reclaim(unsigned long pages, enum resv_stat why)
{
	struct pagelab_resv *tree;
	unsigned long freed = 0, left;

	spin_lock(&resv_lock);
	for (left = nr_trees; left && freed < pages; left--) {
		tree = list_first_entry_or_null(&trees, struct pagelab_resv,
						list);
		if (!tree)
			break;
		list_move_tail(&tree->list, &trees);
		refcount_inc(&tree->users);
		spin_unlock(&resv_lock);
		freed += reclaim_tree(tree, pages - freed);
		resv_put(tree);
		spin_lock(&resv_lock);
	}
	spin_unlock(&resv_lock);
	resv_count(why, freed);
	return freed;
}

int __init resv_tree_init(void)
{
	node_cache = KMEM_CACHE(resv_node, SLAB_ACCOUNT);
	return node_cache ? 0 : -ENOMEM;
}
