"""Hashed tables without MMU caches, in bytes and whole runs, and shared MMU caches: by made-up figures."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from pagelab_studies import hash_dont_cache_changes as changes
from pagelab_studies import hash_dont_cache_conflicts as conflicts
from pagelab_studies import hash_dont_cache_guests as guests
from pagelab_studies import hash_dont_cache_shared as shared
from pagelab_studies import hash_dont_cache_space as space
from pagelab_studies import hash_dont_cache_sparse as sparse
from pagelab_studies import hash_dont_cache_variants as variants
from pagelab_studies import hash_dont_cache_whole as whole
from pagelab_studies import study
from pagelab_studies.hash_dont_cache_runs import CACTUS, CLUSTERS, MCF
from pagelab_studies.study import Findings, Measurement, Measurements, Run

Section = Callable[[Measurements, Findings], None]


def _evaluated(
    section: Section, stats: Callable[[Run], Mapping[str, int]], of_study: study.Reproduction = variants.REPRODUCTION
) -> Findings:
    """What a section says if all runs of the study counted this."""
    findings = Findings()
    counted = [(run, stats(run)) for run in of_study.runs()]
    section(
        Measurements([Measurement(run, run.accesses, each, (each,) * study.PARTS) for run, each in counted]), findings
    )
    return findings


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
    papers = [claim.text for claim in findings.claims if not claim.ours]
    assert len(papers) == len(space.PROGRAMS)
    assert all("(compact)" in text for text in papers), "the paper calls the chained table flawed"
    (table,) = findings.series
    assert {table.values[workload.name, "radix: references of a walk"] for workload in space.PROGRAMS} == {4}


def test_bytes_of_radix_tables_are_those_that_faults_make() -> None:
    def stats(run: Run) -> dict[str, int]:
        slots = dict(zip((workload.name for workload in space.MODELLED), (524_288, 196_608), strict=True))
        return {
            "layer.native.fault.tables": 514,
            "layer.native.page_table_frames": 6144,
            "layer.native.page_table.slots": slots.get(run.workload, 0),
        }

    findings = _evaluated(space.space, stats)
    assert not findings.claims, "by construction"
    assert findings.series[0].values["mcf*", "radix"] == 514 / 64
    assert findings.series[0].values["mcf*", "chained"] == 96
    assert [row.ours for row in findings.comparisons if row.unjudged] == [1.5625, 1.5625]


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


@pytest.mark.parametrize(("off", "holds"), [(1.04, True), (1.06, False), (1.0, True)])
def test_windows_are_judged_by_whole_runs(off: float, holds: bool) -> None:
    """A walk takes 100 cycles in whole runs; hashed tables save half of the walks' cycles."""

    def stats(run: Run) -> dict[str, int]:
        cycles = round(100_000 * (off if run.label == whole.WINDOW else 1) / (2 if "hashed" in run.preset else 1))
        spent = {"cycles.base": 100_000, "cycles.translation": cycles}
        return {"accesses": 10_000, "walk.count": 1000, "walk.cycles": cycles, **spent}

    findings = _evaluated(whole.windows_and_whole_runs, stats, changes.REPRODUCTION)
    assert [claim.holds for claim in findings.claims] == [holds] * len(whole.ENDING) * len(whole.SYSTEMS)
    assert all(claim.ours for claim in findings.claims), "the paper's samples are many short ones"
    cycles, gains = findings.series
    assert cycles.values[f"{MCF.name}, radix", whole.WHOLE] == 100
    assert gains.values[f"{MCF.name}, virtual", whole.WHOLE] == 25
    assert gains.values[f"{MCF.name}, virtual", whole.WINDOW] == pytest.approx(100 * off / 2 / (1 + off))


def _only(run: Run) -> study.Reproduction:
    return replace(changes.REPRODUCTION, runs=lambda: [run])


