/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _MM_PAGELAB_CORE_H
#define _MM_PAGELAB_CORE_H

#include <linux/debugfs.h>
#include <linux/mutex.h>
#include <linux/pagelab.h>
#include <linux/wait.h>

/* A debugfs file that holds one of a list of words. */
struct pagelab_choice {
	const char *const *names;	/* ends with NULL */
	unsigned int (*get)(void);
	int (*set)(unsigned int choice);
};

/* "0" and "1" */
extern const char *const pagelab_off_on[];

/* Serializes all changes of switches. */
extern struct mutex pagelab_mutex;

struct dentry *pagelab_dir(const char *name);
void pagelab_choice_file(const char *name, struct dentry *dir,
			 const struct pagelab_choice *choice);

/* How a kernel thread waits: once per period, or until it is woken. */
struct pagelab_pace {
	unsigned int period_ms;		/* 0: only when woken */
	unsigned int longest_ms;
	wait_queue_head_t wait;
	bool woken;
};

#define PAGELAB_PACE(name, period, longest) {				\
	.period_ms = (period), .longest_ms = (longest),			\
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER((name).wait),		\
}

bool pagelab_pause(struct pagelab_pace *pace, bool has_work);
void pagelab_wake(struct pagelab_pace *pace);
void pagelab_pace_files(const char *thread, struct dentry *dir,
			struct pagelab_pace *pace, void (*work)(void));

#ifdef CONFIG_PAGELAB_MUTATIONS
extern enum pagelab_mutation pagelab_mutation;

static inline bool pagelab_left_out(enum pagelab_mutation where)
{
	return unlikely(where && READ_ONCE(pagelab_mutation) == where);
}

static inline bool pagelab_mutates_walk(enum pagelab_mutation mutation)
{
	return mutation >= PAGELAB_WALK_FREE_PMD &&
	       mutation <= PAGELAB_WALK_FORK;
}

static inline bool pagelab_walk_mutated(void)
{
	return pagelab_mutates_walk(READ_ONCE(pagelab_mutation));
}
#else
static inline bool pagelab_left_out(enum pagelab_mutation where)
{
	return false;
}

static inline bool pagelab_walk_mutated(void)
{
	return false;
}
#endif

#ifdef CONFIG_PAGELAB_WALK_CACHE
void pagelab_walk_invalidate_all(void);

static inline bool pagelab_walk_oracle_on(void)
{
	return static_key_enabled(&pagelab_walk_oracle);
}
#else
static inline bool pagelab_walk_oracle_on(void)
{
	return false;
}

static inline void pagelab_walk_invalidate_all(void)
{
}
#endif

#endif /* _MM_PAGELAB_CORE_H */
