"""Programs measured under page-size layouts: what became huge, faults, counters, and what cannot be measured.

Times are not asserted: other programs may run beside the tests.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import COMMAND, Pagelab, assert_fails

from pagelab import UsageError, native, record, trace_info
from pagelab.replay import default_sample
from pagelab.run_time import counters, host, layouts, replaying
from pagelab.run_time.huge_share import check_share
from pagelab.run_time.measuring import Figure, load
from pagelab.run_time.replaying import Replaying, record_layouts
from pagelab.run_time.running import Files, Memory, Program, _Sampler
from pagelab.run_time.shared_recording import derive

SOURCE = Path(__file__).parent / "chase.c"
PAGES_OF_64_MIB = 64 << 8
HUGE = pytest.mark.skipif(host.machine().huge_pages == "never", reason="transparent huge pages are off on this machine")


@pytest.fixture(scope="module")
def chase(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("chase") / "chase"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
    return program


def by_layout(file: Path) -> dict[str, Any]:
    document = json.loads(file.read_text())
    return {layout["layout"]: layout for layout in document["layouts"]}


def huge_share(layout: dict[str, Any]) -> float:
    return float(layout["memory"]["huge_bytes"] / layout["memory"]["anonymous_bytes"])


def faults(layout: dict[str, Any]) -> list[int]:
    return [run["minor_faults"] for run in layout["runs"]]


@HUGE
def test_layouts_make_of_the_heap_what_they_say(pagelab: Pagelab, tmp_path: Path, chase: Path) -> None:
    wanted = {"4k": 0.0, "thp": 1.0, "heap=25%": 0.25, "heap=0-32MiB": 0.5}
    asked = [word for layout in wanted for word in ("-l", layout)]
    done = pagelab("measure", *asked, "-n", "2", "-o", "out.json", "--", chase, "64", "400000")
    assert done.returncode == 0, done.stderr
    layouts_run = by_layout(tmp_path / "out.json")
    assert list(layouts_run) == list(wanted)
    for layout, share in wanted.items():
        assert huge_share(layouts_run[layout]) == pytest.approx(share, abs=0.04), layout
        assert 64 << 20 <= layouts_run[layout]["memory"]["anonymous_bytes"] < 70 << 20
        small = (1 - share) * PAGES_OF_64_MIB
        for count in faults(layouts_run[layout]):
            assert small * 0.96 < count < small * 1.04 + 1000, layout
    assert len(done.stdout.splitlines()[-5:][0].split()) > 5
    assert "8 timed runs of about" in done.stderr
    assert load(tmp_path / "out.json").to_json() == (tmp_path / "out.json").read_text()


SPARSE = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    /* As sort does: it uses the end of a large block. */
    char *volatile block = malloc(200 << 20);
    volatile unsigned long sum = 0;
    memset(block + (160 << 20), 1, 40 << 20);
    for (unsigned long at = 0; at < 60000000; at++) sum += at;
    return block[199 << 20] - 1;
}
"""


@HUGE
def test_shares_are_made_where_the_heap_is_touched(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "sparse.c").write_text(SPARSE)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "sparse", tmp_path / "sparse.c"], check=True)
    done = pagelab("measure", "-l", "heap=50%", "-n", "1", "-o", "out.json", "--", "./sparse")
    assert done.returncode == 0, done.stderr
    memory = by_layout(tmp_path / "out.json")["heap=50%"]["memory"]
    assert memory["huge_bytes"] == pytest.approx(20 << 20, abs=4 << 20)
    far = pagelab("measure", "-q", "-l", "heap=512MiB-600MiB", "-n", "1", "--", "./sparse")
    assert_fails(far, 2, "heap=512MiB-600MiB")


@HUGE
def test_a_layout_that_gets_no_huge_pages_is_an_error(pagelab: Pagelab, chase: Path) -> None:
    without = pagelab("measure", "-q", "-l", "mmap=100%", "--", chase, "64", "400000")
    assert_fails(without, 2, "mmap=100%: nothing of", "pieces of 2 MiB of the mappings")


