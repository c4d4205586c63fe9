"""`pagelab linux trace` without a kernel: the table of stages, the plugin on a played guest, records that are none."""

import dataclasses
import json
import re
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import linux_fault_functions
import pytest
from conftest import ROOT

from pagelab import run
from pagelab_linux import LinuxError, kinds, plugin, preset, records, stages, trace
from pagelab_linux.cli import trace_output
from pagelab_linux.layout import layout
from pagelab_linux.references import Lines
from pagelab_linux.report import GuestStep

PLUGIN = ROOT / "packages/linux/pagelab_linux/kernel/plugin"
TABLE = """
[roles]
fault = ["asm_exc_page_fault"]
interrupt = ["asm_sysvec_*"]
switch = ["__switch_to_asm"]
[stages]
entry = ["asm_exc_page_fault"]
lookup = ["exc_page_fault"]
allocation = ["do_anonymous_page"]
zeroing = ["clear_page"]
[whole]
charge = ["charge"]
[after]
exc_page_fault = "return"
clear_page = "install"
[helpers]
names = ["spin_lock"]
[[kind]]
name = "anonymous"
met = ["do_anonymous_page"]
"""
NAMES = """asm_exc_page_fault asm_sysvec_timer exc_page_fault do_anonymous_page clear_page charge spin_lock unknown
__switch_to_asm the_end"""
BASE = 0xFFFFFFFF81000000
SPACE = 0x100
NOP, CALL, RET, IRET, REP = "90", "e800000000", "c3", "48cf", "f348ab"
BEGIN, END, TAKE_OFF = (f"0f1f84000{mark}006770" for mark in (1, 0, 2))
USER = "401000"


def at(name: str, offset: int = 0) -> str:
    return f"{BASE + SPACE * NAMES.split().index(name) + offset:x}"


def system_map() -> str:
    return "".join(f"{at(name)} T {name}\n" for name in NAMES.split()) + "0000000000001000 A constant\n"


