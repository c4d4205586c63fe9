"""Settings of `pagelab linux bench` and `trace` without a kernel: names, what runs, tables side by side, JSON."""

import json
import shutil
from pathlib import Path

import linux_texts as texts
import pytest
from conftest import ROOT, Pagelab, assert_fails
from rich.console import Console as Terminal

from pagelab import UsageError
from pagelab.run_time.counters import Counters
from pagelab_linux import LinuxError, bench, rounds, side_by_side, suite, trace
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.cli import bench_output, commands, trace_output
from pagelab_linux.guest import Machine
from pagelab_linux.layout import Layout, layout
from pagelab_linux.references import FOUND, LineSources
from pagelab_linux.report import Console, parse
from pagelab_linux.side_by_side import ALL, REPEATED, Places, Row
from pagelab_linux.stages import StageTable
from pagelab_linux.trace import Measured, Spread, Trace

WORKLOAD = trace.Workload("random", "touch,random,64")
PLAN = bench.Plan([bench.Setting("off", "patched")], [bench.Workload("touch", WORKLOAD.step, 512)], [4, 5])


def spreads(instructions: float, repeated: float = 0.0) -> dict[str, Spread]:
    means = {
        "instructions": instructions,
        "repetitions": repeated,
        "loads": instructions / 2,
        "stores": instructions / 4,
        "new_lines": 3.0,
    }
    return {key: Spread(mean, mean, mean) for key, mean in means.items()}


def measured(kind: str, faults: int, **counts: float) -> Measured:
    cut = {stage: spreads(count, 1.0) for stage, count in counts.items()}
    return Measured("random", kind, faults, 0, cut, spreads(sum(counts.values()), float(len(counts))), [])


def places(dram: float) -> Places:
    lines = dict.fromkeys(FOUND, 1.0) | {"dram": dram}
    sources = LineSources(9.0, lines, 0.0, 100 * dram)
    return Places(10, {ALL: sources}, {ALL: LineSources(9.0, lines | {"dram": 2 * dram}, 0.0, 200 * dram)})


OFF = Trace([measured("anonymous", 3, entry=80.0, charge=40.0), measured("file", 1, entry=40.0)], [], {})
ON = Trace([measured("anonymous", 4, entry=70.0, walk=10.0)], [], {})


def by_name(rows: list[Row]) -> dict[tuple[str, str], list[float]]:
    return {(row.what, row.stage): list(row.values) for row in rows}


def test_numbers_of_settings_are_means_over_all_faults() -> None:
    rows = side_by_side.rows("random", [OFF, ON], [None, None])
    values = by_name(rows)
    assert values["instructions", "entry"] == [70.0, 70.0]
    assert values["instructions", "charge"] == [30.0, 0.0]
    assert values["instructions", "walk"] == [0.0, 10.0]
    assert values["instructions", ALL] == [100.0, 80.0]
    assert values[REPEATED, ALL] == [100.0 - 7 / 4, 78.0]
    assert values["references", ALL] == [75.0, 60.0]
    assert ("instructions", "zeroing") not in values
    assert not any("caches" in row.what for row in rows)
    share = next(row for row in rows if (row.what, row.stage) == ("instructions", ALL)).apart(1)
    assert share == pytest.approx(-0.2)
    assert Row("instructions", "walk", [0.0, 10.0]).apart(1) is None


def test_stages_sum_to_the_fault() -> None:
    by_row = by_name(side_by_side.rows("random", [OFF, ON], [None, None]))
    for number in range(2):
        parts = sum(
            values[number] for (what, stage), values in by_row.items() if what == "instructions" and stage != ALL
        )
        assert parts == by_row["instructions", ALL][number]


def test_where_lines_are_found_is_told_in_a_row_and_with_empty_caches() -> None:
    values = by_name(side_by_side.rows("random", [OFF, ON], [places(4.0), places(2.0)]))
    assert values["in a row: DRAM", ALL] == [4.0, 2.0]
    assert values["empty caches: DRAM", ALL] == [8.0, 4.0]
    assert values["in a row: cycles waited", ALL] == [400.0, 200.0]
    assert values["empty caches: L1", ALL] == [1.0, 1.0]


def test_a_workload_without_faults_has_none_to_compare() -> None:
    values = by_name(side_by_side.rows("sequential", [OFF, ON], [None, None]))
    assert values["instructions", ALL] == [0.0, 0.0]


def test_the_table_says_how_far_whole_faults_are_from_the_first_setting(capsys: pytest.CaptureFixture[str]) -> None:
    rows = side_by_side.rows("random", [OFF, ON], [None, None])
    Terminal(width=120).print(trace_output.beside_table("random", ["off", "on"], rows))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["instructions", "all", "100.0", "80.0", "(-20.0", "%)"] in lines
    assert ["instructions", "charge", "30.0", "0.0"] in lines