def test_shares_of_huge_pages_are_checked() -> None:
    small = Memory(70 << 20, 0, 70 << 20, 1, 0, heap_extent_bytes=100 << 20, heap_bytes=64 << 20)
    for layout, least in (("heap=50%", 32 - 6.4), ("thp", 64 - 6.4), ("heap=0-90MiB", 54 - 6.4)):
        enough = replace(small, huge_bytes=int((least + 0.1) * (1 << 20)))
        check_share(layouts.parse(layout), small, enough)
        with pytest.raises(UsageError, match=r"of the heap should be huge, and .* became so"):
            check_share(layouts.parse(layout), small, replace(small, huge_bytes=int((least - 0.1) * (1 << 20))))
    for layout in ("4k", "host"):
        check_share(layouts.parse(layout), small, small)
    little = replace(small, heap_bytes=14 << 20, huge_bytes=6 << 20)
    with pytest.raises(UsageError, match=r"touches 14 MiB of its heap, too little for a share: 16 MiB are needed"):
        check_share(layouts.parse("heap=50%"), little, little)
    with pytest.raises(UsageError, match="heap ends at 100 MiB; give a window before that"):
        check_share(layouts.parse("heap=128MiB-256MiB"), small, replace(small, huge_bytes=2 << 20))


@HUGE
def test_mappings_and_children_have_layouts_too(pagelab: Pagelab, tmp_path: Path) -> None:
    """A shell's child maps memory itself, from an address that it does not choose."""
    # Python gives the mapping back before it ends: there must be time to look at it.
    script = "import mmap, time\nm = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    (tmp_path / "maps.py").write_text(script + "for at in range(0, 64 << 20, 4096): m[at] = 1\ntime.sleep(0.3)\n")
    for layout, least, most in (("mmap=50%", 26, 40), ("mmap=100%", 60, 72), ("heap=100%", 0, 14)):
        run = ("measure", "-l", layout, "-n", "1", "-o", "out.json", "--")
        done = pagelab(*run, "sh", "-c", f"{Path(sys.executable).resolve()} maps.py; true")
        assert done.returncode == 0, done.stderr
        memory = by_layout(tmp_path / "out.json")[layout]["memory"]
        assert least << 20 <= memory["huge_bytes"] <= most << 20, layout
        assert memory["processes"] >= 2
        assert memory["without_library"] == 0


@HUGE
def test_a_recording_of_each_layout_tells_walk_cycles(pagelab: Pagelab, tmp_path: Path, chase: Path) -> None:
    asked = ("-l", "4k", "-l", "heap=50%", "-l", "thp", "-l", "host", "-n", "1", "--replay", "--traces", "kept")
    done = pagelab("measure", "-q", *asked, "-o", "out.json", "--", chase, "16", "100000")
    assert done.returncode == 0, done.stderr
    layouts_run = by_layout(tmp_path / "out.json")
    small, half, huge = (layouts_run[layout]["replay"] for layout in ("4k", "heap=50%", "thp"))
    assert layouts_run["host"]["replay"] is None
    assert huge["walk_cycles"] < 0.1 * half["walk_cycles"] < 0.1 * small["walk_cycles"]
    assert small["tlb_misses"] > 50_000
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"4k.trace", "heap=50.trace", "thp.trace"}
    assert load(tmp_path / "out.json").walk_cycles_from == "replay"
    assert "walk cycles: of replays on kabylake-7700hq, as --machine names no other" in done.stdout

    again = pagelab("measure", "-q", *asked, "--", chase, "16", "100000")
    assert_fails(again, 2, "kept/4k.trace: exists")

    # A trace that was made without layouts shows those of which a system of its own makes the pages.
    replayed = ("-l", "4k", "-l", "thp", "-l", "heap=50%", "-n", "1", "--trace", "kept/4k.trace", "--nested")
    done = pagelab("measure", "-q", *replayed, "-o", "traced.json", "--", chase, "16", "100000")
    assert done.returncode == 0, done.stderr
    traced = by_layout(tmp_path / "traced.json")
    assert traced["4k"]["replay"]["system"] == "nested-radix"
    assert traced["thp"]["replay"]["walk_cycles"] < traced["4k"]["replay"]["walk_cycles"]
    assert traced["heap=50%"]["replay"] is None


