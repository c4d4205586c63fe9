// SPDX-License-Identifier: GPL-2.0
/*
 * Who fills the rings of zeroed pages and empties them: the thread, once per
 * period and CPU after CPU, as published; the shrinker; CPUs that go offline;
 * the switches.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/cputime.h>
#include <linux/seq_file.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/sysctl.h>

#include "core.h"
#include "rings.h"
#include "trace.h"

/* Rings hold at most this part of memory. */
#define LIMIT_PART	4

#define MIN_PAGES	16
#define MAX_PAGES	32768	/* the paper's register has 16 bits for it */
#define MIN_PERIOD_US	100
#define MAX_PERIOD_US	1000000

/* As published (sections 4.1.1 and 4.5). */
static unsigned int ring_pages = 256;
static unsigned int ring_period_us = 2000;
/* As published (section 4.9). */
static unsigned int ring_limit_percent = 80;

/* Held by whoever fills rings, gives their pages back, or replaces them. */
static DEFINE_MUTEX(ring_mutex);
static bool enabled;
static struct task_struct *thread;
static u64 earlier_threads_ns;

/* The ring of a CPU, for the holder of ring_mutex. */
static struct pagelab_ring *ring_of(int cpu)
{
	return rcu_dereference_protected(per_cpu(pagelab_rings, cpu),
					 lockdep_is_held(&ring_mutex));
}

static void visit(int cpu)
{
	struct pagelab_ring *ring;

	mutex_lock(&ring_mutex);
	ring = ring_of(cpu);
	if (ring) {
		ring_account(ring);
		if (ring_is_needed())
			ring_fill(ring, cpu);
		else
			ring_give_back(ring, UINT_MAX, RING_UNUSED);
	}
	mutex_unlock(&ring_mutex);
}