def test_a_whole_run_has_the_accesses_that_it_says() -> None:
    """A small one of each: what is counted begins after the touches and ends with the program."""
    for name, (workload, spec, accesses) in whole.ENDING.items():
        if name == whole.GRAPH.name:
            continue
        run = next(run for run in whole.runs() if run.workload == name and run.label == whole.WHOLE)
        small = spec.replace("size=128MiB", "size=1MiB").replace("size=1024MiB", "size=1MiB")
        share = workload.footprint >> 20
        small = small.replace(f"updates={accesses // 2}", f"updates={accesses // 2 // share}")
        short = replace(run, spec=small, warm_up=run.warm_up // share, accesses=accesses // share, settings=())
        (one,) = study.measure(_only(short), 1, lambda _: True, study.Watch()).all()
        assert one.stats["accesses"] == accesses // share
        assert one.stats["fault.minor.count"] == 0


def test_bytes_of_sparse_memory_have_no_verdict() -> None:
    def stats(run: Run) -> dict[str, int]:
        radix, hashed = (8, 9) if run.label == "2 MiB" else (1, 2)
        return {"layer.native.fault.tables": radix, "layer.native.page_table_frames": hashed}

    findings = _evaluated(sparse.bytes_per_page, stats, changes.REPRODUCTION)
    assert not findings.claims, "by construction"
    assert findings.series[0].values["2 MiB", "radix"] == 8 * 4096 / sparse.PAGES
    assert findings.series[0].values["4 KiB", "compact"] == 2 * 4096 / sparse.PAGES


@pytest.mark.parametrize(("apart", "holds"), [(3030, True), (3060, False)])
def test_independent_hash_functions_are_judged_by_references(apart: int, holds: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        return {"walk.count": 1000, "walk.refs": apart if guests.APART in run.label else 3020, "walk.cycles": 30_000}

    findings = _evaluated(guests.independent_functions, stats, changes.REPRODUCTION)
    assert [claim.holds for claim in findings.claims] == [holds] * len(guests.BOTH_WAYS)
    settings = [run.settings for run in changes.runs() if guests.APART in run.label]
    seeds = [[setting.split("=")[1] for setting in each if ".seed=" in setting] for each in settings]
    assert all(guest != host for guest, host in seeds)


@pytest.mark.parametrize(("step", "holds"), [(20, True), (0, False)])
def test_fig_9_is_judged_by_cycles_and_by_what_misses_the_l1(step: int, holds: bool) -> None:
    def stats(run: Run) -> dict[str, int]:
        larger = next((n for n, size in enumerate(CLUSTERS) if f"cluster {size}," in run.label), 0)
        served = {f"walk.layer.host.level1.refs.{place}": 400 - step * larger for place in ("l2", "l3")}
        return {"walk.count": 1000, "walk.cycles": 30_000 - step * larger, **served}

    findings = _evaluated(guests.lines_of_the_host, stats, changes.REPRODUCTION)
    assert [claim.holds for claim in findings.claims] == [holds, holds]
    assert findings.claims[1].detail.startswith(f"0.8, {0.8 - step / 500:.4g}, ")


@pytest.mark.parametrize(("in_pieces", "unused"), [(80, 120), (120, 80)])
def test_designs_are_judged_in_each_state_of_memory(in_pieces: int, unused: int) -> None:
    """Radix walks take 100 cycles; perfect MMU caches and hashed tables take more in one of the states."""

    def stats(run: Run) -> dict[str, int]:
        design = run.system.removeprefix("nested ") != "radix"
        cycles = (in_pieces if conflicts.AGED in run.label else unused) if design else 100
        return {"accesses": 100, "walk.cycles": 100 * cycles, "walk.refs": 300, "walk.count": 100}

    findings = _evaluated(conflicts.states_of_memory, stats, changes.REPRODUCTION)
    verdicts = {claim.text: claim.holds for claim in findings.claims}
    assert len(verdicts) == 6, "one placement decides nothing"
    assert all(holds is ((in_pieces if conflicts.AGED in text else unused) < 100) for text, holds in verdicts.items())
    table = findings.series[0]
    assert table.values[conflicts.AGED, "virtual hashed"] == pytest.approx(100 - in_pieces)
    sizes = {
        setting
        for run in changes.runs()
        if run.workload == CACTUS.name and run.system == "nested hashed"
        for setting in run.settings
        if "host.page_table.table_bytes" in setting
    }
    assert len(sizes) == 1, "one thing is changed"


def test_strides_are_drawn_and_shown_by_their_cost() -> None:
    assert len(set(conflicts.strides())) == conflicts.STRIDES
    assert all(stride % 8 == 0 and 64 << 10 <= stride <= 32 << 20 for stride in conflicts.strides())
    worst = conflicts.strides()[3]

    def stats(run: Run) -> dict[str, int]:
        conflicting = run.label == f"stride {worst}" and run.system != "hashed"
        return {"accesses": 100, "walk.cycles": 900 if conflicting else 200, "walk.refs": 110, "walk.count": 100}

    findings = _evaluated(conflicts.drawn_strides, stats, changes.REPRODUCTION)
    assert [findings.series[0].values[system, "most"] for system in ("radix", "hashed")] == [9, 2]
    assert findings.series[0].values["radix", "second most"] == 2
    assert (
        _evaluated(conflicts.one_table, stats, changes.REPRODUCTION).series[0].values["GUPS 2GB", "references"] == 1.1
    )
