"""`pagelab reproduce ptemagnet`: what is made of measurements, and small real runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pagelab
from pagelab import _engine
from pagelab.reproduce import ptemagnet, report, study


def _made_up(run: study.Run, walks: int = 5000) -> study.Measurement:
    """Order-0 allocation strews pages over four lines and makes the host's walks miss four times as often."""
    strewn = run.system == "order-0"
    layer = "first" if run.label == "two machines" else "guest"
    # What runs by itself has no account of its own; beside co-runners the walks and cycles of all are others.
    whose = "" if run.label == "alone" else "main."
    own = {
        "walk.count": walks,
        "walk.cycles": 50_000 if strewn else 40_000,
        "walk.layer.guest.level1.refs": 1000,
        "walk.layer.guest.level1.refs.l3": 60,
        "walk.layer.guest.level1.refs.dram": 40,
        "walk.layer.host.level1.refs.l3": 200,
        "walk.layer.host.level1.refs.dram": 200 + run.seed if strewn else 100,
        "walk.layer.host.level1.refs.l2": 10_000,
        "fault.minor.count": 1000 if run.system in ptemagnet.PAIR else 125,
    }
    stats = {
        **dict.fromkeys(own, 100_000),
        **{f"{whose}{name}": count for name, count in own.items()},
        f"layer.{layer}.contiguity.groups": 100,
        f"layer.{layer}.contiguity.pte_lines": 400 if strewn else 100,
        f"layer.{layer}.contiguity.full_groups": 80,
        f"layer.{layer}.contiguity.contiguous_groups": 20 if strewn else 80,
        "layer.guest.memory_bytes": 1 << 30,
        "layer.guest.free_bytes": 1 << 29,
        "layer.guest.reservations.peak_unused_bytes": 1 << 20,
        "layer.guest.fault.zeroed_bytes": 8 << 20 if run.system == ptemagnet.FOLIOS else 1 << 20,
    }
    faults = 450_000 * (run.label == "whole") - 1000 * (run.label == "whole" and run.system == "PTEMagnet")
    spent = {"base": 500_000, "translation": 50_000 if strewn else 40_000, "fault": faults}
    stats |= {f"cycles.{name}": 7_000_000 for name in spent}
    stats |= {f"{whose}cycles.{name}": cycles for name, cycles in spent.items()}
    stats |= {f"{whose}cycles": sum(spent.values())}
    runs = [(0, 100, 8), (8, 50, 1)] if strewn else [(0, 104, 9)]
    return study.Measurement(run, run.accesses, stats, (), {"guest": runs} if run.contiguity_map else {})


@pytest.fixture(scope="module")
def measured() -> study.Measurements:
    return study.Measurements(_made_up(run) for run in ptemagnet.runs())


def test_figures_follow_from_the_measurements(measured: study.Measurements) -> None:
    findings = ptemagnet.evaluate(measured)
    assert all(claim.holds for claim in findings.claims)
    by_item = {(row.item, row.quantity): row for row in findings.comparisons}
    far = by_item["pagerank, guest memory aged", "walk references beyond L2, host's to guest's"]
    # The workload's own references by seed: 401 to 405 to the host's table, 100 to the guest's.
    assert far.interval is not None
    assert (far.interval.low, far.ours, far.interval.high) == pytest.approx((4.01, 4.03, 4.05))
    near = by_item["pagerank, guest memory aged", "walk references served by memory, host's to guest's"]
    assert near.ours == pytest.approx(203 / 40)
    mixed = by_item["pagerank and its co-runners, aged", "walk references beyond L2, host's to guest's"]
    assert mixed.ours == 1
    fragmented = "regions of 32 KiB that are fragmented"
    assert by_item["pagerank beside co-runners", fragmented].ours == pytest.approx(75)
    saved = {item: row.ours for (item, quantity), row in by_item.items() if quantity == "time saved"}
    assert saved["mean, after first touches"] == pytest.approx(100 * 10 / 550)
    assert saved["mean, the same, without co-runners"] == pytest.approx(100 * 10 / 550)
    assert saved["mean, the same, guest memory aged, co-runners reserve too"] == pytest.approx(100 * 10 / 550)
    assert saved["mean, first touches included"] == pytest.approx(1.1)
    assert by_item["most of all but sparse", "memory reserved and unused"].ours == pytest.approx(100 / 512)
    lines = next(series for series in findings.series if series.figure == "Fig 5")
    assert {lines.values[group, "order-0"] for group in lines.groups} == {4.0}
    assert "two virtual machines" in lines.groups
    allocation = next(series for series in findings.series if series.figure == "Allocation")
    assert [allocation.values["gups", member] for member in allocation.members] == pytest.approx([1.1, 1.0])
    zeroed = next(series for series in findings.series if series.title.startswith("zeroed"))
    assert [zeroed.values["sparse", system] for system in zeroed.members] == [1, 1, 8]


@pytest.mark.parametrize(("slower_in", "verdict"), [(ptemagnet.SEEDS, False), (ptemagnet.SEEDS[:2], None)])
def test_what_becomes_slower_is_said_if_every_seed_says_so(
    measured: study.Measurements, slower_in: tuple[int, ...], verdict: bool | None
) -> None:
    slower = [
        replace(m, stats={**m.stats, "main.cycles.base": 600_000})
        if m.run.key == ("bfs", "PTEMagnet", "aged") and m.run.seed in slower_in
        else m
        for m in measured.all()
    ]
    others = [claim for claim in ptemagnet.evaluate(study.Measurements(slower)).claims if not claim.holds]
    assert [(claim.text, claim.holds) for claim in others] == [
        ("no program becomes slower (the same, guest memory aged)", verdict)
    ]
    assert others[0].detail.startswith("bfs -16.4 %" if verdict is False else "bfs -5.5 (-16.4 to 1.8)")


