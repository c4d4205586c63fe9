"""The reproduction of the minor-fault offload engine."""

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
