"""`pagelab major-faults`: what a program tells, its cgroup, the estimate, and what is refused.

The comparison of a real store with its replay is in test_store_major_faults.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, Pagelab, assert_fails

from pagelab import UsageError
from pagelab.major_faults import MajorFaultError, memory_group
from pagelab.major_faults.beside import Estimate, Refusal, Simulated, estimate, percent_apart, simulated, warnings
from pagelab.major_faults.memory_group import V1, V2, Hierarchy, hierarchy, limited
from pagelab.major_faults.native import Native, NativeRun, Plan, Range, drop, figures_in, resident

MIB = 1 << 20
RUN = NativeRun(
    seconds=2.0,
    major_faults=100_000,
    minor_faults=7,
    operations=50_000,
    reported=True,
    process_seconds=2.5,
    process_major_faults=100_100,
    process_minor_faults=200,
    left_in_cache=0,
    peak_bytes=None,
    file_bytes=None,
    refaults=None,
)


def native(*runs: NativeRun, memory_bytes: int | None = 64 * MIB) -> Native:
    return Native(Plan(["store"], len(runs), memory_bytes), runs, 1)


def system(label: str, latency_ns: float | None, *, file: str = "a.json", has_unit: bool = False) -> Simulated:
    return Simulated(label, file, 0 if has_unit else 90_000, 90_000 if has_unit else 0, latency_ns, has_unit, None)


KERNEL, UNIT = system("osdp", 25_000), system("hwdp", 12_500, has_unit=True)


def needs_memory_cgroup() -> None:
    try:
        with limited(16 * MIB):
            pass
    except MajorFaultError as error:
        pytest.skip(f"no memory limit can be set here: {error}")


def test_the_estimate_takes_what_the_unit_saves_off_each_miss() -> None:
    outcome = estimate(native(RUN), [KERNEL, UNIT])
    assert isinstance(outcome, Estimate)
    # 100,000 misses of 12.5 us less are 1.25 s of the 2 s: 50,000 operations in 0.75 s.
    assert outcome.delta_ns == Range(12_500, 12_500, 12_500)
    assert outcome.operations_per_second.median == pytest.approx(50_000 / 0.75)
    assert outcome.gain_percent.median == pytest.approx(100 * (2 / 0.75 - 1))


def test_the_estimate_spans_native_runs_and_pairs_of_a_file() -> None:
    half = [system("osdp", 20_000, file="b.json"), system("hwdp", 12_500, file="b.json", has_unit=True)]
    outcome = estimate(native(RUN, replace(RUN, seconds=4.0)), [KERNEL, UNIT, *half])
    assert isinstance(outcome, Estimate)
    assert outcome.delta_ns == Range(10_000, 7500, 12_500)
    assert outcome.operations_per_second.least == pytest.approx(50_000 / (4 - 0.75))
    assert outcome.operations_per_second.most == pytest.approx(50_000 / (2 - 1.25))


def test_a_unit_that_is_slower_makes_less() -> None:
    outcome = estimate(native(RUN), [replace(KERNEL, latency_ns=12_000.0), UNIT])
    assert isinstance(outcome, Estimate)
    assert outcome.gain_percent.median == pytest.approx(100 * (2 / 2.05 - 1))


@pytest.mark.parametrize(
    ("runs", "systems", "why"),
    [
        ([replace(RUN, operations=None)], [KERNEL, UNIT], "the number of operations is unknown: give it with --oper"),
        ([replace(RUN, major_faults=0)], [KERNEL, UNIT], "no major faults: name the program's files with --cold"),
        ([RUN], [KERNEL], "no results have misses of both the kernel and the unit"),
        ([RUN], [UNIT], "no results have misses of both"),
        ([RUN], [KERNEL, replace(UNIT, latency_ns=None)], "no results have misses of both"),
        ([RUN], [KERNEL, replace(UNIT, file="b.json")], "no results have misses of both"),
        # 100,000 misses of 12.5 us less are exactly what this run took.
        (
            [RUN, replace(RUN, seconds=1.25)],
            [KERNEL, UNIT],
            "100,000 misses of 12.50 µs less would save 1.250 s, and the run",
        ),
    ],
)
def test_where_no_estimate_can_be_made_the_reason_is_said(
    runs: Sequence[NativeRun], systems: Sequence[Simulated], why: str
) -> None:
    outcome = estimate(native(*runs), systems)
    assert isinstance(outcome, Refusal)
    assert why in outcome.reason


def test_simulated_misses_are_compared_with_the_median() -> None:
    runs = [replace(RUN, major_faults=count) for count in (90, 100, 200)]
    assert percent_apart(97, native(*runs)) == pytest.approx(-3.0)
    assert percent_apart(97, native(replace(RUN, major_faults=0))) is None


def test_what_should_be_known_is_said() -> None:
    assert not warnings(native(RUN), [replace(KERNEL, limit_bytes=64 * MIB)])
    (limit,) = warnings(native(RUN), [replace(KERNEL, limit_bytes=32 * MIB), UNIT])
    assert limit == (
        "the results have kernel.cgroup_limit_bytes=33554432, and --memory is 67108864: give both the same"
    )
    left, untold = warnings(native(replace(RUN, left_in_cache=1200, reported=False)), [])
    assert left.startswith("1,200 pages of the files of --cold stayed in the page cache")
    assert untold.startswith("the program does not print seconds=, major_faults= and minor_faults=")


def test_what_a_program_prints_is_read() -> None:
    text = "store=lmdb\noperations=1000\nseconds=0.25\nseconds=0.5\nmajor_faults=7\nno line\nchecksum=ff\n"
    assert figures_in(text, "store") == {"operations": 1000, "seconds": 0.5, "major_faults": 7}
    for line, why in (
        ("seconds=fast", "store printed 'seconds=fast': seconds must be a number"),
        ("major_faults=1.5", "store printed 'major_faults=1.5': major_faults must be a whole number"),
        ("operations=-1", "store printed 'operations=-1': operations must be 0 or more"),
        ("seconds=nan", "store printed 'seconds=nan': seconds must be 0 or more"),
    ):
        with pytest.raises(MajorFaultError, match=why):
            figures_in(line, "store")


def test_the_hierarchy_with_the_memory_controller_is_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    unified = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    mounts.write_text(f"{unified}cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,relatime,memory 0 0\n")
    assert hierarchy(mounts) == Hierarchy(Path("/c/memory"), V1)
    mounts.write_text(unified)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert hierarchy(mounts) == Hierarchy(tmp_path, V2)
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(MajorFaultError, match="no hierarchy of cgroups with the memory controller is mounted; mount"):
        hierarchy(mounts)


def test_a_group_of_version_2_has_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In folders and plain files, which have no controller but the same names."""
    monkeypatch.setattr(memory_group, "_remove", lambda _: None)
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu\n")
    with limited(48 * MIB, Hierarchy(tmp_path, V2)) as group:
        assert control.read_text() == "+memory"
        assert (group.path / "memory.max").read_text() == str(48 * MIB)
        assert (group.peak_bytes(), group.file_bytes(), group.refaults(), group.killed()) == (None, None, None, False)
        (group.path / "memory.peak").write_text("123\n")
        (group.path / "memory.stat").write_text("anon 1\nfile 8192\nworkingset_refault_file 45\n")
        (group.path / "memory.events").write_text("low 0\noom_kill 1\n")
        assert (group.peak_bytes(), group.file_bytes(), group.refaults(), group.killed()) == (123, 8192, 45, True)


