"""A program with its kernel as a trace: which mappings and faults a log becomes, and what their replay counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagelab import UsageError, trace_head, trace_info
from pagelab.replay import simulation
from pagelab_linux import references, whole
from pagelab_linux.stages import ALL_STAGES

PAGE, LARGE = 0x1000, 0x200000
DIRECT_MAP, VMALLOC, USER = 0xFFFF888000000000, 0xFFFFC90000001000, 0x7F0000000000
CUT = (1 << 48) - 1
KEPT, LEFT_OUT = 2, 3
NO_FAULT, OF_USER = 255, 254
LOAD, STORE = 0, 1
OWN, LARGE_OF_KERNEL = 0x2000001, 0x2000001 | 0x40000 | 21 << 26
NONE, READ, READ_WRITE = 0, 1, 3

Told = tuple[int, int, int, int, int]
"""Fault, address, physical address, what, instructions"""


def rows_of(events: Sequence[Told]) -> references.Rows:
    """References of user code are those of the lower half of addresses; the kernel's are of a fault, or of none (0)."""
    rows = np.zeros(len(events), dtype=references.ROW)
    for row, (fault, address, physical, what, gap) in zip(rows, events, strict=True):
        row["fault"], row["address"], row["physical"], row["what"], row["gap"] = fault, address, physical, what, gap
        row["run"], row["shift"] = 1, 3
        kernel = ALL_STAGES.index("zeroing") if fault else NO_FAULT
        row["stage"] = OF_USER if address < 1 << 63 and what < KEPT else kernel
    return rows


def user(page: int, frame: int, what: int, gap: int = 1, at: int = 0) -> Told:
    return (0, USER + page * PAGE + at, frame * PAGE + at, what, gap)


def kernel(fault: int, physical: int, what: int = STORE) -> Told:
    return (fault, DIRECT_MAP + physical, physical, what, 2)


def ended(fault: int, how: int = KEPT) -> Told:
    return (fault, 0, 0, how, 0)


def handled(fault: int, frame: int) -> list[Told]:
    """The kernel zeroes a page."""
    return [*(kernel(fault, frame * PAGE + line * 64) for line in range(64)), ended(fault)]


def first_touches(pages: int) -> list[Told]:
    events = [user(1000, 999, STORE)]
    for page in range(pages):
        events += [*handled(page + 1, 16 + page), user(page, 16 + page, STORE), user(page, 16 + page, LOAD, at=8)]
    return events


def written(events: Sequence[Told], tmp_path: Path) -> Path:
    return whole.write(rows_of(events), tmp_path / "whole.trace", ["touch"])


