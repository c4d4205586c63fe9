"""Parts of long programs: what is recorded, replayed, and said of them."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Pagelab, assert_fails

import pagelab as package
from pagelab import Stretches
from pagelab.report import render
from pagelab.results.windows import Figure, figures

pytestmark = pytest.mark.skipif(not shutil.which("valgrind") or not shutil.which("gcc"), reason="needs valgrind, gcc")

# Two phases alternately: one walks over many pages, the other stays on one.
_PHASES = r"""
#include <stdlib.h>

int main(int argc, char **argv) {
    long pages = 2000, rounds = atol(argv[1]);
    volatile char *memory = malloc(pages * 4096);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < 3 * pages; i++)
            memory[i * 7 % pages * 4096]++;
        for (long i = 0; i < 6 * pages; i++)
            memory[i % 4096]++;
    }
    return 0;
}
"""

# A warm-up that refills the TLB.
_WINDOWS = "every=100K,length=10K,warm=30K,offset=random"


def _compiled(folder: Path, name: str, source: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-O1", "-g", "-o", folder / name, folder / f"{name}.c"], check=True)
    return folder / name


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs, whole recordings of them and recordings of parts."""
    folder = tmp_path_factory.mktemp("programs")
    phases = _compiled(folder, "phases", _PHASES)
    source = ROOT / "crates" / "pagelab-trace" / "tests" / "programs" / "stretches.c"
    calls = _compiled(folder, "calls", source.read_text())
    package.record([phases, "40"], folder / "whole.trace")
    package.record([phases, "40"], folder / "sampled.trace", stretches=Stretches(windows=_WINDOWS))
    package.record([calls], folder / "calls.trace", stretches=Stretches(start_at="work", stop_at="tear_down"))
    return folder


def test_faults_are_those_of_the_whole_program_and_rates_lie_in_their_intervals(programs: Path) -> None:
    systems = ["radix", "radix-2m"]
    whole, sampled = (package.run(programs / f"{name}.trace", systems) for name in ("whole", "sampled"))
    for system in systems:
        all_of_it, parts = whole[system].stats, sampled[system].stats
        for name in ("fault.minor.count", "fault.zero_page.count", "mapping.calls", "fault.cached.count"):
            assert parts[f"program.{name}"] == all_of_it[name], name
        assert parts["fault.minor.count"] < all_of_it["fault.minor.count"] / 2
        assert not any(name.startswith("program.") for name in all_of_it)
    result = sampled["radix"]
    for name in ("instructions", "accesses", "walk.count", "cycles"):
        assert sum(window[name] for window in result.windows) == result.stats[name]
    by_name = {figure.name: figure for figure in figures(result.windows)}
    walks = by_name["walks per 1,000 instructions"]
    assert walks.value == pytest.approx(1000 * result.stats["walk.count"] / result.stats["instructions"])
    expected = 1000 * whole["radix"].stats["walk.count"] / whole["radix"].stats["instructions"]
    assert walks.half_width is not None
    assert abs(walks.value - expected) < walks.half_width < expected


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (4.0392, 1.3141, "4.0 ± 1.3"),
        (0.0009909, 0.000941, "0.00099 ± 0.00094"),
        (1234.5, 0.25, "1,234.50 ± 0.25"),
        (1234.5, 356.7, "1,230 ± 360"),
        (2.0, 0.0, "2 ± 0"),
        (1 / 3, None, "0.3333"),
    ],
)
def test_a_figure_is_as_precise_as_its_interval(value: float, half_width: float | None, text: str) -> None:
    assert str(Figure("walks", value, half_width)) == text


def test_the_page_shows_the_intervals(programs: Path) -> None:
    run = package.run(programs / "sampled.trace", ["radix", "radix-2m"])
    page = render([run])
    assert f"{len(run.systems[0].windows)} recorded windows, with 95 % intervals over them" in page
    for name in ("cycles per instruction", "walks per 1,000 instructions"):
        rates = [next(figure for figure in figures(result.windows) if figure.name == name) for result in run.systems]
        cells = "".join(f"<td>{figure}</td>" for figure in rates)
        assert f'<td class="text">{name}</td>{cells}' in page
    faults = run["radix"].stats["program.fault.minor.count"]
    assert f"<td>{faults:,}</td>" in page
    assert "recorded windows" not in render([package.run(programs / "whole.trace")])


def test_a_live_run_measures_what_a_recording_of_the_same_windows_does(programs: Path) -> None:
    live = package.run_live([programs / "phases", "40"], stretches=Stretches(windows=_WINDOWS))
    recorded = package.run(programs / "sampled.trace")["radix"]
    of_live = live.results["radix"]
    assert live.program.stretches is not None
    assert len(of_live.windows) == live.program.stretches.windows == len(recorded.windows)
    for name in ("instructions", "walk.count", "program.fault.minor.count"):
        assert of_live.stats[name] == pytest.approx(recorded.stats[name], rel=0.02), name
    assert live.program.stretches.measured_instructions == pytest.approx(of_live.stats["instructions"], rel=0.01)


