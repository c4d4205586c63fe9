"""From used pages to TLB misses: how wide bounds from use must be to hold, against exact miss-ratio curves.

    python benches/use_to_misses.py [RECORDING.trace…]

`pagelab observe` knows how many pages U a program used in an interval, and not in which order. U counts a page again
that was unmapped and came back, which is a fault. For a TLB of N entries with the least recently used replaced, that
bounds the misses of the interval: at most U if U <= N, as no page is replaced, and at least U - N otherwise, as at most
N were there before. The program compares both with `pagelab mrc` of
synthetic workloads and of recordings, for intervals of several lengths and pages of several sizes. Where U > N there is
no upper bound of use, so it asks by which factor the misses exceed the lower bound in 95 % of the cases.
"""

import json
import math
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

WORKLOADS = (
    "seq:size=256MiB",
    "stride:size=256MiB,stride=4KiB,accesses=16M",
    "random:size=64MiB,accesses=16M",
    "random:size=1GiB,accesses=16M",
    "random:size=256MiB,every=8,accesses=16M",
    "semirandom:size=256MiB,accesses=16M",
    "chase:size=128MiB,accesses=16M",
    "gups:size=256MiB,accesses=16M",
    "zipf:accesses=16M",
    "hash-table:accesses=16M",
)
LENGTHS = (1_000_000, 4_000_000, 16_000_000)
PAGES = (4096, 65536, 2 << 20)
ENTRIES = (64, 2048)
KEPT = 0.95


@dataclass(frozen=True)
class Case:
    """A program, an interval from its start, pages and a TLB."""

    program: str
    accesses: int
    page_bytes: int
    entries: int
    size: int
    """The largest size of the curve up to these entries; its misses are compared"""
    used: int
    """Pages used, and those that came instead of unmapped ones, for each of which there was a fault"""
    misses: int

    @property
    def least(self) -> int:
        return max(self.used - self.size, 0)

    @property
    def fits(self) -> bool:
        return self.used <= self.size

    @property
    def holds(self) -> bool:
        """Whether the bounds hold that follow from use alone."""
        return self.least <= self.misses and (not self.fits or self.misses <= self.used)

    @property
    def factor(self) -> float:
        """By how much the misses exceed the lower bound."""
        return self.misses / max(self.least, 1)


def cases(program: str, accesses: int) -> list[Case]:
    """The cases of a workload or recording."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "curves.json"
        sizes = ",".join(map(str, PAGES))
        options = ["--max-accesses", str(accesses), "--page-sizes", sizes, "--line-size", "none", "-q"]
        command = [sys.executable, "-m", "pagelab", "mrc", program, *options, "--json", str(path)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{program}: {done.stderr.strip()}", file=sys.stderr)
            return []
        document = json.loads(path.read_text())
    return [
        Case(Path(program).name, accesses, curve["granule_bytes"], entries, size, curve["first_references"], misses)
        for curve in document["curves"]
        if curve["stream"] == "data-tlb"
        for entries in ENTRIES
        for size, misses in [at_most(curve["sizes"], curve["misses"], entries)]
    ]


def at_most(sizes: Sequence[int], misses: Sequence[int], entries: int) -> tuple[int, int]:
    """The largest size of the curve that has no more entries, and its misses."""
    at = bisect_right(sizes, entries) - 1
    return sizes[at], misses[at]


def needed(factors: Iterable[float], kept: float = KEPT) -> float:
    """The factor that so many of the factors do not exceed."""
    ordered = sorted(factors)
    return ordered[math.ceil(kept * len(ordered)) - 1] if ordered else math.nan


def table(all_cases: Sequence[Case]) -> str:
    """By length of the interval and TLB: how many fit, whether bounds hold, and the factor that 95 % need."""
    lines = [
        "| accesses | entries | cases | used pages fit | bounds hold | factor for 95 % | its median | at most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for length in LENGTHS:
        for entries in ENTRIES:
            chosen = [one for one in all_cases if one.entries == entries and one.accesses == length]
            over = [one.factor for one in chosen if not one.fits]
            held = sum(one.holds for one in chosen)
            lines.append(
                f"| {length:,} | {entries:,} | {len(chosen)} | {sum(one.fits for one in chosen)} | {held} | "
                f"{needed(over):,.0f} | {needed(over, 0.5):,.1f} | {max(over, default=math.nan):,.0f} |"
            )
    return "\n".join(lines)


def main(recordings: Sequence[str]) -> None:
    all_cases = []
    for program in (*WORKLOADS, *recordings):
        for length in LENGTHS:
            all_cases += cases(program, length)
    print(table(all_cases))
    print()
    for one in all_cases:
        if one.accesses == LENGTHS[-1]:
            print(
                f"{one.program}, pages of {one.page_bytes >> 10} KiB, {one.entries} entries: {one.used:,} used, "
                f"{one.misses:,} misses, at least {one.least:,}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