@pytest.fixture
def table(tmp_path: Path) -> stages.StageTable:
    (tmp_path / "stages.toml").write_text(TABLE)
    return stages.load(tmp_path / "stages.toml")


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin with a program that plays instructions to it."""
    if not shutil.which("gcc"):
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("player") / "player"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{PLUGIN / 'test'}"]
    subprocess.run(["gcc", *flags, "-o", str(program), str(PLUGIN / "test" / "player.c")], check=True)
    return program


@pytest.fixture
def play(player: Path, table: stages.StageTable, tmp_path: Path) -> Callable[[list[str]], records.Records]:
    def run(script: list[str]) -> records.Records:
        (tmp_path / "System.map").write_text(system_map())
        (tmp_path / "symbols").write_text(table.symbols(stages.functions(tmp_path / "System.map")))
        arguments = [f"symbols={tmp_path / 'symbols'}", f"records={tmp_path / 'records'}"]
        subprocess.run([str(player), *arguments], input="\n".join(script) + "\n", text=True, check=True)
        return records.read(tmp_path / "records", len(stages.ALL_STAGES))

    return run


def fault(*inside: str) -> list[str]:
    """A fault that calls exc_page_fault, which does what is inside."""
    return [
        f"{USER} {NOP}",
        f"{at('asm_exc_page_fault')} {NOP}",
        f"{at('asm_exc_page_fault', 1)} {CALL} s ffff888000001ff8 3",
        f"{at('exc_page_fault')} {NOP}",
        *inside,
        f"{at('exc_page_fault', 0x80)} {RET} l ffff888000001ff8 3",
        f"{at('asm_exc_page_fault', 6)} {IRET} l ffff888000002000 3",
    ]


def marked(*lines: str) -> list[str]:
    return [f"{USER} {BEGIN}", *lines, f"{USER} {NOP}", f"{USER} {END}"]


def instructions(fault: records.Fault) -> dict[str, int]:
    return {stages.ALL_STAGES[number]: counts[0] for number, counts in fault.stages.items()}


# Stages


def test_every_function_that_faults_met_has_a_stage_or_is_a_helper() -> None:
    table = trace.stage_table(layout())
    known = table.stages.keys() | table.helpers
    assert [name for name in linux_fault_functions.MET.split() if name not in known] == []
    assert set(table.stages.values()) == {*stages.STAGES, stages.STORAGE}
    assert {*table.markers} <= known


def test_kinds_are_told_by_the_functions_met() -> None:
    table = trace.stage_table(layout())

    def kind(*met: str) -> str:
        return table.kind(sum(1 << table.markers.index(name) for name in met))

    assert kind("do_anonymous_page", "folio_add_new_anon_rmap") == "anonymous, first write"
    assert kind("do_anonymous_page") == "zero page mapped"
    assert kind("do_wp_page", "copy_mc_to_kernel", "folio_add_new_anon_rmap") == "copy of a page"
    assert kind("do_wp_page", "folio_add_new_anon_rmap") == "zero page replaced"
    assert kind("do_fault", "filemap_map_pages") == "file, mapped around"
    assert kind() == stages.NO_KIND


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("irqentry_exit.constprop.0", "irqentry_exit"),
        ("lru_add.part.0.isra.0", "lru_add"),
        ("do_fault.cold", "do_fault"),
    ],
)
def test_what_the_compiler_appends_is_no_part_of_a_name(symbol: str, name: str) -> None:
    assert stages.plain_name(symbol) == name


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('names = ["spin_lock"]', 'names = ["clear_page"]', "clear_page: named twice"),
        ('charge = ["charge"]', 'charge = ["clear_page"]', "clear_page: named twice"),
        ('entry = ["asm', 'entrance = ["asm', "no stage is called entrance; there are entry, lookup"),
        ('exc_page_fault = "return"', 'exc_page_fault = "away"', "no stage is called away"),
        ("[after]", "[afterwards]", "'after': it must have tables roles"),
        ('switch = ["__switch_to_asm"]', "", "'switch': it must have tables roles"),
    ],
)
def test_a_wrong_table_is_refused(old: str, new: str, problem: str, tmp_path: Path) -> None:
    assert old in TABLE
    (tmp_path / "stages.toml").write_text(TABLE.replace(old, new))
    with pytest.raises(LinuxError, match=problem):
        stages.load(tmp_path / "stages.toml")


def test_a_kernel_without_a_function_that_kinds_name_is_refused(table: stages.StageTable, tmp_path: Path) -> None:
    text = system_map().replace("do_anonymous_page", "do_something")
    (tmp_path / "System.map").write_text(text)
    with pytest.raises(LinuxError, match="no function do_anonymous_page"):
        table.symbols(stages.functions(tmp_path / "System.map"))


def test_a_kernel_may_lack_functions_of_ours(tmp_path: Path) -> None:
    more = '[[kind]]\nname = "ours"\nmet = ["lba_fault", "do_anonymous_page"]\nours = true\n'
    (tmp_path / "stages.toml").write_text(TABLE.replace("[[kind]]", f"{more}[[kind]]", 1))
    (tmp_path / "System.map").write_text(system_map())
    both = stages.load(tmp_path / "stages.toml")
    assert both.symbols(stages.functions(tmp_path / "System.map"))
    met = {name: 1 << both.markers.index(name) for name in both.markers}
    assert both.kind(met["do_anonymous_page"]) == "anonymous"
    assert both.kind(sum(met.values())) == "ours"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "has no functions"), ("ffffffff81000000 T\n", "line 1: 'ffffffff81000000 T' is not ADDRESS TYPE NAME")],
)
def test_what_is_no_system_map_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "System.map").write_text(text)
    with pytest.raises(LinuxError, match=problem):
        stages.functions(tmp_path / "System.map")


# The plugin


def test_a_fault_is_cut_into_stages(play: Callable[[list[str]], records.Records]) -> None:
    inside = (f"{at('exc_page_fault', 1)} {CALL}", f"{at('unknown')} {RET}")
    played = play(marked(*fault(*inside)))
    assert [instructions(each) for each in played.faults] == [{"entry": 2, "lookup": 3, "return": 1, "other": 1}]
    assert played.faults[0].run == 1
    # The store of the call, and the load of the return, are of one line; that is new only once.
    assert played.faults[0].stages[stages.ALL_STAGES.index("entry")] == (2, 0, 0, 1, 1, 1)
    assert played.faults[0].stages[stages.ALL_STAGES.index("lookup")] == (3, 0, 1, 0, 1, 0)


def test_helpers_are_of_the_stage_that_calls_them(play: Callable[[list[str]], records.Records]) -> None:
    played = play(
        marked(
            *fault(
                f"{at('exc_page_fault', 1)} {CALL}",
                f"{at('spin_lock')} {RET}",
                f"{at('exc_page_fault', 6)} {CALL}",
                f"{at('do_anonymous_page')} {CALL}",
                f"{at('spin_lock')} {CALL}",
                f"{at('exc_page_fault')} {RET}",
                f"{at('spin_lock', 5)} {RET}",
                f"{at('do_anonymous_page', 5)} {CALL}",
                f"{at('clear_page')} {RET}",
                f"{at('do_anonymous_page', 6)} {RET}",
            )
        )
    )
    # exc_page_fault was called by spin_lock too, and what follows it there is of return.
    assert instructions(played.faults[0]) == dict(
        zip(("entry", "lookup", "allocation", "zeroing", "install", "return"), (2, 6, 3, 1, 1, 2), strict=True)
    )
    assert sorted((g.stage, g.counts[0]) for g in played.groups if g.function == "spin_lock") == [
        (1, 1),
        (3, 1),
        (9, 1),
    ]
    assert played.faults[0].met == 1


def test_a_stage_may_hold_for_all_that_is_called(play: Callable[[list[str]], records.Records]) -> None:
    inside = [f"{at('exc_page_fault', 1)} {CALL}", f"{at('charge')} {CALL}", f"{at('clear_page')} {CALL}"]
    inside += (f"{at('unknown')} {RET}", f"{at('clear_page', 5)} {RET}", f"{at('charge', 5)} {RET}")
    assert instructions(play(marked(*fault(*inside))).faults[0])["charge"] == 5


def test_a_jump_into_another_function_returns_to_the_caller(play: Callable[[list[str]], records.Records]) -> None:
    inside = (f"{at('exc_page_fault', 1)} {CALL}", f"{at('spin_lock')} {NOP}", f"{at('clear_page')} {RET}")
    counts = instructions(play(marked(*fault(*inside))).faults[0])
    assert (counts["lookup"], counts["zeroing"]) == (4, 1)


def test_interrupts_are_left_out_and_counted(play: Callable[[list[str]], records.Records]) -> None:
    timer = [f"{at('asm_sysvec_timer')} {NOP} s ffff888000009000 3", f"{at('unknown')} {NOP}"]
    nested = [*timer, *timer, f"{at('asm_sysvec_timer', 1)} {IRET}", f"{at('asm_sysvec_timer', 1)} {IRET}"]
    played = play(marked(*fault(*nested)))
    assert instructions(played.faults[0]) == {"entry": 2, "lookup": 2, "return": 1}
    assert (played.faults[0].interrupts, played.faults[0].interrupt_instructions) == (1, 6)
    assert played.faults[0].stages[0][5] == 1


def test_repetitions_of_string_instructions_are_told_apart(play: Callable[[list[str]], records.Records]) -> None:
    stores = [f"{at('clear_page')} {REP} s {0xFFFF888000010000 + 8 * n:x} 3" for n in range(512)]
    played = play(marked(*fault(f"{at('exc_page_fault', 1)} {CALL}", *stores, f"{at('clear_page', 3)} {RET}")))
    assert played.faults[0].stages[stages.ALL_STAGES.index("zeroing")] == (513, 511, 0, 512, 64, 64)


def test_faults_that_do_not_end_well_are_counted_and_left_out(play: Callable[[list[str]], records.Records]) -> None:
    script = [*fault(f"{at('__switch_to_asm')} {NOP}"), *fault(*fault()[1:]), *fault()[:4], *fault()]
    played = play(marked(*script))
    assert {name: number for name, number in played.dropped.items() if number} == dict.fromkeys(
        ("nested", "switched", "open"), 1
    )
    assert len(played.faults) == 1
    rest = played.rests[1]
    kernel = sum(not line.startswith(USER) for line in script)
    assert played.faults[0].instructions + rest.left_out_instructions + rest.beside == kernel
    assert rest.left_out == 3


def test_a_fault_right_after_a_fault_is_another_one(play: Callable[[list[str]], records.Records]) -> None:
    assert len(play(marked(*fault(), *fault()[1:])).faults) == 2


def test_faults_count_between_the_marks_alone(play: Callable[[list[str]], records.Records]) -> None:
    played = play([*fault(), *marked(*fault()), *fault(), *marked(*fault(), *fault())])
    assert [each.run for each in played.faults] == [1, 2, 2]


def test_a_pass_that_the_guest_takes_off_is_taken_off(play: Callable[[list[str]], records.Records]) -> None:
    timer = [f"{at('asm_sysvec_timer')} {NOP}", f"{at('asm_sysvec_timer', 1)} {IRET}"]
    again = [f"{USER} {TAKE_OFF}", *timer, *timer, f"{USER} {NOP}", *timer]
    played = play([*marked(*fault(), *fault(), f"{USER} {NOP}", *timer, *again), *marked(*fault())])
    assert [each.run for each in played.faults] == [1, 1, 2]
    assert [played.rests[run].beside for run in (1, 2)] == [len(timer) - 3 * len(timer), 0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(("records=x",), "symbols=FILE and records=FILE"), (("symbols=/nowhere", "records=x"), "cannot be read")],
)
def test_wrong_arguments_end_the_guest(arguments: tuple[str, ...], problem: str, player: Path, tmp_path: Path) -> None:
    process = subprocess.run([str(player), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert problem in process.stderr


# Records

RECORDS = """\
pagelab-fault-records 1 12
F 1 1 0 0 0 100 0 10 20 5 5 4 513 511 1 512 65 64
F 1 1 1 70 0 104 0 10 20 6 6 4 513 511 1 512 65 64
F 1 0 0 0 0 50 0 1 2 3 3
G 1 1 0 2 204 0 20 40 asm_exc_page_fault
G 1 1 4 2 1026 1022 2 1024 clear_page
G 1 0 0 1 50 0 1 2 asm_exc_page_fault
R 1 1 30 20
D of-the-kernel 0 nested 0 switched 1 open 0 overflown 0
E
"""
STEP = GuestStep("touch,random,1", [("faults", "4"), ("ticks", "1400"), ("loop_ticks", "9")])


WORKLOAD = trace.Workload("random", STEP.command)


def evaluated(table: stages.StageTable, text: str = RECORDS, step: GuestStep = STEP) -> trace.Trace:
    parsed = records.parse(text.splitlines(), len(stages.ALL_STAGES), "records")
    return trace.evaluate(table, [trace.Workload("random", step.command)], [step], parsed)


def test_kinds_stages_and_spreads(table: stages.StageTable) -> None:
    result = evaluated(table)
    anonymous, other = result.measured
    assert (anonymous.kind, anonymous.faults, anonymous.interrupted) == ("anonymous", 2, 1)
    assert (other.kind, other.faults) == (stages.NO_KIND, 1)
    assert list(anonymous.stages) == ["entry", "zeroing"]
    entry = anonymous.stages["entry"]["instructions"]
    assert (entry.mean, entry.p10, entry.p90) == pytest.approx((102.0, 100.4, 103.6))
    for key in ("instructions", "loads", "stores", "new_lines"):
        assert sum(counts[key].mean for counts in anonymous.stages.values()) == anonymous.total[key].mean
    assert anonymous.total["lines"] == anonymous.total["new_lines"]
    assert [(part.function, part.per_fault["instructions"]) for part in anonymous.parts] == [
        ("clear_page", 513.0),
        ("asm_exc_page_fault", 102.0),
    ]
    assert (result.checks[0].traced, result.checks[0].gap) == (1400, 0.0)
    document = json.loads(trace_output.as_json({"off": result}, {"off": [None]}, [WORKLOAD], {}, {"levels": 4}))
    assert (document["levels"], document["settings"][0]["setting"]) == (4, "off")
    assert document["settings"][0]["left_out"]["switched"] == 1


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("faults", "5", "the guest counts 5 faults, and the trace 3 and 1 left out"),
        ("ticks", "1390", r"the guest counts 1390 instructions, and the trace 1400: \+0.72 %"),
        ("ticks", "many", "printed no faults and ticks as whole numbers"),
    ],
)
def test_a_trace_that_contradicts_the_guest_is_refused(
    key: str, value: str, problem: str, table: stages.StageTable
) -> None:
    with pytest.raises(LinuxError, match=problem):
        evaluated(table, step=GuestStep(STEP.command, [*STEP.values, (key, value)]))


def test_a_program_without_marks_is_refused(table: stages.StageTable) -> None:
    text = "pagelab-fault-records 1 12\nD of-the-kernel 0\nE\n"
    with pytest.raises(LinuxError, match=r"1 workloads made 0 runs: each must call trace_begin\(\)"):
        evaluated(table, text)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("records 1 12", "records 2 12", "begins with 'pagelab-fault-records 2 12'"),
        ("records 1 12", "records 1 10", "begins with"),
        ("\nE\n", "\n", "ends without its last line"),
        ("F 1 0 0 0 0 50 0 1 2 3 3", "F 1 0 0 0 0 50 0 1 2 3", "line 4: "),
        ("F 1 0 0 0 0 50", "F 1 0 0 0 12 50", "line 4: "),
        ("F 1 0 0 0 0 50", "F 1 x 0 0 0 50", "line 4: "),
        ("F 1 0 0 0 0 50", "X 1 0 0 0 0 50", "line 4: "),
        ("R 1 1 30 20", "R 1 1 30", "line 8: "),
        (" 1 2 asm_exc_page_fault\n", " 1 2\n", "line 7: "),
        ("overflown 0", "overflown", "line 9: "),
        ("\nE\n", "\nE\nE\n", "line 11: comes after the end"),
    ],
)
def test_malformed_records_are_refused(old: str, new: str, problem: str, tmp_path: Path) -> None:
    assert old in RECORDS
    path = tmp_path / "records"
    path.write_text(RECORDS.replace(old, new))
    with pytest.raises(LinuxError, match=problem):
        records.read(path, len(stages.ALL_STAGES))


def test_records_that_are_missing_or_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LinuxError, match="no such file; QEMU ran without the plugin"):
        records.read(tmp_path / "none", 12)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LinuxError, match="is no text"):
        records.read(tmp_path / "binary", 11)


# The header


def test_the_header_is_taken_from_qemu_s_tarball(tmp_path: Path) -> None:
    (tmp_path / "qemu-plugin.h").write_bytes(b"header")
    with tarfile.open(tmp_path / "qemu_7.2+dfsg.orig.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "qemu-plugin.h", "qemu-7.2.0/include/qemu/qemu-plugin.h")
    assert plugin.header_of(tmp_path) == b"header"


def test_a_source_package_without_the_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LinuxError, match=r"no include/qemu/qemu-plugin.h \(no tarball\)"):
        plugin.header_of(tmp_path)


# The preset

KERNELS = ROOT / "presets" / "kernels"


def measured_first_touch(counts: dict[str, tuple[float, float]]) -> trace.Measured:
    def spreads(instructions: float, repeated: float) -> dict[str, trace.Spread]:
        means = {"instructions": instructions, "repetitions": repeated}
        return {key: trace.Spread(mean, mean - 1, mean + 1) for key, mean in means.items()}

    cut = {stage: spreads(*numbers) for stage, numbers in counts.items()}
    return trace.Measured("sequential", kinds.FIRST_TOUCH, 9, 0, cut, spreads(0, 0), [])


def test_a_preset_has_the_instructions_counted_and_no_cycles_but_the_processors_own() -> None:
    base = tomllib.loads((KERNELS / "linux-6.12.toml").read_text())
    counts = {stage: (100.0 + number, 0.0) for number, stage in enumerate(stages.STAGES)} | {"zeroing": (517.0, 512.0)}
    none = dict.fromkeys(stages.STAGES, Lines(0, 0, 0, 0))
    made = tomllib.loads(preset.preset(KERNELS / "linux-6.12.toml", measured_first_touch(counts), none, "6.12.1"))
    assert made["name"] == "linux-6.12-traced"
    assert {stage: cost["instructions"] for stage, cost in made["fault"].items()} == {
        stage: 5 if stage == "zeroing" else 100 + number for number, stage in enumerate(stages.STAGES)
    }
    assert not any("cycles" in cost for cost in made["fault"].values())
    # The other stages of the base have 1,710 cycles for 1,560 instructions.
    assert {stage: cost["hardware_cycles"] for stage, cost in made["fault"].items() if "hardware_cycles" in cost} == {
        "entry": round(450 - 180 * 1710 / 1560),
        "zeroing": round(60 - 30 * 1710 / 1560),
        "return": round(340 - 120 * 1710 / 1560),
    }
    assert "450 cycles of linux-6.12 less its 180 instructions" in made["origin"]["fault.entry.hardware_cycles"]
    assert (
        "517.0, less 512 repetitions of string instructions (p10 to p90 516 to 518)"
        in (made["origin"]["fault.zeroing.instructions"])
    )
    for key in base.keys() - {"name", "description", "fault", "origin"}:
        assert made[key] == base[key]


def measured_kind(workload: str, kind: str, counts: dict[str, tuple[float, float]]) -> trace.Measured:
    return dataclasses.replace(measured_first_touch(counts), workload=workload, kind=kind)


def test_instructions_of_kinds_are_of_one_page_and_of_each_page_more() -> None:
    workloads = [
        trace.Workload("one", "a"),
        trace.Workload("folios", "b", pages=8),
        trace.Workload("around", "c", pages=16),
        trace.Workload("few", "d", pages=4),
    ]
    first = {"walk": (200.0, 0.0), "zeroing": (517.0, 512.0), "lru": (90.0, 0.0), "install": (300.0, 0.0)}
    folios = {"walk": (300.0, 0.0), "zeroing": (4396.0, 4096.0), "lru": (76.0, 0.0), "install": (300.0, 0.0)}
    measured = [
        measured_kind("one", kinds.FIRST_TOUCH, first),
        measured_kind("folios", kinds.FIRST_TOUCH, folios),
        measured_kind("around", "file, mapped around", {"rmap": (1700.0, 0.0), "install": (500.0, 0.0)}),
        measured_kind("few", "file, mapped around", {"rmap": (500.0, 0.0), "install": (500.0, 0.0)}),
        measured_kind("one", "zero page mapped", {"allocation": (40.0, 0.0), "install": (286.0, 0.0)}),
    ]
    by_kind = kinds.costs(measured, workloads)
    assert by_kind[kinds.FIRST_TOUCH].page_instructions == {"zeroing": 42}, "(300 - 5) / 7; fewer are none"
    around = by_kind["file, mapped around"]
    assert (around.instructions, around.page_instructions) == ({"rmap": 200, "install": 500}, {"rmap": 100})
    assert around.measured_on == "few, mean of 9 faults of 4 pages and around, mean of 9 faults of 16 pages"
    zero = by_kind["zero page mapped"]
    assert (zero.instructions, zero.page_instructions) == ({"install": 326}, {}), "the model allocates nothing there"
    assert "copy of a page" not in by_kind


def test_a_preset_has_kinds_where_they_differ_and_the_simulator_takes_it(tmp_path: Path) -> None:
    first = dict.fromkeys(stages.STAGES, (100.0, 0.0))
    copy = dict.fromkeys(stages.STAGES, (100.0, 0.0)) | {"install": (700.0, 0.0)}
    around = {"install": (1600.0, 0.0)}
    measured = [
        measured_kind("one", kinds.FIRST_TOUCH, first),
        measured_kind("one", "copy of a page", copy),
        measured_kind("around", "file, mapped around", around),
        measured_kind("one", "file, mapped around", {"install": (100.0, 0.0)}),
    ]
    costs = kinds.costs(measured, [trace.Workload("one", "a"), trace.Workload("around", "b", pages=16)])
    touched = dict.fromkeys(stages.STAGES, Lines(1, 0, 0, 0))
    text = preset.preset(KERNELS / "linux-6.12.toml", measured[0], touched, "6.12.1", costs)
    made = tomllib.loads(text)
    lines = {"lines": {"cpu": 1}}
    assert made["fault_kinds"] == {
        "copy": {"install": {"instructions": 700, **lines}},
        "file-around": {"install": {"instructions": 100, "page_instructions": 100, **lines}},
    }
    assert made["origin"]["fault_kinds.copy"].startswith("measured: pagelab linux trace, Linux 6.12.1, one, mean of 9")
    (tmp_path / "made.toml").write_text(text)
    result = run("random:size=1MiB", "radix", kernel=str(tmp_path / "made.toml")).systems[0]
    assert result.config["kernel"]["fault_kinds"]["copy"]["install"]["instructions"] == 700
    assert result.stats["fault.timed.cycles"] > 0


def test_a_preset_takes_first_touches(tmp_path: Path) -> None:
    with pytest.raises(LinuxError, match="needs faults of the kind 'anonymous, first write'"):
        preset.chosen(trace.Trace([], [], {}), [])
    (tmp_path / "base.toml").write_text('name = "nothing"\n')
    with pytest.raises(LinuxError, match="must be a kernel's preset with the stages entry"):
        preset.preset(tmp_path / "base.toml", measured_first_touch({}), {}, "6.12.1")


def test_the_documentation_compares_the_presets_as_they_are() -> None:
    text = (ROOT / "docs" / "linux-trace.md").read_text()
    model, traced = (
        tomllib.loads((KERNELS / f"{name}.toml").read_text())["fault"] for name in ("linux-6.12", "linux-6.12-traced")
    )
    rows = re.findall(r"^\| (\w+) \| ([\d,]+) \| ([\d,]+) \| ([+−]\d+) % \|", text, re.MULTILINE)
    assert [row[0] for row in rows] == [*stages.STAGES, "all"]
    for stage, before, after, apart in rows:
        names = stages.STAGES if stage == "all" else (stage,)
        sums = [sum(kernel[name]["instructions"] for name in names) for kernel in (model, traced)]
        assert [int(number.replace(",", "")) for number in (before, after)] == sums
        assert int(apart.replace("−", "-")) == round(100 * (sums[1] / sums[0] - 1))
