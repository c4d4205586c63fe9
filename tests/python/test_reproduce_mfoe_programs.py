"""The programs of the minor-fault offload engine's paper."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

import pagelab as package
from pagelab_studies import mfoe, mfoe_averages, mfoe_programs, mfoe_programs_window, mfoe_rates, study
from pagelab_studies.estimates import Estimate

ROW, NAME = "Splash2X-radix", "radix"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of one program: a simulated one's faults, and stores to 4096 pages."""
    folder = tmp_path_factory.mktemp("programs")
    spec = "stride:size=32MiB,stride=4KiB,write=1,gap=8000"
    package.run(spec, "radix@linux-4.9", machine="gem5-timing", faults=folder / f"{NAME}.faults")
    lines = (f"I  04000000,3\n S {0x1000_0000 + 4096 * page:x},8\n" for page in range(4096))
    (folder / "lackey.txt").write_text("".join(lines))
    package.import_trace(folder / "lackey.txt", folder / f"{NAME}.trace", format="lackey")
    return folder


@pytest.fixture(scope="module")
def measured(programs: Path) -> study.Measurements:
    reproduction = mfoe_programs.REPRODUCTION
    return study.measure(reproduction, 1.0, lambda run: run.workload == ROW, study.Watch(), programs=programs)


def test_a_program_is_measured_three_ways(measured: study.Measurements) -> None:
    findings = mfoe_programs.evaluate(measured)
    assert "sections wait for others" in findings.incomplete[0], "the other programs"
    rows = {row.quantity: row for row in findings.comparisons}
    assert {row.item for row in findings.comparisons} == {ROW}
    process = rows[mfoe_programs.HITS]
    assert process.interval is not None
    assert process.interval.high > 99, "by chance"
    assert process.interval.low < process.interval.high - 25, "in bursts that are longer than a table"
    # With Table 1's time per fault the gain is Table 1's share, all faults hit: no prediction.
    share, repeated = mfoe.PROGRAMS[ROW].overhead / 100, rows[f"speed-up, {mfoe_averages.REPEATED}"]
    assert repeated.ours == pytest.approx(1 / (1 - share), rel=0.01)
    assert repeated.paper is None
    judged = rows[mfoe_programs.SPEED_UP]
    assert judged.paper == mfoe.PROGRAMS[ROW].speed_up
    assert judged.interval is not None
    on_cores = (measured[ROW, mfoe_programs._on_cores(cores)].stats for cores in mfoe_programs.FEW_CORES)
    assert judged.interval.high == max(Estimate(stats).speed_up for stats in on_cores)
    # One fault in 8000 cycles and what it takes, of 3 GHz.
    native = rows["first writes, native"]
    assert native.paper == 259.25
    assert 200 < native.ours < 375
    table, rates, by_model = findings.series
    assert table.groups == (ROW,)
    # Of the paper's rate a twelfth per hardware thread; here one thread is busy.
    assert rates.values[ROW, mfoe_rates.OF_PROGRAM] == pytest.approx(native.ours / 259.25)
    assert rates.values[ROW, mfoe_rates.OF_CORE] == pytest.approx(12 * native.ours / 259.25, rel=0.05)
    assert f"of whole programs {ROW}; per core none" in "".join(findings.notes)
    assert by_model.values[ROW, "hit rate"] == table.values[ROW, "replay's first writes, model"]
    assert by_model.values[ROW, "speed-up"] > 1
    # Stores that follow each other at once: nearly all come before the tables are full. A pass that fills a table of
    # 256 frames may fall into the run or not.
    engine, model = (table.values[ROW, method] for method in ("replay, engine", "replay's first writes, model"))
    assert engine == pytest.approx(model, abs=100 * 256 / 4096)
    assert 0 < engine < 50
    assert not findings.claims, "no verdict on hit rates: how the paper's faults came is not known"


