"""What the paper on hashed tables has no figure for: processes, packed radix tables and samples, by made-up figures."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from pagelab_studies import hash_dont_cache_exits as exits
from pagelab_studies import hash_dont_cache_open as unquantified
from pagelab_studies import hash_dont_cache_packed as packed
from pagelab_studies import hash_dont_cache_processes as processes
from pagelab_studies import hash_dont_cache_spread as spread
from pagelab_studies import hash_dont_cache_whole as whole
from pagelab_studies import study
from pagelab_studies.hash_dont_cache_runs import MCF
from pagelab_studies.study import Findings, Measurement, Measurements, Run

Section = Callable[[Measurements, Findings], None]


def _evaluated(section: Section, stats: Callable[[Run], Mapping[str, int]]) -> Findings:
    """What a section says if all runs counted this, alike in each part."""
    findings = Findings()
    counted = [(run, stats(run)) for run in unquantified.runs()]
    section(
        Measurements(Measurement(run, run.accesses, each, (each,) * study.PARTS) for run, each in counted), findings
    )
    return findings


def _measured(run: Run) -> Measurement:
    reproduction = replace(unquantified.REPRODUCTION, runs=lambda: [run])
    (one,) = study.measure(reproduction, 1, lambda _: True, study.Watch()).all()
    return one


TABLE = "layer.native.page_table"


@pytest.mark.parametrize(
    ("unmapped", "mapped", "before"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_searches_after_exits_are_judged_by_what_they_are_for(unmapped: bool, mapped: bool, before: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        after, survivor = run.label == exits.AFTER, run.label == exits.SURVIVOR
        refs = {
            "walk.aborted.refs": 1100 + 100 * (after and unmapped),
            "walk.refs": 2200 + 50 * ((after and mapped) or (survivor and before)),
        }
        slots = {f"{TABLE}.slots": 4096, f"{TABLE}.slots.deleted": 9, f"{TABLE}.scan.deleted": 10}
        return {"walk.aborted.count": 1000, "walk.count": 2000, **refs, **slots, f"{TABLE}.scan.cycles": 640 * after}

    findings = _evaluated(exits.deleted_slots, stats)
    assert [claim.holds for claim in findings.claims] == [unmapped, mapped, before] * len(exits.SYSTEMS)
    references, counts = findings.series
    assert references.values[f"open, {exits.CONTROL}", "mapped"] == 1.1
    assert (f"open, {exits.SURVIVOR}", "not mapped") not in references.values, "all its pages are mapped"
    assert counts.values[f"open, {exits.AFTER}", "cycles of the scan per process"] == 10
    assert counts.values[f"open, {exits.CONTROL}", "searches, not mapped"] == 1000


def test_controls_differ_by_the_processes_that_ended() -> None:
    runs = {(run.system, run.label): run for run in exits.runs() if run.seed == exits.SEEDS[0]}
    for design in exits.SYSTEMS:
        for label, control in ((exits.AFTER, exits.CONTROL), (exits.SURVIVOR, exits.ALONE)):
            after, alone = runs[design, label], runs[design, control]
            assert after.settings == alone.settings
            assert after.arrivals[-1:] == alone.arrivals
            assert after.accesses == alone.accesses
            ended = (exits._ENDED - (label == exits.SURVIVOR)) * 4096
            assert after.warm_up - alone.warm_up == ended


def _small(label: str, last: str = "per_second=0.675") -> Run:
    """Processes of 64 pages and a program of 2048, in a table as full; `last` says when the last process comes."""
    (run,) = [run for run in exits.runs() if run.key == (exits.EXITS, "open", label) and run.seed == 1]
    smaller = {"size=16777216,": "size=256KiB,", "size=512MiB,": "size=8MiB,", "per_second=0.675": last}
    streams = []
    for stream in run.arrivals:
        for old, new in smaller.items():
            stream = stream.replace(old, new)
        streams.append(stream)
    ended = {exits.AFTER: 64, exits.SURVIVOR: 63}.get(label, 0)
    settings = ("system.layers.native.page_table.table_bytes=128KiB", *run.settings[1:])
    return replace(run, arrivals=tuple(streams), settings=settings, warm_up=run.warm_up - ended * (4096 - 64))


def test_a_scan_marks_the_slots_of_processes_that_ended_before_the_program() -> None:
    """The window is the program's, and has the marks."""
    run = _small(exits.AFTER)
    stats = _measured(run).stats
    assert stats["accesses"] == run.accesses
    assert stats["walk.aborted.count"] == pytest.approx(2048, abs=8), "the program's first touches alone"
    assert stats[f"{TABLE}.scan.deleted"] >= 64 * 64
    assert stats[f"{TABLE}.scan.lines"] == (128 << 10) // 64


