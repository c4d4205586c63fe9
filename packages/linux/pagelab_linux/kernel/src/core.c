// SPDX-License-Identifier: GPL-2.0
/*
 * What pagelab's mechanisms share: the debugfs directory, files that accept
 * one of a few words, how threads wait, and the switches that leave out a part
 * for tests.
 */
#include <linux/init.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "core.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define CHOICE_LENGTH 32

/* Held by whoever changes a switch. */
DEFINE_MUTEX(pagelab_mutex);

const char *const pagelab_off_on[] = { "0", "1", NULL };

/* The directory @name below pagelab/, or pagelab/ itself for NULL. */
struct dentry *pagelab_dir(const char *name)
{
	static struct dentry *root;

	if (!root)
		root = debugfs_create_dir("pagelab", NULL);
	return name ? debugfs_create_dir(name, root) : root;
}

/* "off [on]" for more than two words, the word alone for a switch. */
static int choice_show(struct seq_file *file, void *unused)
{
	const struct pagelab_choice *choice = file->private;
	unsigned int now = choice->get();
	unsigned int i;

	if (choice->names == pagelab_off_on) {
		seq_printf(file, "%s\n", choice->names[now]);
		return 0;
	}
	for (i = 0; choice->names[i]; i++)
		seq_printf(file, i == now ? "%s[%s]" : "%s%s", i ? " " : "",
			   choice->names[i]);
	seq_putc(file, '\n');
	return 0;
}

static int choice_open(struct inode *inode, struct file *file)
{
	return single_open(file, choice_show, inode->i_private);
}

static ssize_t choice_write(struct file *file, const char __user *text,
			    size_t count, loff_t *position)
{
	const struct pagelab_choice *choice;
	char word[CHOICE_LENGTH];
	int index, error;

	choice = ((struct seq_file *)file->private_data)->private;
	if (*position || !count || count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, text, count))
		return -EFAULT;
	word[count] = '\0';

	for (index = 0; choice->names[index]; index++)
		if (sysfs_streq(word, choice->names[index]))
			break;
	if (!choice->names[index])
		return -EINVAL;

	mutex_lock(&pagelab_mutex);
	error = choice->set(index);
	mutex_unlock(&pagelab_mutex);
	return error ?: count;
}

static const struct file_operations choice_operations = {
	.open		= choice_open,
	.read		= seq_read,
	.write		= choice_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

void pagelab_choice_file(const char *name, struct dentry *dir,
			 const struct pagelab_choice *choice)
{
	debugfs_create_file(name, 0644, dir, (void *)choice,
			    &choice_operations);
}

/*
 * Until the period is over, which is told, or somebody wakes the thread. For
 * good without a period, or where the thread @has_work no more.
 */
bool pagelab_pause(struct pagelab_pace *pace, bool has_work)
{
	unsigned int period = READ_ONCE(pace->period_ms);
	bool due = false;

	if (!period || !has_work)
		wait_event_idle(pace->wait, READ_ONCE(pace->woken));
	else
		due = !wait_event_idle_timeout(pace->wait,
					       READ_ONCE(pace->woken),
					       msecs_to_jiffies(period));
	WRITE_ONCE(pace->woken, false);
	return due;
}

void pagelab_wake(struct pagelab_pace *pace)
{
	WRITE_ONCE(pace->woken, true);
	wake_up(&pace->wait);
}

static int period_get(void *pace, u64 *period)
{
	*period = READ_ONCE(((struct pagelab_pace *)pace)->period_ms);
	return 0;
}

static int period_set(void *data, u64 period)
{
	struct pagelab_pace *pace = data;

	if (period > pace->longest_ms)
		return -EINVAL;
	WRITE_ONCE(pace->period_ms, period);
	pagelab_wake(pace);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(period_operations, period_get, period_set, "%llu\n");

/* What the thread does in a period, done by who writes 1. */
static int now_set(void *work, u64 one)
{
	if (one != 1)
		return -EINVAL;
	((void (*)(void))work)();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(now_operations, NULL, now_set, "%llu\n");

/* THREAD_ms, its period, and THREAD, which does its work at once. */
void pagelab_pace_files(const char *thread, struct dentry *dir,
			struct pagelab_pace *pace, void (*work)(void))
{
	char name[CHOICE_LENGTH];

	snprintf(name, sizeof(name), "%s_ms", thread);
	debugfs_create_file_unsafe(name, 0644, dir, pace, &period_operations);
	debugfs_create_file_unsafe(thread, 0200, dir, work, &now_operations);
}

#ifdef CONFIG_PAGELAB_MUTATIONS

enum pagelab_mutation pagelab_mutation;

static const char *const mutation_names[] = {
	[PAGELAB_MUTATION_NONE]		= "none",
	[PAGELAB_WALK_FREE_PMD]		= "walk-free-pmd",
	[PAGELAB_WALK_MOVE_PUD]		= "walk-move-pud",
	[PAGELAB_WALK_FORK]		= "walk-fork",
	[PAGELAB_RESV_UNMAP]		= "resv-unmap",
	[PAGELAB_RESV_ZAP]		= "resv-zap",
	[PAGELAB_RESV_COW]		= "resv-cow",
	[PAGELAB_RESV_SHRINK]		= "resv-shrink",
	[PAGELAB_NO_MEMORY]		= "no-memory",
	[PAGELAB_RING_ZERO]		= "ring-zero",
	[PAGELAB_RING_NODE]		= "ring-node",
	[PAGELAB_RING_DRAIN]		= "ring-drain",
	[PAGELAB_RING_DISABLE]		= "ring-disable",
	[PAGELAB_RING_OFFLINE]		= "ring-offline",
	[PAGELAB_RING_SHRINK]		= "ring-shrink",
	[PAGELAB_RING_ASK]		= "ring-ask",
	[PAGELAB_RING_UNMAP]		= "ring-unmap",
	[PAGELAB_RING_EXIT]		= "ring-exit",
	[PAGELAB_RING_LIMIT]		= "ring-limit",
	[PAGELAB_RING_LOCK]		= "ring-lock",
	[PAGELAB_LBA_BLOCK]		= "lba-block",
	[PAGELAB_LBA_JOIN]		= "lba-join",
	[PAGELAB_LBA_STATUS]		= "lba-status",
	[PAGELAB_LBA_WITHDRAW]		= "lba-withdraw",
	[PAGELAB_LBA_RELEASE]		= "lba-release",
	[PAGELAB_LBA_CHARGE]		= "lba-charge",
	[PAGELAB_NR_MUTATIONS]		= NULL
};

static unsigned int mutation_get(void)
{
	return READ_ONCE(pagelab_mutation);
}

/*
 * Without the oracle a left-out invalidation would let page tables be written
 * that belong to others. So the oracle must be on, and stays on.
 */
static int mutation_set(unsigned int choice)
{
	bool walk_mutated = pagelab_walk_mutated();

	if (pagelab_mutates_walk(choice) && !pagelab_walk_oracle_on())
		return -EBUSY;
	WRITE_ONCE(pagelab_mutation, choice);
	if (walk_mutated)
		pagelab_walk_invalidate_all();
	return 0;
}

static const struct pagelab_choice mutation_choice = {
	.names	= mutation_names,
	.get	= mutation_get,
	.set	= mutation_set,
};

static int __init mutation_init(void)
{
	pagelab_choice_file("mutation", pagelab_dir(NULL), &mutation_choice);
	return 0;
}
late_initcall(mutation_init);

#endif /* CONFIG_PAGELAB_MUTATIONS */
