"""`benches/huge_pages.py`: its gains, their intervals, and what the summary holds them against."""

from types import ModuleType
from typing import Any

import pytest
from conftest import load_bench


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_bench("huge_pages")


def window(cycles: int, faults: int = 0, fault_cycles: int = 0) -> dict[str, int]:
    return {
        "cycles": cycles + fault_cycles + 7,
        "cycles.idle": 7,
        "cycles.fault": fault_cycles,
        "instructions": 100,
        "fault.minor.count": faults,
    }


def layout(faults: int, *windows: dict[str, int]) -> dict[str, Any]:
    return {"stats": {"program.fault.minor.count": faults}, "windows": list(windows)}


def test_all_faults_of_the_program_count(bench: ModuleType) -> None:
    small = layout(50, window(150, 2, 1000), window(250, 2, 3000))
    # Two cycles per instruction, and 50 faults of 1,000 cycles each.
    assert bench.whole_cycles(small["stats"], small["windows"], 10_000) == 2 * 10_000 + 50 * 1000
    # No fault in the windows: what one costs is not known.
    assert bench.whole_cycles({"program.fault.minor.count": 9}, [window(150)], 1000) == 1500


def test_intervals_of_replays_are_over_windows(bench: ModuleType) -> None:
    small = layout(0, window(200), window(200), window(200))
    same = bench.replayed_gain({"4k": small, "thp": layout(0, *[window(150)] * 3)}, 1000)
    assert (same.value, *same.interval) == pytest.approx((0.25, 0.25, 0.25))
    spread = bench.replayed_gain({"4k": small, "thp": layout(0, window(150), window(100), window(200))}, 1000)
    # Means of the gains 1/4, 1/2 and 0; Student's quantile of two degrees of freedom
    assert spread.value == pytest.approx(0.25)
    half = 4.303 * 0.25 / 3**0.5
    assert spread.interval == pytest.approx((0.25 - half, 0.25 + half), rel=1e-3)
    one = bench.replayed_gain({"4k": layout(0, window(200)), "thp": layout(0, window(100))}, 1000)
    assert (one.value, one.interval) == (0.5, None)


def test_native_gains_are_of_pairs(bench: ModuleType) -> None:
    # The machine is half as fast in the second pair: that falls on both.
    gain = bench.paired_gain([1.0, 2.0, 1.0], [0.8, 1.6, 0.8])
    assert (gain.value, *gain.interval) == pytest.approx((0.2, 0.2, 0.2))
    # One pair that another guest has spoilt changes nothing; of nine, the second and the eighth bound the median.
    gain = bench.paired_gain([1.0] * 9, [0.9, 0.8, 0.85, 0.7, 0.95, 0.75, 0.65, 0.6, 9.0])
    assert (gain.value, *gain.interval) == pytest.approx((0.2, 0.05, 0.35))
    assert str(gain) == "20.0 (5.0 to 35.0)"
    assert bench.paired_gain([1.0], [0.9]).interval is None


def test_ranks(bench: ModuleType) -> None:
    assert bench.rank_correlation([1, 2, 30], [0.1, 0.2, 0.9]) == pytest.approx(1)
    assert bench.rank_correlation([1, 2, 30], [0.3, 0.2, 0.1]) == pytest.approx(-1)
    assert bench.rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1)
    assert bench.rank_correlation([1, 1], [1, 2]) is None


def test_the_summary_has_the_trivial_prediction(bench: ModuleType) -> None:
    def row(native: float, predicted: float, cycles: float) -> Any:
        replayed = {label: (cycles, bench.Gain(predicted, None)) for label in bench._REPLAYS}
        return bench.Row("p", 10**9, "Valgrind", 1.0, bench.Gain(native, (native - 0.01, native + 0.01)), replayed)

    rows = [row(0.02, 0.0, 1.1), row(0.3, 0.1, 2.0), row(-0.01, -0.01, 0.9)]
    lines = bench.summary(rows)
    assert lines[0] == "no gain predicted: within 5 points for 2 of 3"
    assert lines[1].startswith("in-order: gain within 5 points for 2, cycles within 20 % for 2 of 3")
    assert lines[1].endswith("rank correlation of gains 1.00")
    assert "| p | 1.00 | Valgrind | 1.00 |" in bench.table(rows)