def test_processes_on_few_cores_hit_as_their_tables_allow() -> None:
    """A table of 256 frames for the faults of 2 ms: 730.6 on one core at gcc's rate, half of them on each of two."""
    reproduction = mfoe_programs.REPRODUCTION
    wanted = {(row, mfoe_programs._on_cores(cores)) for row in mfoe.PROGRAMS for cores in (1, 2)}
    all_cores = mfoe_programs._process_label(1, mfoe.HANDLER_NS)
    of_gcc = [
        run
        for run in reproduction.runs()
        if run.workload == "GCC compiler" and run.system in {label for _, label in wanted} | {all_cores}
    ]
    measured = study.measure(reproduction, 1.0, lambda run: run in of_gcc, study.Watch())
    made = [
        replace(one, run=run) for run in reproduction.runs() for one in measured.all() if one.run.system == run.system
    ]
    findings = study.Findings()
    mfoe_programs._section_cores(study.Measurements(made), findings)
    (table,) = findings.series
    hits = {cores: table.values[f"GCC compiler, {cores}", mfoe_programs.HITS] for cores in ("1 core", "2 cores")}
    # Hits shift later faults earlier, so that a few more come within a period.
    assert 30 < hits["1 core"] < 100 * 256 / 730.6 + 1
    assert 55 < hits["2 cores"] < 100 * 256 / 365.3 + 1
    assert table.values[f"GCC compiler, {mfoe_programs.ALL_CORES}", mfoe_programs.HITS] > 99


def test_a_run_says_which_recording_it_needs() -> None:
    needed = {run.recording for run in mfoe_programs.runs() if run.workload == ROW}
    assert needed == {None, "radix.faults", "radix.trace"}


def test_what_functions_do_is_no_verdict() -> None:
    def made(run: study.Run) -> study.Measurement:
        per_second = int(run.label.split()[0])
        stats = {
            "fault.minor.count": 1000 * min(per_second, 100),
            "elapsed_cycles": 3_300_000_000,
            "arrivals.sojourn.cycles": 3_300_000,
            "arrivals.count": 1,
        }
        return study.Measurement(run, 1, stats)

    functions = [run for run in mfoe_programs.runs() if run.arrivals]
    findings = mfoe_programs.evaluate(study.Measurements(made(run) for run in functions))
    rates, times = findings.series
    assert rates.values["50", "kernel, memory for all"] == pytest.approx(50)
    assert times.values["50", "kernel, memory for all"] == pytest.approx(1)
    assert not findings.claims
    assert "is 100 % of its peak" in findings.notes[0]


def test_recordings_are_asked_for(pagelab: Pagelab, tmp_path: Path) -> None:
    reproduce = ("reproduce", "mfoe-programs")
    assert_fails(pagelab(*reproduce), 2, "name their folder with --programs", "record.py makes them")
    assert_fails(pagelab(*reproduce, "--programs", tmp_path), 2, "has none of its recordings")
    assert_fails(pagelab("reproduce", "mfoe", "--programs", tmp_path), 2, "mfoe replays no recordings")


def test_replays_are_judged_on_a_window_and_shown_beside_the_core_that_waits() -> None:
    """The engine saves 100 of 1,000 cycles; on the core that waits, the program then waits 90 more for its data."""
    made = []
    for run in mfoe_programs_window.window_runs():
        on_window = any(setting.startswith("machine.core=") for setting in run.settings)
        assert on_window is (run.label == "")
        engine = run.system == mfoe_programs.REPLAYS["engine"]
        more = 0 if on_window else 90
        cycles = 1000 - (100 - more) * engine
        stats = {
            "elapsed_cycles": cycles,
            "cycles": cycles,
            "cycles.idle": 0,
            "cycles.blocked": 0,
            "cycles.fault": 200 - 100 * engine,
            "cycles.data_stall": more * engine,
            "layer.native.fault_engine.hits": 10,
            "model.faults": 10,
            "model.hits": 10,
            "model.duration_ns": 1000,
            "model.parallelism_ppm": 1_000_000,
            "model.before_ns": 200,
            "model.after_ns": 100,
            "model.cut": 0,
        }
        kinds = ("minor", "cached", "copy", "reuse", "zero_page")
        made.append(study.Measurement(run, 1, stats | {f"fault.{kind}.count": 0 for kind in kinds}))
    findings = mfoe_programs_window.evaluate(study.Measurements(made))
    assert {claim.holds for claim in findings.claims} == {True}, "11 % by all programs, of 6.6 %"
    assert all(claim.detail == "11.1 %" for claim in findings.claims)
    assert len([row for row in findings.comparisons if row.quantity == "speed-up, replay"]) == len(mfoe.PROGRAMS)
    speed_ups, waits = findings.series
    cores = mfoe_programs_window.IN_ORDER, mfoe_programs_window.WINDOW
    assert [speed_ups.values[mfoe_averages.MEAN, core] for core in cores] == pytest.approx([1000 / 990, 1000 / 900])
    assert [waits.values[ROW, core] for core in cores] == [9, 0]
