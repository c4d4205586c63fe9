"""The study of PTEMagnet's guests: states of memory, who allocates, and several guests, by made-up figures."""

from dataclasses import replace

import pytest

from pagelab_studies import ptemagnet_guests, ptemagnet_runs, study
from pagelab_studies.ptemagnet_guests import AT_ONCE, MAIN, PLACES, SMALL, STATES, TOUCHING, State
from pagelab_studies.ptemagnet_runs import AGED, EQUAL_COST, JUDGED, ORDER_0, RIVALS, SEEDS

SMALL_MIB = dict(zip(map(str, STATES), (0, 20, 200, 400, 1000), strict=True))
"""Free memory in small blocks by state; each MiB saves a hundredth of a per cent."""


def _made_up(run: study.Run) -> study.Measurement:
    window = run.window(1.0)
    if run.workload == AT_ONCE.name:
        free = SMALL_MIB[run.label] << 20
        stats = {"layer.guest.free_bytes": 2 * free, "layer.guest.frames.unusable_permille.order3": 500}
        return study.Measurement(run, window, stats)
    guest = PLACES[run.label][1][0] if run.label in PLACES else "guest"
    saved = 0
    if run.system != ORDER_0:
        # A machine more saves a point more, beside one that the seed adds.
        state, alone, _ = run.label.partition(", alone")
        points = 100 * len(PLACES[run.label][1]) if run.label in PLACES else SMALL_MIB[state]
        saved = (points + run.seed) * (1 if alone else 2)
    stats = {
        "main.cycles": 1,
        "main.cycles.base": 20_000 - saved,
        "main.walk.count": 5000,
        "main.fault.minor.count": 1000,
        "co_runner.fault.minor.count": 3000 if run.label.startswith(TOUCHING) else window // 100,
        f"layer.{guest}.contiguity.groups": 100,
        f"layer.{guest}.contiguity.pte_lines": 300 if run.system == ORDER_0 else 100,
    }
    return study.Measurement(run, window, stats)


@pytest.fixture(scope="module")
def findings() -> study.Findings:
    return ptemagnet_guests.evaluate(study.Measurements(map(_made_up, ptemagnet_guests.runs())))


def _table(findings: study.Findings, title: str) -> study.Series:
    return next(one for one in findings.series if title in one.title)


def test_gains_are_told_by_the_free_memory_in_small_blocks(findings: study.Findings) -> None:
    assert not findings.incomplete
    sizes = _table(findings, "free memory of the guest")
    assert [sizes.values[str(state), SMALL] for state in STATES] == list(SMALL_MIB.values())
    for where, times in (("beside co-runners", 1), ("alone", 0.5)):
        saved = _table(findings, f"saves, by the guest's memory, {where}")
        for state, mib in SMALL_MIB.items():
            # The middle of two seeds
            assert saved.values[state, "mean"] == saved.values[state, "bfs"] == pytest.approx(times * (mib + 1.5) / 100)
    mean, most, mean_alone, *_ = findings.notes
    assert "4 % (mean of the programs; here beside co-runners)" in mean
    assert "below it with 0, 20, 200 MiB; above it with 400, 1000 MiB" in mean
    assert "9 % (most of the programs" in most
    assert most.endswith("; above it with 1000 MiB.")
    assert mean_alone.endswith("below it with 0, 20, 200, 400 MiB; above it with 1000 MiB.")


def test_faults_of_co_runners_are_counted_while_programs_touch_and_afterwards(findings: study.Findings) -> None:
    during, after = (one for one in findings.series if one.title.startswith("page faults of co-runners"))
    assert set(during.values.values()) == {3}
    assert set(after.values.values()) == {10}
    touching = [run for run in ptemagnet_guests.runs() if run.label.startswith(TOUCHING)]
    for run in touching:
        assert run.beside
        assert not run.warm_up
        assert run.window(1.0) == ptemagnet_guests.PAGES[next(at for at in JUDGED if at.name == run.workload)]


def test_other_policies_are_compared_in_the_main_study_s_aged_memory(findings: study.Findings) -> None:
    saved = _table(findings, "time saved, after first touches, guest memory aged")
    assert saved.members == (EQUAL_COST, *RIVALS)
    for run in ptemagnet_guests.runs():
        if run.system in RIVALS:
            assert ptemagnet_runs.aged(run.seed) in run.settings


def test_several_machines_are_judged_against_one(findings: study.Findings) -> None:
    assert [(claim.holds, claim.ours) for claim in findings.claims] == [(True, True), (True, True)]
    two, four = (claim.detail for claim in findings.claims)
    assert two.endswith("; 1.0 (1.0 to 1.0) points more")
    assert four.endswith("; 3.0 (3.0 to 3.0) points more")
    few = [run for run in ptemagnet_guests.runs() if run.seed < SEEDS[-1]]
    again = ptemagnet_guests.evaluate(study.Measurements(map(_made_up, few)))
    assert [claim.holds for claim in again.claims] == [None, None]
    lines = _table(findings, "by virtual machines")
    assert {lines.values[place, "lines"] for place in PLACES} == {3}


def test_several_machines_differ_in_their_number_alone() -> None:
    one, *several = PLACES
    by_place = {
        place: {(run.system, run.seed): run for run in ptemagnet_guests.runs() if run.label == place}
        for place in PLACES
    }
    assert {run.workload for run in by_place[one].values()} == {"cc"}
    for place in several:
        guests = PLACES[place][1]
        for key, run in by_place[place].items():
            alone = by_place[one][key]
            assert replace(run, label=one, preset=alone.preset, settings=alone.settings) == alone
            assert len(run.beside) == 3
            of_first = [text.replace(guests[0], "guest") for text in run.settings if not _is_of(text, guests[1:])]
            assert of_first == list(alone.settings)
            for guest in guests[1:]:
                ages = [text for text in run.settings if f".{guest}." in text]
                assert len(ages) == 2, "its memory and its age"


def _is_of(text: str, guests: tuple[str, ...]) -> bool:
    return any(f"layers.{guest}." in text for guest in guests)


def test_states_differ_from_the_main_study_by_their_age_and_window() -> None:
    usual = {(*run.key[:2], run.seed): run for run in ptemagnet_runs.runs() if run.label == AGED}
    names = {workload.name for workload in JUDGED}
    labels = {f"{state}{suffix}": state for state in STATES for suffix in ("", ", alone")}
    seen = set()
    for run in ptemagnet_guests.runs():
        if run.workload not in names or run.label not in labels or run.system in RIVALS:
            continue
        main = usual[(*run.key[:2], run.seed)]
        age = labels[run.label].settings(run.seed)
        assert run.settings == (*(one for one in main.settings if one != ptemagnet_runs.aged(run.seed)), *age)
        assert run.beside == (() if "alone" in run.label else main.beside)
        assert (run.warm_up, run.spec) == (main.warm_up, main.spec)
        assert study.LEAST_ACCESSES <= run.window(1.0) <= main.window(1.0)
        seen.add((run.workload, run.label))
    assert len(seen) == 2 * len(JUDGED) * len(STATES)
    assert MAIN.settings(2) == (ptemagnet_runs.aged(2),)
    assert State().settings(2) == ()
