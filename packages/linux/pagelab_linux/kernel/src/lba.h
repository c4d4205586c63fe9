/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of hardware demand paging, reduced, share. */
#ifndef _MM_PAGELAB_LBA_H
#define _MM_PAGELAB_LBA_H

#include <linux/atomic.h>
#include <linux/ioctl.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/pagelab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

/* On /dev/pagelab-lba: a file that maps the block device of a descriptor. */
#define PAGELAB_LBA_OPEN	_IO(0xb8, 0x70)

/*
 * An entry beside a PTE. A present bit and an LBA bit make four states:
 *	LBA		the next miss is the fast path's
 *	LBA, present	mapped by the fast path; kpted has not seen it
 *	present		the kernel's: mapped, or in the page cache, or evicted
 *	neither		the next miss is the kernel's
 * The first and the last become others only by who holds the miss's register,
 * the second only under the lock of the page table.
 */
#define ENTRY_PRESENT		BIT(0)
#define ENTRY_LBA		BIT(10)
#define ENTRY_STATE		(ENTRY_PRESENT | ENTRY_LBA)
#define ENTRY_BLOCK_SHIFT	12
#define ENTRY_BLOCK_BITS	41

#define UNIT_REGISTERS		32
#define MOST_QUEUED		65536UL

enum lba_stat {
	LBA_MAPPED,
	LBA_JOINED,
	LBA_FULL,
	LBA_EMPTY,
	LBA_FAILED,
	LBA_SETTLED,
	LBA_KERNEL,
	LBA_OVER_LIMIT,
	LBA_FINISHED,
	LBA_NOT_FINISHED,
	LBA_WITHDRAWN,
	LBA_FILLED,
	LBA_FILLED_BY_FAULTS,
	LBA_SHRUNK,
	LBA_KPTED_TICKS,
	LBA_KPOOLD_TICKS,
	LBA_NR_STATS
};

struct lba_file;

/* A miss under way. */
struct lba_register {
	const struct lba_file *file;
	unsigned long index;
};

/* The storage management unit of a node: it serves the drives there. */
struct lba_unit {
	int node;
	spinlock_t lock;		/* registers */
	unsigned long busy;		/* a bit for each register */
	struct lba_register registers[UNIT_REGISTERS];
	wait_queue_head_t freed;	/* a register */
	spinlock_t queue_lock;
	unsigned long queued;		/* free pages, a list by their lru */
	struct list_head queue;
};

/*
 * An open file: one block device, one address space, one mapping. Entry 0 is
 * of the address "start", so each 512 entries belong to one table of PTEs.
 */
struct lba_file {
	struct list_head list;
	struct mm_struct *mm;
	struct file *device;
	struct address_space *mapping;
	struct lba_unit *unit;
	unsigned long start;
	unsigned long nr;		/* entries; set last, never changed */
	unsigned long *entries;
	unsigned long *pmds, *puds;	/* LBA bits of the upper levels */
	atomic_t pending;		/* entries that kpted has not seen */
	atomic_t zaps;			/* under way */
};

DECLARE_STATIC_KEY_FALSE(pagelab_lba_on);
DECLARE_PER_CPU(unsigned long [LBA_NR_STATS], lba_stats);

extern const struct address_space_operations lba_aops;

static inline void lba_count(enum lba_stat stat, unsigned long by)
{
	this_cpu_add(lba_stats[stat], by);
}

static inline unsigned long lba_address(const struct lba_file *file,
					unsigned long index)
{
	return file->start + (index << PAGE_SHIFT);
}

static inline bool lba_pending(unsigned long entry)
{
	return (entry & ENTRY_STATE) == ENTRY_STATE;
}

static inline void lba_set_state(unsigned long *entry, unsigned long state)
{
	WRITE_ONCE(*entry, (*entry & ~ENTRY_STATE) | state);
}

/* Files, lba_device.c */
int lba_for_each_file(int (*visit)(struct lba_file *file));
bool lba_files_open(void);

/* Free pages, lba_queue.c */
struct lba_unit *lba_unit_of(int node);
struct page *lba_take(struct lba_unit *unit);
void lba_fill_by_fault(struct lba_unit *unit);
void lba_wake_kpoold(void);
unsigned long lba_queued(void);
int lba_queue_init(struct dentry *dir);

/* Metadata, lba_metadata.c */
bool lba_may_defer(void);
void lba_mark_pending(struct lba_file *file, unsigned long index);
void lba_unmark_pending(struct lba_file *file, unsigned long index,
			unsigned long state);
void lba_wake_kpted(void);
void lba_hurry_kpted(void);
unsigned long lba_pending_pages(void);
int lba_metadata_init(struct dentry *dir);

#endif /* _MM_PAGELAB_LBA_H */