def test_too_few_walks_or_seeds_decide_nothing() -> None:
    few = study.Measurements(_made_up(run, walks=999) for run in ptemagnet.runs())
    one = study.Measurements(_made_up(run) for run in ptemagnet.runs() if run.seed == 1)
    for measured in (few, one):
        verdicts = {claim.holds for claim in ptemagnet.evaluate(measured).claims if claim.figure == "§5"}
        assert verdicts == {None}


def test_only_the_measured_program_reserves_unless_all_do() -> None:
    of = {run.system: run for run in ptemagnet.runs() if run.key[0] == "bfs" and run.label == "aged"}
    its_own = 'system.layers.guest.placement_for=["source.0"]'
    assert its_own in of["PTEMagnet"].settings
    assert its_own not in of[ptemagnet.FOR_ALL].settings
    assert of["PTEMagnet"].preset == of[ptemagnet.FOR_ALL].preset
    seeds = {run.seed for run in ptemagnet.runs() if run.key == ("bfs", "PTEMagnet", "aged")}
    assert seeds == set(ptemagnet.SEEDS)
    assert '"seed":5}' in next(run for run in ptemagnet.runs() if run.label == "aged" and run.seed == 5).settings[-1]


def test_a_group_at_equal_cost_costs_as_much_as_eight_allocations() -> None:
    kernel = pagelab.run("seq:size=64KiB", "nested-radix-ptemagnet").systems[0].config["kernel"]
    alone = kernel["fault"]["allocation"]
    placement = json.loads(ptemagnet.EQUALLY_DEAR.split("=", 1)[1])
    for part in ("cycles", "instructions"):
        assert 8 * placement[part] + alone[part] == pytest.approx(8 * alone[part], rel=0.002)


def test_the_report_has_maps_of_the_frames(measured: study.Measurements, tmp_path: Path) -> None:
    findings = ptemagnet.evaluate(measured)
    files = report.write(tmp_path, ptemagnet.REPRODUCTION, 1.0, measured, findings)
    pictures = [path for path in files if path.suffix == ".svg"]
    assert len(findings.maps) == 2
    assert len(pictures) == len(findings.series) + 2
    text = pictures[-1].read_text()
    assert text.count("line2d") > 3
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["runs"]) == len(ptemagnet.runs())


def test_the_map_shows_the_middle_of_the_largest_stretch() -> None:
    runs = [(0, 7, 100), (1000, 500, 2000), (3000, 90, 2000), (9000, 1, 50)]
    assert report._middle_of_largest(runs) == 1000 + (4000 - report.MAPPED_PAGES) // 2


GUPS = "gups:size=32MiB,accesses={accesses},init=pages@0"


def _small(system: str, **more: Any) -> study.Run:
    run = next(run for run in ptemagnet.runs() if run.key == ("gups", system, "aged"))
    beside = ("random:size=16MiB,accesses=20K,init=pages@2", "seq:size=1MiB,passes=1@4")
    settings = (*run.settings, "machine.memory_bytes=512MiB")
    return replace(run, spec=GUPS, warm_up=32 * 256, accesses=1, settings=settings, beside=beside, **more)


def _measure(run: study.Run) -> study.Measurement:
    small = replace(ptemagnet.REPRODUCTION, runs=lambda: [run])
    return study.measure(small, 1.0, lambda _: True, study.Watch()).all()[0]


def test_windows_begin_at_the_same_access_and_have_no_first_touch() -> None:
    before, after, for_all = (_measure(_small(system)) for system in (*ptemagnet.PAIR, ptemagnet.FOR_ALL))
    assert study.warm_up(before.run) == 32 * 256
    for m in (before, after, for_all):
        assert m.main("fault.minor.count") == 0
        assert m.stats["main.cycles.base"] == pytest.approx(before.stats["main.cycles.base"], abs=2)
    assert _lines(after) == 1 < _lines(before)
    made = [m.stats["layer.guest.reservations.made"] for m in (after, for_all)]
    assert made[0] <= 32 * 32 < made[1]


def _lines(m: study.Measurement) -> float:
    return m.stats["layer.guest.contiguity.pte_lines"] / m.stats["layer.guest.contiguity.groups"]


def test_a_window_with_first_touches_is_refused() -> None:
    # The search for the last first touch ends too early.
    with pytest.raises(
        pagelab.UsageError, match=r"gups on order-0, seed 1: a window of 262,144 accesses has \d.* first"
    ):
        _measure(replace(_small("order-0"), warm_up=32 * 256 - 7))


def test_a_window_without_a_walk_is_refused() -> None:
    spec = "seq:size=16KiB,accesses={accesses},init=pages@0"
    with pytest.raises(pagelab.UsageError, match="has no page walk, so it says nothing of walks; give it a larger"):
        _measure(replace(_small("order-0"), spec=spec, warm_up=4096, beside=()))


def test_pagerank_has_a_whole_iteration_at_any_scale() -> None:
    spec = "pagerank:vertices=2097152,degree=2,init=pages,iterations=1"
    accesses, _, until = _engine.first_touches(spec, 1, 10**8)
    assert until < accesses < ptemagnet.ITERATION
    runs = [run for run in ptemagnet.runs() if run.workload == "pagerank" and run.after_touches]
    assert all(run.least_accesses >= accesses for run in runs)
    assert all(run.warm_up >= until for run in runs)
