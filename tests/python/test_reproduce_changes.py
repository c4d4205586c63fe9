"""Studies that change one thing, by made-up figures."""

from dataclasses import replace

import pytest

import pagelab as package
from pagelab_studies import (
    hardware_demand_paging_changes,
    ptemagnet_changes,
    ptemagnet_colocated,
    ptemagnet_runs,
    study,
)
from pagelab_studies import hardware_demand_paging_indirect as indirect
from pagelab_studies.ptemagnet_changes import (
    AGED_WHOLE,
    AS_NEEDED,
    BEFORE,
    BESIDE,
    EVEN,
    OWN,
    PERFECT,
    SHARED,
    WITHOUT,
    ZIPF,
)
from pagelab_studies.ptemagnet_runs import AGED, EQUAL_COST, ORDER_0


def _lines(by_place: dict[str, float], seeds: int = 5) -> dict[str, bool | None]:
    """Verdicts if a group of the guest's PTEs has so many lines of the host's, by where co-runners run."""
    made = []
    for run in ptemagnet_changes.changed_runs():
        place = run.label.split(", ")[0]
        if run.workload != "pagerank" or place not in by_place:
            continue
        lines = round(100 * by_place[place]) + run.seed
        stats = {"layer.guest.contiguity.groups": 100, "layer.guest.contiguity.pte_lines": lines}
        if run.seed <= seeds:
            made.append(study.Measurement(run, run.accesses, stats))
    claims = ptemagnet_changes.evaluate(study.Measurements(made)).claims
    return {claim.text: claim.holds for claim in claims}


def test_co_runners_are_judged_by_where_they_run() -> None:
    verdicts = _lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0})
    prefix = "co-runners scatter the host's PTEs of pagerank over more lines"
    assert len(verdicts) == 6
    assert f"{prefix} ({OWN}, pages {BEFORE}, unused memory)" not in verdicts, "the main study has it"
    assert verdicts[f"{prefix} ({OWN}, pages {AS_NEEDED}, aged memory)"] is False
    for touched in (f"{BEFORE}, unused memory", f"{AS_NEEDED}, aged memory"):
        assert verdicts[f"{prefix} ({SHARED}, pages {touched})"] is True
    assert set(_lines({WITHOUT: 2.0, OWN: 1.9, SHARED: 3.0}, seeds=4).values()) == {None}


def test_first_touches_in_aged_memory_are_those_of_the_main_study_with_aged_memory() -> None:
    made = [run for run in ptemagnet_changes.changed_runs() if run.label == AGED_WHOLE]
    assert len(made) == len(ptemagnet_runs.JUDGED) * 3 * len(ptemagnet_runs.SEEDS)
    whole = [run for run in ptemagnet_runs.runs() if run.label == ptemagnet_runs.WHOLE]
    usual = {(*run.key[:2], run.seed): run for run in whole}
    for run in made:
        main = usual[(*run.key[:2], run.seed)]
        assert replace(run, label=main.label, settings=main.settings) == main
        assert run.settings == (*main.settings, ptemagnet_runs.aged(run.seed))
    cycles = {"order-0": 200, "PTEMagnet": 180, "PTEMagnet at equal cost": 190}
    stats = {
        run: {"main.cycles": 1, "main.cycles.base": (cycles[run.system] - (run.system != "order-0") * 2 * run.seed)}
        for run in made
    }
    findings = study.Findings()
    measured = study.Measurements(study.Measurement(run, 1, stats[run]) for run in made)
    ptemagnet_changes._aged_whole(measured, findings)
    (table,) = findings.series
    # A seed saves a point more than the seed before it.
    assert table.values["mean", "saved"] == table.values["most", "saved"] == pytest.approx(10.5)
    mean = table.intervals["mean", "saved"]
    assert [mean.low, mean.high] == pytest.approx([6, 15])