def test_all_settings_are_in_the_json() -> None:
    rows = side_by_side.rows("random", [OFF, ON], [places(4.0), places(2.0)])
    kept = {"off": [places(4.0)], "on": [places(2.0)]}
    text = trace_output.as_json({"off": OFF, "on": ON}, kept, [WORKLOAD], {"random": rows}, {"levels": 5})
    document = json.loads(text)
    assert [each["setting"] for each in document["settings"]] == ["off", "on"]
    assert document["settings"][1]["found"]["random"]["empty_caches"]["all"]["lines"]["dram"] == 4.0
    assert {"what": "references", "stage": "all", "values": {"off": 75.0, "on": 60.0}} in document["side_by_side"][
        "random"
    ]


# Names


def test_names_are_taken_in_their_order_and_once() -> None:
    known = bench.load(layout())[0]
    assert [each.name for each in bench.chosen(known, ["rings", "off", "rings"], "setting")] == ["rings", "off"]
    assert bench.chosen(known, [], "setting") == known


def test_a_name_that_nothing_has_is_told_with_what_was_meant() -> None:
    known = bench.load(layout())[0]
    with pytest.raises(UsageError, match=r"no setting reservation; did you mean reservations[?] there are plain, "):
        bench.chosen(known, ["reservation"], "setting")
    with pytest.raises(UsageError, match="no setting xyz; there are plain"):
        bench.chosen(known, ["xyz"], "setting")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kernel = "patched"', 'kernel = "patchd"', "off: kernel is plain or patched, not patchd"),
        ('kernel = "patched"', 'kernal = "patched"', "'kernal': its first lines say"),
        ("[[setting]]", "[[settings]]", "'setting': its first lines say"),
        ('step = "touch,sequential,1024"', "", "step': its first lines say"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    shutil.copytree(ROOT / "packages/linux/pagelab_linux/kernel", tmp_path / "linux")
    path = tmp_path / "linux" / "tests" / "bench.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new) if old == "[[setting]]" else text.replace(old, new, 1))
    with pytest.raises(LinuxError, match=r"bench.toml: ") as error:
        bench.load(Layout(tmp_path / "linux"))
    assert words in str(error.value)


def test_steps_of_no_program_are_refused() -> None:
    suite.check_steps(["touch,random,8", "cgroup,a", "write,a,b"], {"touch"})
    with pytest.raises(UsageError, match=r"no program wriet; did you mean write[?] there are cgroup, read, refuse"):
        suite.check_steps(["wriet,a,b"], {"touch"})


def test_the_command_refuses_settings_that_cannot_be(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("linux", "trace", "--setting", "ring"), 2, "no setting ring; did you mean rings?")
    assert_fails(pagelab("linux", "trace", "-w", "storage"), 2, "no workload storage; did you mean storage-random?")
    assert_fails(pagelab("linux", "trace", "--levels", "3"), 2, "x86-64 has 4 or 5")
    assert_fails(pagelab("linux", "bench", "--levels", "3"), 2, "x86-64 has 4 or 5")
    assert_fails(pagelab("linux", "trace", "--plain", "-s", "off"), 2, "a setting names its kernel")
    assert_fails(pagelab("linux", "trace", "--before", "tuch,a"), 2, "no program tuch; did you mean touch?")
    assert_fails(pagelab("linux", "boot", "tuch,random,8"), 2, "no program tuch; did you mean touch?")
    assert_fails(pagelab("linux", "trace", "--caches", "kabylake"), 2, "did you mean kabylake-7700hq?")
    one = ("linux", "trace", "-w", "random", "-s", "off", "-s", "rings")
    assert_fails(pagelab(*one, "--preset", tmp_path / "a.toml"), 2, "is of one setting, not of 2")
    assert_fails(pagelab(*one, "--accesses", tmp_path / "a.trace"), 2, "is of one setting, not of 2")
    assert not list(tmp_path.iterdir())


def test_a_step_may_stand_for_a_workload() -> None:
    known = trace.workloads(layout())
    names = ["touch,random,16", "copy", "touch,random,16"]
    workloads = commands._workloads(known, names, lambda step: trace.Workload(step, step))
    assert [(each.name, each.step) for each in workloads] == [("touch,random,16",) * 2, ("copy", "faults,copy,16")]
    assert commands._workloads(known, [], lambda step: trace.Workload(step, step)) == known
    with pytest.raises(UsageError, match=r"no program tuch; did you mean touch[?]"):
        commands._workloads(known, ["tuch,random,16"], lambda step: trace.Workload(step, step))


# Runs


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """Whose kernels and archive are there."""
    (tmp_path / "System.map").write_text("ffffffff81000000 T a\nffffffff81000010 T b\n")
    monkeypatch.setattr(bench, "initramfs", lambda *_: tmp_path / "initramfs")
    monkeypatch.setattr(trace, "initramfs", lambda *_: tmp_path / "initramfs")
    monkeypatch.setattr(trace, "plugin", lambda *_: Path("plugin.so"))
    (tmp_path / "work").mkdir()
    return Workshop.from_layout(layout(), tmp_path / "work", lambda _: None)


@pytest.fixture
def did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    def image(_: Workshop, variant: Variant) -> Image:
        done.append(f"build {variant.name}")
        return Image(tmp_path, variant)

    monkeypatch.setattr(Workshop, "image", image)
    return done


def test_kernels_are_there_before_the_first_figure_and_a_failure_loses_none(
    workshop: Workshop, did: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def boot(machine: Machine, *_: object) -> Console:
        did.append(f"run {machine.levels}")
        if machine.levels == 4:
            raise LinuxError("the guest did not end")
        return parse(f"{texts.BOOT}{texts.TOUCH}{texts.END}")

    monkeypatch.setattr(bench, "run", boot)
    figures, failures = bench.measure(workshop, PLAN)
    assert did == ["build patched", "run 4", "run 5"]
    assert [(figure.levels, figure.faults) for figure in figures] == [(5, 16384)]
    assert failures == ["off, touch, 4 levels: the guest did not end"]


def test_settings_take_turns_and_changes_are_of_one_round(
    workshop: Workshop, did: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host becomes slower by 10 % a round; the second setting takes a quarter less.
    boots = 0

    def boot(machine: Machine, *_: object) -> Console:
        nonlocal boots
        slow, setting = 1.1 ** (boots // 2), boots % 2
        boots += 1
        did.append(" ".join(machine.before[:2]))
        counted = Path(machine.before[machine.before.index("-o") + 1])
        counted.parent.mkdir(exist_ok=True)
        counted.write_text(f"{1000 + boots}\t\tload_misses:G\t1\n")
        ticks, loop = (round(100_000 * slow * factor) for factor in ((1.0, 0.5), (0.75, 0.4))[setting])
        touched = f"faults=100\nticks={ticks}\nloop_ticks={loop}\n"
        return parse(f"{texts.BOOT}PAGELAB begin 1 {WORKLOAD.step}\n{touched}PAGELAB end 1 status=0\n{texts.END}")

    monkeypatch.setattr(bench, "run", boot)
    settings = [bench.Setting("off", "patched"), bench.Setting("on", "patched")]
    events = Counters({"load_misses": "load_misses:G"}, None)
    plan = bench.Plan(settings, [bench.Workload("touch", WORKLOAD.step)], [4], "icount", rounds=7, events=events)
    figures, failures = bench.measure(workshop, plan)
    assert did == ["build patched", *["perf stat"] * 14]
    assert not failures
    assert [(figure.setting, figure.round) for figure in figures] == [
        (name, round_) for name in ("off", "on") for round_ in range(1, 8)
    ]
    by_name = {(row.setting, row.measure): row for row in rounds.rows(figures)}
    faults = by_name["on", "per fault"]
    assert faults.median.value == pytest.approx(750 * 1.1**3, rel=1e-4)
    assert faults.median.low < faults.median.value < faults.median.high
    assert faults.change is not None
    assert [faults.change.value, faults.change.low, faults.change.high] == pytest.approx([-25] * 3, abs=0.01)
    loop = by_name["on", "per page, second pass"].change
    assert loop is not None
    assert loop.value == pytest.approx(-20, abs=0.01)
    assert by_name["off", "per fault"].change is None
    assert by_name["off", "load_misses"].median.value == 1007
    text = bench_output.as_json("6.12", "cycles", figures, failures, None)
    assert len(json.loads(text)["rounds"]) == 6
    headers = [column.header for column in bench_output.rounds_table(rounds.rows(figures), "cycles").columns]
    assert headers[4:] == ["median", "95 % interval", "to the first", "95 % interval"]
    few = [figure for figure in figures if figure.round <= 3]
    assert "range" in [column.header for column in bench_output.rounds_table(rounds.rows(few), "cycles").columns]


def test_a_round_without_its_partner_has_no_change() -> None:
    figures = [bench.Figure("off", "touch", 4, 10, 100, 50, {}, 1), bench.Figure("on", "touch", 4, 10, 90, 40, {}, 2)]
    assert [row.change for row in rounds.rows(figures)] == [None] * 4


def test_a_setting_is_carried_out_around_the_workloads(
    workshop: Workshop, did: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [bench.Setting("one", "plain"), bench.Setting("two", "patched", ["write,a,1"], ["read,b"], ["tsc=x"])]
    tracer = trace.Tracer.from_workshop(workshop, 5, settings)
    assert did == ["build plain", "build patched"]
    asked = []
    (workshop.work / ".trace.killed.0").mkdir()
    (workshop.work / ".trace.killed.0" / "records").touch()

    def boot(machine: Machine, _: Path, __: Path, steps: list[str], console: Path) -> Console:
        asked.append((machine.levels, machine.parameters, steps, console.name))
        raise LinuxError("enough")

    monkeypatch.setattr(trace, "run", boot)
    monkeypatch.setattr(StageTable, "symbols", lambda *_: "")
    with pytest.raises(LinuxError, match="enough"):
        tracer.measure(settings[1], [WORKLOAD])
    assert asked == [(5, ("tsc=x",), ["write,a,1", WORKLOAD.step, "read,b"], "trace-two-5.log")]
    assert did == ["build plain", "build patched"]
    assert not list(workshop.work.iterdir())
