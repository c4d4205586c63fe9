"""`benches/use_to_misses.py`: its bounds, and the factor that keeps them in 95 % of the cases."""

import math
from types import ModuleType

import pytest
from conftest import load_bench


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_bench("use_to_misses")


def test_bounds_from_use(bench: ModuleType) -> None:
    fits = bench.Case("a", 1000, 4096, 64, 64, used=60, misses=60)
    assert (fits.fits, fits.least, fits.holds) == (True, 0, True)
    assert not bench.Case("a", 1000, 4096, 64, 64, used=60, misses=61).holds
    over = bench.Case("a", 1000, 4096, 64, 64, used=100, misses=72)
    assert (over.fits, over.least, over.holds, over.factor) == (False, 36, True, 2.0)
    assert not bench.Case("a", 1000, 4096, 64, 64, used=100, misses=35).holds


def test_the_factor_keeps_95_percent(bench: ModuleType) -> None:
    assert bench.needed([float(n) for n in range(1, 101)]) == 95
    assert bench.needed([3.0, 1.0, 2.0], 0.5) == 2
    assert math.isnan(bench.needed([]))


def test_a_curve_is_read_at_the_largest_size_below(bench: ModuleType) -> None:
    assert bench.at_most([1, 48, 128], [9, 5, 2], 64) == (48, 5)
    assert bench.at_most([1, 48, 128], [9, 5, 2], 128) == (128, 2)


def test_a_workload_with_known_misses(bench: ModuleType) -> None:
    """A stride of a page through 1,024 pages, again and again, misses at each access of a TLB with 64 entries."""
    by_size = {
        (one.page_bytes, one.entries): one for one in bench.cases("stride:size=4MiB,stride=4KiB,accesses=100K", 100_000)
    }
    small = by_size[4096, 64]
    assert (small.used, small.misses, small.holds) == (1024, 100_000, True)
    large = by_size[2 << 20, 64]
    assert (large.used, large.misses, large.holds) == (2, 2, True)
