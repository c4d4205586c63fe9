"""References to memory of a guest's programs and kernel: traces of them, and where caches find their lines.

Source: `kernel/plugin/fault_trace.c`, which logs them with their physical addresses.
Parameters: the machine whose caches they are replayed through.
Deviations: not logged are instruction fetches and the processor's own references: page walks, and the words that it
    stores for an exception. For the walk that ends in a fault, the read of the PTE is added, since it brings the line
    into the caches before the kernel uses it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab import _engine
from pagelab_linux import LinuxError
from pagelab_linux.stages import ALL_STAGES

Rows = NDArray[Any]
"""Of `ROW`"""
ROW = np.dtype(
    [
        ("address", "<u8"),
        ("physical", "<u8"),
        ("fault", "<u4"),
        ("gap", "<u4"),
        ("run", "<u4"),
        ("what", "u1"),
        ("stage", "u1"),
        ("shift", "u1"),
        ("percpu", "u1"),
    ]
)
_ACCESS = np.dtype(
    [("vaddr", "<u8"), ("pc", "<u8"), ("gap", "<u4"), ("size", "<u2"), ("kind", "u1"), ("by_kernel", "u1")]
)
STORE, KEPT, LEFT_OUT = 1, 2, 3
OF_USER, _NO_FAULT = 254, 255
_LINE, PAGE, LARGE_PAGE = 6, 12, 21
_ANONYMOUS, _POPULATE, _READ_WRITE = 0x22, 0x8000, 3
FOUND = ("l1", "l2", "l3", "dram")
_LABEL, _WRITE, _AFRESH = 48, 62, 63
_LINE_BITS = 34
"""Of the number of a line: 1 TiB of memory, and 2^26 faults of a log"""


@dataclass(frozen=True)
class LineSources:
    """References of a stage, or of all of them, per fault."""

    references: float
    """All loads and stores"""
    lines: Mapping[str, float]
    """Distinct lines, by where the first reference of the stage to each found it (`FOUND`)"""
    later_misses: float
    """Other references that the L1 did not serve"""
    waited: float
    """Cycles beyond the L1's latency, if none overlap"""

    @property
    def all_lines(self) -> float:
        return sum(self.lines.values())


@dataclass(frozen=True)
class Lines:
    """Lines that a stage touches in every fault, by their owner; those touched by earlier stages are separate."""

    cpu: int
    space: int
    kernel: int
    again: int


def read(path: Path) -> Rows:
    """The plugin's log.

    Raises:
        LinuxError: it is missing or not such a log.
    """
    head = f"pagelab-references 1 {len(ALL_STAGES)}\n".encode()
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except FileNotFoundError:
        raise LinuxError(f"{path}: no such file; QEMU ran without the plugin") from None
    if content[: len(head)].tobytes() != head:
        raise LinuxError(f"{path}: does not begin with {head.decode().strip()!r}; it is no log of fault_trace.c")
    if len(content) % ROW.itemsize:
        raise LinuxError(f"{path}: has {len(content)} bytes, not a multiple of {ROW.itemsize}: it ends too early")
    return content[ROW.itemsize :].view(ROW)


def of_run(rows: Rows, run: int) -> Rows:
    """The references of a run. Excluded faults do not count as faults."""
    mine: Rows = rows[rows["run"] == run].copy()
    left_out = mine["fault"][mine["what"] == LEFT_OUT]
    ended = mine["fault"][mine["what"] == KEPT]
    of_faults = mine["stage"] < len(ALL_STAGES)
    # The last fault may not have ended when logging did.
    lost = np.isin(mine["fault"], left_out) | ~np.isin(mine["fault"], ended)
    mine["stage"][of_faults & lost] = _NO_FAULT
    return mine


def faults(rows: Rows) -> int:
    return int((rows["what"] == KEPT).sum())