static int ring_thread(void *unused)
{
	ktime_t period;
	int cpu;

	while (!kthread_should_stop()) {
		ring_limit_processes(READ_ONCE(ring_limit_percent));
		for_each_possible_cpu(cpu)
			visit(cpu);
		ring_count(RING_PASSES, 1);
		period = ns_to_ktime(NSEC_PER_USEC *
				     (u64)READ_ONCE(ring_period_us));
		set_current_state(TASK_IDLE);
		if (!kthread_should_stop())
			schedule_hrtimeout(&period, HRTIMER_MODE_REL);
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/* Empties and frees rings that no CPU has any more. */
static void retire(struct pagelab_ring *rings, enum ring_stat why)
{
	struct pagelab_ring *ring;

	if (!rings)
		return;
	/* Faults that still saw one of them end. */
	synchronize_rcu();
	while ((ring = rings)) {
		rings = ring->next;
		ring_account(ring);
		if (why != RING_RESIZED || !pagelab_left_out(PAGELAB_RING_DISABLE))
			ring_give_back(ring, UINT_MAX, why);
		kvfree(ring);
	}
}

static void exchange(int cpu, struct pagelab_ring *ring,
		     struct pagelab_ring **old)
{
	struct pagelab_ring *before;

	before = rcu_replace_pointer(per_cpu(pagelab_rings, cpu), ring,
				     lockdep_is_held(&ring_mutex));
	if (before) {
		before->next = *old;
		*old = before;
	}
}

/*
 * Gives each CPU that is online a new ring of @pages entries, or none for 0.
 * All of them, or nothing changes. Caller holds cpus_read_lock().
 */
static int replace_rings(unsigned int pages)
{
	struct pagelab_ring *fresh = NULL, *old = NULL, *ring;
	int cpu;

	for_each_online_cpu(cpu) {
		ring = pages ? ring_create(cpu, pages) : NULL;
		if (pages && !ring) {
			retire(fresh, RING_RESIZED);
			return -ENOMEM;
		}
		if (ring) {
			ring->next = fresh;
			fresh = ring;
		}
	}
	mutex_lock(&ring_mutex);
	for_each_online_cpu(cpu) {
		ring = fresh;
		fresh = ring ? ring->next : NULL;
		exchange(cpu, ring, &old);
	}
	mutex_unlock(&ring_mutex);
	retire(old, RING_RESIZED);
	return 0;
}

/* Before a CPU starts. Without a ring, its faults find none. */
static int cpu_prepare(unsigned int cpu)
{
	struct pagelab_ring *old = NULL;

	if (!READ_ONCE(enabled))
		return 0;
	mutex_lock(&ring_mutex);
	exchange(cpu, ring_create(cpu, ring_pages), &old);
	mutex_unlock(&ring_mutex);
	retire(old, RING_OFFLINED);
	return 0;
}

/* After it has stopped. */
static int cpu_dead(unsigned int cpu)
{
	struct pagelab_ring *old = NULL;

	if (pagelab_left_out(PAGELAB_RING_OFFLINE))
		return 0;
	mutex_lock(&ring_mutex);
	exchange(cpu, NULL, &old);
	mutex_unlock(&ring_mutex);
	retire(old, RING_OFFLINED);
	return 0;
}

static bool fits_memory(unsigned int pages)
{
	return (u64)pages * num_possible_cpus() <=
	       totalram_pages() / LIMIT_PART;
}

static int switch_on(void)
{
	struct task_struct *task;
	int error;

	if (!fits_memory(ring_pages))
		return -ENOMEM;
	error = replace_rings(ring_pages);
	if (error)
		return error;
	task = kthread_create(ring_thread, NULL, "pagelab_rings");
	if (IS_ERR(task)) {
		replace_rings(0);
		return PTR_ERR(task);
	}
	thread = get_task_struct(task);
	wake_up_process(task);
	WRITE_ONCE(enabled, true);
	return 0;
}

/* A fault under way may miss, and allocates its page. */
static void switch_off(void)
{
	WRITE_ONCE(enabled, false);
	kthread_stop(thread);
	earlier_threads_ns += task_sched_runtime(thread);
	put_task_struct(thread);
	thread = NULL;
	replace_rings(0);
}

static unsigned int enabled_get(void)
{
	return READ_ONCE(enabled);
}

static int enabled_set(unsigned int on)
{
	int error = 0;

	if (on == enabled)
		return 0;
	if (on)
		static_branch_enable(&pagelab_rings_on);
	cpus_read_lock();
	if (on)
		error = switch_on();
	else
		switch_off();
	cpus_read_unlock();
	/* lru_add_drain() asks for the rings' pages as long as there are any. */
	if (!on || error)
		static_branch_disable(&pagelab_rings_on);
	return error;
}

static const struct pagelab_choice enabled_choice = {
	.names = pagelab_off_on, .get = enabled_get, .set = enabled_set,
};

/* Three switches of two words each; faults and passes look at them as they go. */
#define TWO_WORDS(name, variable, one, other)				\
static const char *const name##_names[] = { one, other, NULL };	\
static unsigned int name##_get(void)					\
{									\
	return READ_ONCE(variable);					\
}									\
static int name##_set(unsigned int on)					\
{									\
	WRITE_ONCE(variable, on);					\
	return 0;							\
}									\
static const struct pagelab_choice name##_choice = {			\
	.names = name##_names, .get = name##_get, .set = name##_set,	\
}

TWO_WORDS(processes, ring_by_call, "all", "by-call");
TWO_WORDS(defer, ring_defers_rss, "lru", "lru-rss");
TWO_WORDS(nodes, ring_any_node, "local", "prefer-local");

static unsigned int entries_get(void)
{
	return READ_ONCE(ring_arms);
}

static int entries_set(unsigned int armed)
{
	if (armed)
		static_branch_enable(&pagelab_rings_arm);
	WRITE_ONCE(ring_arms, armed);
	return 0;
}

static const char *const entries_names[] = { "any", "armed", NULL };
static const struct pagelab_choice entries_choice = {
	.names = entries_names, .get = entries_get, .set = entries_set,
};

/* Reads and checks a number; @value is unchanged if that fails. */
static int number_from(const struct ctl_table *table, int write, void *buffer,
		       size_t *length, loff_t *position, unsigned int *value)
{
	struct ctl_table one = *table;

	one.data = value;
	return proc_douintvec_minmax(&one, write, buffer, length, position);
}

static int pages_sysctl(const struct ctl_table *table, int write, void *buffer,
			size_t *length, loff_t *position)
{
	unsigned int pages;
	int error;

	mutex_lock(&pagelab_mutex);
	pages = ring_pages;
	error = number_from(table, write, buffer, length, position, &pages);
	if (error || !write || pages == ring_pages)
		goto out;
	error = -EINVAL;
	if (!is_power_of_2(pages) || !fits_memory(pages))
		goto out;
	cpus_read_lock();
	error = enabled ? replace_rings(pages) : 0;
	if (!error)
		ring_pages = pages;
	cpus_read_unlock();
out:
	mutex_unlock(&pagelab_mutex);
	return error;
}

static int period_sysctl(const struct ctl_table *table, int write,
			 void *buffer, size_t *length, loff_t *position)
{
	unsigned int period;
	int error;

	mutex_lock(&pagelab_mutex);
	period = ring_period_us;
	error = number_from(table, write, buffer, length, position, &period);
	if (!error && write) {
		WRITE_ONCE(ring_period_us, period);
		/* It may be in the midst of a longer one. */
		if (thread)
			wake_up_process(thread);
	}
	mutex_unlock(&pagelab_mutex);
	return error;
}

static unsigned int least_percent = 1, most_percent = 100;
static unsigned int least_pages = MIN_PAGES, most_pages = MAX_PAGES;
static unsigned int least_period = MIN_PERIOD_US, most_period = MAX_PERIOD_US;

static struct ctl_table ring_table[] = {
	{
		.procname	= "ring_pages",
		.maxlen		= sizeof(ring_pages),
		.mode		= 0644,
		.proc_handler	= pages_sysctl,
		.extra1		= &least_pages,
		.extra2		= &most_pages,
	},
	{
		.procname	= "ring_period_us",
		.maxlen		= sizeof(ring_period_us),
		.mode		= 0644,
		.proc_handler	= period_sysctl,
		.extra1		= &least_period,
		.extra2		= &most_period,
	},
	{
		.procname	= "ring_limit_percent",
		.data		= &ring_limit_percent,
		.maxlen		= sizeof(ring_limit_percent),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= &least_percent,
		.extra2		= &most_percent,
	},
};

/* Does not wait for the thread, which may be what allocates. */
static unsigned long shrink_count(struct shrinker *shrinker,
				  struct shrink_control *control)
{
	const struct pagelab_ring *ring;
	unsigned long ready = 0;
	int cpu;

	rcu_read_lock();
	for_each_possible_cpu(cpu) {
		ring = rcu_dereference(per_cpu(pagelab_rings, cpu));
		if (ring)
			ready += ring_ready(ring);
	}
	rcu_read_unlock();
	return ready ?: SHRINK_EMPTY;
}

static unsigned long shrink_scan(struct shrinker *shrinker,
				 struct shrink_control *control)
{
	unsigned long freed = 0;
	struct pagelab_ring *ring;
	int cpu;

	if (pagelab_left_out(PAGELAB_RING_SHRINK) ||
	    !mutex_trylock(&ring_mutex))
		return SHRINK_STOP;
	for_each_possible_cpu(cpu) {
		ring = ring_of(cpu);
		if (ring && freed < control->nr_to_scan)
			freed += ring_give_back(ring,
						control->nr_to_scan - freed,
						RING_SHRUNK);
	}
	mutex_unlock(&ring_mutex);
	return freed ?: SHRINK_STOP;
}

static const char *const stat_names[RING_NR_STATS] = {
	[RING_HITS]		= "hits",
	[RING_MISSES]		= "misses",
	[RING_MISPLACED]	= "misplaced",
	[RING_NOT_ASKED]	= "not_asked",
	[RING_ARMED]		= "armed",
	[RING_UNARMED]		= "unarmed",
	[RING_JOINED]		= "joined",
	[RING_DEFERRED]		= "deferred",
	[RING_RSS_DEFERRED]	= "rss_deferred",
	[RING_RSS_THREAD]	= "rss_by_thread",
	[RING_RSS_UNMAP]	= "rss_at_unmap",
	[RING_RSS_EXIT]		= "rss_at_exit",
	[RING_ACCOUNTED]	= "accounted",
	[RING_DRAINED]		= "drained",
	[RING_FILLED]		= "filled",
	[RING_FILLED_REMOTE]	= "filled_remote",
	[RING_SHRUNK]		= "given_back_shrinker",
	[RING_RESIZED]		= "given_back_switch",
	[RING_OFFLINED]		= "given_back_offline",
	[RING_UNUSED]		= "given_back_unused",
	[RING_REPEATED]		= "calls_repeated",
	[RING_STOPPED]		= "stopped",
	[RING_NO_MEMORY]	= "no_memory",
	[RING_PASSES]		= "passes",
};

static int stats_show(struct seq_file *file, void *unused)
{
	unsigned long ready = shrink_count(NULL, NULL), sum;
	u64 thread_ns;
	int cpu, i;

	mutex_lock(&pagelab_mutex);
	thread_ns = earlier_threads_ns;
	if (thread)
		thread_ns += task_sched_runtime(thread);
	mutex_unlock(&pagelab_mutex);
	seq_printf(file, "ready %lu\nthread_ns %llu\n",
		   ready == SHRINK_EMPTY ? 0 : ready, thread_ns);
	for (i = 0; i < RING_NR_STATS; i++) {
		sum = 0;
		for_each_possible_cpu(cpu)
			sum += per_cpu(ring_stats[i], cpu);
		seq_printf(file, "%s %lu\n", stat_names[i], sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int __init rings_init(void)
{
	struct dentry *dir = pagelab_dir("rings");
	struct shrinker *shrinker;
	int state;

	state = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "mm/pagelab:rings",
					  cpu_prepare, cpu_dead);
	if (state < 0)
		return state;
	shrinker = shrinker_alloc(0, "pagelab-rings");
	if (!shrinker) {
		cpuhp_remove_state_nocalls(state);
		return -ENOMEM;
	}
	shrinker->count_objects = shrink_count;
	shrinker->scan_objects = shrink_scan;
	/* Nothing has to be read again for what it frees: trim it first. */
	shrinker->seeks = 0;
	shrinker_register(shrinker);

	register_sysctl_init("vm/pagelab", ring_table);
	pagelab_choice_file("enabled", dir, &enabled_choice);
	pagelab_choice_file("processes", dir, &processes_choice);
	pagelab_choice_file("entries", dir, &entries_choice);
	pagelab_choice_file("defer", dir, &defer_choice);
	pagelab_choice_file("nodes", dir, &nodes_choice);
	debugfs_create_file("stats", 0444, dir, NULL, &stats_fops);
	return 0;
}
late_initcall(rings_init);
