"""`pagelab record --faults`: recording page faults with perf."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from conftest import COMMAND, Pagelab, assert_fails
from fault_text import perf_script
from test_recorder_programs import compiled

import pagelab as package
from pagelab import _engine
from pagelab.faults import recorder
from pagelab.faults.recorder import EVENTS, Perf

PAGES = 5000
TOUCH = f"""
import mmap
memory = mmap.mmap(-1, {PAGES} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, {PAGES} * 4096, 4096):
    memory[at] = 1
"""


def _usable() -> list[str]:
    """Names of the events that perf may record here."""
    if not shutil.which("perf"):
        return []
    command = ["perf", "record", "-q", "-o", "/dev/null", "-c", "1"]
    run = [subprocess.run([*command, *event.options, "true"], capture_output=True, check=False) for event in EVENTS]
    return [event.name for event, tried in zip(EVENTS, run, strict=True) if tried.returncode == 0]


USABLE = _usable()
needs_perf = pytest.mark.skipif(not USABLE, reason="perf may not record page faults here")


@needs_perf
def test_every_touched_page_is_a_fault(pagelab: Pagelab, tmp_path: Path) -> None:
    done = pagelab("record", "--faults", "-o", "touch.faults", "--", sys.executable, "-c", TOUCH)
    assert done.returncode == 0, done.stderr
    assert "ns per fault" in done.stderr
    info = package.fault_trace_info(tmp_path / "touch.faults")
    assert info["command"][0] == sys.executable
    assert info["latency"]["origin"] == "constant"
    assert info["latency"]["ns"] > 50
    assert "sampled" in info["latency"]["how"]
    assert info["cores"] == os.cpu_count()
    assert info["cpu_time_ns"] > 0
    assert info["duration_ns"] > 1_000_000
    frame = pl.read_parquet(tmp_path / "touch.faults")
    assert frame["time_ns"].is_sorted()
    # The region is one run of pages: count the faults within the best window of its size.
    pages = sorted(set((frame["address"] // 4096).to_list()))
    assert max(sum(first <= page < first + PAGES for page in pages) for first in pages[:: PAGES // 10]) > PAGES // 3
    assert PAGES + info["lost"] <= info["faults"] + info["lost"] < PAGES + 20_000
    model = pagelab("model", "mfoe", "touch.faults", "--json", "-")
    assert model.returncode == 0, model.stderr
    run = json.loads(model.stdout)["runs"][0]
    assert run["outcome"]["faults"] >= PAGES - info["lost"]
    assert run["timeline"]["recording_cost_ns"] == info["recording_cost_ns"]


@needs_perf
def test_children_are_recorded_and_the_status_is_the_program_s(pagelab: Pagelab, tmp_path: Path) -> None:
    done = pagelab("record", "--faults", "-o", "a.faults", "--", "sh", "-c", "ls / > /dev/null; ls /; exit 3")
    assert done.returncode == 3, done.stderr
    assert "the program ended with status 3" in done.stderr
    assert "usr" in done.stdout
    info = package.fault_trace_info(tmp_path / "a.faults")
    assert info["processes"] >= 3
    again = pagelab("record", "--faults", "-o", "a.faults", "--", "true")
    assert_fails(again, 2, "a.faults: exists; name another output")


@needs_perf
def test_faults_before_the_program_are_not_its_own(pagelab: Pagelab, tmp_path: Path) -> None:
    """A static program maps nothing where libraries lie, but the kernel's vdso: those of Python lie there."""
    program = compiled(tmp_path, "int main(void) { return 0; }", "-static", "-no-pie")
    done = pagelab("record", "--faults", "-o", "a.faults", "--", program)
    assert done.returncode == 0, done.stderr
    addresses = pl.read_parquet(tmp_path / "a.faults")["address"]
    assert len(addresses) > 10
    assert sum(0x7000_0000_0000 <= address < 0x7FF0_0000_0000 for address in addresses) <= 3


