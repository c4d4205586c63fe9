"""Which memory was used in an interval: the kernel's accessed bits, cleared at its begin and read at its end.

Source: /proc/PID/clear_refs and Referenced of /proc/PID/smaps (Documentation/filesystems/proc.rst);
    clear_refs_write and clear_refs_pte_range of fs/proc/task_mmu.c, Linux 6.18.
Deviations: clearing changes what reclaim takes first, and the program's processor sets each bit again at the next use.
    `1` does not flush TLBs, so a translation that stays in one is not seen as used. Where the kernel has no soft-dirty
    bits, `4` only flushes them; elsewhere it would write-protect all memory, so it is not written, and pages that stay
    in a TLB are missing.
"""

import mmap
import os
from collections.abc import Sequence

import numpy as np

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.mappings import Mapping
from pagelab.observe.processes import PROC

SET_SECONDS = 0.8e-6
"""For a page: the walk and the update of its entry at the first use after clearing; an estimate from runs that
docs/observe.md describes"""
_SOFT_DIRTY = 1 << 55


class AccessedBits:
    """Clears the accessed bits of processes."""

    not_flushed = "this kernel has soft-dirty bits, so pagelab does not flush TLBs"
    """Why, if `flushes` is false"""

    def __init__(self) -> None:
        self.flushes = not _has_soft_dirty()
        """Whether translations are flushed from TLBs, so that every used page is seen"""

    def close(self) -> None:
        """Nothing stays open."""

    def used(self, _pid: int, mappings: Sequence[Mapping]) -> list[Mapping]:
        """The mappings of a look, which tell themselves what was referenced."""
        return list(mappings)

    def clear(self, pid: int, _mappings: Sequence[Mapping]) -> None:
        """Begins an interval.

        Raises:
            ProcessEndedError: the process has ended.
            UsageError: this user may not.
        """
        try:
            descriptor = os.open(PROC / str(pid) / "clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except PermissionError:
            raise UsageError(f"process {pid}: accessed bits may be cleared by its owner and by root alone") from None
        except OSError:
            raise ProcessEndedError(f"process {pid} has ended") from None
        try:
            os.write(descriptor, b"1")
            if self.flushes:
                os.write(descriptor, b"4")
        except ProcessLookupError:
            raise ProcessEndedError(f"process {pid} has ended") from None
        finally:
            os.close(descriptor)


def _has_soft_dirty() -> bool:
    """Whether the kernel notes writes to pages: then a page that was just written is soft-dirty."""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        page = np.frombuffer(memory, dtype=np.uint8)
        number = page.ctypes.data // mmap.PAGESIZE
        # The mapping cannot be closed while the array refers to it.
        del page
        memory[0] = 1
        try:
            with (PROC / "self" / "pagemap").open("rb", buffering=0) as pagemap:
                entry = int.from_bytes(os.pread(pagemap.fileno(), 8, number * 8), "little")
        except OSError:
            # It is not known, so nothing is risked.
            return True
    return bool(entry & _SOFT_DIRTY)