def _zipf(run: study.Run) -> study.Measurement:
    """Beside co-runners, memory serves more references with reservations, and the MMU cache does not matter."""
    more = run.system == EQUAL_COST and run.label != WITHOUT
    whose = "main." if run.beside else ""
    own = {
        "cycles.translation": 100 + 10 * more + run.seed * more,
        "cycles.data_stall": 98 + 4 * more,
        "cycles.base": 2,
        "walk.count": 10,
        "walk.layer.host.level1.refs.l1": 20,
        "walk.layer.host.level1.refs.l3": 5 - 2 * more,
        "walk.layer.host.level1.refs.dram": 3 + 2 * more,
        "walk.layer.host.level2.refs.l1": 7 * (run.label != PERFECT),
        "walk.layer.host.level2.refs.l2": 2 * (run.label != PERFECT),
        "walk.layer.guest.level1.refs.remote": 1,
    }
    stats = {f"{whose}{name}": count for name, count in own.items()}
    if run.beside:
        stats |= {"main.cycles": 1, "walk.count": 10**6, "co_runner.fault.minor.count": 5 + 2 * more}
    return study.Measurement(run, 50, stats)


def test_what_makes_zipf_slower_is_told_by_parts_of_its_time_and_references() -> None:
    made = [run for run in ptemagnet_changes.changed_runs() if run.workload == ZIPF.name]
    findings = ptemagnet_changes.evaluate(study.Measurements(map(_zipf, made)))
    saved, refs, faults = findings.series
    for label in (BESIDE, PERFECT):
        lost = saved.intervals[label, "all"]
        assert [lost.low, lost.value, lost.high] == pytest.approx([-8.5, -8, -7.5])
        assert saved.values[label, "of translation"] == pytest.approx(-6)
        assert saved.values[label, "of data"] == pytest.approx(-2)
        assert [faults.values[label, system] for system in (ORDER_0, EQUAL_COST)] == pytest.approx([0.1, 0.14])
        assert refs.values[f"{EQUAL_COST}, {label}", "host, level 1, served by memory"] == pytest.approx(0.5)
    assert saved.values[WITHOUT, "all"] == 0
    assert (WITHOUT, ORDER_0) not in faults.values
    row = f"{ORDER_0}, {BESIDE}"
    assert refs.values[row, "host, level 1, beyond L2"] == pytest.approx(0.8)
    assert refs.values[row, "guest, level 1, beyond L2"] == pytest.approx(0.1)
    assert refs.values[row, "host, level 2"] == pytest.approx(0.9)
    assert refs.values[f"{ORDER_0}, {PERFECT}", "host, level 2"] == 0
    assert refs.values[f"{ORDER_0}, {WITHOUT}", "host, level 1, served by memory"] == pytest.approx(0.3)


def test_zipf_s_runs_differ_from_the_main_study_s_by_one_change() -> None:
    usual = {(run.system, run.seed): run for run in ptemagnet_runs.runs() if run.key[::2] == (ZIPF.name, AGED)}
    made = [run for run in ptemagnet_changes.changed_runs() if run.workload == ZIPF.name]
    assert len(made) == len(ptemagnet_changes.OF_ZIPF) * 2 * len(ptemagnet_runs.FEW_SEEDS)
    for run in made:
        main = replace(usual[run.system, run.seed], label=run.label)
        perfect = (*main.settings, "system.layers.host.mmu_cache=perfect")
        changed = {BESIDE: main, PERFECT: replace(main, settings=perfect), WITHOUT: replace(main, beside=())}
        assert run == changed[run.label]


