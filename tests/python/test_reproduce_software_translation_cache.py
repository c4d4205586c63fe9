"""`pagelab reproduce software-translation-cache`: what is made of measurements, and two real runs."""

import pytest

from pagelab.reproduce import software_translation_cache as stc
from pagelab.reproduce import study


def _made_up(run: study.Run) -> study.Measurement:
    """Caches save a fifth of the walk; of hits by the published rule half are wrong beyond 1 GiB."""
    large = run.label.endswith("GiB") and run.label != "1 GiB"
    stats = {
        "fault.minor.count": 1000,
        "fault.cycles": 2_000_000,
        "fault.stage.walk.cycles": 200_000 if run.system == "no cache" else 160_000,
        "stc.hits.pmd": 100,
        "stc.false_hits.pmd": 50 if run.system == "as published" and large else 0,
    }
    return study.Measurement(run, run.accesses, stats)


def test_figures_follow_from_the_measurements() -> None:
    findings = stc.evaluate(study.Measurements(_made_up(run) for run in stc.runs()))
    saved = [row for row in findings.comparisons if row.quantity == "walk time saved"]
    assert {round(row.ours, 6) for row in saved} == {20.0}
    assert [row.paper for row in saved if row.reason == "held back"] == [None] * 5
    false = next(series for series in findings.series if "wrong" in series.title)
    assert [false.values[label, "false"] for label in ("1 GiB", "512 GiB")] == [0, 50]
    broken = [claim.text for claim in findings.claims if not claim.holds]
    # All gain the same here, so nothing gains more; and hits beyond 1 GiB are wrong.
    assert broken == [
        "more threads gain more",
        "matmul gains more than sequential accesses",
        "and in larger regions",
        "random accesses gain less in 512 GiB than in 1 GiB",
    ]


def test_real_runs_of_the_smallest_kind() -> None:
    measured = study.measure(
        stc.REPRODUCTION,
        0.05,
        lambda run: run.workload == "matmul" and run.label == "100" and run.system in ("no cache", "whole prefixes"),
        lambda *_: None,
    )
    without, with_cache = (measured["matmul", system, "100"].stats for system in ("no cache", "whole prefixes"))
    assert without["fault.minor.count"] == with_cache["fault.minor.count"] > 30
    assert with_cache["stc.hits.pmd"] > 0
    assert "stc.hits.pmd" not in without or without["stc.hits.pmd"] == 0
    assert with_cache["stc.false_hits.pmd"] == 0
    assert measured["matmul", "no cache", "100"].run.preset == "nested-radix@linux-4.19"
    assert stc._share(measured["matmul", "no cache", "100"]) == pytest.approx(
        100 * without["fault.stage.walk.cycles"] / without["fault.cycles"]
    )
