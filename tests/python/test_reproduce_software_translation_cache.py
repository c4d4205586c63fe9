"""`pagelab reproduce software-translation-cache`: what is made of measurements, and real runs."""

import pytest

import pagelab
from pagelab.reproduce import software_translation_cache as stc
from pagelab.reproduce import study

MATMUL_100 = "matmul:n=100,init=yes@0"


def _made_up(run: study.Run) -> study.Measurement:
    """Caches save eight of twenty cycles of each walk; of hits by the published rule half are wrong beyond 1 GiB."""
    large = run.label.endswith("GiB") and run.label != "1 GiB"
    walks = 100 if run.label.endswith("initialisation") else 1000
    cached = run.system != "no cache"
    stats = {
        "fault.walk.count": walks,
        "fault.before_pte.cycles": walks * (12 if cached else 20),
        "fault.handling.cycles": walks * 1000,
        "cycles.base": walks * 1000,
        "cycles.fault": walks * 3000,
        "stc.lookups": walks * cached,
        "stc.refs.spared": 2 * walks * cached,
        "stc.fills": 0,
        "stc.hits.pmd": 100,
        "stc.false_hits.pmd": 50 if run.system == "as published" and large else 0,
    }
    return study.Measurement(run, run.accesses, stats)


def test_figures_follow_from_the_measurements() -> None:
    findings = stc.evaluate(study.Measurements(_made_up(run) for run in stc.runs()))
    saved = [row for row in findings.comparisons if row.quantity == "walk time saved"]
    printed = {row.item: row.paper for row in saved}
    assert [printed[item] for item in ("sequential, 8 threads", "random, 8 threads apart")] == [28.0, 22.0]
    assert [printed[item] for item in ("matmul 100², product", "matmul 1000², all faults")] == [30.0, 37.0]
    assert printed["matmul, mean of the sizes"] == 34.0
    assert all(row.interval and row.interval.low < 40 < row.interval.high for row in saved)
    false = next(series for series in findings.series if "wrong" in series.title)
    assert [false.values[label, "false"] for label in ("1 GiB", "512 GiB")] == [0, 50]
    fig_4 = next(series for series in findings.series if series.figure == "Fig 4")
    assert fig_4.values["100", "net"] == 2.0
    assert fig_4.values["100", "with timers"] == pytest.approx(100 * (20 + stc.TIMER) / (1000 + 2 * stc.TIMER))
    fig_2 = next(series for series in findings.series if series.figure == "Fig 2")
    assert fig_2.values["1", "random"] == 25.0
    verdicts = {claim.text: claim.holds for claim in findings.claims}
    # Hits beyond 1 GiB are wrong; all patterns gain the same, which decides nothing about which gains more.
    assert verdicts["and in larger regions"] is False
    assert verdicts["all three patterns gain (as published)"] is True
    assert verdicts["sequential accesses gain most, random ones least"] is None
    # With the timers in both, 66 of 1092.
    assert verdicts["walks of matmul are 8 to 10 % of the time of faults"] is False


def test_a_saving_spans_the_measured_costs() -> None:
    before, after = stc.Walks(10, 160), stc.Walks(10, 100, skipped=20, look_ups=10, fills=1)
    saving = stc._saving("whole prefixes", before, after)
    # The presets' numbers, and the two extremes by hand: least saved by a long look-up and a cheap level.
    walks = {name: 16 + of for name, of in zip(("least", "most"), stc.COSTS["whole prefixes"].walk, strict=True)}
    low = 100 * (1 - (10 + 0.9 - 1.1 + 2 * 0.7 - 0.06) / walks["most"])
    high = 100 * (1 - (10 - 0.8 - 1.8 + 2 * 0.1 - 0.14) / walks["least"])
    assert (saving.low, saving.high) == pytest.approx((low, high))


def test_what_larger_costs_come_to_is_what_a_run_with_them_takes() -> None:
    def walks(*settings: str) -> stc.Walks:
        set_ = [stc.GUEST_ONLY, *settings]
        result = pagelab.run("semirandom:size=64MiB,write=1,accesses=300K@0", "nested-radix@linux-4.19-stc", set=set_)
        return stc.Walks.of(study.Measurement(stc.runs()[0], 0, result.systems[0].stats))

    as_set = walks("kernel.fault.walk.cycles=20", "kernel.translation_cache.level_cycles=3")
    larger = walks(
        "kernel.fault.walk.cycles=27",
        "kernel.translation_cache.cycles=5",
        "kernel.translation_cache.level_cycles=7",
        "kernel.translation_cache.fill_cycles=2",
    )
    assert as_set.fills > 100
    assert as_set.skipped > as_set.count
    assert as_set.mean(7, 5, 4, 2) == pytest.approx(larger.mean(0, 0, 0, 0), rel=1e-3)


def test_only_the_guest_has_the_cache_and_the_product_has_faults_of_its_own() -> None:
    measured = study.measure(
        stc.REPRODUCTION,
        0.05,
        lambda run: (
            run.workload == "matmul" and run.label.split()[0] == "100" and run.system in ("no cache", *stc.ARRAYS)
        ),
        study.Watch(),
    )
    without, cached = (measured["matmul", system, "100"].stats for system in ("no cache", "whole prefixes"))
    assert cached["stc.lookups"] == cached["fault.walk.count"] == without["fault.walk.count"]
    assert cached["fault.nested.count"] > 0
    assert cached["stc.hits.pmd"] > 0
    assert "stc.lookups" not in without
    # A matrix of 100² doubles is 80,000 bytes: 20 pages.
    assert stc._product(measured, "no cache", "100").count == 20
    assert measured["matmul", "no cache", "100"].run.spec == MATMUL_100
    assert without["accesses"] == 2 * 100**3 + 3 * 100**2