def _events(trace: Path) -> list[tuple[Any, ...]]:
    """What each process of a trace says of mappings and of advice; processes that run at once have no order."""
    columns = ["process", "kind", "addr", "len", "prot", "flags", "argument"]
    kinds = ["mmap", "munmap", "madvise", "fork", "exec", "brk"]
    events = pl.read_parquet(trace / "events-*.parquet").filter(pl.col("kind").is_in(kinds))
    return events.select(columns).sort("process", maintain_order=True).rows()


def test_one_recording_shows_what_a_recording_of_each_layout_does(tmp_path: Path, chase: Path) -> None:
    """A heap, mappings, several programs that execute each other, and one without the library."""
    source, maps, static = tmp_path / "maps.c", tmp_path / "maps", tmp_path / "static"
    source.write_text(
        "#include <stdlib.h>\n#include <sys/mman.h>\n"
        "int main(int count, char **words) {\n"
        "    for (int i = 0; i < 2; i++) {\n"
        "        volatile char *at = mmap(0, 9 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        "        for (long byte = 0; byte < 9 << 20; byte += 4096) at[byte] = 1;\n"
        "    }\n"
        "    return count > 1 && system(words[1]);\n"
        "}\n"
    )
    subprocess.run(["cc", "-O2", "-o", maps, source], check=True)
    subprocess.run(["cc", "-O2", "-static", "-o", static, SOURCE], check=True)
    command = [str(maps), f"{chase} 8 100 && {static} 4 100"]
    program = Program(command, Files(), native.layout_library(), 64 << 20)
    span = 32 << 20
    asked = [layouts.parse(name) for name in ("4k", "heap=2MiB-6MiB,mmap=30%", "heap=50%", "thp")]
    derived = record_layouts(program, asked, span, tmp_path, Replaying(whole=True))
    for layout in asked:
        with pytest.MonkeyPatch.context() as patched:
            for key, value in program.environment(layout, span).items():
                patched.setenv(key, value)
            own = record(command, tmp_path / f"own-{layout.name.replace('%', '')}.trace")
        trace = derived[layout.name]
        info = trace_info(trace)
        assert info["complete"]
        assert info["accesses"] == pytest.approx(own.accesses, rel=0.01)
        events = _events(trace)
        assert events == _events(tmp_path / f"own-{layout.name.replace('%', '')}.trace"), layout.name
        advice = {(kind, argument) for _, kind, _, _, _, _, argument in events if kind == "madvise"}
        assert (("madvise", 14) in advice) == (layout.name != "4k")
    # Accesses are kept once.
    part = "accesses-000000.parquet"
    assert (derived["4k"] / part).samefile(derived["thp"] / part)


def test_of_a_program_without_the_library_its_own_advice_stays_but_where_all_is_small(tmp_path: Path) -> None:
    recording, library = tmp_path / "old.trace", native.layout_library()
    (tmp_path / "asks.c").write_text(
        "#include <sys/mman.h>\n"
        "int main(void) {\n"
        "    char *got = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        "    return madvise(got, 8 << 20, MADV_HUGEPAGE);\n"
        "}\n"
    )
    subprocess.run(["cc", "-o", tmp_path / "asks", tmp_path / "asks.c"], check=True)
    record([tmp_path / "asks"], recording)
    for name, count in (("4k", 0), ("heap=50%", 1), ("thp", 1)):
        output = tmp_path / f"{name.replace('%', '')}.trace"
        derive(recording, layouts.parse(name), output, library, 0)
        advised = [row for row in _events(output) if row[1] == "madvise" and row[-1] == layouts.HUGE_PAGES]
        assert len(advised) == count, name