def test_missing_rights_are_said(tmp_path: Path) -> None:
    with pytest.raises(MajorFaultError, match=r"gone: no cgroup can be made there \(No such file.*leave out --memory"):
        limited(MIB, Hierarchy(tmp_path / "gone", V1)).__enter__()
    with pytest.raises(MajorFaultError, match=r"subtree_control: the memory controller cannot be handed down"):
        limited(MIB, Hierarchy(tmp_path, V2)).__enter__()
    denied = memory_group._refusal(tmp_path, "no cgroup can be made there", PermissionError(13, "Permission denied"))
    assert denied.endswith(
        "(Permission denied): a memory limit needs root and writable cgroups; or leave out --memory")  # fmt: skip


def test_a_file_is_dropped_from_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(os.urandom(64 * 4096 + 1))
    path.read_bytes()
    if resident(path) != 65:
        pytest.skip("this folder's files are not wholly in the page cache after they were written")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    left = drop(path)
    if place_of(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("this folder is in memory, and its files cannot be dropped from the page cache")
    assert (left, resident(path)) == (0, 0)
    (tmp_path / "empty").touch()
    assert resident(tmp_path / "empty") == 0


def place_of(folder: Path) -> str:
    """Type of the folder's file system."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def results(folder: Path, name: str = "results.json") -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": "0",
        "statistics": {},
        "results": [
            {
                "system": label,
                "label": label,
                "settings": [],
                "machine": "m",
                "seed": 1,
                "sources": [],
                "config": {"machine": {"frequency_mhz": 2000}, "kernel": {"cgroup_limit_bytes": "48MiB"}},
                "stats": {"fault.major.count": count, "fault.major.latency.cycles": 60_000 * count} | more,
                "windows": [],
                "warnings": [],
            }
            for label, count, more in (
                ("osdp", 10, {}),
                (
                    "hwdp",
                    2,
                    {
                        "layer.native.fault_engine.mapped": 7,
                        "layer.native.fault_engine.joined": 1,
                        "layer.native.fault_engine.latency.cycles": 160_000,
                    },
                ),
            )
        ],
    }
    (folder / name).write_text(json.dumps(document))
    return document


def test_misses_of_results_are_those_of_the_kernel_and_of_the_unit(tmp_path: Path) -> None:
    document = results(tmp_path)
    path = tmp_path / "results.json"
    kernel, unit = simulated([path])
    assert kernel == Simulated("osdp", str(path), 10, 0, 30_000.0, has_unit=False, limit_bytes=48 * MIB)
    # 160,000 cycles at 2 GHz over eight misses that the unit ended: seven it read for, one that waited for another.
    assert unit == Simulated("hwdp", str(path), 2, 7, 10_000.0, has_unit=True, limit_bytes=48 * MIB)
    assert unit.misses == 9
    del document["results"][0]["stats"]["fault.major.count"]
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"results.json: osdp has no fault.major.count; create it again"):
        simulated([path])


def test_bad_input_is_named(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("no JSON")
    (tmp_path / "data").write_bytes(b"data")
    for arguments, parts in (
        (["--", "no-such-program"], ["no-such-program: no such program"]),
        (["--runs", "0", "--", "true"], ["--runs 0: give at least 1"]),
        (["--memory", "much", "--", "true"], ["--memory: ", "much"]),
        (["--memory", "4KiB", "--", "true"], ["--memory 4096: no program runs in that; give at least 1MiB"]),
        (["--operations", "0", "--", "true"], ["--operations 0: give at least 1"]),
        (["--cold", "gone", "--", "true"], ["--cold gone: no such file; name the files that the program maps"]),
        (["--against", "text.json", "--", "true"], ["text.json: this is not a pagelab result file: not JSON"]),
        (["--cold", "data", "--json", "data", "--", "true"], ["data is named twice and would be overwritten"]),
    ):
        assert_fails(pagelab("major-faults", *arguments), 2, *parts)
    for arguments, parts in (
        (["--against", "gone.json", "--", "true"], ["gone.json: No such file"]),
        (["-q", "--", "false"], ["false ended with status 1; it must succeed to be counted"]),
        (["-q", "--", "sh", "-c", "kill -9 $$"], ["sh ended by signal SIGKILL"]),
        (["-q", "--", "echo", "seconds=soon"], ["echo printed 'seconds=soon': seconds must be a number"]),
    ):
        assert_fails(pagelab("major-faults", *arguments), 1, *parts)
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "data").read_bytes() == b"data"


STORE = ["--", "printf", "operations=1000\nseconds=0.5\nmajor_faults=40\nminor_faults=3\n"]


def test_a_run_is_shown_beside_results(pagelab: Pagelab, tmp_path: Path) -> None:
    results(tmp_path)
    against = ["--runs", "3", "--against", "results.json"]
    done = pagelab("major-faults", "-q", *against, "--json", "out/native.json", *STORE)
    assert done.returncode == 0, done.stderr
    assert "kernel.cgroup_limit_bytes=50331648, and --memory is None" in done.stderr
    rows = {" ".join(line.split()) for line in done.stdout.splitlines()}
    assert "operations per second 2,000 2,000 2,000" in rows
    assert "osdp 10 10 -75.0 % 30.00" in rows
    assert "hwdp 2 7 9 -77.5 % 10.00" in rows
    # 40 misses of 20 us less are 0.8 ms of half a second.
    assert "operations per second, estimated 2,003 2,003 2,003" in rows
    assert "this is an estimate, not a measurement" in done.stdout
    document = json.loads((tmp_path / "out" / "native.json").read_text())
    assert document["native"]["counted"] == "requests"
    assert document["native"]["major_faults"] == {"median": 40, "least": 40, "most": 40}
    assert document["estimate"]["operations_per_second"]["median"] == pytest.approx(1000 / (0.5 - 40 * 20e-6))
    assert "every native miss" in document["estimate"]["rests_on"]
    same = pagelab("major-faults", "-q", *against, "--json", "-", *STORE)
    assert json.loads(same.stdout)["simulated"] == document["simulated"]


def test_a_refused_estimate_is_said(pagelab: Pagelab, tmp_path: Path) -> None:
    results(tmp_path)
    done = pagelab("major-faults", "-q", "--runs", "1", "--against", "results.json", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "no estimate of operations per second with the unit: the number of operations is unknown" in done.stdout


def test_operations_may_be_given(pagelab: Pagelab) -> None:
    done = pagelab("major-faults", "-q", "--runs", "1", "--operations", "500", "--json", "-", "--", "true")
    document = json.loads(done.stdout)
    assert document["native"]["operations"] == 500
    assert document["native"]["counted"] == "process"
    assert document["estimate"] is None


WRITER = "memory = bytearray(64 << 20); memory[::4096] = b'x' * len(memory[::4096]); print('done')"


def test_memory_is_limited(pagelab: Pagelab) -> None:
    needs_memory_cgroup()
    writer = ["--runs", "1", "--json", "-", "--", sys.executable, "-I", "-S", "-c", WRITER]
    done = pagelab("major-faults", "-q", "--memory", "256MiB", *writer)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["native"]["runs"]
    assert run["peak_bytes"] is None or 64 * MIB <= run["peak_bytes"] <= 256 * MIB
    if not any(line.split()[0] != "Filename" for line in Path("/proc/swaps").read_text().splitlines()):
        refused = pagelab("major-faults", "-q", "--memory", "32MiB", *writer)
        assert_fails(refused, 1, "ran out of memory: 32 MiB cannot hold its unreclaimable memory")


@pytest.mark.parametrize("memory", [[], ["--memory", "64MiB"]])
def test_faults_before_the_program_are_not_its_own(pagelab: Pagelab, memory: list[str]) -> None:
    """The process is a fork of Python, which has some 200 faults before it becomes the program; `true` has 50 to 60."""
    if memory:
        needs_memory_cgroup()
    done = pagelab("major-faults", "-q", *memory, "--runs", "1", "--json", "-", "--", "true")
    (run,) = json.loads(done.stdout)["native"]["runs"]
    assert 20 < run["process_minor_faults"] < 80


def test_what_a_program_left_running_goes_with_its_group() -> None:
    needs_memory_cgroup()
    with limited(64 * MIB) as group:
        left = subprocess.Popen(["/bin/sh", "-c", 'echo $$ > "$0" && exec sleep 78', str(group.members)])
        give_up = time.monotonic() + 30
        while str(left.pid) not in group.members.read_text().split() and time.monotonic() < give_up:
            time.sleep(0.05)
    assert left.wait(timeout=30) == -signal.SIGKILL
    assert not group.path.exists()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(tmp_path: Path, ending: signal.Signals) -> None:
    needs_memory_cgroup()
    command = ["major-faults", "-q", "--memory", "64MiB", "--json", "out.json", "--", "sleep", "77.25"]
    with subprocess.Popen([*COMMAND, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        give_up = time.monotonic() + 30
        while not _sleeping() and time.monotonic() < give_up:
            time.sleep(0.05)
        assert _sleeping()
        process.send_signal(ending)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == (130 if ending is signal.SIGINT else 143)
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
    assert not _sleeping()
    assert not list(hierarchy().root.glob(f"pagelab-{process.pid}-*"))


def _sleeping() -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if process.read_bytes() == b"sleep\x0077.25\x00":
                return True
        except OSError:
            continue
    return False
