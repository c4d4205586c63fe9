"""Checks that a layout's memory became huge as requested."""

from pagelab._engine import UsageError
from pagelab.quantities import size_text
from pagelab.run_time.layouts import HUGE_BYTES, Layout
from pagelab.run_time.running import Memory

_LEAST_PIECES = 8
"""Fewest pieces of 2 MiB for a share of the heap; fewer are too coarse; a choice"""
_TOLERANCE = 0.1
"""Share of the heap by which huge memory may fall short"""
_TOLERATED_PIECES = 2
"""The same in pieces: those that the heap's first and last pages are part of"""
_REMEDY = (
    "Free huge pages may be missing, since memory is fragmented: as root, write 1 to /proc/sys/vm/compact_memory, end "
    "other programs, and write madvise to /sys/kernel/mm/transparent_hugepage/defrag"
)


def check_share(layout: Layout, small: Memory, got: Memory) -> None:
    """Compares the huge memory with the layout's request.

    Args:
        small: The program's memory with small pages.
        got: Its memory under the layout.

    Raises:
        UsageError: the program is too small for the layout, or got less than the layout requests.
    """
    if not layout.touched or layout.small:
        return
    if not got.huge_bytes:
        raise UsageError(
            f"{layout.name}: nothing of {size_text(got.anonymous_bytes)} anonymous memory became huge. Only whole "
            f"pieces of 2 MiB of the {_part(layout)} can be: give the program more memory to use. {_REMEDY}"
        )
    if not layout.heap_permille or not small.heap_bytes:
        return
    if 0 < layout.heap_permille < 1000 and small.heap_bytes < _LEAST_PIECES * HUGE_BYTES:
        raise UsageError(
            f"{layout.name}: the program touches {size_text(small.heap_bytes)} of its heap, too little for a share: "
            f"{size_text(_LEAST_PIECES * HUGE_BYTES)} are needed. Give it more work, or measure 4k and thp"
        )
    wanted = _wanted(layout, small)
    missing = wanted - got.huge_bytes
    if missing > max(_TOLERANCE * small.heap_bytes, _TOLERATED_PIECES * HUGE_BYTES):
        raise UsageError(
            f"{layout.name}: {size_text(wanted)} of the heap should be huge, and {size_text(got.huge_bytes)} became "
            f"so (a tenth of the heap or 4 MiB may be missing). {_REMEDY}"
        )


def _part(layout: Layout) -> str:
    parts = [
        name for name, permille in (("heap", layout.heap_permille), ("mappings", layout.mmap_permille)) if permille
    ]
    return " and the ".join(parts)


def _wanted(layout: Layout, small: Memory) -> int:
    """The fewest bytes of the heap that must be huge.

    Raises:
        UsageError: the layout's window lies beyond the heap.
    """
    end = min(layout.heap_to_bytes, small.heap_extent_bytes)
    window = end - layout.heap_from_bytes
    if window <= 0:
        raise UsageError(
            f"{layout.name}: the program's heap ends at {size_text(small.heap_extent_bytes)}; give a window before that"
        )
    # Untouched memory may lie within the window.
    touched = max(small.heap_bytes - (small.heap_extent_bytes - window), 0)
    return touched * layout.heap_permille // 1000
