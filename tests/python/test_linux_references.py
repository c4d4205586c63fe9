"""References of a traced kernel without a kernel: the plugin's log of a played guest, its replay, comparisons."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from test_linux_trace import (
    BEGIN,
    END,
    NOP,
    USER,
    at,
    fault,
    measured_first_touch,
    player,
    system_map,
    table,
)

from pagelab import UsageError
from pagelab_linux import LinuxError, compare, preset, records, references, simulated, stages, trace
from pagelab_linux.bench import Setting
from pagelab_linux.cli import compare_output, trace_output
from pagelab_linux.layout import Layout, layout
from pagelab_linux.report import GuestStep

__all__ = ["player", "table"]

PERCPU = "65488b00"
STACK, OWN, OBJECT, IMAGE = 0xFFFFC90000001000, 0xFFFF88805E215000, 0xFFFF888000400000, 0xFFFFFFFF82000000
NO_FAULT, OF_USER, KEPT, LEFT_OUT = 255, 254, 2, 3


@pytest.fixture
def log(player: Path, table: stages.StageTable, tmp_path: Path) -> Callable[..., references.Rows]:
    """What the plugin logs of a script."""

    def run(script: Sequence[str], most: int = 9) -> references.Rows:
        (tmp_path / "System.map").write_text(system_map())
        (tmp_path / "symbols").write_text(table.symbols(stages.functions(tmp_path / "System.map")))
        arguments = [f"{name}={tmp_path / name}" for name in ("symbols", "records", "references")]
        subprocess.run([str(player), *arguments, f"most={most}"], input="\n".join(script) + "\n", text=True, check=True)
        return references.read(tmp_path / "references")

    return run


def marked(*lines: str) -> list[str]:
    return [f"{USER} {BEGIN}", *lines, f"{USER} {NOP}", f"{USER} {END}"]


def touched(address: int) -> str:
    """An instruction of user code that stores."""
    return f"{USER} {NOP} s {address:x} 3"


def described(rows: references.Rows) -> list[tuple[int, int, int]]:
    return [(int(row["what"]), int(row["stage"]), int(row["gap"])) for row in rows]


# The log


def test_references_of_user_code_and_of_stages_are_logged(log: Callable[..., references.Rows]) -> None:
    inside = (f"{at('exc_page_fault', 1)} {PERCPU} l {OWN:x} 2", f"{at('exc_page_fault', 5)} {NOP}")
    rows = log(marked(touched(0x7000), *fault(*inside), touched(0x8000)))
    entry, lookup, back = (stages.ALL_STAGES.index(name) for name in ("entry", "lookup", "return"))
    # The gaps are all instructions, those without a reference included.
    assert described(rows) == [
        (1, OF_USER, 1),
        (1, entry, 3),
        (0, lookup, 2),
        (0, lookup, 2),
        (0, back, 1),
        (KEPT, 0, 0),
        (1, OF_USER, 1),
    ]
    assert list(rows["percpu"]) == [0, 0, 1, 0, 0, 0, 0]
    assert list(rows["shift"][:3]) == [3, 3, 2]
    assert list(rows["physical"]) == [int(address) & 0x3FFFFFFF for address in rows["address"]]
    assert set(rows["fault"][1:6]) == {1}


def test_interrupts_and_devices_are_of_no_fault(log: Callable[..., references.Rows]) -> None:
    timer = [f"{at('asm_sysvec_timer')} {NOP} s {STACK:x} 3", f"{at('asm_sysvec_timer', 1)} 48cf"]
    device = f"{at('exc_page_fault', 1)} {NOP} l ffff8880{0x20000000:08x} 3"
    rows = log(marked(*fault(*timer, device)))
    assert [(row["stage"], row["fault"]) for row in rows if row["address"] == STACK] == [(NO_FAULT, 0)]
    assert 0x20000000 not in rows["physical"]


def test_no_more_faults_are_logged_than_asked_for(log: Callable[..., references.Rows]) -> None:
    rows = log(marked(*fault(), *fault(), *fault(), touched(0x9000)), most=2)
    assert references.faults(rows) == 2
    assert 0x9000 not in rows["address"]


def test_faults_that_are_left_out_are_no_faults(log: Callable[..., references.Rows]) -> None:
    switched = fault(f"{at('__switch_to_asm')} {NOP}")
    rows = references.of_run(log(marked(*switched, *fault())), 1)
    assert list(rows["what"][rows["what"] >= KEPT]) == [LEFT_OUT, KEPT]
    assert set(rows["stage"][rows["fault"] == 1][:1]) == {NO_FAULT}
    assert len(references.of_run(rows, 2)) == 0


def test_a_log_without_a_number_of_faults_is_refused(player: Path, tmp_path: Path) -> None:
    arguments = ["symbols=x", "records=y", "references=z"]
    process = subprocess.run([str(player), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "references=FILE with most=FAULTS" in process.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"pagelab-references 2 12\n", "does not begin with"),
        (b"", "does not begin with"),
        (b"pagelab-references 1 12\n".ljust(40, b"\0"), "40 bytes, not a multiple of 32"),
    ],
)
def test_what_is_no_log_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LinuxError, match=problem):
        references.read(tmp_path / "log")
    with pytest.raises(LinuxError, match="QEMU ran without the plugin"):
        references.read(tmp_path / "none")


# What becomes of it


def rows_of(*listed: tuple[int, int, int, str]) -> references.Rows:
    """Fault (0: user code), address, 1 for a store, and the stage."""
    rows = np.zeros(len(listed), dtype=references.ROW)
    for row, (number, address, what, stage) in zip(rows, listed, strict=True):
        row["fault"], row["address"], row["physical"], row["what"] = number, address, address & 0x3FFFFFFF, what
        row["stage"] = stages.ALL_STAGES.index(stage) if stage else OF_USER
        row["run"], row["gap"], row["shift"], row["percpu"] = 1, 1, 3, address >> 12 == OWN >> 12
    return rows


def two_faults() -> references.Rows:
    """Two pages are touched. Each fault refers to a line of each kind, zeroes one, and comes to the first one again."""
    listed = [(0, 0x7FFF0000, 1, "")]
    for number, page in ((1, 0x10000), (2, 0x11000)):
        listed += [(number, STACK, 1, "entry"), (number, STACK + 8, 0, "entry"), (number, OWN, 0, "lookup")]
        listed += [(number, OBJECT, 0, "lookup"), (number, IMAGE, 0, "lookup"), (number, STACK, 0, "lookup")]
        listed += [(number, 0xFFFF888000800000 + page, 1, "zeroing"), (number, 0, KEPT, "entry"), (0, page, 1, "")]
    return rows_of(*listed)


def test_lines_are_found_where_caches_have_them() -> None:
    warm = references.replay(two_faults(), None, cold=False)
    assert list(warm) == ["entry", "lookup", "zeroing", "all"]
    assert (warm["entry"].references, warm["entry"].all_lines) == (2.0, 1.0)
    # In the first fault from memory, in the second from the L1.
    assert warm["entry"].lines == {"l1": 0.5, "l2": 0.0, "l3": 0.0, "dram": 0.5}
    assert warm["lookup"].lines == {"l1": 2.5, "l2": 0.0, "l3": 0.0, "dram": 1.5}
    assert warm["zeroing"].lines["dram"] == 1.0
    assert warm["all"].references == 7.0
    cold = references.replay(two_faults(), None, cold=True)
    assert cold["lookup"].lines == {"l1": 1.0, "l2": 0.0, "l3": 0.0, "dram": 3.0}
    assert cold["all"].waited > warm["all"].waited > 0
    assert cold["all"].later_misses == 0
    table = trace_output.found_table("two", 2, warm, cold)
    assert table.row_count == 4


def test_the_processor_reads_the_pte_before_the_kernel_does() -> None:
    """A second fault on a page of another PTE line: the walk has brought it by the time that the kernel comes to it."""
    entry = 0xFFFF888000600000 + 8 * 0x1F0
    fault_on_page = [(1, entry, 0, "walk"), (1, entry + 8, 1, "install"), (1, 0, KEPT, "entry"), (0, 0x1F0000, 1, "")]
    assert references.replay(rows_of(*fault_on_page), None, cold=False)["walk"].lines["l1"] == 1.0
    assert references.replay(rows_of(*fault_on_page), None, cold=True)["walk"].lines["dram"] == 1.0
    elsewhere = [*fault_on_page[:3], (0, 0x1F1000, 1, "")]
    assert references.replay(rows_of(*elsewhere), None, cold=False)["install"].lines["l1"] == 1.0
    none = [*fault_on_page[:3], (0, 0x2F2000, 1, "")]
    assert references.replay(rows_of(*none), None, cold=False)["walk"].lines["dram"] == 1.0


def test_without_faults_nothing_is_found() -> None:
    assert references.replay(two_faults()[:1], None, cold=False) == {}


def test_steady_lines_are_told_by_whose_they_are() -> None:
    steady = references.steady_lines(two_faults())
    assert steady["entry"] == references.Lines(cpu=1, space=0, kernel=0, again=0)
    assert steady["lookup"] == references.Lines(cpu=1, space=1, kernel=1, again=1)
    # Each fault has its own page, so half of the faults have either; a third one leaves none.
    third = rows_of((3, 0xFFFF888000900000, 1, "zeroing"), (3, 0, KEPT, "entry"))
    assert references.steady_lines(np.concatenate([two_faults(), third]))["zeroing"].space == 0


def test_the_simulator_faults_where_the_guest_did() -> None:
    result = simulated.simulate(two_faults(), simulated.Simulator())
    assert result.faults == 2
    assert result.instructions("charge") == 40
    assert sum(result.lines("zeroing").values()) >= 64
    assert result.all_lines()["dram"] > 64


# Comparisons

RECORDS = """\
pagelab-fault-records 1 12
F 1 1 0 0 0 60 0 10 20 5 5 1 386 6 10 10 4 4
F 1 1 0 0 0 60 0 10 20 5 5 1 386 6 10 10 4 4
R 1 0 0 0
D of-the-kernel 0
E
"""


def test_pages_that_a_fault_maps_together_are_not_there() -> None:
    """The guest faults on one page of a folio, and then uses the next one."""
    kernel = [(1, STACK, 1, "entry"), (1, 0xFFFF888000810000, 1, "zeroing"), (1, 0, KEPT, "entry")]
    rows = rows_of((0, 0x7FFF0000, 1, ""), *kernel, (0, 0x10000, 1, ""), (0, 0x11000, 1, ""))
    folios = ['system.layers.native.folios=["32KiB"]']
    assert simulated.simulate(rows, simulated.Simulator(settings=folios, pages=8)).faults == 1
    assert simulated.simulate(rows, simulated.Simulator(pages=8)).faults == 2
    assert simulated.simulate(rows, simulated.Simulator()).faults == 1, "the second page is there from the start"


def found_trace(table: stages.StageTable) -> trace.Trace:
    step = GuestStep("touch,random,1", [("faults", "2"), ("ticks", "892"), ("loop_ticks", "9")])
    parsed = records.parse(RECORDS.splitlines(), len(stages.ALL_STAGES), "records")
    return trace.evaluate(table, [trace.Workload("random", step.command)], [step], parsed)


COMPARISON = compare.Comparison(
    "random",
    "touch,random,1",
    simulated.Simulator(),
    counters=[compare.Counter("pages", ["given", "given_later"], ["fault.minor.count"])],
    explained={"instructions: walk": "the guest's is a fixture"},
)


def rows_by_name(
    table: stages.StageTable,
    comparison: compare.Comparison = COMPARISON,
) -> dict[str, compare.Row]:
    lines = references.replay(two_faults(), None, cold=False)
    model = simulated.simulate(two_faults(), comparison.simulator)
    rows = compare.compared(comparison, found_trace(table), lines, {"given": 1, "given_later": 1}, model)
    return {row.what: row for row in rows}


def test_guest_and_simulator_stand_side_by_side(table: stages.StageTable) -> None:
    rows = rows_by_name(table)
    assert (rows["faults"].guest, rows["faults"].simulator, rows["faults"].agrees) == (2, 2, True)
    assert (rows["instructions: entry"].guest, rows["instructions: lookup"].guest) == (60.0, 380.0)
    assert rows["instructions: entry"].agrees
    assert rows["instructions: lookup"].agrees
    assert not rows["instructions: walk"].agrees
    assert rows["instructions: walk"].why == "the guest's is a fixture"
    assert rows["lines: lookup"].guest == 4.0
    assert (rows["pages"].guest, rows["pages"].simulator) == (2, 2)
    explained = compare_output.explanations(list(rows.values()))
    assert "instructions: walk: the guest's is a fixture" in explained
    assert any(line.endswith("not explained") for line in explained)
    assert '"agrees": false' in compare_output.as_json("6.12", 4, {"random": list(rows.values())})
    assert compare_output.table(COMPARISON, list(rows.values())).row_count == len(rows)


def test_numbers_agree_within_their_bounds() -> None:
    row = compare.Row("lines", 10.0, 11.4, 0.15)
    assert row.agrees
    assert row.apart == pytest.approx(0.14)
    assert not replace(row, simulator=11.6).agrees
    assert replace(row, simulator=11.6, least=2.0).agrees
    assert not compare.Row("faults", 10, 11, 0.0).agrees
    assert compare.Row("none", 0.0, 0.0, 0.1).agrees
    assert [compare.Row("faults", 10, 11, 0.0, why=why).settled for why in ("", "known")] == [False, True]
    assert row.settled
    assert compare.Row("some", 0.0, 1.0, 0.1).apart == float("inf")


def test_counters_and_explanations_that_are_of_nothing_are_refused(table: stages.StageTable) -> None:
    with pytest.raises(UsageError, match=r"taken, no\.such\.statistic: no such count exists"):
        rows_by_name(table, replace(COMPARISON, counters=[compare.Counter("x", ["taken"], ["no.such.statistic"])]))
    with pytest.raises(UsageError, match="explained: no row is called lines: elsewhere"):
        rows_by_name(table, replace(COMPARISON, explained={"lines: elsewhere": "because"}))


def test_the_comparisons_of_the_project_are_read() -> None:
    comparisons = {each.name: each for each in compare.load(layout())}
    assert comparisons["random"].plain
    assert comparisons["random"].simulator == simulated.Simulator()
    assert not comparisons["reservations-random"].plain
    assert comparisons["reservations-random"].simulator.system == "radix-ptemagnet-traced"
    for kind in ("vma", "cpu", "cpu-table"):
        each = comparisons[f"walk-cache-{kind}-random"]
        assert each.before[0].endswith(f"/kind,{kind}")
        assert f'"kind":"{kind}"' in each.simulator.settings[0]
    derived = {each.step for each in trace.workloads(layout())}
    assert derived.isdisjoint(each.step for each in comparisons.values())
    # What the mechanisms' own costs are from (SlotKind::traced, and origins of the presets).
    mechanisms = {"touch,sequential,64", "touch,random,64", "touch,regions,32"}
    assert mechanisms.isdisjoint(each.step for each in comparisons.values() if not each.plain)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[comparison]]\nname = "a"\n', "'step'"),
        ('[[comparison]]\nname = "a"\nstep = "b"\nkernal = "plain"\n', "no key kernal"),
        ('[[comparison]]\nname = "a"\nstep = "b"\nkernel = "other"\n', "no kernel other"),
        ("", "'comparison'"),
    ],
)
def test_a_wrong_file_of_comparisons_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "compare.toml").write_text(text)
    with pytest.raises(LinuxError, match=problem):
        compare.load(Layout(tmp_path))


# The command line, and the preset


@pytest.mark.parametrize(
    ("workloads", "options", "problem"),
    [
        (2, {"accesses": Path("x.trace")}, "a trace holds one workload"),
        (1, {"accesses": Path("/")}, "exists; name another output"),
        (1, {"settings": []}, "is of one setting, not of 0; name one with --setting"),
        (1, {"most": 0}, "give at least 1 fault"),
    ],
)
def test_options_that_cannot_be_are_refused(workloads: int, options: dict[str, object], problem: str) -> None:
    wanted = [trace.Workload(str(number), "touch,random,1") for number in range(workloads)]
    arguments: dict[str, object] = {"settings": [Setting("off", "patched")], "accesses": None} | options
    with pytest.raises(UsageError, match=problem):
        trace_output.check_accesses(wanted, **{"preset": Path("x.toml"), "most": 1} | arguments)  # type: ignore[arg-type]


def test_a_machine_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no machine none-such; there are kabylake-7700hq"):
        trace_output.check_machine("none-such")


def test_a_preset_has_the_lines_that_the_simulator_does_not_touch_itself() -> None:
    base = ROOT / "presets" / "kernels" / "linux-6.12.toml"
    # The model's own entry stores three lines of registers, and the fixture's one.
    assert preset.lines(base, two_faults())["entry"] == references.Lines(0, 0, 0, 0)
    many = [(1, STACK + 0x40 * line, 1, "entry") for line in range(20)]
    many += [(1, OBJECT + 0x40 * line, 0, "entry") for line in range(10)] + [(1, 0, KEPT, "entry"), (0, 0x10000, 1, "")]
    entry = preset.lines(base, rows_of((0, 0x7FFF0000, 1, ""), *many))["entry"]
    assert (entry.cpu, entry.space, entry.kernel, entry.again) == (18, 9, 0, 0)
    counts = dict.fromkeys(stages.STAGES, (100.0, 0.0))
    text = preset.preset(
        base, measured_first_touch(counts), dict.fromkeys(stages.STAGES, replace(entry, kernel=0)), "6.12.1"
    )
    assert "entry = { instructions = 100, hardware_cycles = 253, lines = { cpu = 18, space = 9 } }" in text
