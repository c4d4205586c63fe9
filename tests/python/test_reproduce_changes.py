"""Studies that change one thing, by made-up figures."""

import pytest

import pagelab as package
from pagelab_studies import hardware_demand_paging_changes, ptemagnet_changes, ptemagnet_runs, study
from pagelab_studies import hardware_demand_paging_indirect as indirect
from pagelab_studies.ptemagnet_changes import AGED_WHOLE, AS_NEEDED, BEFORE, OWN, SHARED, WITHOUT


def _lines(by_place: dict[str, float], seeds: int = 5) -> dict[str, bool | None]:
    """Verdicts if a group of the guest's PTEs has so many lines of the host's, by where co-runners run."""
    made = []
    for run in ptemagnet_changes.changed_runs():
        if run.label == AGED_WHOLE:
            continue
        place = run.label.split(", ")[0]
        lines = round(100 * by_place[place]) + run.seed
        stats = {"layer.guest.contiguity.groups": 100, "layer.guest.contiguity.pte_lines": lines}
        if run.seed <= seeds:
            made.append(study.Measurement(run, run.accesses, stats))
    claims = ptemagnet_changes.evaluate(study.Measurements(made)).claims
    return {claim.text: claim.holds for claim in claims}


def test_co_runners_are_judged_by_where_they_run() -> None:
    verdicts = _lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0})
    prefix = "co-runners scatter the host's PTEs of pagerank over more lines"
    assert len(verdicts) == 8
    for touched in (f"{BEFORE}, unused memory", f"{AS_NEEDED}, aged memory"):
        assert verdicts[f"{prefix} ({OWN}, pages {touched})"] is False
        assert verdicts[f"{prefix} ({SHARED}, pages {touched})"] is True
    assert set(_lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0}, seeds=4).values()) == {None}


def test_first_touches_in_aged_memory_are_those_of_the_main_study_with_aged_memory() -> None:
    made = [run for run in ptemagnet_changes.changed_runs() if run.label == AGED_WHOLE]
    assert len(made) == len(ptemagnet_runs.JUDGED) * 3
    usual = {run.key[:2]: run for run in ptemagnet_runs.runs() if run.label == ptemagnet_runs.WHOLE and run.seed == 1}
    for run in made:
        assert run.settings == (*usual[run.key[:2]].settings, ptemagnet_runs.aged(1))
    cycles = {"order-0": 200, "PTEMagnet": 180, "PTEMagnet at equal cost": 190}
    stats = {run: {"main.cycles": 1, "main.cycles.base": cycles[run.system] * run.accesses} for run in made}
    findings = study.Findings()
    measured = study.Measurements(study.Measurement(run, run.accesses, stats[run]) for run in made)
    ptemagnet_changes._aged_whole(measured, findings)
    (table,) = findings.series
    assert table.values["mean", "saved"] == table.values["most", "saved"] == pytest.approx(7.5)
    mean = table.intervals["mean", "saved"]
    assert [mean.low, mean.high] == pytest.approx([5, 10])


def test_co_runners_on_its_cpu_differ_in_that_alone() -> None:
    runs = {run.key[2]: run for run in ptemagnet_changes.changed_runs() if run.seed == 2}
    own, shared, alone = (runs[f"{where}, {BEFORE}, aged memory"] for where in (OWN, SHARED, WITHOUT))
    assert [one.rsplit("@", 1)[0] for one in own.beside] == [one.rsplit("@", 1)[0] for one in shared.beside]
    assert all(one.endswith("@0") for one in shared.beside)
    assert not alone.beside
    assert own.spec == shared.spec == alone.spec
    assert ",init=pages" not in runs[f"{SHARED}, {AS_NEEDED}, aged memory"].spec
    assert not any("init" in one for one in runs[f"{SHARED}, {AS_NEEDED}, unused memory"].beside)


@pytest.mark.parametrize(("quarter", "holds"), [(110, True), (95, None), (90, None)])
def test_a_core_more_is_judged_over_the_costs_of_the_kernel(quarter: int, holds: bool | None) -> None:
    made = []
    for run in hardware_demand_paging_changes.changed_runs():
        kernel = quarter if run.label.startswith("quarter") else 150
        cycles = kernel if run.system == "kernel" else 100
        stats = {"elapsed_cycles": cycles, "walk.count": 1}
        made.append(study.Measurement(run, run.accesses, stats, (stats,) * study.PARTS))
    findings = hardware_demand_paging_changes.evaluate(study.Measurements(made))
    assert [claim.holds for claim in findings.claims] == [holds] * 3
    assert all("machine.cores=9" in run.settings for run in hardware_demand_paging_changes.changed_runs())


