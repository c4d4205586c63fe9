"""Makes sure that the host of a virtual machine has backed the frames of a run.

Models: nothing. Before each timed run, as much memory as the program needs is touched in huge pages, and freed.
Source: a guest reports free blocks of 2 MiB and more to its host within two seconds, which then takes them (Linux,
    mm/page_reporting.c; virtio, "Free Page Reporting" of the memory balloon). The next touch of such a
    block also waits for the host: on one machine 2.7 s per GiB, where backed memory takes 0.1 s. Huge pages come from
    such blocks, while small ones mostly come from the remains of others. So runs with huge pages would pay for blocks
    that runs with small pages have given back.
Deviations: if a program allocates memory slowly, later than two seconds after its start, the host may have taken it
    again.
"""

import contextlib
import mmap

from pagelab.run_time import host

_HUGE_BITS = 21


def enough(resident_bytes: int) -> int:
    """How much to touch for a program of this size: an eighth more, but at most half of the free memory."""
    wanted = resident_bytes + resident_bytes // 8
    return min(wanted, host.pool_bytes(), host.available_bytes() // 2) >> _HUGE_BITS << _HUGE_BITS


def touch(size_bytes: int) -> None:
    """Touches this much memory and frees it, so that the next allocation gets frames that the host has backed."""
    if not size_bytes:
        return
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # A kernel without huge pages touches small ones.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:: mmap.PAGESIZE] = b"\1" * (size_bytes // mmap.PAGESIZE)