def test_long_recordings_are_sampled_unless_all_is_asked_for(
    tmp_path: Path, chase: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "chase.trace"
    record([chase, "16", "300000"], trace)
    assert Replaying().sampled(trace, tmp_path) == trace, "it is short"
    monkeypatch.setattr(replaying, "LEAST_ACCESSES", trace_info(trace)["accesses"])
    monkeypatch.setattr(default_sample, "_LEAST_WINDOW", 1000)
    assert Replaying(whole=True).sampled(trace, tmp_path) == trace
    sample = Replaying().sampled(trace, tmp_path)
    assert sample != trace
    small, whole = (replaying.replays(recording, ["radix"], None)[0] for recording in (sample, trace))
    assert small.program_by_replayed > 10
    assert small.walk_cycles == pytest.approx(whole.walk_cycles, rel=0.3)
    assert any("multiplied by" in warning for warning in small.warnings)

    # A sample is not sampled, and neither is what was recorded in windows.
    assert Replaying().sampled(sample, tmp_path) == sample


def test_windows_stand_for_the_whole_program(pagelab: Pagelab, tmp_path: Path, chase: Path) -> None:
    windows = ("--windows", "every=200K,length=20K,warm=20K")
    asked = ("-l", "4k", "-l", "thp", "-n", "1", "--replay")
    for name, more in (("whole", ()), ("parts", windows)):
        done = pagelab("measure", "-q", *asked, *more, "-o", f"{name}.json", "--", chase, "16", "1000000")
        assert done.returncode == 0, done.stderr
    whole, parts = (by_layout(tmp_path / f"{name}.json")["4k"]["replay"] for name in ("whole", "parts"))
    assert whole["program_by_replayed"] == 1
    assert 8 < parts["program_by_replayed"] < 12
    assert parts["accesses"] < 0.2 * whole["accesses"]
    for count in ("walk_cycles", "tlb_misses", "tlb_hits", "core_cycles", "window_cycles"):
        assert parts[count] == pytest.approx(whole[count], rel=0.15), count
    assert re.search(
        r"those of \d+ windows with 10 % of the instructions, multiplied by 9\.\d+, ± \d+%", done.stderr
    ), done.stderr

    # One window and no more: its counts are told for all, and that they tell little.
    one = ("--windows", "every=1M,length=100K,offset=500K")
    recorded = pagelab("record", "-q", *one, "-o", "one.trace", "--", chase, "16", "100000")
    assert recorded.returncode == 0, recorded.stderr
    done = pagelab("measure", "-q", "-n", "1", "--trace", "one.trace", "-o", "one.json", "--", chase, "16", "100000")
    assert done.returncode == 0, done.stderr
    assert by_layout(tmp_path / "one.json")["4k"]["replay"]["program_by_replayed"] > 2
    assert "fewer than 30 give little information: use a shorter every=" in done.stderr

    # None at all: the timed runs stand.
    far = ("--windows", "every=1G,length=1M,offset=900M")
    done = pagelab(
        "measure", "-q", "-n", "1", "-l", "4k", "--replay", *far, "-o", "far.json", "--", chase, "16", "100000"
    )
    assert done.returncode == 0, done.stderr
    assert by_layout(tmp_path / "far.json")["4k"]["replay"] is None
    assert "4k: no walk cycles, as no window lies in the program" in done.stderr

    without = pagelab("measure", *windows, "--", chase, "16", "100000")
    assert_fails(without, 2, "--windows selects what --replay records: add --replay")
    wrong = pagelab("measure", "--replay", "--windows", "every=0", "-o", "out.json", "--", chase, "16", "100000")
    assert_fails(wrong, 2, "windows")
    assert "a first run" not in wrong.stderr


def test_what_cannot_be_measured_is_said(pagelab: Pagelab, tmp_path: Path, chase: Path) -> None:
    static = tmp_path / "static"
    subprocess.run(["cc", "-O2", "-static", "-o", static, SOURCE], check=True)
    assert_fails(pagelab("measure", "-q", "--", static, "8", "1"), 2, "static is linked statically", "--layout 4k")
    done = pagelab("measure", "-l", "4k", "-l", "host", "-n", "1", "--", static, "64", "100000")
    assert done.returncode == 0, done.stderr
    assert_fails(pagelab("measure", "-q", "--", "./none"), 2, "there is no program './none'")
    (tmp_path / "words.txt").write_text("words")
    assert_fails(pagelab("measure", "-q", "--", "./words.txt"), 2, "./words.txt is not executable")
    assert_fails(pagelab("measure", "-q", "--", "true"), 2, "true ends after", "give it more work")
    failing = pagelab("measure", "-q", "--", chase, "64", "1", "3")
    assert_fails(failing, 2, "ended with status 3 under 4k", "--stdout FILE", "--any-status")
    killed = pagelab("measure", "-q", "--", "sh", "-c", "kill -SEGV $$")
    assert_fails(killed, 2, "ended with status 139 (SIGSEGV)")
    text = tmp_path / "text"
    text.write_text("no program")
    text.chmod(0o755)
    assert_fails(pagelab("measure", "-q", "--", text), 2, "text is not a Linux program")
    assert_fails(pagelab("measure", "-q", "-m", "x", "--", chase, "1", "1"), 2, "add --replay or --trace")
    assert not (tmp_path / "out.json").exists()


def test_what_would_fail_at_the_end_fails_at_once(pagelab: Pagelab, tmp_path: Path) -> None:
    """The program leaves a file when it runs, which it must not."""
    program = ("sh", "-c", "touch ran; sleep 1")
    for options, status, why in (
        (("--replay", "-m", "none"), 2, "none"),
        (("--trace", "none.trace"), 1, "none.trace"),
        (("--replay", "--trace", "none.trace"), 2, "leave one out"),
        (("-o", "/dev/null/x"), 1, "/dev/null"),
    ):
        assert_fails(pagelab("measure", "-q", *options, "--", *program), status, why)
        assert not (tmp_path / "ran").exists()


def test_the_program_ends_with_the_command(tmp_path: Path) -> None:
    """A signal that ends the command ends what it runs, and what that runs."""
    program = f"sleep 97 & echo $! > {tmp_path}/pid; wait"
    command = [*COMMAND, "measure", "-q", "-l", "4k", "--", "sh", "-c", program]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    pid = tmp_path / "pid"
    while not pid.exists() or not pid.read_text().strip():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGTERM
    assert errors == "pagelab: error: terminated\n"
    status = Path(f"/proc/{pid.read_text().strip()}/status")
    # Gone, or not yet waited for by whoever does that for orphans.
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_recording_that_is_interrupted_leaves_no_part(tmp_path: Path, chase: Path) -> None:
    asked = ("-l", "4k", "-l", "thp", "-n", "1", "--replay", "--traces", "kept")
    # The chase is long enough to be found recording.
    command = [*COMMAND, "measure", *asked, "--", str(chase), "16", "5000000"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert running.stderr
    while "recording, which takes" not in running.stderr.readline():
        assert running.poll() is None
    kept = tmp_path / "kept"
    while not list(kept.glob("*/recording.trace")):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors.splitlines()[-1]) == (128 + signal.SIGINT, "pagelab: error: interrupted")
    assert not list(kept.iterdir())


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("2m", "'2m' is no part of a layout; give 4k, thp, host"),
        ("4k,thp", "4k stands alone; for several layouts, --layout 4k --layout thp"),
        ("heap=25", "heap=25: give a share with one decimal at most, such as 25% or 12.5%, or a window"),
        ("heap=101%", "101% is more than all of the heap"),
        ("heap=1MiB-4MiB", "in whole pages of 2 MiB"),
        ("heap=4MiB-4MiB", "a lower to a higher"),
        ("heap=0-4MX", "heap=0-4MX: "),
        ("mmap=0-4MiB", "mmap=0-4MiB: give a share with one decimal at most, such as 25%"),
        ("heap=5%,heap=6%", "heap is given twice"),
    ],
)
def test_wrong_layouts_are_refused(layout: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        layouts.parse(layout)
    assert why in str(error.value)


def test_a_programs_output_and_input_are_files(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{7 * number % 300_007}\n" for number in range(300_000)))
    asked = ("-l", "4k", "-n", "2", "--stdin", "in.txt", "--stdout", "sorted.txt")
    done = pagelab("measure", *asked, "--", "sort", "-n")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "sorted.txt").read_text().splitlines()
    assert len(lines) == 300_000
    assert lines[:2] == ["0", "1"]
    assert_fails(pagelab("measure", "--stdin", "none", "--", "sort"), 1, "none")


PERF = """#!/bin/sh
# Stands in for perf: counts what the test wants, of what is run behind `--`.
while [ "$1" != -- ]; do
    [ "$1" = -o ] && out=$2
    if [ "$1" = -e ]; then
        case $2 in *walk_duration*) ;; *) printf '%s\\t\\t%s\\t1\\t100.00\\n' 1200 "$2" >> "$out";; esac
    fi
    shift
done
shift
exec "$@"
"""


def test_counters_are_those_of_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text(PERF)
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    intel = counters.find("GenuineIntel")
    assert intel.missing is None
    assert intel.events["load_walk_cycles"] == "dtlb_load_misses.walk_active:u"
    guests = counters.find("GenuineIntel", in_guests=True).events
    assert guests["load_walk_cycles"] == "dtlb_load_misses.walk_active:G"
    assert "cycles_kernel" not in guests
    amd = counters.find("AuthenticAMD")
    assert amd.missing == "this processor (AuthenticAMD) does not count walk cycles"
    text = "# a comment\n\n77\t\tcycles:u\t1\t100.00\n<not counted>\t\tcycles:k\t0\t0.00\n"
    assert intel.read(text) == {"cycles_user": 77}
    events = {"load_walk_cycles": 5, "store_walk_cycles": 7, "l1_misses": 30, "misses": 10}
    assert counters.translation(events) == {"walk_cycles": 12, "tlb_misses": 10, "tlb_hits": 20}


def test_counted_runs_say_so(pagelab: Pagelab, tmp_path: Path, chase: Path) -> None:
    (tmp_path / "perf").write_text(PERF)
    (tmp_path / "perf").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = pagelab("measure", "-l", "4k", "-n", "1", "-o", "out.json", "--", chase, "64", "1000", PATH=path)
    assert done.returncode == 0, done.stderr
    (run,) = by_layout(tmp_path / "out.json")["4k"]["runs"]
    assert run["counters"]["cycles_user"] == 1200
    assert faults(by_layout(tmp_path / "out.json")["4k"])[0] > PAGES_OF_64_MIB


def test_where_perf_counts_nothing_the_result_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert counters.find("GenuineIntel").missing == "perf is not installed"
    perf = tmp_path / "perf"
    perf.write_text('#!/bin/sh\nprintf \'<not supported>\\t\\t%s\\t0\\t0\\n\' "$7" > "$5"\n')
    perf.chmod(0o755)
    assert counters.find("GenuineIntel").missing == "there are no hardware counters, as in most virtual machines"


def test_memory_is_that_of_the_moment_with_most() -> None:
    report = "begins 10\nends 10 1000 600 90 80\nbegins 11\nends 11 3000 2000 9 8\nends 12 5 0 0 0\n"
    memory = _Sampler().memory(report)
    assert (memory.anonymous_bytes, memory.huge_bytes) == (3000 << 10, 2000 << 10)
    assert (memory.processes, memory.without_library) == (3, 0)
    assert (memory.heap_extent_bytes, memory.heap_bytes) == (90 << 10, 80 << 10)
    assert memory.huge_share == pytest.approx(2 / 3)


def test_a_heap_is_no_larger_than_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = host.pool_bytes()
    assert whole > 64 << 20
    assert whole % layouts.HUGE_BYTES == 0
    allowed = {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_DATA: 101 << 20}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (allowed[limit], resource.RLIM_INFINITY))
    assert host.pool_bytes() == 50 << 20


def test_intervals_are_students() -> None:
    figure = Figure.from_values([10.0, 12.0, 17.0])
    assert figure.median == 12
    assert figure.mean == 13
    # 4.303 √(13/3)
    assert figure.half_interval == pytest.approx(8.957, abs=0.001)
    assert Figure.from_values([3.0]).half_interval is None


def test_only_results_of_measure_are_read(tmp_path: Path) -> None:
    for text, why in (("no JSON", "not JSON"), ("[]", "no result of"), ('{"kind": "measurement"}', "of this version")):
        file = tmp_path / "file.json"
        file.write_text(text)
        with pytest.raises(UsageError) as error:
            load(file)
        assert why in str(error.value)
