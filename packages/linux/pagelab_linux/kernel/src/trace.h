/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pagelab

#if !defined(_MM_PAGELAB_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MM_PAGELAB_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(pagelab_walk_mismatch,
	TP_PROTO(unsigned long address, int level, void *cached, void *walked),
	TP_ARGS(address, level, cached, walked),
	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(int, level)
		__field(void *, cached)
		__field(void *, walked)
	),
	TP_fast_assign(
		__entry->address = address;
		__entry->level = level;
		__entry->cached = cached;
		__entry->walked = walked;
	),
	TP_printk("address=%lx level=%d cached=%p walked=%p", __entry->address,
		  __entry->level, __entry->cached, __entry->walked)
);

TRACE_EVENT(pagelab_resv_reserve,
	TP_PROTO(unsigned long address, unsigned long pfn, int node),
	TP_ARGS(address, pfn, node),
	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(unsigned long, pfn)
		__field(int, node)
	),
	TP_fast_assign(
		__entry->address = address;
		__entry->pfn = pfn;
		__entry->node = node;
	),
	TP_printk("address=%lx pfn=%lx node=%d", __entry->address,
		  __entry->pfn, __entry->node)
);

TRACE_EVENT(pagelab_resv_release,
	TP_PROTO(int why, unsigned long pages),
	TP_ARGS(why, pages),
	TP_STRUCT__entry(
		__field(int, why)
		__field(unsigned long, pages)
	),
	TP_fast_assign(
		__entry->why = why;
		__entry->pages = pages;
	),
	TP_printk("why=%d pages=%lu", __entry->why, __entry->pages)
);

TRACE_EVENT(pagelab_ring_fill,
	TP_PROTO(int cpu, unsigned int pages),
	TP_ARGS(cpu, pages),
	TP_STRUCT__entry(
		__field(int, cpu)
		__field(unsigned int, pages)
	),
	TP_fast_assign(
		__entry->cpu = cpu;
		__entry->pages = pages;
	),
	TP_printk("cpu=%d pages=%u", __entry->cpu, __entry->pages)
);

TRACE_EVENT(pagelab_ring_give_back,
	TP_PROTO(int why, unsigned int pages),
	TP_ARGS(why, pages),
	TP_STRUCT__entry(
		__field(int, why)
		__field(unsigned int, pages)
	),
	TP_fast_assign(
		__entry->why = why;
		__entry->pages = pages;
	),
	TP_printk("why=%d pages=%u", __entry->why, __entry->pages)
);

TRACE_EVENT(pagelab_lba_miss,
	TP_PROTO(unsigned long address, u64 block, int error),
	TP_ARGS(address, block, error),
	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(u64, block)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->address = address;
		__entry->block = block;
		__entry->error = error;
	),
	TP_printk("address=%lx block=%llu error=%d", __entry->address,
		  __entry->block, __entry->error)
);

TRACE_EVENT(pagelab_lba_finish,
	TP_PROTO(unsigned long pages),
	TP_ARGS(pages),
	TP_STRUCT__entry(
		__field(unsigned long, pages)
	),
	TP_fast_assign(
		__entry->pages = pages;
	),
	TP_printk("pages=%lu", __entry->pages)
);

TRACE_EVENT(pagelab_lba_withdraw,
	TP_PROTO(unsigned long address, unsigned long pages),
	TP_ARGS(address, pages),
	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(unsigned long, pages)
	),
	TP_fast_assign(
		__entry->address = address;
		__entry->pages = pages;
	),
	TP_printk("address=%lx pages=%lu", __entry->address, __entry->pages)
);

#endif /* _MM_PAGELAB_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