def replay(rows: Rows, machine: str | None, *, cold: bool) -> dict[str, LineSources]:
    """Where caches of a machine, empty at the beginning, find the lines of each stage, and `all` of them.

    Args:
        cold: The caches are emptied before each fault.

    Raises:
        ConfigError: there is no such machine, or its memory is smaller than the guest's.
    """
    number = faults(rows)
    if not number:
        return {}
    rows = _with_walks(rows)
    rows = rows[rows["what"] <= STORE]
    labels = _labels(rows)
    request = (rows["physical"] >> _LINE) | labels.astype(np.uint64) << np.uint64(_LABEL)
    request |= (rows["what"] == STORE).astype(np.uint64) << np.uint64(_WRITE)
    if cold:
        in_fault = rows["stage"] < len(ALL_STAGES)
        new = in_fault & (np.diff(rows["fault"], prepend=np.uint32(0)) != 0)
        request |= new.astype(np.uint64) << np.uint64(_AFRESH)
    counts = json.loads(_engine.replay_lines_json(machine, request.astype("<u8").tobytes()))
    by_stage = {}
    for stage, name in enumerate(ALL_STAGES):
        later, first = counts[2 * stage], counts[2 * stage + 1]
        if any(first[place] for place in FOUND):
            by_stage[name] = LineSources(
                sum(later[place] + first[place] for place in FOUND) / number,
                {place: first[place] / number for place in FOUND},
                sum(later[place] for place in FOUND[1:]) / number,
                (later["waited"] + first["waited"]) / number,
            )
    by_stage["all"] = _sum(list(by_stage.values()))
    return by_stage


def _sum(parts: Sequence[LineSources]) -> LineSources:
    return LineSources(
        sum(part.references for part in parts),
        {place: sum(part.lines[place] for part in parts) for place in FOUND},
        sum(part.later_misses for part in parts),
        sum(part.waited for part in parts),
    )


def _with_walks(rows: Rows) -> Rows:
    """Puts the processor's read of the PTE before each fault, where the kernel refers to that PTE."""
    ends = np.flatnonzero(rows["what"] == KEPT)
    after = _next_of_user(rows, ends)
    ends, after = ends[after < len(rows)], after[after < len(rows)]
    place_of = np.zeros(int(rows["fault"].max(initial=0)) + 1, dtype=np.uint64)
    # Of a PTE, the place in its page follows from the page that it maps.
    place_of[rows["fault"][ends]] = (rows["address"][after] >> np.uint64(PAGE) & np.uint64(511)) * 8 + 1
    place = place_of[rows["fault"]]
    inside = (rows["what"] <= STORE) & np.isin(rows["stage"], [ALL_STAGES.index(name) for name in ("walk", "install")])
    entries = np.flatnonzero(inside & (place > 0) & (rows["physical"] & np.uint64(4095) == place - np.uint64(1)))
    numbers, first = np.unique(rows["fault"][entries], return_index=True)
    known, begins = np.unique(rows["fault"], return_index=True)
    starts = begins[np.searchsorted(known, numbers)]
    walks = rows[entries[first]].copy()
    walks["what"], walks["stage"], walks["fault"], walks["gap"] = 0, _NO_FAULT, 0, 0
    return np.insert(rows, starts, walks)


