"""`pagelab reproduce ptemagnet`: what is made of measurements, and two real runs."""

import json
from pathlib import Path

import pytest

from pagelab.reproduce import ptemagnet, report, study


def _made_up(run: study.Run) -> study.Measurement:
    """Order-0 allocation strews pages over four lines and makes the host's walks miss four times as often."""
    strewn = run.system == "order-0"
    layer = "first" if run.label == "two machines" else "guest"
    stats = {
        "walk.count": 1000,
        "walk.cycles": 50_000 if strewn else 40_000,
        "walk.layer.guest.level1.refs": 1000,
        "walk.layer.guest.level1.refs.l3": 60,
        "walk.layer.guest.level1.refs.dram": 40,
        "walk.layer.host.level1.refs.dram": 400 if strewn else 100,
        "walk.layer.host.level1.refs.l2": 10_000,
        f"layer.{layer}.contiguity.groups": 100,
        f"layer.{layer}.contiguity.pte_lines": 400 if strewn else 100,
        f"layer.{layer}.contiguity.full_groups": 80,
        f"layer.{layer}.contiguity.contiguous_groups": 20 if strewn else 80,
        "layer.guest.memory_bytes": 1 << 30,
        "layer.guest.free_bytes": 1 << 29,
        "layer.guest.reservations.peak_unused_bytes": 1 << 20,
        "layer.guest.fault.zeroed_bytes": 8 << 20 if run.system == ptemagnet.FOLIOS else 1 << 20,
        "main.fault.minor.count": 1000 if run.system in ptemagnet.PAIR else 125,
        "main.walk.cycles": 50_000 if strewn else 40_000,
    }
    # What runs by itself has no account of its own; beside co-runners the cycles of all are others.
    whose = "" if run.label == "alone" else "main."
    spent = {"base": 500_000, "translation": 50_000 if strewn else 40_000, "fault": 450_000 * (run.label == "whole")}
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
    by_item = {(row.item, row.quantity): row.ours for row in findings.comparisons}
    ratio = "walk references beyond the private caches, host's to guest's"
    assert by_item["pagerank, guest memory aged", ratio] == 4.0
    fragmented = "regions of 32 KiB that are fragmented"
    assert by_item["pagerank beside co-runners", fragmented] == pytest.approx(75)
    assert by_item["mean, after first touches", "time saved"] == pytest.approx(100 * 10 / 550)
    assert by_item["mean, the same, without co-runners", "time saved"] == pytest.approx(100 * 10 / 550)
    assert by_item["mean, first touches included", "time saved"] == pytest.approx(1)
    assert by_item["most of all workloads", "memory reserved and unused"] == pytest.approx(100 / 512)
    lines = next(series for series in findings.series if series.figure == "Fig 5")
    assert {lines.values[group, "order-0"] for group in lines.groups} == {4.0}
    assert "two virtual machines" in lines.groups
    zeroed = next(series for series in findings.series if series.title.startswith("zeroed"))
    assert [zeroed.values["sparse", system] for system in zeroed.members] == [1, 1, 8]


def test_what_becomes_slower_is_said(measured: study.Measurements) -> None:
    slower = [
        study.Measurement(m.run, m.window, {**m.stats, "main.cycles.base": 600_000}, (), m.contiguity_map)
        if m.run.key == ("bfs", "PTEMagnet", "aged")
        else m
        for m in measured.all()
    ]
    broken = [claim for claim in ptemagnet.evaluate(study.Measurements(slower)).claims if not claim.holds]
    assert [claim.text for claim in broken] == ["no program becomes slower (the same, guest memory aged)"]
    assert broken[0].detail.startswith("bfs -16.36 %")


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


def test_real_runs_of_the_smallest_kind() -> None:
    measured = study.measure(
        ptemagnet.REPRODUCTION,
        0.05,
        lambda run: run.workload == "matmul" and run.system in ptemagnet.PAIR and not run.label,
        lambda *_: None,
        ["seq:size=1MiB,passes=1@6"],
    )
    assert all(m.run.beside[-1] == "seq:size=1MiB,passes=1@6" for m in measured.all())
    assert len(measured["matmul", "order-0"].run.beside) == len(ptemagnet.CO_RUNNERS) + 1
    before, after = (measured["matmul", system].stats for system in ptemagnet.PAIR)
    assert after["layer.guest.contiguity.pte_lines"] == after["layer.guest.contiguity.groups"] > 500
    assert before["layer.guest.contiguity.pte_lines"] > before["layer.guest.contiguity.groups"]
    # A window ends at a batch, wherever its faults are.
    assert before["main.fault.minor.count"] == pytest.approx(after["main.fault.minor.count"], rel=0.01)
