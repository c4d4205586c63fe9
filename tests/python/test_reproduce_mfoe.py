"""The reproduction of the minor-fault offload engine."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from pagelab_studies import mfoe, study

LABELS = ("0 between", f"1 threads, {mfoe.INTERVAL} instructions")


@pytest.fixture(scope="module")
def measured() -> study.Measurements:
    return study.measure(mfoe.REPRODUCTION, 1.0, lambda run: run.label in LABELS, study.Watch())


def test_a_part_of_the_runs_gives_a_part_of_the_report(measured: study.Measurements) -> None:
    findings = mfoe.evaluate(measured)
    assert "sections wait for others" in findings.incomplete[0]
    figures = {(row.figure, row.item, row.quantity): row for row in findings.comparisons}
    background = figures["Table 4", "background thread", "throughput"]
    first = figures["Table 4", "first filling", "throughput"]
    assert first.ours > background.ours > 0, "accounting for a page comes on top of making a frame ready"


def test_a_hit_is_of_the_paper_s_order(measured: study.Measurements) -> None:
    engine = measured[mfoe.TOUCH, "engine", "0 between"].stats
    kernel = measured[mfoe.TOUCH, "kernel", "0 between"].stats
    hits = engine["layer.native.fault_engine.hits"]
    assert 20 < engine["layer.native.fault_engine.mapped.cycles"] / hits < 200
    assert kernel["fault.handling.cycles"] / kernel["fault.minor.count"] > 1500


def _by_core(rate: Callable[[study.Run, int], int]) -> study.Measurements:
    """Measurements in which each core hits a percentage of its faults."""
    made = []
    for run in mfoe.runs():
        if run.system == "engine" and run.label.split()[1] == "threads,":
            rates = {cpu: rate(run, cpu) for cpu in range(8)}
            hits = {f"layer.native.fault_engine.cpu.{cpu}.hits": share for cpu, share in rates.items()}
            misses = {f"layer.native.fault_engine.cpu.{cpu}.misses": 100 - share for cpu, share in rates.items()}
            # Other sections have figures that nothing asks for.
            made.append(study.Measurement(run, run.accesses, defaultdict(lambda: 1, hits | misses)))
    return study.Measurements(made)


@pytest.mark.parametrize(
    ("last_core", "beside", "verdicts"),
    [
        (80, 60, (True, True)),
        (76, 80, (True, False)),
        (60, 81, (False, False)),
    ],
)
def test_cores_are_compared_by_their_hit_rates(last_core: int, beside: int, verdicts: tuple[bool, bool]) -> None:
    def rate(run: study.Run, cpu: int) -> int:
        if run.label == mfoe.NEIGHBOURS:
            return beside if cpu == 0 else 20
        # Beyond six threads a core has the background thread as well, and is not judged.
        return last_core if cpu == int(run.label.split()[0]) - 1 > 0 else 10 if cpu == 6 else 80

    claims = [claim for claim in mfoe.evaluate(_by_core(rate)).claims if claim.figure == "§4.5"]
    assert tuple(claim.holds for claim in claims) == verdicts


@pytest.mark.parametrize(
    ("call", "faster"), [((100, 105), True), ((100, 170), None), ((170, 180), False), ((40, 50), False)]
)
def test_gain_of_the_call_is_judged_by_its_size(call: tuple[int, int], faster: bool | None) -> None:
    """The kernel takes 160 cycles, whatever is read between faults."""
    engine = "layer.native.fault_engine"
    made = []
    for run in mfoe.runs():
        if "between" in run.label or run.label == f"1 threads, {mfoe.FREQUENT} instructions":
            cycles = call[0] if run.label == "0 between" else call[1]
            kernel = {"fault.handling.cycles": 16_000, "fault.minor.count": 100}
            mapped = {f"{engine}.ahead.mapped.cycles": 100 * cycles, f"{engine}.ahead.mapped.count": 100}
            hits = {f"{engine}.{name}": 100 for name in ("hits", "misses", "mapped.deviation", "refused.cycles")}
            tails = {f"{name}.{tail}": 100 for name in mfoe.LATENCY.values() for tail in mfoe.PERCENTILES}
            stats = kernel | mapped | hits | tails | {f"{engine}.mapped.cycles": 1000}
            made.append(study.Measurement(run, run.accesses, stats))
    findings = mfoe.evaluate(study.Measurements(made))
    (claim,) = (claim for claim in findings.claims if claim.figure == "§5.2.2")
    assert claim.holds is faster, claim.detail
    (row,) = (row for row in findings.comparisons if row.item == "call" and row.quantity == "kernel's mean by its own")
    assert (row.paper, row.ours) == (mfoe.BY_CALL, 160 / call[0])