def _next_of_user(rows: Rows, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """The next reference of user code; as many as there are rows if there is none."""
    of_user = np.flatnonzero((rows["stage"] == OF_USER) & (rows["what"] <= STORE))
    return np.append(of_user, len(rows))[np.searchsorted(of_user, at)]


def _labels(rows: Rows) -> NDArray[np.uint8]:
    """Twice the stage, and one more for the first reference of the stage of a fault to a line."""
    labels = np.full(len(rows), 2 * len(ALL_STAGES), dtype=np.uint8)
    inside = np.flatnonzero(rows["stage"] < len(ALL_STAGES))
    labels[inside] = 2 * rows["stage"][inside]
    labels[inside[_firsts(rows[inside])]] += 1
    return labels


def _firsts(rows: Rows) -> NDArray[np.intp]:
    """The first reference for each fault, stage and line."""
    each = (rows["fault"].astype(np.uint64) << np.uint64(4) | rows["stage"]) << np.uint64(_LINE_BITS)
    return np.unique(each | rows["physical"] >> np.uint64(_LINE), return_index=True)[1]


def steady_lines(rows: Rows) -> dict[str, Lines]:
    """Lines that each stage touches in at least half of the faults."""
    kernel = rows[(rows["what"] <= STORE) & (rows["stage"] < len(ALL_STAGES))]
    own = _own_of_cpu(kernel)
    firsts = _firsts(kernel)
    first, least = kernel[firsts], faults(rows) / 2
    place = np.where(own[firsts], 0, np.where(first["address"] >= 0xFFFFFFFF80000000, 2, 1))
    by_stage, seen = {}, np.zeros(0, dtype=np.uint64)
    for stage, name in enumerate(ALL_STAGES):
        mine = first["stage"] == stage
        lines, at, times = np.unique(first["physical"][mine] >> np.uint64(_LINE), return_index=True, return_counts=True)
        steady = times >= least
        again = np.isin(lines, seen)
        places = place[mine][at]
        cpu, space, image = (int((steady & ~again & (places == each)).sum()) for each in range(3))
        by_stage[name] = Lines(cpu, space, image, int((steady & again).sum()))
        seen = np.union1d(seen, lines[steady])
    return by_stage


def _own_of_cpu(rows: Rows) -> NDArray[np.bool_]:
    """Whether references are to the CPU's stacks or to its own variables: the pages that others reach through gs."""
    address = rows["address"]
    pages = address[rows["percpu"] == 1] >> PAGE
    between = (
        (address >> PAGE >= pages.min()) & (address >> PAGE <= pages.max())
        if len(pages)
        else np.zeros(len(rows), dtype=bool)
    )
    # The areas of vmalloc, where the kernel's stacks are, and of each CPU's entry code.
    stacks = (address >= 0xFFFFC90000000000) & (address < 0xFFFFE90000000000)
    entry = (address >= 0xFFFFFE0000000000) & (address < 0xFFFFFE8000000000)
    return between | stacks | entry


def write_user(rows: Rows, output: Path, command: Sequence[str], together: int = 1) -> Path:
    """Writes a trace of the programs alone, at their own addresses. Pages on which they faulted are not mapped at
    first.

    Args:
        together: Pages, aligned to their number, that a fault maps: none of them is mapped at first.

    Raises:
        UsageError: the output exists.
    """
    groups = np.unique(_faulted_pages(rows) // np.uint64(together))
    first = np.repeat(groups * np.uint64(together), together)
    faulted = first + np.tile(np.arange(together, dtype=np.uint64), len(groups))
    user = rows[(rows["what"] <= STORE) & (rows["stage"] == OF_USER)]
    pages = np.unique(user["address"] >> np.uint64(PAGE))
    there = pages[~np.isin(pages, faulted)]
    events = _mappings(faulted, 0) + _mappings(there, _POPULATE)
    notes = ["Pages on which the guest did not fault are populated from the start."]
    return write_trace(user, user["address"], 1 << user["shift"].astype(np.uint16), output, command, notes, events)


def _faulted_pages(rows: Rows) -> NDArray[np.uint64]:
    """Pages of the first access of user code after each fault."""
    after = _next_of_user(rows, np.flatnonzero(rows["what"] >= KEPT))
    return np.unique(rows["address"][after[after < len(rows)]] >> np.uint64(PAGE))


def _mappings(pages: NDArray[np.uint64], flags: int) -> list[dict[str, Any]]:
    """Anonymous memory from the start."""
    runs = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if len(pages) else []
    rest = {"prot": _READ_WRITE, "flags": _ANONYMOUS | flags, "file": None, "file_offset": 0}
    maps = [{"addr": int(run[0]) << PAGE, "len": len(run) << PAGE, **rest} for run in runs]
    return [{"position": 0, "event": {"mmap": each}} for each in maps]


def write_trace(
    rows: Rows,
    addresses: NDArray[np.uint64],
    sizes: NDArray[Any],
    output: Path,
    command: Sequence[str],
    notes: Sequence[str],
    events: Sequence[Mapping[str, Any]],
) -> Path:
    """Writes rows that are accesses, at these addresses and of these sizes in bytes, with events between them.

    Raises:
        UsageError: the output exists.
    """
    accesses = np.zeros(len(rows), dtype=_ACCESS)
    accesses["vaddr"], accesses["gap"], accesses["kind"] = addresses, rows["gap"], rows["what"]
    accesses["size"] = sizes
    accesses["by_kernel"] = rows["stage"] != OF_USER
    facts = {"command": list(command), "notes": list(notes), "events": list(events)}
    return _engine.write_trace(output, json.dumps(facts), accesses.tobytes())