def events_of(events: Sequence[Told], tmp_path: Path) -> list[tuple[Any, ...]]:
    """Mappings of 4 KiB and faults of the program, with their positions."""
    read: list[tuple[Any, ...]] = []
    for row in trace_head(written(events, tmp_path), 10_000):
        at = (row.get("addr") or 0) - USER
        if row["kind"] == "fault":
            read.append((row["position"], "fault", at // PAGE, row["argument"]))
        elif row["kind"] == "mmap" and row["flags"] == OWN and at >= 0:
            read.append((row["position"], "map", at // PAGE, row["prot"], row["file_offset"] // PAGE))
    return read


def counted(path: Path, *settings: str) -> dict[str, int]:
    return dict(simulation.run(path, "radix", set=settings, warm_up=1).systems[0].stats)


def test_pages_appear_where_the_guests_faults_end(tmp_path: Path) -> None:
    assert events_of(first_touches(2), tmp_path) == [
        (0, "map", 1000, READ_WRITE, 999),
        (1, "fault", 0, 1),
        (65, "map", 0, READ_WRITE, 16),
        (67, "fault", 1, 1),
        (131, "map", 1, READ_WRITE, 17),
    ]
    info = trace_info(tmp_path / "whole.trace")
    assert info["access_counts"]["by_kernel"] == 128
    with pytest.raises(UsageError, match="exists"):
        written(first_touches(1), tmp_path)


def test_program_and_kernel_meet_in_the_caches(tmp_path: Path) -> None:
    stats = counted(written(first_touches(200), tmp_path))
    assert (stats["recorded.faults"], stats["recorded.faults.amiss"], stats["accesses.refused"]) == (200, 0, 0)
    assert (stats["accesses.by_kernel"], stats["accesses.by_kernel.refs"]) == (200 * 64, 200 * 64)
    # The kernel's stores bring the lines, and the program finds them.
    assert stats["accesses.by_kernel.refs.dram"] == stats["l3.misses.data"] == 200 * 64
    assert stats["l1d.misses.data"] == 200 * 64


def test_the_program_misses_tlbs_and_walks_as_on_the_simulators_own_kernel(tmp_path: Path) -> None:
    rows = rows_of(first_touches(200))
    together = counted(whole.write(rows, tmp_path / "whole.trace", ["touch"]))
    alone = counted(references.write_user(rows, tmp_path / "user.trace", ["touch"]))
    assert alone["fault.minor.count"] == together["recorded.faults"] == 200
    for name in ("dtlb.l1.misses", "dtlb.l2.misses", "walk.count"):
        assert together[name] - together[f"accesses.by_kernel.{name}"] == alone[name], name
    assert together["walk.aborted.count"] == alone["walk.aborted.count"] == 200


def test_what_the_kernel_did_is_not_done_again(tmp_path: Path) -> None:
    stats = counted(written(first_touches(50), tmp_path))
    for name in ("cycles.fault", "cycles.kernel", "fault.minor.count", "cache.refs.kernel", "populate.pages"):
        assert stats[name] == 0, name
    own = stats["cycles"] - stats["accesses.by_kernel.cycles"]
    assert 0 < own < stats["accesses.by_kernel.cycles"]
    assert stats["accesses.by_kernel.instructions"] == 50 * 64 * 2


def test_a_copied_page_is_read_only_until_its_fault(tmp_path: Path) -> None:
    events = [kernel(0, 5 * PAGE), user(0, 5, LOAD), *handled(1, 6), user(0, 6, STORE), user(0, 6, LOAD)]
    assert events_of(events, tmp_path) == [(0, "map", 0, READ, 5), (2, "fault", 0, 1), (66, "map", 0, READ_WRITE, 6)]
    stats = counted(tmp_path / "whole.trace")
    assert (stats["recorded.faults"], stats["recorded.faults.amiss"]) == (1, 0)


def test_a_page_that_is_reused_keeps_its_frame(tmp_path: Path) -> None:
    events = [user(0, 5, LOAD), *handled(1, 6), user(0, 5, STORE)]
    assert events_of(events, tmp_path) == [(0, "map", 0, READ, 5), (1, "fault", 0, 1), (65, "map", 0, READ_WRITE, 5)]


def test_a_page_that_was_unmapped_is_gone_when_it_faults(tmp_path: Path) -> None:
    events = [user(0, 5, STORE), *handled(1, 6), user(0, 6, STORE), *handled(2, 7), user(0, 7, LOAD)]
    assert events_of(events, tmp_path) == [
        (0, "map", 0, READ_WRITE, 5),
        (1, "map", 0, NONE, 0),
        (1, "fault", 0, 1),
        (65, "map", 0, READ_WRITE, 6),
        (66, "map", 0, NONE, 0),
        (66, "fault", 0, 0),
        (130, "map", 0, READ, 7),
    ]
    stats = counted(tmp_path / "whole.trace")
    assert (stats["recorded.faults"], stats["recorded.faults.amiss"], stats["accesses.refused"]) == (2, 0, 0)


def test_a_load_that_faults_finds_no_mapping(tmp_path: Path) -> None:
    events = [user(0, 5, LOAD), *handled(1, 6), user(0, 6, LOAD)]
    assert events_of(events, tmp_path) == [
        (0, "map", 0, READ, 5),
        (1, "map", 0, NONE, 0),
        (1, "fault", 0, 0),
        (65, "map", 0, READ, 6),
    ]


def test_a_frame_that_changes_without_a_fault_changes_there(tmp_path: Path) -> None:
    events = [user(0, 5, STORE), kernel(0, 9 * PAGE), user(0, 6, LOAD)]
    assert events_of(events, tmp_path) == [(0, "map", 0, READ_WRITE, 5), (2, "map", 0, READ, 6)]


def test_an_instruction_may_fault_on_several_pages(tmp_path: Path) -> None:
    events = [*handled(1, 5), *handled(2, 6), user(0, 5, LOAD), user(1, 6, STORE, gap=0), user(2, 7, LOAD)]
    assert events_of(events, tmp_path) == [
        (0, "map", 2, READ, 7),
        (0, "fault", 0, 0),
        (64, "map", 0, READ, 5),
        (64, "fault", 1, 1),
        (128, "map", 1, READ_WRITE, 6),
    ]
    second = [user(0, 5, STORE), *handled(1, 6), user(0, 5, LOAD), user(1, 6, STORE, gap=0)]
    (tmp_path / "second").mkdir()
    assert (1, "fault", 1, 1) in events_of(second, tmp_path / "second")


def test_a_fault_whose_page_is_unknown_is_told(tmp_path: Path) -> None:
    events = [user(0, 5, STORE), *handled(1, 6), user(0, 5, LOAD), user(1, 7, LOAD)]
    assert events_of(events, tmp_path) == [(0, "map", 0, READ_WRITE, 5), (0, "map", 1, READ, 7)]
    notes = " ".join(trace_info(tmp_path / "whole.trace")["meta"]["notes"])
    assert "0 faults of the program are replayed from the walk on, and 1 without it" in notes


def test_faults_that_are_left_out_map_their_pages_too(tmp_path: Path) -> None:
    events = [kernel(1, 5 * PAGE), ended(1, LEFT_OUT), kernel(0, 6 * PAGE), user(0, 5, STORE)]
    assert events_of(events, tmp_path) == [(0, "fault", 0, 1), (1, "map", 0, READ_WRITE, 5)]


def test_the_kernels_pages_are_large_where_they_are_at_one_offset(tmp_path: Path) -> None:
    stack = [(0, VMALLOC + n * PAGE, frame * PAGE, STORE, 1) for n, frame in enumerate((77, 33, 77))]
    moved = (0, VMALLOC, 34 * PAGE, STORE, 1)
    events = [kernel(0, LARGE + 8), kernel(0, 3 * LARGE + 8), *stack, moved, user(0, 600, LOAD)]
    rows = [row for row in trace_head(written(events, tmp_path), 100) if row["kind"] == "mmap"]
    kernels = [(row["position"], row["addr"], row["len"], row["flags"], row["file_offset"]) for row in rows[:-1]]
    large = [(0, (DIRECT_MAP & CUT) + at, LARGE, LARGE_OF_KERNEL, at) for at in (LARGE, 3 * LARGE)]
    assert [row for row in kernels if row[2] == LARGE] == large
    small = [(0, 0, 77), (0, 1, 33), (0, 2, 77), (5, 0, 34)]
    of_stack = [row for row in rows if row["addr"] >= VMALLOC & CUT]
    assert [
        (row["position"], (row["addr"] - (VMALLOC & CUT)) // PAGE, row["file_offset"] // PAGE) for row in of_stack
    ] == small
    stats = counted(tmp_path / "whole.trace")
    assert (stats["accesses.refused"], stats["recorded.faults"]) == (0, 0)


def test_pages_at_several_offsets_are_small(tmp_path: Path) -> None:
    events = [(0, DIRECT_MAP + 5 * LARGE, LARGE, STORE, 1), (0, DIRECT_MAP + 5 * LARGE + PAGE, 7 * PAGE, STORE, 1)]
    rows = [row for row in trace_head(written(events, tmp_path), 100) if row["kind"] == "mmap"]
    assert [(row["len"], row["file_offset"]) for row in rows] == [(PAGE, LARGE), (PAGE, 7 * PAGE)]


def test_an_access_across_pages_is_cut(tmp_path: Path) -> None:
    path = written([user(0, 5, LOAD, at=PAGE - 2), user(0, 5, LOAD)], tmp_path)
    accesses = [row for row in trace_head(path, 100) if "vaddr" in row]
    assert [row["size"] for row in accesses] == [2, 8]
    assert counted(path)["accesses.refused"] == 0


def test_addresses_of_five_levels_are_cut_later(tmp_path: Path) -> None:
    events = [(0, 0xFF11000000000000 + LARGE, LARGE, STORE, 1), user(0, 5, LOAD)]
    path = written(events, tmp_path)
    assert next(row for row in trace_head(path, 100) if row["kind"] == "mmap")["addr"] == 0x111000000000000 + LARGE
    stats = dict(simulation.run(path, "radix-5level").systems[0].stats)
    assert stats["accesses.refused"] == 0
