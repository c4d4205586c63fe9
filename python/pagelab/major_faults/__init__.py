"""What a major page fault costs the kernel beside the device, stage by stage.

Models: nothing; it measures. A file's pages are dropped from the page cache and touched at random through a mapping
    with MADV_RANDOM, so that each touch is one major fault that reads one page. The touches are timed from user space.
    In passes of their own, perf records tracepoints beside them, which cut a fault into stages. In another pass,
    working sets are read before and after a touch, which tells what it pushes out of the caches (footprint.py).
Source: Linux 6.12: mm/filemap.c (`filemap_fault`), block/blk-mq.c, kernel/sched/core.c; perf-record(1), perf-script(1).
Parameters: where the file lies and how large it is, faults per pass, runs, and the CPU.
Deviations: recording a tracepoint takes time, which the stages include. How much is told by passes with fewer of them,
    and taken off what is written. No tracepoint stands at the doorbell: what the driver does after `block_rq_issue`
    counts as the switch away, and as the device's time where a fault does not sleep. The way of an interrupt to its
    handler counts as the device's time, too.
"""

from pagelab._engine import PagelabError


class MajorFaultError(PagelabError):
    """Major faults cannot be measured here."""