def test_entries_made_before_a_scan_stay_where_they_are() -> None:
    short: list[Measurement] = []
    for label in (exits.SURVIVOR, exits.ALONE):
        run = _small(label, "per_second=0.99")
        fewer = 900_000
        streams = tuple(stream.replace("accesses=3000000", "accesses=1200000") for stream in run.arrivals)
        counted = run.accesses - fewer
        shorter = replace(run, arrivals=streams, accesses=counted, least_accesses=counted)
        short.append(_measured(replace(shorter, warm_up=run.warm_up - fewer)))
    survivor, alone = short
    assert survivor.stats[f"{TABLE}.slots.deleted"] == pytest.approx(63 * 64, rel=0.02)
    assert alone.stats[f"{TABLE}.slots.deleted"] == 0
    # Linear probing of the last quarter of a table that is three quarters full: 4.5 slots, four to a line.
    assert survivor.per_walk("walk.refs") == pytest.approx(1 + 3.5 / 4, abs=0.1)
    assert alone.per_walk("walk.refs") == pytest.approx(1.04, abs=0.02)


@pytest.mark.parametrize(("cycles", "holds"), [(90_000, True), (110_000, False)])
def test_one_table_is_judged_by_the_faults_of_processes(cycles: int, holds: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        radix = run.system == processes.RADIX
        stages = {f"fault.stage.{stage}.cycles": 640 for stage in ("walk", "install")}
        return {
            "layer.native.fault.tables": 6 * processes.COUNT if radix else 0,
            "fault.cycles": processes.COUNT * (100_000 if radix else cycles),
            **{f"{TABLE}.scan.{what}": 5_000_000 for what in ("lines", "deleted", "cycles")},
            **stages,
        }

    findings = _evaluated(processes.one_table_for_all, stats)
    assert [claim.holds for claim in findings.claims] == [holds] * len(processes.SIZES) * len(processes.SHARED)
    assert all(claim.ours for claim in findings.claims), "the paper speaks of allocations alone"
    made, worth, _ = findings.series
    assert made.values["1 MiB, radix", "page-table pages"] == 6
    assert set(worth.values.values()) == ({500} if holds else set())


@pytest.mark.parametrize("size", processes.SIZES)
def test_page_tables_of_a_process_follow_from_its_size(size: str) -> None:
    (run,) = [run for run in processes.runs() if run.key == (processes.PROCESSES, "radix", size) and run.seed == 1]
    few = tuple(stream.replace(f"count={processes.COUNT}", "count=3") for stream in run.arrivals)
    stats = _measured(replace(run, arrivals=few)).stats
    assert stats["layer.native.fault.tables"] == 3 * processes.tables_of(processes.SIZES[size])


def test_processes_with_one_table_make_none_and_are_scanned_once() -> None:
    (run,) = [run for run in processes.runs() if run.key == (processes.PROCESSES, "compact", processes.SCAN)]
    table = "system.layers.native.page_table.table_bytes=1MiB"
    stats = _measured(replace(run, settings=(*run.settings, table))).stats
    assert stats["arrivals.count"] == processes.COUNT
    assert stats["layer.native.fault.tables"] == 0
    assert (stats[f"{TABLE}.scan.count"], stats[f"{TABLE}.scan.lines"]) == (1, (1 << 20) // 64)


@pytest.mark.parametrize(("division", "free", "holds"), [(40, 28, True), (31, 19, False)])
def test_packing_is_judged_with_its_divisions(division: int, free: int, holds: bool) -> None:
    """A usual walk takes 32 cycles."""
    cycles = {packed.USUAL: 32, packed.PACKED: division, packed.FREE: free}

    def stats(run: Run) -> dict[str, int]:
        l1 = 100 if run.system == packed.USUAL else 120
        walks = 100 * cycles.get(run.system, 1)
        return {"walk.count": 100, "walk.cycles": walks, "walk.refs": 140, "walk.refs.l1": l1, "accesses": 100}

    findings = _evaluated(packed.ten_entries_per_line, stats)
    assert [claim.holds for claim in findings.claims] == [holds, True] * len(packed.PROGRAMS)
    assert all(claim.ours for claim in findings.claims), "the paper calls it difficult, without a cost"
    worth = findings.series[1]
    assert worth.values["mcf*", "cycles"] == pytest.approx((32 - free) / 3)


def test_a_division_delays_a_walk_and_nothing_else() -> None:
    by_system = {run.system: run for run in packed.runs() if run.workload == MCF.name}
    spec = "random:size=64MiB,accesses={accesses},init=pages"
    walks = {}
    for system in (packed.PACKED, packed.FREE):
        short = replace(by_system[system], spec=spec, accesses=20_000, least_accesses=20_000, warm_up=36_384)
        walks[system] = _measured(replace(short, settling_accesses=20_000)).stats
    usual, free = walks.values()
    assert usual["walk.refs"] == free["walk.refs"]
    more = packed.DIVISIONS * packed.DIVISION_CYCLES * usual["walk.count"]
    assert usual["walk.cycles"] - free["walk.cycles"] == more


def _run_in_phases(run: Run) -> Measurement:
    """A run whose walks take twice as long in its second half."""
    parts = tuple(
        {"accesses": 1000, "walk.count": 100, "walk.cycles": 100 * (10 if n < run.parts // 2 else 20)}
        for n in range(run.parts)
    )
    stats = {name: sum(part[name] for part in parts) for name in parts[0]}
    return Measurement(run, run.accesses, stats, parts)


def test_samples_spread_over_a_run_are_nearer_than_one_window() -> None:
    findings = Findings()
    spread.samples_of_a_run(Measurements(map(_run_in_phases, spread.runs())), findings)
    assert [claim.holds for claim in findings.claims] == [True] * len(spread.PROGRAMS) * len(whole.SYSTEMS)
    per_access, own, per_walk, _ = findings.series
    assert own.values["mcf*, radix", "have the whole run's figure, %"] == 100
    # 128 parts, half of them a third below the mean and half above.
    assert own.values["mcf*, radix", "half of the widest, %"] == pytest.approx(100 / 3 * 1.979 / 127**0.5, rel=0.01)
    for table in (per_access, per_walk):
        assert table.values["mcf*, radix", "one window"] == pytest.approx(100 * (10 / 15 - 1))
        assert abs(table.values["mcf*, radix", "samples, the worst and all"]) < 1


def test_samples_that_miss_what_is_rare_are_not_within_the_bound() -> None:
    def rare(run: Run) -> Measurement:
        one = _run_in_phases(run)
        costly = {**one.parts[0], "walk.cycles": 1_000_000}
        return replace(one, parts=(costly, *one.parts[1:]), stats={**one.stats, "walk.cycles": 1_535_000 + 999_000})

    findings = Findings()
    spread.samples_of_a_run(Measurements(map(rare, spread.runs())), findings)
    assert {claim.holds for claim in findings.claims} == {None}
    assert findings.series[1].values["mcf*, radix", "have the whole run's figure, %"] == 100 / 8


def test_samples_take_each_part_once_and_as_many_accesses_as_the_window() -> None:
    for run in spread.runs():
        (workload,) = [workload for workload in spread.PROGRAMS if workload.name == run.workload]
        one = _run_in_phases(run)
        samples = spread.of_samples(workload, one)
        assert sum(map(len, samples)) == spread.PARTS
        in_window = len(spread.of_window(workload, one))
        assert all(len(sample) == pytest.approx(in_window, rel=0.06) for sample in samples)


def test_a_run_is_counted_in_as_many_parts_as_it_says() -> None:
    run = next(run for run in spread.runs() if run.workload == MCF.name)
    small = run.spec.replace("size=1024MiB", "size=4MiB")
    short = replace(run, spec=small, accesses=65_536, least_accesses=65_536, warm_up=1024, settings=(), parts=16)
    one = _measured(short)
    assert len(one.parts) == 16
    assert sum(part["walk.cycles"] for part in one.parts) == one.stats["walk.cycles"]


def test_the_study_can_be_planned() -> None:
    runs = unquantified.runs()
    assert all(unquantified.cost(run).window > 0 for run in runs)
    assert len({(run.key, run.seed) for run in runs}) == len(runs)
    empty = unquantified.evaluate(Measurements([]))
    assert "4 of 4 sections wait for others" in empty.incomplete[0]
