"""The reproduction of hardware-based demand paging."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from conftest import ROOT

import pagelab
from pagelab.results.headline import user_cycles
from pagelab_studies import hardware_demand_paging as paper
from pagelab_studies import hardware_demand_paging_events as events
from pagelab_studies import hardware_demand_paging_lsm as lsm
from pagelab_studies import hardware_demand_paging_misses as counted
from pagelab_studies import hardware_demand_paging_refills as refills
from pagelab_studies import hardware_demand_paging_runs as planned
from pagelab_studies import shipped, study, verdicts
from pagelab_studies.interval import Interval

RUNS = planned.runs()


def _preset(kind: str, name: str) -> dict[str, object]:
    return tomllib.loads((ROOT / "presets" / kind / f"{name}.toml").read_text())


@pytest.mark.parametrize("name", ["osdp", "hwdp"])
def test_costs_of_requests_are_those_of_the_preset(name: str) -> None:
    kernel = _preset("systems", name)["kernel"]
    assert isinstance(kernel, dict)
    costs = {
        part: (row["instructions"], row["cycles"]) for part, row in kernel["block_io"].items() if isinstance(row, dict)
    }
    assert costs == planned.BLOCK_IO
    assert kernel["block_io"]["lines"] == planned.LINES
    assert kernel["storage"] == planned.DRIVE


def test_up_to_eight_threads_have_a_core_each() -> None:
    machine = _preset("machines", paper.REPRODUCTION.machine)
    cores, siblings = machine["cores"], machine["threads_per_core"]
    assert isinstance(cores, int)
    assert isinstance(siblings, int)
    for threads, text in planned.CPUS.items():
        parts = [part.split("-") for part in text.split(",")]
        cpus = [cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)]
        used = {cpu // siblings for cpu in cpus}
        assert len(cpus) == threads
        assert len(used) == min(threads, cores) if threads != 14 else len(used) == 7
    assert {run.spec.rsplit("@", 1)[1] for run in RUNS if run.workload == planned.READS} == set(planned.CPUS.values())


def test_sources_have_the_accesses_of_window_and_warm_up() -> None:
    for run in RUNS:
        assert "accesses={total}" in run.spec, run
        assert run.window(0.5) == run.accesses / 2
        assert (run.warm_up > 0) == (run.workload != planned.MISSES), "single misses are cold"


def test_both_ways_differ_by_the_system_alone() -> None:
    pairs: dict[tuple[str, str], list[study.Run]] = {}
    for run in RUNS:
        if run.label.startswith((*planned.FACTORS, planned.INTRODUCTION)):
            pairs.setdefault((run.workload, run.label), []).append(run)
    for kernel, unit in pairs.values():
        assert (kernel.system, unit.system) == ("kernel", "unit")
        assert (kernel.spec, kernel.settings, kernel.warm_up) == (unit.spec, unit.settings, unit.warm_up)


def _window(run: study.Run, **stats: int) -> study.Measurement:
    counted = {"accesses": 1000, "layer.native.storage.reads.blocks": 100, "reclaim.files.dropped": 90}
    return study.Measurement(run, 1000, counted | {name.replace("__", "."): value for name, value in stats.items()})


def test_a_window_without_reclaim_or_with_fewer_accesses_is_refused() -> None:
    assert paper.REPRODUCTION.check is planned.check
    run = next(run for run in RUNS if run.workload == planned.STORE)
    planned.check(_window(run))
    with pytest.raises(
        pagelab.UsageError, match=r"100 pages that were read and 40 that reclaim dropped: memory was not"
    ):
        planned.check(_window(run, reclaim__files__dropped=40))
    with pytest.raises(pagelab.UsageError, match="0 pages that were read"):
        planned.check(_window(run, layer__native__storage__reads__blocks=0))
    with pytest.raises(pagelab.UsageError, match="999 only: its source ended before"):
        planned.check(_window(run, accesses=999))
    cold = next(run for run in RUNS if run.workload == planned.MISSES)
    planned.check(_window(cold, reclaim__files__dropped=0))


def test_a_study_s_runs_are_checked() -> None:
    run = next(run for run in RUNS if run.workload == planned.STORE)
    short = replace(run, spec="btree:records=10K,mix=c,accesses={total}@0", warm_up=1000, accesses=5000, label="short")
    made = replace(paper.REPRODUCTION, runs=lambda: [replace(short, least_accesses=1)])
    with pytest.raises(pagelab.UsageError, match="memory was not full"):
        study.measure(made, 1.0, lambda _: True, study.Watch())


def _translation(stats: Mapping[str, int]) -> int:
    """What the second-level TLB and walks cost: each miss of the first level waits for the second."""
    look_ups = sum(stats[f"{tlb}.l1.{kind}"] for tlb in ("dtlb", "itlb") for kind in ("misses", "retries"))
    latency = tomllib.loads((ROOT / "presets/machines/broadwell-e5-2640v3.toml").read_text())["tlb"][
        "l2_latency_cycles"
    ]
    return stats["walk.cycles"] + stats["walk.aborted.cycles"] + int(latency) * look_ups


@pytest.mark.parametrize("system", list(planned.SYSTEMS))
def test_the_unit_s_steps_are_no_cycles_of_the_program(system: str) -> None:
    spec, machine = "mapped-read:size=64MiB,accesses=100K", paper.REPRODUCTION.machine
    stats = pagelab.run(spec, planned.SYSTEMS[system], machine=machine).systems[0].stats
    rest = user_cycles(stats) - stats["cycles.base"] - stats["cycles.data_stall"]
    assert rest == _translation(stats)


@pytest.fixture(scope="module")
def misses() -> study.Measurements:
    labels = [f"{word}, one thread" for word in (*planned.FACTORS, planned.INTRODUCTION)]
    return study.measure(paper.REPRODUCTION, 0.2, lambda run: run.label in labels, study.Watch())


def test_a_part_of_the_runs_gives_a_part_of_the_report(misses: study.Measurements) -> None:
    findings = paper.evaluate(misses)
    assert "sections wait for others" in findings.incomplete[0]
    (claim,) = findings.claims
    assert claim.holds
    assert {row.figure for row in findings.comparisons} == {"Page miss"}


def test_results_say_how_many_misses_there_were(misses: study.Measurements) -> None:
    paper.evaluate(misses)
    for measurement, read in misses.with_read():
        pages = read["layer.native.storage.reads.blocks"]
        # Some pages are read twice.
        assert 0.95 * measurement.window < pages <= measurement.window
        engine = "layer.native.fault_engine"
        assert pages == (read[f"{engine}.mapped"] if measurement.run.system == "unit" else read["fault.major.count"])
        assert {"reclaim.files.dropped", "kthread.cycles", "accesses"} <= read.keys()
        assert (f"{engine}.kpted.pages" in read) == (measurement.run.system == "unit")


def test_stages_and_steps_are_all_there_are(misses: study.Measurements) -> None:
    for measurement in misses.all():
        # The kernel switches to another task while the drive works.
        stages = {f"fault.stage.{stage}.cycles" for stage in (*paper.STAGES, "switch")}
        named = {name for name in measurement.stats if name.startswith("fault.stage.")}
        assert stages == {name for name in named if name.endswith(".cycles")}
        if measurement.run.system == "unit":
            step = "layer.native.fault_engine.step."
            steps = {f"{step}{name}.cycles" for name in paper.UNIT_STEPS}
            assert steps == {name for name in measurement.stats if name.startswith(step)}


def _faked(misses: study.Measurements) -> study.Measurements:
    """All runs, with what a single miss counted. The unit is twice as fast, but slower where 16 threads read at a
    quarter of the costs, and less so for the log-structured store; the program's data wait less. Drives differ in
    the latency of a miss."""
    made = []
    for run in RUNS:
        word = "quarter" if run.label.startswith("quarter") else "measured"
        stats = dict(misses[planned.MISSES, run.system, f"{word}, one thread"].stats)
        slow = run.label == "quarter, 16 threads"
        unit = 1_400_000 if slow else 800_000 if run.workload == planned.LSM else 500_000
        stats["elapsed_cycles"] = 1_000_000 if run.system == "kernel" else unit
        stats["reclaim.files.dropped"] = 7
        stats["cycles.data_stall"] = 10**9 if run.system == "kernel" else 9 * 10**8
        # The faster the drive, the shorter the miss, of which the kernel's part remains.
        slower = {"disk": 100, "tlc-flash": 2, "cxl-memory": 0.5}.get(run.label.rpartition(", ")[2], 1)
        stats["fault.major.latency.cycles"] = round(slower * stats["fault.major.latency.cycles"])
        # The unit's walks all end in a miss; a part without a completed walk would decide nothing.
        stats["walk.count"] += 1
        # With the kernel's costs at a quarter, the program misses the second level as often either way.
        stats["l1d.misses.data"], stats["l2.misses.data"] = 1000, 1000
        if run.system == "unit":
            stats["l1d.misses.data"] = 800
            stats["l2.misses.data"] = 800 if word == "measured" else 1000
        if run.system == "unit":
            # Mix F has as many without kpoold, and so has mix C with other settings.
            others = "without" in run.label or (run.workload == planned.LSM and "mix f" in run.label)
            changed = not run.label.startswith(("measured", "without"))
            stats["layer.native.fault_engine.empty"] = 100 if others or changed else 25
        made.append(study.Measurement(run, 1, stats, (stats, stats) if run.in_parts else ()))
    return study.Measurements(made)


def test_each_number_of_threads_has_a_verdict_of_its_own(misses: study.Measurements) -> None:
    findings = paper.evaluate(_faked(misses))
    assert not findings.incomplete
    reads = [claim for claim in findings.claims if "random reads per second" in claim.text]
    verdicts = {int(claim.text.split("(")[1].split()[0]): claim.holds for claim in reads}
    assert verdicts == {threads: None if threads == 16 else True for threads in planned.CPUS}
    assert [claim.text.split("(")[1].split()[0] for claim in reads if claim.ours] == ["14", "16"]
    others = {
        claim.text: claim.holds for claim in findings.claims if claim not in reads and claim.figure != "Free pages"
    }
    assert others == dict.fromkeys(others, True)
    on_lsm, on_btree = [row for row in findings.comparisons if "IPC" in row.quantity]
    assert [on_lsm.item, on_btree.item] == ["YCSB-C, LSM tree", "YCSB-C, B+tree"]
    assert [on_lsm.unjudged, on_btree.unjudged] == ["", planned.OTHER_STORE]
    assert [on_lsm.unsized, on_btree.unsized] == [planned.OTHER_CORE, ""]
    for ipc in (on_lsm, on_btree):
        assert ipc.interval is not None
        assert 0 < ipc.interval.low <= ipc.ours <= ipc.interval.high
    by_drive = next(series for series in findings.series if series.title == "What the unit gains, by drive")
    assert by_drive.groups == planned.DRIVES
    assert by_drive.values[planned.DRIVES[1], "YCSB-C does more"] == 100
    shift = next(series for series in findings.series if series.figure == "Bottleneck shift")
    shares = [shift.intervals[drive, paper.KERNELS] for drive in paper.BY_SPEED]
    assert shares[0].high < 5, "a disk takes a hundred times as long"
    # A miss of half the time has twice the share.
    assert shares[-1].low == pytest.approx(2 * shares[-2].low)
    for drive in planned.DRIVES:
        parts = sum(shift.values[drive, part] for part in paper.PARTS)
        assert parts == pytest.approx(shift.values[drive, paper.KERNELS])
        assert parts + shift.values[drive, "drive"] == pytest.approx(100)
    reclaim = next(series for series in findings.series if series.figure == "Reclaim")
    assert reclaim.values["random reads, 4 threads", "unit: dropped"] == 7


def test_refills_are_judged_by_mix_and_by_change(misses: study.Measurements) -> None:
    findings = study.Findings()
    refills.section(_faked(misses), findings)
    assert [(row.item, row.ours, row.paper) for row in findings.comparisons] == [
        *((f"YCSB-{mix}", 75, 78) for mix in "ABCDE"),
        ("YCSB-F", 0, None),
    ]
    assert {verdicts.printed_in_words(row) for row in findings.comparisons[:5]} == {"44 to 78 %"}
    papers = [(claim.text.rpartition("(")[2], claim.holds) for claim in findings.claims if not claim.ours]
    assert papers == [(f"YCSB-{mix}, 1 thread)", True) for mix in "ABCDE"]
    assert "25 and 25 misses of mix C still find the queue empty with 4 and 8 threads" in findings.notes[0]
    by_mix = next(series for series in findings.series if series.title == refills.BY_MIX)
    assert {member: by_mix.values["YCSB-A", member] for member in by_mix.members} == {
        refills.PRESET: 75,
        planned.SHORT: 0,
    }
    questions = {claim.text: claim.holds for claim in findings.claims if claim.ours}
    changes = [*planned.QUEUES, *planned.BATCHES, *planned.PERIODS]
    places = ["YCSB-F, 1 thread", *(f"YCSB-C, {change}" for change in changes)]
    assert questions == {f"kpoold reduces synchronous refills ({where})": None for where in places}


def test_runs_of_refills_differ_by_one_setting() -> None:
    engine = "system.layers.native.fault_engine."
    preset = _preset("systems", "hwdp")["layers"][0]["fault_engine"]  # type: ignore[index]
    runs = {run.label: run for run in RUNS if run.workload == planned.LSM and run.system == "unit"}
    usual = runs["measured, mix c"]
    for change in (*planned.QUEUES, *planned.BATCHES, *planned.PERIODS):
        run = runs[f"{change}, mix c"]
        assert (run.spec, run.warm_up, run.accesses) == (usual.spec, usual.warm_up, usual.accesses)
        ((name, value),) = [one.split("=") for one in run.settings if one not in usual.settings]
        assert preset[name.removeprefix(engine)] != int(value)
        if change not in planned.PERIODS:
            without = runs[f"without kpoold, {change}, mix c"]
            assert set(without.settings) == {*run.settings, planned.NO_KPOOLD}


def test_a_range_has_all_factors_and_the_introduction_s_point_is_none_of_them(misses: study.Measurements) -> None:
    findings = study.Findings()
    made = _faked(misses)
    events.section(made, findings)
    fewer = next(one for one in findings.series if one.title == events.fewer_title(planned.LSM))
    bounds = [(one.low, one.high) for one in (fewer.intervals[f"L{n} misses, data", events.FEWER] for n in (1, 2))]
    assert bounds == [pytest.approx((20, 20)), pytest.approx((0, 20))]
    slower = [
        replace(one, stats={**one.stats, "elapsed_cycles": 9_000_000})
        if one.run.label.startswith(planned.INTRODUCTION) and one.run.system == "unit"
        else one
        for one in made.all()
    ]
    verdicts, points = [], []
    for all_runs in (made.all(), slower):
        whole = paper.evaluate(study.Measurements(all_runs))
        verdicts.append([(claim.text, claim.holds) for claim in whole.claims])
        table = next(series for series in whole.series if series.title == paper.INTRODUCTION_TITLE)
        points.append(table.values["random reads, 1 thread", f"a factor of {planned.INTRODUCTION_FACTOR:g}"])
    assert verdicts[0] == verdicts[1]
    assert points[1] < 0 < points[0]


def test_the_introduction_s_factor_gives_the_introduction_s_part() -> None:
    document = shipped.read(ROOT / "docs" / "reproductions" / "hardware-demand-paging")
    table = next(one for one in shipped.series(document) if one.title == paper.INTRODUCTION_TITLE)
    part = table.values["kernel's part, of the drive's time", f"a factor of {planned.INTRODUCTION_FACTOR:g}"]
    assert part == pytest.approx(planned.PAPER_PART, abs=0.2)


def _timed(cycles: Mapping[tuple[str, str], int]) -> study.Measurements:
    """All runs of stores and of random reads by one thread, with so many cycles by workload and system."""
    wanted = [run for run in RUNS if run.label.startswith(tuple(planned.FACTORS))]
    wanted = [run for run in wanted if run.workload in (planned.LSM, planned.STORE, planned.READS)]
    return study.Measurements(
        study.Measurement(run, 1000, stats, (stats, stats))
        for run in wanted
        for stats in ({"elapsed_cycles": cycles[run.workload, run.system], "walk.count": 1},)
    )


def test_a_log_structured_store_is_judged_by_threads_and_beside_the_others() -> None:
    cycles = {(name, "kernel"): 1500 for name in (planned.LSM, planned.STORE, planned.READS)}
    cycles |= {(planned.LSM, "unit"): 1200, (planned.STORE, "unit"): 1000, (planned.READS, "unit"): 1000}
    findings = study.Findings()
    lsm.section(_timed(cycles), findings)
    assert [(row.item, row.ours) for row in findings.comparisons] == [("YCSB-C, LSM tree", 25.0)]
    both = findings.series[0].values
    assert both["YCSB-C: zipf, 100:0", "LSM tree"] == 25.0
    assert both["YCSB-C: zipf, 100:0", "B+tree"] == 50.0
    assert [claim.holds for claim in findings.claims] == [True] * (len(planned.LSM_THREADS) + len(planned.STORES))
    assert [claim.text.rpartition("(")[2] for claim in findings.claims if claim.ours] == ["YCSB-F, 1 thread)"]
    slower = study.Findings()
    lsm.section(_timed(cycles | {(planned.LSM, "unit"): 1600, (planned.READS, "unit"): 1600}), slower)
    assert [claim.holds for claim in slower.claims] == [False] * len(slower.claims)
    assert {len(series.values) for series in findings.series} == {2 * len(planned.STORES), len(planned.LSM_THREADS) + 1}


def test_a_log_structured_store_executes_as_many_instructions_as_rocksdb() -> None:
    for run in RUNS:
        if run.workload == planned.LSM and run.label.startswith("measured, mix"):
            mix = run.label.split()[2].rstrip(",")
            instructions, accesses = planned.PER_OPERATION[mix]
            assert f",gap={instructions / accesses:.0f}," in run.spec
            assert ("bloom=10" in run.spec) == run.label.endswith("filters")
    spec = "lsm:records=65536,memtable=64MiB,table=64MiB,bloom=0,level0=0,mix=c,operations=2000"
    stats = pagelab.run(spec, "radix").systems[0].stats
    assert stats["accesses"] / 2000 == pytest.approx(planned.PER_OPERATION["c"][1], rel=0.01)


def test_a_shift_needs_a_larger_share_at_each_step(misses: study.Measurements) -> None:
    made = _faked(misses).all()
    changed = [
        replace(one, stats={**one.stats, "fault.major.latency.cycles": 10 * one.stats["fault.major.latency.cycles"]})
        if one.run.workload == planned.MISSES and one.run.label == "measured, one thread"
        else one
        for one in made
    ]
    verdicts = [
        [
            claim.holds
            for claim in paper.evaluate(study.Measurements(all_runs)).claims
            if claim.figure == "Bottleneck shift"
        ]
        for all_runs in (made, changed)
    ]
    assert verdicts == [[True, True, True], [None, True, True]]


@pytest.mark.parametrize(
    ("kept", "without", "low", "high"),
    # 1.96 · √(1/25 + 1/100) is 0.438: the ratio of 0.25 lies between 0.161 and 0.387.
    [(25, 100, 61.3, 83.9), (100, 100, -31.9, 24.2), (0, 400, 98.0, 100.0)],
)
def test_few_refills_have_a_wide_interval(kept: int, without: int, low: float, high: float) -> None:
    interval = refills.fewer(kept, without)
    assert interval.value == 100 * (1 - kept / without)
    assert [interval.low, interval.high] == pytest.approx([low, high], abs=0.1)


@pytest.mark.parametrize(
    ("place", "faults", "holds"),
    [
        ((planned.LSM, "mix a"), (40, 40), True),
        ((planned.LSM, "mix a"), (40, 70), None),
        ((planned.READS, "8 threads"), (70, 60), False),
        ((planned.LSM, "mix f"), (70, 70), True),
        ((planned.STORE, "mix a"), (70, 70), True),
    ],
)
def test_hardware_handles_most_misses_if_it_serves_over_half_in_each_window(
    place: tuple[str, str], faults: tuple[int, int], holds: bool | None
) -> None:
    """Mix F and the B+tree are none of the slides'."""
    at_factor = dict(zip(planned.FACTORS, faults, strict=True))
    made = []
    for run in RUNS:
        word, _, label = run.label.partition(", ")
        kernels = at_factor.get(word, 0) if (run.workload, label) == place else 0
        stats = {"layer.native.fault_engine.mapped": 100 - kernels, "fault.major.count": kernels}
        made.append(study.Measurement(run, 1, stats))
    findings = study.Findings()
    counted.served(study.Measurements(made), findings)
    assert [(claim.holds, claim.ours) for claim in findings.claims] == [(holds, False)]
    share = findings.series[0].intervals[", ".join(place), "served"]
    assert (share.low, share.value, share.high) == (100 - max(faults), 100 - faults[1], 100 - min(faults))


