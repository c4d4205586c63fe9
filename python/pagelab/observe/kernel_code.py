"""What the kernel did when a sample was taken, by the functions in its call chain.

Source: /proc/kallsyms; functions of Linux 4.18 to 6.18. The first activity of the list that a chain has counts, so a
    page that reclaim frees within a fault is a fault, and `within` says what the fault did.
Deviations: kernel code that runs with interrupts disabled is sampled where it enables them again.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

_SYMBOLS = Path("/proc/kallsyms")
_CODE = frozenset("tTwW")

FAULT = "page faults"
ACTIVITIES: Mapping[str, frozenset[str]] = {
    FAULT: frozenset(
        {
            "asm_exc_page_fault",
            "exc_page_fault",
            "do_user_addr_fault",
            "handle_mm_fault",
            "do_page_fault",
            "do_mem_abort",
        }
    ),
    "memory calls": frozenset(
        {
            *("__x64_sys_mmap", "ksys_mmap_pgoff", "vm_mmap_pgoff", "__x64_sys_munmap", "__vm_munmap", "__x64_sys_brk"),
            *("__do_sys_brk", "__x64_sys_madvise", "do_madvise", "__x64_sys_mprotect", "__x64_sys_mremap"),
            *("__do_sys_mremap", "do_mprotect_pkey", "exit_mmap", "__arm64_sys_munmap", "__arm64_sys_brk"),
        }
    ),
}
"""What a sample in the kernel counts as, by functions of which its chain has one"""
WITHIN: Mapping[str, frozenset[str]] = {
    "compaction": frozenset({"try_to_compact_pages", "compact_zone", "__alloc_pages_direct_compact"}),
    "reclaim": frozenset({"try_to_free_pages", "try_to_free_mem_cgroup_pages", "shrink_node", "shrink_lruvec"}),
    "TLB shootdowns": frozenset({"flush_tlb_mm_range", "smp_call_function_many_cond", "arch_tlbbatch_flush"}),
    "clearing pages": frozenset(
        {
            *("clear_page_erms", "clear_page_rep", "clear_page_orig", "clear_page", "clear_pages", "clear_pages_erms"),
            *("folio_zero_user", "clear_huge_page", "clear_user_highpage", "clear_highpage", "clear_subpage"),
            *("kernel_init_pages", "clear_highpages_kasan_tagged"),
        }
    ),
    "copying pages": frozenset({"copy_page", "copy_mc_to_kernel", "copy_user_highpage", "copy_mc_user_highpage"}),
}
"""What it did there, the first that fits"""
OTHER = "other"


class KernelSymbols:
    """The kernel's functions by address."""

    def __init__(self, path: Path = _SYMBOLS) -> None:
        self._begins: list[int] = []
        self._names: list[str] = []
        pairs = []
        try:
            with path.open(encoding="ascii", errors="replace") as lines:
                for line in lines:
                    address, kind, name = line.split(maxsplit=2)
                    if kind in _CODE and address.strip("0"):
                        pairs.append((int(address, 16), name.split()[0]))
        except OSError:
            pass
        pairs.sort()
        self._begins = [begin for begin, _ in pairs]
        self._names = [name for _, name in pairs]

    @property
    def known(self) -> bool:
        """False if the kernel hides its addresses."""
        return bool(self._begins)

    def name(self, address: int) -> str:
        at = bisect_right(self._begins, address) - 1
        # `name.isra.0` and `name.cold` are parts of `name`.
        return self._names[at].partition(".")[0] if at >= 0 else ""

    def classify(self, chain: Sequence[int]) -> tuple[str, str]:
        """The activity of a call chain, and what was done within it."""
        names = {self.name(address) for address in chain}
        activity = next((activity for activity, functions in ACTIVITIES.items() if functions & names), OTHER)
        return activity, next((part for part, functions in WITHIN.items() if functions & names), OTHER)
