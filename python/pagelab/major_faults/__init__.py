"""The kernel's cost of a major page fault, in addition to the device, stage by stage.

Models: nothing; it measures. A file's pages are dropped from the page cache and touched at random through a mapping
    with MADV_RANDOM, so that each touch is one major fault that reads one page. The touches are timed from user space.
    In separate passes, perf also records tracepoints, which divide a fault into stages. In another pass, working
    sets are read before and after a touch, which shows what it evicts from the caches (footprint.py).
Source: Linux 6.12: mm/filemap.c (`filemap_fault`), block/blk-mq.c, kernel/sched/core.c; perf-record(1), perf-script(1).
Parameters: where the file lies and how large it is, faults per pass, runs, and the CPU.
Deviations: recording a tracepoint takes time, which the stages include. Passes with fewer tracepoints show how much,
    and the settings written exclude it. There is no tracepoint at the doorbell: what the driver does after
    `block_rq_issue` counts as the switch away, or as the device's time if a fault does not sleep. The time from an
    interrupt to its handler also counts as the device's.
"""

from pagelab._engine import PagelabError


class MajorFaultError(PagelabError):
    """Major faults cannot be measured here."""
