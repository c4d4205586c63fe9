"""Major faults of a real store: the kernel's count, a plain model of its replacement, and the engine's count.

`pytest -m slow -rPs tests/python/test_store_major_faults.py` prints numbers as docs/major-faults.md has them.
"""

from __future__ import annotations

import json
import platform
import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND
from page_replacement import ReadAround, TwoLists, fifo, lru, visits
from test_example_stores import answers, build, run

from pagelab import trace_info
from pagelab.major_faults import MajorFaultError
from pagelab.major_faults.memory_group import limited
from pagelab.major_faults.native import drop

MIB = 1 << 20
RECORDS, OPERATIONS = 32_768, 50_000
LIMIT = 32 * MIB
"""Half of what the store's pages in use take: some 16,600 of 4 KiB"""
OF_THE_MODEL = 0.01
OF_THE_ENGINE = 0.02
"""Relative tolerances. Measured: 0.2 % at most, and 0.9 %. Engine and kernel charge other pages beside the store's."""
SETTINGS = (f"kernel.cgroup_limit_bytes={LIMIT}", "kernel.read_ahead_bytes=4KiB")
NO_RECENCY_SINCE = (6, 3)


def test_models_of_replacement_are_what_their_names_say() -> None:
    pages = [1, 2, 1, 3, 1, 2]
    assert fifo(pages, 2) == 5  # 3 takes the place of 1, 1 that of 2, and 2 that of 3
    assert lru(pages, 2) == 4  # 3 takes the place of 2
    assert fifo(pages, 3) == lru(pages, 3) == 3
    assert TwoLists(3).misses(pages) == 3
    # 1 is visited between scans, so it stays, where the first in would go.
    often = [page for other in range(2, 40) for page in (1, other)]
    assert TwoLists(8, batch=1).misses(often) < fifo(often, 8)
    # What comes back soon after it left is active at once, and outlives what comes by once.
    again = [*range(6), *range(6), *(page for at in range(40) for page in (at % 12, 100 + at))]
    assert TwoLists(6, batch=1).misses(again) < TwoLists(6, refaults=False, batch=1).misses(again)


def test_the_model_with_read_ahead_reads_and_maps_around() -> None:
    # 40 is read with 24 to 55; 23 with those before it and 24 to 38, which are there.
    assert ReadAround(1000).misses([40, 24, 55, 23, 7, 56]) == 3
    assert ReadAround(1000, first=30, end=50).misses([40, 30, 49]) == 1
    assert ReadAround(1000, read=1, mapped_together=1).misses([40, 24, 40]) == 2
    far = range(1000, 10_000, 100)
    assert ReadAround(64, batch=1).misses([40, *far, 40]) == len(far) + 2
    # A page that is visited between scans stays, and one that is not has left.
    often = [page for other in far for page in (40, other)]
    assert ReadAround(96, batch=1).misses(often) < 2 * len(far)


@dataclass(frozen=True)
class Case:
    """A store with its trace."""

    ycsb: Path
    store: Path
    folder: Path

    def command(self, distribution: str, operations: int = OPERATIONS) -> list[str]:
        options = ["--mix", "c", "--distribution", distribution, "--operations", str(operations)]
        return [str(self.ycsb), "lmdb", "run", str(self.store), *options]


def pagelab(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Skips where a package or a right is missing, and says which."""
    folder = tmp_path_factory.mktemp("store")
    ycsb = build(folder)
    try:
        with limited(LIMIT):
            pass
    except MajorFaultError as error:
        pytest.skip(f"no memory limit can be set here: {error}")
    store = folder / "store.mdb"
    answers(run(ycsb, "lmdb", "load", store, "--records", str(RECORDS)))
    if left := drop(store):
        pytest.skip(f"{left} pages of a file in {folder} stay in the page cache; give --basetemp on a drive")
    return Case(ycsb, store, folder)


def _record(case: Case, distribution: str, operations: int, name: str) -> Path:
    trace = case.folder / f"{distribution}-{name}.trace"
    pagelab("record", "-q", "-o", str(trace), "--", *case.command(distribution, operations))
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["zipf", "uniform"])
def test_major_faults_of_a_store_are_those_of_its_replay(case: Case, distribution: str) -> None:
    opened = _record(case, distribution, 0, "opened")
    trace = _record(case, distribution, OPERATIONS, "requests")
    # What closing takes stands behind the requests: less than a thousand accesses.
    warm_up = int(trace_info(opened)["accesses"]) - 1000
    results, beside = case.folder / "results.json", case.folder / "beside.json"
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    systems = ["-s", "osdp", "-s", "hwdp{system.layers.native.fault_engine.kpted_cycles=2800000}"]
    pagelab("run", "-q", str(trace), *systems, *settings, "--warm-up", str(warm_up), "--json", str(results))
    limits = ["--memory", str(LIMIT), "--cold", str(case.store), "--runs", "3", "--against", str(results)]
    pagelab("major-faults", "-q", *limits, "--json", str(beside), "--", *case.command(distribution))
    compared: dict[str, Any] = json.loads(beside.read_text())
    native = compared["native"]["major_faults"]["median"]
    pages = visits(trace, case.store.name, warm_up)
    # The rest of the limit has the program's own pages, page tables and other memory of the kernel.
    room = int(statistics.median(one["file_bytes"] for one in compared["native"]["runs"])) >> 12
    assert 0.9 * LIMIT < room << 12 < LIMIT
    in_order, by_use = fifo(pages, room), lru(pages, room)
    kernel, unit = compared["simulated"]
    print(
        f"{distribution}: native {native}, room for {room} pages; first in, first out {in_order}, least recently used "
        f"{by_use}; osdp {kernel['misses']}, hwdp {unit['misses']}"
    )
    assert len(set(pages)) > room, "the store must not fit"
    if _kernel() >= NO_RECENCY_SINCE:
        assert native == pytest.approx(in_order, rel=OF_THE_MODEL)
    assert kernel["misses"] == pytest.approx(native, rel=OF_THE_ENGINE)
    assert unit["misses"] == pytest.approx(kernel["misses"], rel=0.02)
    # Each stands for one page at least, and for no more than without any memory.
    assert len(set(pages)) <= native <= len(pages)
    assert compared["estimate"]["gain_percent"]["least"] > 0
    assert compared["estimate"]["delta_ns"]["median"] == pytest.approx(kernel["latency_ns"] - unit["latency_ns"])


def _kernel() -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    assert numbers, platform.release()
    return tuple(map(int, numbers.groups()))