def _missed(unit_reads: int) -> study.Findings:
    """The kernel reads 100 pages in 2000 cycles; the unit's window takes 1000, and each of its misses 5."""
    engine = "layer.native.fault_engine"
    made = []
    for run in RUNS:
        reads, cycles = (100, 2000) if run.system == "kernel" else (unit_reads, 1000)
        stats = {counted.READ: reads, "elapsed_cycles": cycles, f"{engine}.mapped": 10, f"{engine}.latency.cycles": 50}
        made.append(study.Measurement(run, 1, stats))
    findings = study.Findings()
    counted.section(study.Measurements(made), findings)
    gains = {place: Interval(-1.0, 100.0, 120.0) for _, _, _, place, _, _ in counted.JUDGED}
    findings.series += [
        study.Series.within("Throughput", title, "%", {key: one for key, one in gains.items() if key[1] in members})
        for title, members in ((counted.READS_TITLE, ("gain",)), (lsm.STORES_TITLE, ("B+tree", "LSM tree")))
    ]
    counted.at_equal_misses(findings)
    return findings


def test_gains_at_equal_misses_count_the_time_of_the_difference() -> None:
    more = _missed(120)
    # 20 misses of 5 cycles less: 2000 by 900. Eight threads share them: 2000 by 987.5.
    table = more.series[0].values
    assert table["random reads, 1 threads", "unit more by, %"] == 20
    assert table["random reads, 1 threads", "gain, %"] == 100
    assert table["random reads, 1 threads", "gain at equal misses, %"] == pytest.approx(100 * (2000 / 900 - 1))
    assert table["LSM tree, mix c, 8 threads", "gain at equal misses, %"] == pytest.approx(100 * (2000 / 987.5 - 1))
    assert [claim.holds for claim in more.claims] == [True] * len(counted.JUDGED)
    assert all(claim.detail.startswith("122.2 % (21.2 to 142.2), 100.0 %") for claim in more.claims)
    fewer = _missed(80)
    assert [claim.holds for claim in fewer.claims] == [None] * len(counted.JUDGED)
    assert all(claim.detail.startswith("81.8 % (-19.2 to 101.8), 100.0 %") for claim in fewer.claims)
