"""`benches/fault_loops.py --guest`: which simulated kernel is beside the guest's, and the rows of its table."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from conftest import load_bench

from pagelab_linux.lock_counts import KINDS, Counted, LockCount


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_bench("fault_loops")


def counts(contended: int, **others: int) -> tuple[float, Counted]:
    """4,000 faults, each of which takes the lock of a page-table page."""
    locks = {KINDS["page_table"]: LockCount(4000, contended)}
    locks |= {name: LockCount(80, number) for name, number in others.items()}
    return 4000.0, Counted("1 1 1", locks, 0)


def rows(bench: ModuleType, *counted: tuple[float, Counted]) -> Iterator[tuple[str, ...]]:
    yield from bench._lock_rows(counted, KINDS, None)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [("6.12.117-1~deb12u1", "linux-6.12"), ("6.1.2", "linux-6.12"), ("4.15.1", "linux-4.19"), ("4.9", "linux-4.9")],
)
def test_the_kernel_nearest_in_version(bench: ModuleType, version: str, nearest: str) -> None:
    kernels = ["linux-4.9", "linux-4.19", "linux-4.19-stc", "linux-6.1-of-ours", "linux-6.12"]
    assert bench.nearest(version, kernels) == nearest


def test_counts_are_medians_of_boots_with_their_range(bench: ModuleType) -> None:
    assert list(rows(bench, counts(12), counts(4), counts(36))) == [
        ("page_table", "1.0000", "–", "3.00 (1.00 to 9.00)", "–", "–")
    ]
    assert list(rows(bench, counts(0))) == [("page_table", "1.0000", "–", "0.00", "–", "–")]


def test_other_locks_are_shown_if_they_are_often_contended(bench: ModuleType) -> None:
    shown = list(rows(bench, counts(0, rarely=1, often=28)))
    assert [row[0] for row in shown] == ["page_table", "often"]
    assert shown[1] == ("often", "0.0200", "–", "7.00", "–", "–")


def test_simulated_acquisitions_are_those_of_the_documentation(bench: ModuleType) -> None:
    held = f"kernel.held_locks={bench.HELD_LOCKS}"
    case = bench.Case("apart", "threads", 2)
    system = bench.replay(case, "xeon-silver-4114", "linux-6.12", 2, held)
    acquired = {kind: bench._simulated(kind, system)[0] for kind in KINDS}
    assert {kind: acquired[kind] for kind in ("mmap_read", "vma", "page_table", "zone", "lru", "rss")} == {
        "mmap_read": "0.0000",
        "vma": "1.0000",
        "page_table": "1.0026",
        "zone": "0.0018",
        "lru": "0.0323",
        "rss": "0.0312",
    }
    assert bench._simulated("zone", system)[1] != "–"
    old = bench.replay(case, "xeon-silver-4114", "linux-4.9", 2)
    assert [bench._simulated(kind, old)[0] for kind in ("mmap_read", "vma")] == ["1.0000", "0.0000"]
    assert bench._simulated("zone", old)[1] == "–"
