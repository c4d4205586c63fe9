/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _MM_PAGELAB_RESERVATION_H
#define _MM_PAGELAB_RESERVATION_H

#include <linux/init.h>
#include <linux/list.h>
#include <linux/pagelab.h>
#include <linux/refcount.h>

/*
 * A cache line holds eight PTEs: 32 KiB of them are a group (PTEMagnet,
 * section 4).
 */
#define GROUP_ORDER	3
#define GROUP_PAGES	(1UL << GROUP_ORDER)
#define GROUP_SHIFT	(PAGE_SHIFT + GROUP_ORDER)
#define GROUP_SIZE	(1UL << GROUP_SHIFT)
#define GROUP_MASK	(GROUP_PAGES - 1)

#define NODE_BITS	9
#define NODE_SLOTS	(1UL << NODE_BITS)

/*
 * A node of a process's radix tree of groups. Slots of inner nodes point to
 * nodes. A slot of a leaf is 0, or a group's physical address with a bit set
 * in its low byte for each page that is still reserved. Whoever clears a bit
 * owns the page.
 */
struct resv_node {
	struct rcu_head rcu;		/* first: kfree_rcu() needs that */
	unsigned long slot[NODE_SLOTS];
};

struct pagelab_resv {
	struct resv_node root;
	int levels;
	refcount_t users;		/* the mm, and shrinkers at work */
	struct list_head list;		/* of all trees, by resv_lock */
	unsigned long cursor;		/* the group where shrinking goes on */
};

enum resv_stat {
	RESV_GROUPS,			/* groups reserved */
	RESV_GIVEN,			/* pages given to faults */
	RESV_GIVEN_LATER,		/* of them after the group's first */
	RESV_UNMAPPED,			/* pages released, by reason */
	RESV_ZAPPED,
	RESV_COWED,
	RESV_EXITED,
	RESV_SHRUNK,
	RESV_LIMITED,
	RESV_SWITCHED_OFF,
	RESV_MISPLACED,
	RESV_NO_BLOCK,			/* no eight contiguous pages */
	RESV_OVER_LIMIT,
	RESV_RACES,			/* two threads reserved one group */
	RESV_NOT_CHARGED,
	RESV_NR_STATS
};

void resv_count(enum resv_stat stat, unsigned long by);

struct pagelab_resv *resv_tree_of(struct mm_struct *mm);
void resv_put(struct pagelab_resv *tree);
unsigned long *resv_find(struct pagelab_resv *tree, unsigned long address);
unsigned long *resv_make(struct pagelab_resv *tree, unsigned long address);
unsigned long resv_drop(unsigned long *slot);
unsigned long resv_drop_range(struct pagelab_resv *tree, unsigned long start,
			      unsigned long end, bool prune);
unsigned long resv_reclaim(unsigned long pages, enum resv_stat why);
unsigned long resv_reserved(void);
unsigned long resv_nodes(void);
int __init resv_tree_init(void);

#endif /* _MM_PAGELAB_RESERVATION_H */
