"""How long a study takes is estimated from its runs' costs, before it begins and while it goes on."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import pagelab
from pagelab_studies import REPRODUCTIONS, budget, kept, study
from pagelab_studies.command import _Lines, command

CPUS = os.cpu_count() or 1


def _study(costs: dict[str, study.Cost], **runs: study.Run) -> study.Reproduction:
    return replace(
        REPRODUCTIONS["hash-dont-cache"],
        name="made-up",
        runs=lambda: list(runs.values()),
        cost=lambda r: costs[r.workload],
    )


def _run(name: str, accesses: int, warm_up: int = 0, spec: str = "seq:accesses={accesses}") -> study.Run:
    return study.Run(name, spec, "radix", "radix", accesses, warm_up)


def test_every_run_of_every_study_has_a_cost() -> None:
    for reproduction in REPRODUCTIONS.values():
        for run in reproduction.runs():
            cost = reproduction.cost(run)
            assert cost.window > 0, run
            assert (cost.warm_up > 0) == (run.warm_up > 0), run
            assert 0 < budget.seconds(cost, run, 1.0) < 600, run


def test_a_warm_up_does_not_shrink_with_the_window() -> None:
    run, cost = _run("a", 10_000_000, 5_000_000), study.Cost(window=100, warm_up=2000, once=1e9)
    assert budget.seconds(cost, run, 1.0) == pytest.approx(1 + 10 + 1)
    assert budget.seconds(cost, run, 0.1) == pytest.approx(1 + 10 + 0.1)
    # Nor does a source that runs to its end, whatever the scale.
    assert budget.seconds(cost, replace(run, spec="matmul:n=100"), 0.1) == pytest.approx(1 + 10 + 1)


def test_the_scale_is_the_largest_that_fits() -> None:
    runs = {name: _run(name, 60_000_000_000) for name in map(str, range(2 * CPUS))}
    reproduction = _study({name: study.Cost(window=1) for name in runs}, **runs)
    # Two runs of a minute for each CPU.
    planned = reproduction.runs()
    assert budget.minutes(reproduction, planned, 1.0, 1.0) == pytest.approx(2)
    assert budget.minutes(reproduction, planned[:1], 1.0, 1.0) == pytest.approx(1), "no run is spread over CPUs"
    for limit, speed, scale in [(2, 1, 1.0), (1.9, 1, 0.5), (2, 0.5, 0.5), (0.05, 1, 0.02), (4, 0.5, 1.0)]:
        assert budget.choose_scale(reproduction, planned, limit, speed) == scale
    with pytest.raises(pagelab.UsageError, match=r"made-up needs at least 4 min here: .* --budget 5"):
        budget.choose_scale(reproduction, planned, 1, 0.01)


def test_what_is_left_follows_costs_and_the_speed_seen() -> None:
    now = [0.0]
    runs = {"short": _run("short", 1_000_000, 1_000_000), "long": _run("long", 9_000_000)}
    costs = {"short": study.Cost(window=20_000, warm_up=80_000), "long": study.Cost(window=100_000)}
    left = budget.TimeLeft(_study(costs, **runs), 1.0, 1.0 / CPUS, clock=lambda: now[0])
    left.planned(list(runs.values()))
    # 100 and 900 nominal seconds, at first at the nominal speed.
    assert left.seconds == pytest.approx(1000)
    left.goes_on(runs["short"], 750_000)
    now[0] = 60.0
    assert left.seconds == pytest.approx(940)
    left.goes_on(runs["short"], 1_500_000)
    now[0] = 90.0
    assert left.seconds == pytest.approx(910)
    left.goes_on(runs["long"], 100_000)
    now[0] = 1e6
    assert left.seconds == pytest.approx(900 * 1e6 / 100, rel=0.3), "it is far slower than that"
    now[0] = 100.0
    assert left.seconds == pytest.approx(900)
    left.ended(runs["short"])
    now[0] = 80.0
    # 110 seconds of work in 80, and what the pilot said counts as 20 more.
    assert left.seconds == pytest.approx(890 / (130 / 100))
    left.ended(runs["long"])
    assert left.seconds == 0


def test_each_run_has_a_line_when_it_begins_and_one_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    runs = {"short": _run("short", 1_000_000), "long": _run("long", 9_000_000)}
    reproduction = _study(dict.fromkeys(runs, study.Cost(window=100_000)), **runs)
    lines = _Lines(budget.TimeLeft(reproduction, 1.0, 1 / CPUS, clock=lambda: now[0]), clock=lambda: now[0])
    lines.planned(list(runs.values()))
    lines.begins(runs["short"])
    now[0] = 100
    lines.ended(runs["short"], 1, 2)
    lines.begins(runs["long"])
    lines.ended(runs["long"], 2, 2)
    assert capsys.readouterr().err.splitlines() == [
        "2 runs to make, about 17 min",
        "begins: short on radix, seed 1",
        "[1/2] short on radix, seed 1: 2 min; about 15 min left",
        "begins: long on radix, seed 1",
        "[2/2] long on radix, seed 1: 0 s",
    ]


def test_a_study_goes_on_at_its_scale_and_says_that_a_budget_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scales: list[float] = []

    def measure(_reproduction: study.Reproduction, scale: float, *_: object) -> study.Measurements:
        scales.append(scale)
        raise pagelab.UsageError("enough")

    monkeypatch.setattr(study, "measure", measure)
    monkeypatch.setattr(budget, "pilot", lambda: 1.0)
    folder = tmp_path / "study"

    def begin(budget: float | None = None, scale: float | None = None) -> str:
        with pytest.raises(pagelab.UsageError, match="enough"):
            command("hash-dont-cache", folder, budget, scale)
        return capsys.readouterr().err

    begin(scale=0.25)
    # Nothing has been made, so that a budget may still choose.
    assert "has no effect" not in begin(budget=1e6)
    asked = kept.earlier_request(folder)
    assert asked is not None
    run = REPRODUCTIONS["hash-dont-cache"].runs()[0]
    kept.Kept(folder, asked).keep(study.Measurement(run, run.window(1.0), {}))
    assert "begun at scale 1 and continues with it" in begin(budget=1.0)
    assert "has no effect" not in begin()
    assert scales == [0.25, 1.0, 1.0, 1.0]


def test_durations() -> None:
    for seconds, text in [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5900, "98 min"), (7260, "2 h 1 min")]:
        assert budget.duration(seconds) == text


def test_the_default_budget_refuses_no_study_on_a_slow_machine() -> None:
    for reproduction in REPRODUCTIONS.values():
        runs = [run for run in reproduction.runs() if not run.beyond]
        for speed in (10.0, 1.0, 0.01):
            scale, needed = budget.default_scale(reproduction, runs, 20.0, speed)
            assert scale in budget.SCALES
            assert needed == budget.minutes(reproduction, runs, scale, speed)
            assert needed <= 20.0 or scale == budget.SCALES[-1]
        with pytest.raises(pagelab.UsageError, match="increase the budget with --budget"):
            budget.choose_scale(reproduction, runs, 20.0, 0.001)