def _indirect(kernel_fetches: float, kernel_branches: float) -> tuple[dict[str, bool | None], dict[str, float]]:
    """Verdicts, and gains in instructions per cycle, if kernel code adds so many cycles and events to the program's."""
    made = []
    for run in indirect.runs():
        word, variant = run.label.removesuffix(f", {indirect.EVERY_S}").split(", ", 1)
        by_kernel = run.system == "kernel"
        cost = {"quarter": 0.25, "measured": 1.0}[word] * by_kernel
        fetched, branches = variant != indirect.NO_CODE, variant == indirect.WITH_BRANCHES
        cycles = round(100 * cost + kernel_fetches * cost * fetched + kernel_branches * cost * branches)
        stats = {
            "instructions": 1000,
            "cycles.base": 1000 + cycles,
            "branches.mispredicted": round(100 + kernel_branches * cost * branches),
            "instruction_cache.program.misses": round(100 + kernel_fetches * cost * fetched),
            # Without kpted the unit misses less often.
            "elapsed_cycles": (2000 + cycles) // (2 if run.label.endswith(indirect.EVERY_S) else 1),
            indirect.READ: 50 if run.label.endswith(indirect.EVERY_S) else 100,
            "walk.count": 1,
        }
        made.append(study.Measurement(run, run.accesses, stats, (stats,) * study.PARTS))
    findings = indirect.evaluate(study.Measurements(made))
    gains = next(one for one in findings.series if one.title == indirect.IPC_TITLE)
    assert not findings.incomplete
    pages, by_period = (one for one in findings.series if one.figure == "Misses")
    assert set(pages.values.values()) == {50, 100}
    throughput = [by_period.values[period, "operations per second"] for period in by_period.groups]
    assert throughput[1] == pytest.approx(2 * throughput[0] + 100)
    return (
        {claim.text: claim.holds for claim in findings.claims},
        {variant: gains.values[variant, indirect.IPC] for variant in indirect.VARIANTS},
    )


def test_the_kernel_s_code_is_judged_step_by_step() -> None:
    verdicts, gains = _indirect(kernel_fetches=80, kernel_branches=0)
    holding = {text for text, holds in verdicts.items() if holds}
    assert not any("fewer mispredicted branches" in text or text.startswith("branches of") for text in holding)
    assert any("fewer misses of the L1 instruction cache" in text for text in holding)
    assert any(text.startswith("fetches of kernel code") for text in holding)
    assert gains == pytest.approx({indirect.NO_CODE: 10, indirect.FETCHED: 18, indirect.WITH_BRANCHES: 18})
    verdicts, gains = _indirect(kernel_fetches=80, kernel_branches=40)
    assert set(verdicts.values()) == {True}
    assert gains[indirect.WITH_BRANCHES] == pytest.approx(22)


def test_variants_of_the_kernel_s_code_differ_by_one_setting_each() -> None:
    settings = {
        variant: {
            tuple(one for one in run.settings if one != indirect.EVERY_MS)
            for run in indirect.runs()
            if run.label == f"measured, {variant}"
        }
        for variant in indirect.VARIANTS
    }
    none, fetched, branches = (set(next(iter(settings[variant]))) for variant in indirect.VARIANTS)
    assert all(len(both) == 1 for both in settings.values()), "both systems have the same"
    assert (none - fetched, fetched - none) == ({"kernel.code.path_lines=0"}, set())
    assert (branches - fetched, fetched - branches) == ({"kernel.code.branch_instructions=6"}, set())
    assert {run.recording for run in indirect.runs()} == {"rocksdb.trace"}
    for run in indirect.runs():
        often = run.system == "unit" and not run.label.endswith(indirect.EVERY_S)
        assert (indirect.EVERY_MS in run.settings) is often


def test_a_recording_that_does_not_fill_memory_is_refused() -> None:
    run = indirect.runs()[0]
    stats = {"layer.native.storage.reads.blocks": 100, "reclaim.files.dropped": 49}
    with pytest.raises(package.UsageError, match="memory was not full"):
        indirect.check(study.Measurement(run, run.accesses, stats))
    indirect.check(study.Measurement(run, run.accesses, {**stats, "reclaim.files.dropped": 50}))