def test_sizes_in_unused_memory_are_those_of_the_main_study_without_its_age() -> None:
    made = [run for run in ptemagnet_changes.changed_runs() if run.label == EVEN]
    usual = {(*run.key[::2], run.seed): run for run in ptemagnet_runs.runs() if run.system == ORDER_0}
    assert len(made) == len(ptemagnet_runs.SWEEP) * len(ptemagnet_runs.FEW_SEEDS)
    for run in made:
        main = usual[run.workload, AGED, run.seed]
        assert main == replace(run, label=AGED, settings=(*run.settings, ptemagnet_runs.aged(run.seed)))
    stats = {
        "main.cycles": 1,
        "main.walk.count": 100,
        "main.walk.layer.guest.level1.refs.l3": 20,
        "main.walk.layer.guest.level1.refs.dram": 30,
        "main.walk.layer.host.level1.refs.dram": 75,
        "layer.guest.contiguity.groups": 10,
        "layer.guest.contiguity.pte_lines": 20,
    }
    measured = study.Measurements(study.Measurement(run, 100, stats) for run in made)
    per_walk, ratios, lines = ptemagnet_changes.evaluate(measured).series
    for workload in ptemagnet_runs.SWEEP.values():
        assert per_walk.values[workload.name, "host"] == pytest.approx(0.75)
        assert ratios.values[workload.name, "beyond L2"] == pytest.approx(1.5)
        assert ratios.values[workload.name, "served by memory"] == pytest.approx(2.5)
        assert lines.values[workload.name, ORDER_0] == 2


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
    findings = study.evaluate(indirect.REPRODUCTION, study.Measurements(made))
    gains = next(one for one in findings.series if one.title == indirect.IPC_TITLE)
    assert not findings.incomplete
    pages, by_period = (one for one in findings.series if one.figure == "Misses")
    assert set(pages.values.values()) == {50, 100}
    throughput = [by_period.values[period, "operations per second"] for period in by_period.groups]
    assert throughput[1] == pytest.approx(2 * throughput[0] + 100)
    (beside,) = (row for row in findings.comparisons if row.quantity.startswith("more operations"))
    assert beside.paper == 27.3
    assert beside.ours == pytest.approx(throughput[0])
    assert beside.interval is not None
    assert beside.interval.low < beside.ours, "down to a quarter of the kernel's costs"
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


def _judged(run: study.Run, beside: int, alone: int) -> study.Measurement:
    """Reservations save so many of 1,000 cycles of walks; chase misses as often in both tables, others four times."""
    whose = "main." if run.beside else ""
    saved = (beside if run.beside else alone) + run.seed if run.system == EQUAL_COST else 0
    often = 10 if run.workload == ptemagnet_runs.CHASE.name else 1
    own = {
        "cycles.base": 9000,
        "cycles.translation": 1000 - saved,
        "walk.count": 1000 * often,
        "walk.layer.guest.level1.refs.dram": 200 * often,
        "walk.layer.host.level1.refs.dram": 200 * often if often > 1 else 800,
    }
    others = {"main.cycles": 1, "walk.count": 99, "cycles.translation": 7} if run.beside else {}
    return study.Measurement(run, 10_000, others | {f"{whose}{name}": count for name, count in own.items()})


@pytest.mark.parametrize(("beside", "alone", "holds"), [(300, 100, True), (100, 300, False)])
def test_what_walks_save_beside_co_runners_is_judged_against_alone(beside: int, alone: int, holds: bool) -> None:
    runs = list(ptemagnet_colocated.colocated_runs())
    assert len(runs) == len(ptemagnet_runs.JUDGED) * len(ptemagnet_runs.SEEDS) * 2 * 2
    measured = study.Measurements(_judged(run, beside, alone) for run in runs)
    findings = study.Findings()
    ptemagnet_colocated.gains(measured, findings)
    assert [claim.holds for claim in findings.claims] == [holds] * len(ptemagnet_runs.JUDGED)
    saved = findings.series[0].values
    assert saved["bfs, beside", "of translation"] == pytest.approx((beside + 3) / 100)
    assert saved["bfs, alone", "all"] == pytest.approx((alone + 3) / 100)
    assert saved["bfs, alone", "of data"] == 0
    few = study.Measurements(one for one in measured.all() if one.run.seed < 5)
    ptemagnet_colocated.gains(few, findings)
    assert {claim.holds for claim in findings.claims[4:]} == {None}


def test_ratios_are_pooled_with_and_without_the_program_that_misses_most() -> None:
    findings = study.Findings()
    made = [_judged(run, 0, 0) for run in ptemagnet_colocated.colocated_runs()]
    ptemagnet_colocated.ratios(study.Measurements(made), findings)
    ratios = findings.series[0].values
    kind = "served by memory"
    assert ratios[f"chase, {kind}", "alone"] == 1
    assert ratios[f"all four pooled, each access alike, {kind}", "beside"] == pytest.approx(4400 / 2600)
    assert ratios[f"all four pooled, each walk alike, {kind}", "beside"] == pytest.approx(2.6 / 0.8)
    for weight in ("access", "walk"):
        assert ratios[f"without chase pooled, each {weight} alike, {kind}", "alone"] == pytest.approx(4)