def test_the_commands_say_how_much_of_the_program_was_recorded(programs: Path, pagelab: Pagelab) -> None:
    run = pagelab("record", "--windows", "every=1M,length=10K", "--skip", "1M", "--", programs / "phases", "40")
    assert run.returncode == 0, run.stderr
    assert " windows of " in run.stderr
    assert "% of the program's" in run.stderr
    info = pagelab("trace", "info", "phases.trace").stdout
    assert " windows of " in info
    assert "instructions but for first touches" in info
    shown = pagelab("run", "phases.trace", "-s", "radix")
    assert "recorded windows, with 95 % intervals over them" in shown.stdout
    assert "±" in shown.stdout
    assert "faults of the whole program" in shown.stdout
    assert "begin with TLBs and caches filled only by its first touches" in shown.stderr
    warmed = pagelab("run", programs / "sampled.trace")
    assert "filled only by" not in warmed.stderr, warmed.stderr


def test_an_export_has_the_recorded_windows_alone(programs: Path, tmp_path: Path) -> None:
    totals = package.trace_info(programs / "calls.trace")["meta"]["stretches"]
    files = package.export_trace(programs / "calls.trace", tmp_path / "calls.txt", format="lackey", thread=0)
    text = (tmp_path / "calls.txt").read_text()
    stores = [line for line in text.splitlines() if line.startswith(" S ")]
    assert 200 <= len(stores) < 260, "two calls of 100 stores, and the stack's"
    assert files[0].instructions == pytest.approx(totals["measured_instructions"], rel=0.05)


def test_what_cannot_be_is_refused_with_the_reason(programs: Path, pagelab: Pagelab, tmp_path: Path) -> None:
    phases = programs / "phases"
    for options, what in (
        (["--windows", "every=1K,length=2K"], "longer than its period"),
        (["--windows", "length=2K"], "every is missing"),
        (["--skip", "0"], "--skip: 0 is not possible"),
        (["--skip", "1M", "--start-at", "main"], "not by both"),
        (["--start-at", "main#0"], "the number of a call is 1 or more"),
        (["--faults", "--skip", "1M"], "--faults records a whole program natively"),
    ):
        assert_fails(
            pagelab("record", "-o", "x.trace" if options[0] != "--faults" else "x.faults", *options, "--", phases, "1"),
            2,
            what,
        )
        assert not list(tmp_path.iterdir())
    assert_fails(
        pagelab("run", "--windows", "every=2K,length=1K", "seq:size=64KiB"), 2, "--windows is not possible without"
    )
    sampled = programs / "sampled.trace"
    assert_fails(pagelab("run", sampled, "--with", "seq:size=64KiB"), 2, "replay it alone")
    assert_fails(pagelab("run", sampled, "seq:size=64KiB"), 2, "replay it alone")
    assert_fails(pagelab("run", sampled, "--warm-up", "1000"), 2, "each recorded window is warmed up by itself")
    assert_fails(pagelab("run", sampled, "--faults", "x.faults"), 2, "the times of its page faults are unknown")
    assert_fails(pagelab("mrc", sampled), 2, "curves need a trace of all accesses")


def test_a_program_that_ends_too_early_is_told(programs: Path, pagelab: Pagelab, tmp_path: Path) -> None:
    run = pagelab("record", "-o", "early.trace", "--skip", "10G", "--", programs / "phases", "1")
    assert run.returncode == 0
    assert "before the first stretch to record" in run.stderr
    assert_fails(pagelab("run", "early.trace"), 2, "nothing can be measured")
    missing = pagelab("record", "-o", "missing.trace", "--start-at", "mian", "--", programs / "phases", "1")
    assert "`mian`: no program or library that was executed has this function; did you mean main?" in missing.stderr
    subprocess.run(["strip", "-o", tmp_path / "stripped", programs / "phases"], check=True)
    stripped = pagelab("record", "-o", "stripped.trace", "--start-at", "main", "--", "./stripped", "1")
    assert "no symbol table" in stripped.stderr


def test_results_do_not_depend_on_the_number_of_threads(programs: Path) -> None:
    one, two = (
        package.run(programs / "sampled.trace", ["radix", "nested-radix"], threads=threads).to_json()
        for threads in (1, 2)
    )
    assert one == two
    assert json.loads(one)["results"][0]["windows_by_statistic"]


def test_intervals_hold_the_true_ratio_as_often_as_they_say() -> None:
    draw = random.Random(1)
    for number in (3, 10, 50):
        held = 0
        for _ in range(2000):
            sizes = [draw.randint(900, 1100) for _ in range(number)]
            windows = [{"cycles": round(size * max(draw.gauss(2, 0.5), 0)), "instructions": size} for size in sizes]
            (figure,) = figures(windows)
            assert figure.half_width is not None
            held += abs(figure.value - 2) <= figure.half_width
        assert math.isclose(held / 2000, 0.95, abs_tol=0.02), number
    assert figures([{"cycles": 6, "instructions": 3}])[0].half_width is None
