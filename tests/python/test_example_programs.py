"""The programs of `examples/programs`, and the command that records them."""

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT
from test_example_stores import missing_for_stores, missing_packages
from test_fault_recorder import needs_perf

import pagelab

PROGRAMS = ROOT / "examples" / "programs"
# What takes no time, for each program: its arguments after the number of threads.
TINY = {
    "radix_sort": ("20000",),
    "fft": ("10",),
    "integer_sort": ("15", "2"),
    "dedup": ("2",),
    "lookups": ("50", "3000"),
    "betweenness": ("9", "3"),
}
ROCKSDB = {"librocksdb-dev": ("rocksdb/c.h", "-lrocksdb")}
Completed: TypeAlias = subprocess.CompletedProcess[str]
Array: TypeAlias = npt.NDArray[Any]


def _run(*command: str | Path, folder: Path | None = None, path: str | None = None) -> Completed:
    """Runs a program in a folder, which finds other programs in `path`."""
    environment = os.environ | ({} if path is None else {"PATH": path})
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def _record(folder: Path, *arguments: str, path: str | None = None) -> Completed:
    return _run(sys.executable, PROGRAMS / "record.py", "-o", folder, *arguments, path=path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the C programs, which compile without a warning."""
    folder = tmp_path_factory.mktemp("programs")
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread")
    for name in TINY:
        done = _run("cc", *flags, "-o", folder / name, PROGRAMS / f"{name}.c", "-lm")
        assert done.returncode == 0, done.stderr
    return folder


def test_no_program_is_left_out() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.c")} == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_results_do_not_depend_on_the_number_of_threads(built: Path, name: str) -> None:
    runs = [_run(built / name, threads, *TINY[name]) for threads in ("1", "2", "2", "3")]
    for run in runs:
        assert run.returncode == 0, run.stderr
        assert run.stdout.startswith(f"{name}: ")
        assert " checksum " in run.stdout
    assert len({run.stdout for run in runs}) == 1


@pytest.mark.parametrize("name", TINY)
def test_bad_arguments_are_named(built: Path, name: str) -> None:
    for arguments, words in (
        (["none"], "THREADS is 'none'; it must be a whole number from 1 to "),
        (["0"], "THREADS is '0'; "),
        (["-1"], "THREADS is '-1'; "),
        (["2x"], "THREADS is '2x'; "),
        (["1", ""], " is ''; it must be a whole number from "),
        (["1", "99999999999999999999"], " is '99999999999999999999'; "),
        (["1", *TINY[name], "7", "7", "7"], "'7' is one argument too many"),
    ):
        done = _run(built / name, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        message, usage = done.stderr.splitlines()
        assert message.startswith(f"{name}: ")
        assert words in message
        assert usage.startswith(f"usage: {name} [THREADS [")


def test_an_fft_has_a_square_of_points(built: Path) -> None:
    done = _run(built / "fft", "1", "9")
    assert done.returncode == 2
    assert done.stderr == "fft: LOG2_POINTS must be even, since the points are a square matrix\n"


def test_a_sort_is_that_of_numpy(built: Path) -> None:
    keys = np.sort(_random_numbers(1000) >> np.uint64(33))
    checksum = int(np.sum(keys * np.arange(1, 1001, dtype=np.uint64), dtype=np.uint64))
    assert f"checksum {checksum:016x}" in _run(built / "radix_sort", "2", "1000").stdout


def test_a_transform_is_that_of_numpy(built: Path) -> None:
    fractions = (_random_numbers(2 << 10) >> np.uint64(11)) * 2.0**-53 - 0.5
    result = np.fft.fft(fractions[::2] + 1j * fractions[1::2])
    at = np.arange(1 << 10)
    checksum = float(np.sum(at % 7 * result.real + at % 11 * result.imag))
    printed = _run(built / "fft", "2", "10").stdout.split()[-1]
    assert float(printed) == pytest.approx(checksum, rel=1e-9)


def test_a_function_reads_the_picture_that_was_made(tmp_path: Path) -> None:
    python = Path(sys.executable).resolve()
    assert _run(python, PROGRAMS / "faas.py", "--make", "a.png", folder=tmp_path).returncode == 0
    read = _run(python, PROGRAMS / "faas.py", "a.png", folder=tmp_path)
    assert read.stdout.startswith("faas: 96 letters, threshold "), read.stderr
    whole = (tmp_path / "a.png").read_bytes()
    for content, why in ((b"GIF", "this is not a PNG"), (whole[:200], "incomplete"), (whole[:10], "unpack")):
        (tmp_path / "b.png").write_bytes(content)
        failed = _run(python, PROGRAMS / "faas.py", "b.png", folder=tmp_path)
        assert failed.returncode == 1
        assert failed.stderr.startswith("error: b.png: ")
        assert why in failed.stderr


def test_processes_are_started_at_their_times() -> None:
    start = (sys.executable, PROGRAMS / "open_loop.py", "--per-second", "50", "--count", "4", "--")
    done = _run(*start, "true")
    assert done.stdout.startswith("open_loop: 4 processes in 0."), done.stderr
    failed = _run(*start, "false")
    assert (failed.returncode, failed.stderr) == (1, "error: 4 of 4 processes failed\n")


@pytest.mark.skipif(not shutil.which("memcached"), reason="memcached is not installed")
def test_records_are_inserted_and_the_server_ends(tmp_path: Path) -> None:
    for memory, status in (("64", 0), ("2", 1)):
        command = ["memcached", "-u", getpass.getuser(), "-t", "2", "-m", memory, "-c", "64", "-s", "socket"]
        with subprocess.Popen(command, cwd=tmp_path) as server:
            try:
                done = _run(sys.executable, PROGRAMS / "insert.py", "socket", "--records", "20000", folder=tmp_path)
                assert server.wait(timeout=30) == 0
            finally:
                server.terminate()
        assert done.returncode == status, done.stderr
        assert ("20000 records in" in done.stdout) == (status == 0)
        assert ("of 20000 records are there; give the server more memory" in done.stderr) == (status == 1)


@needs_perf
def test_a_recording_is_a_trace_of_the_program_s_name(tmp_path: Path) -> None:
    done = _record(tmp_path, "--only", "radix", "--trial")
    assert done.returncode == 0, done.stderr
    assert "radix_sort: 10000 keys, sorted" in done.stdout
    info = pagelab.fault_trace_info(tmp_path / "radix.trial.faults")
    assert info["command"] == ["./radix_sort", "2", "10000"]
    assert f"{info['faults']:,}" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["radix.trial.faults"]
    again = _record(tmp_path, "--only", "radix", "--trial")
    assert (again.returncode, again.stderr) == (0, "")
    assert "radix.trial.faults is there already, and is kept" in again.stdout


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs Valgrind")
@pytest.mark.skipif(bool(missing_for_stores() or missing_packages(ROCKSDB)), reason="needs librocksdb-dev")
def test_rocksdb_is_recorded_with_its_accesses_alone(tmp_path: Path) -> None:
    done = _record(tmp_path, "--only", "rocksdb", "--trial", "--accesses")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb.trial.trace"]
    assert "operations=100" in done.stdout
    assert pagelab.trace_info(tmp_path / "rocksdb.trial.trace")["accesses"] > 1_000_000


def test_what_is_missing_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = _record(tmp_path / "traces", "--only", "radix", "memcached", "faas", path=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {name}.faults is not recorded: {program} is not installed; on Debian it is in the package {package}"
        for name, program, package in (
            ("radix", "cc", "gcc"),
            ("memcached", "memcached", "memcached"),
            ("faas", "perf", "linux-perf"),
        )
    ]
    assert not list((tmp_path / "traces").iterdir())


def _random_numbers(count: int) -> Array:
    """splitmix64."""
    with np.errstate(over="ignore"):
        x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        result: Array = x ^ x >> np.uint64(31)
    return result
