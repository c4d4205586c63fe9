"""Frames for a run that the host of a virtual machine has, too.

Models: nothing. Before each timed run as much memory as the program needs is touched in huge pages, and freed.
Source: a guest reports free blocks of 2 MiB and more to its host within two seconds, which then takes them (Linux,
    mm/page_reporting.c; virtio, "Free Page Reporting" of the memory balloon). Whoever touches such a block next waits
    for the host, too: on one machine 2.7 s per GiB, where memory that the host has takes 0.1 s. Huge pages are made
    of such blocks, while small ones are mostly made of what is left of others. So runs with huge pages pay the host
    for what runs with small pages have given back.
Deviations: a program that takes its memory little by little, later than two seconds after its start, may find that the
    host has it again.
"""

import contextlib
import mmap

from pagelab.run_time import host

_HUGE_BITS = 21


def enough(resident_bytes: int) -> int:
    """How much to touch for a program of this size: an eighth more, at most half of what is free."""
    wanted = resident_bytes + resident_bytes // 8
    return min(wanted, host.pool_bytes(), host.available_bytes() // 2) >> _HUGE_BITS << _HUGE_BITS


def touch(size_bytes: int) -> None:
    """Touches so much memory and frees it, so that the next to ask for memory gets frames that the host has."""
    if not size_bytes:
        return
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # A kernel without huge pages touches small ones.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:: mmap.PAGESIZE] = b"\1" * (size_bytes // mmap.PAGESIZE)
