"""Hashed tables after exits, without MMU caches, in bytes, and MMU caches that cores share: by made-up figures."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from pagelab_studies import hash_dont_cache_exits as exits
from pagelab_studies import hash_dont_cache_shared as shared
from pagelab_studies import hash_dont_cache_space as space
from pagelab_studies import hash_dont_cache_variants as variants
from pagelab_studies import study
from pagelab_studies.study import Findings, Measurement, Measurements, Run

Section = Callable[[Measurements, Findings], None]


def _evaluated(section: Section, stats: Callable[[Run], Mapping[str, int]]) -> Findings:
    """What a section says if all runs of the study counted this."""
    findings = Findings()
    made = [Measurement(run, run.accesses, counted, (counted,) * study.PARTS) for run, counted in _counted(stats)]
    section(Measurements(made), findings)
    return findings


def _counted(stats: Callable[[Run], Mapping[str, int]]) -> list[tuple[Run, Mapping[str, int]]]:
    return [(run, stats(run)) for run in variants.REPRODUCTION.runs()]


@pytest.mark.parametrize(("unmapped", "mapped"), [(True, True), (True, False), (False, True)])
def test_searches_after_exits_are_judged_by_what_they_are_for(unmapped: bool, mapped: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        after = run.label == exits.AFTER
        refs = {"walk.aborted.refs": 1100 + 100 * (after and unmapped), "walk.refs": 2200 + 50 * (after and mapped)}
        table = "layer.native.page_table"
        slots = {f"{table}.slots": 4096, f"{table}.slots.deleted": 9, f"{table}.scan.deleted": 10}
        return {"walk.aborted.count": 1000, "walk.count": 2000, **refs, **slots, f"{table}.scan.cycles": 640 * after}

    findings = _evaluated(exits.deleted_slots, stats)
    assert [claim.holds for claim in findings.claims] == [unmapped, mapped] * len(exits.SYSTEMS)
    references, counts = findings.series
    assert references.values[f"open, {exits.CONTROL}", "mapped"] == 1.1
    assert counts.values[f"open, {exits.AFTER}", "cycles of the scan per process"] == 10
    assert counts.values[f"open, {exits.CONTROL}", "searches, not mapped"] == 1000


def test_control_differs_by_the_processes_that_ended() -> None:
    runs = [run for run in exits.runs() if run.seed == exits.SEEDS[0]]
    for design in exits.SYSTEMS:
        after, control = (run for run in runs if run.system == design)
        assert (after.label, control.label) == (exits.AFTER, exits.CONTROL)
        assert after.settings == control.settings
        assert after.arrivals[1:] == control.arrivals
        assert control.warm_up == 0


def test_a_scan_marks_the_slots_of_processes_that_ended_before_the_program() -> None:
    """64 processes of 256 KiB and a program of 8 MiB: the window is the program's, and has the marks."""
    (run,) = [run for run in exits.runs() if run.key == (exits.EXITS, "open", exits.AFTER) and run.seed == 1]
    small = [stream.replace("size=16MiB", "size=256KiB").replace("size=512MiB", "size=8MiB") for stream in run.arrivals]
    settings = ("system.layers.native.page_table.table_bytes=2MiB", *run.settings[1:])
    short = replace(run, arrivals=tuple(small), settings=settings, warm_up=64 * 64)
    reproduction = replace(variants.REPRODUCTION, runs=lambda: [short])
    (one,) = study.measure(reproduction, 1, lambda _: True, study.Watch()).all()
    assert one.stats["accesses"] == run.accesses
    assert one.stats["walk.aborted.count"] == pytest.approx(2048, abs=8), "the program's first touches alone"
    assert one.stats["layer.native.page_table.scan.deleted"] >= 64 * 64


@pytest.mark.parametrize("less", [True, False])
def test_tables_without_mmu_caches_are_judged_by_their_walks(less: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        radix = run.preset.startswith("radix")
        cycles = 4000 if radix is less else 2000
        return {
            "accesses": 1000,
            "walk.count": 100,
            "walk.refs": 400 if radix else 110,
            "walk.cycles": cycles,
            "cycles.base": 1000,
            "cycles.data_stall": 0,
            "cycles.translation": cycles,
        }

    findings = _evaluated(space.without_mmu_caches, stats)
    assert [claim.holds for claim in findings.claims] == [less] * 2 * len(space.PROGRAMS)
    (table,) = findings.series
    assert {table.values[workload.name, "radix: references of a walk"] for workload in space.PROGRAMS} == {4}


@pytest.mark.parametrize(("frames", "less"), [(514, True), (30_000, False)])
def test_bytes_of_radix_tables_are_those_that_faults_make(frames: int, less: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        slots = dict(zip((workload.name for workload in space.MODELLED), (524_288, 196_608), strict=True))
        return {
            "layer.native.fault.tables": frames,
            "layer.native.page_table_frames": 6144,
            "layer.native.page_table.slots": slots.get(run.workload, 0),
        }

    findings = _evaluated(space.space, stats)
    assert [claim.holds for claim in findings.claims] == [less]
    assert findings.series[0].values["mcf*", "chained"] == 96
    assert [row.ours for row in findings.comparisons] == [1.5625, 1.5625]


@pytest.mark.parametrize(
    ("later", "at_once", "close", "hits"),
    # Perfect ones save 100 cycles of a walk of 200.
    [(110, 105, True, True), (125, 110, None, True), (150, 125, False, False)],
)
def test_a_shared_cache_is_judged_over_the_cost_of_its_look_up(
    later: int, at_once: int, close: bool | None, hits: bool
) -> None:
    cycles = {"radix": 200, "perfect": 100, shared.BOTH: later, f"{shared.BOTH}, no cycle more": at_once}

    def stats(run: Run) -> dict[str, int]:
        refs = 150 if run.system == shared.SHARED_ALONE and hits else 200
        return {"accesses": 1000, "walk.count": 100, "walk.refs": refs, "walk.cycles": 10 * cycles.get(run.system, 180)}

    findings = _evaluated(shared.coalesced_and_shared, stats)
    assert [claim.holds for claim in findings.claims] == [close, hits] * len(shared.PROGRAMS)


def test_threads_that_share_a_cache_have_a_core_each() -> None:
    for run in shared.runs():
        assert ",threads=6" in run.spec
        assert run.spec.endswith("@0,2,4,6,8,10")
        entries = [setting for setting in run.settings if "shared_by_cores" in setting]
        assert len(entries) == ("shared" in run.system)