@needs_perf
def test_a_program_that_cannot_be_executed_is_an_error(pagelab: Pagelab, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("exit 0\n")
    program.chmod(0o755)
    done = pagelab("record", "-q", "--faults", "-o", "a.faults", "--", program)
    assert_fails(done, 2, f"{program}: Exec format error")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program"]


@pytest.mark.skipif("minor-faults" not in USABLE, reason="perf may not record software events here")
def test_the_software_event_does_without_tracepoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Perf._refusal
    monkeypatch.setattr(
        Perf, "_refusal", lambda self, event: "no tracefs" if event.name == "tracepoints" else refusal(self, event)
    )
    recording = package.record_faults([sys.executable, "-c", TOUCH], tmp_path / "a.faults")
    assert recording.event == "minor-faults"
    assert recording.faults + recording.lost >= PAGES
    assert any("does not tell the kind" in note for note in recording.notes)
    assert package.mfoe(tmp_path / "a.faults").estimates[0].outcome["faults"] == recording.faults


def test_without_perf_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "true").symlink_to(shutil.which("true") or "/bin/true")
    done = _record(tmp_path, "true")
    assert_fails(done, 2, "perf is not installed; on Debian it is in the package linux-perf")
    perf = tmp_path / "bin" / "perf"
    perf.write_text("#!/bin/sh\nprintf 'syntax error\\nError:\\tPermission to record denied\\nHint: x' >&2\nexit 255\n")
    perf.chmod(0o755)
    both = ("tracepoints: Permission to record denied (needs root", "minor-faults: Permission", "perf_event_paranoid")
    assert_fails(_record(tmp_path, "true"), 2, "perf cannot record page faults here", *both)
    assert not list(tmp_path.glob("*.faults*"))


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("event syntax error: 'x'\nError:\tNo permissions\nHint: try", "No permissions"),
        ("Error:\nAccess is limited.\nMore", "Access is limited."),
        ("perf: no memory\n", "perf: no memory"),
        ("", ""),
    ],
)
def test_the_reason_is_what_perf_calls_the_error(output: str, reason: str) -> None:
    assert recorder.reason(output) == reason


def test_a_name_tells_which_kind_of_trace_it_is(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("record", "--faults", "-o", "a.trace", "--", "true"), 2, "a fault trace, NAME.faults")
    assert_fails(pagelab("record", "-o", "a.faults", "--", "true"), 2, "without --faults", "NAME.trace")
    assert not list(tmp_path.iterdir())


def test_mistakes_say_what_would_be_right(pagelab: Pagelab) -> None:
    assert_fails(pagelab("record", "--faults", "--", "no-such-program"), 2, "there is no program 'no-such-program'")
    both = pagelab("record", "--faults", "--max-accesses", "5", "--", "true")
    assert_fails(both, 2, "--max-accesses is not possible with --faults")


def test_text_becomes_a_trace(tmp_path: Path) -> None:
    text, trace = tmp_path / "faults.txt", tmp_path / "a.faults"
    text.write_text(perf_script(100) + "  swapper 0/0 [000] 9.000000000: PERF_RECORD_LOST lost 5\n")
    facts = {"cores": 4, "duration_ns": 10**9, "duration_origin": "a test", "cpu_time_ns": 2 * 10**9}
    latency = {"origin": "constant", "ns": 700, "how": "a test"}
    info = json.loads(_engine.import_faults_json(text, trace, json.dumps({**facts, "latency": latency})))
    about = package.fault_trace_info(trace)
    counts = about.pop("counts")
    assert info == about
    assert (sum(counts["by_core"]), counts["by_kernel"]) == (100, 0)
    assert (info["faults"], info["cores"], info["lost"], info["duration_ns"]) == (100, 4, 5, 10**9)
    estimate = package.mfoe(trace).estimates[0]
    assert estimate.timeline["parallelism"] == 2
    assert estimate.outcome["overhead_before"] == pytest.approx(100 * 700e-9 / 2)
    frame = pl.read_parquet(trace)
    assert frame.columns == ["time_ns", "core", "address", "kind", "process", "thread", "latency_ns"]
    assert frame["time_ns"].to_list() == list(range(0, 1_000_000, 10_000))
    with pytest.raises(package.UsageError, match="exists; name another output"):
        _engine.import_faults_json(text, trace, "{}")


def _record(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Records with nothing on the path but the folder's programs."""
    command = [*COMMAND, "record", "--faults", "-o", "a.faults", "--", program]
    environment = os.environ | {"PATH": str(folder / "bin")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
