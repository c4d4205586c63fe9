"""The C programs of `benches/` that measure this machine compile without a warning and refuse bad arguments."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2")
NAMES = ("cache_index", "new_memory")
LOOPS = ("one", "apart", "anonymous", "private", "shared")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benches")
    for name in (*NAMES, "fault_loops"):
        command = ["cc", *FLAGS, "-pthread", "-o", str(folder / name), str(ROOT / "benches" / f"{name}.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounds", ["0", "1001", "many"])
def test_impossible_rounds_are_refused(name: str, rounds: str, built: Path) -> None:
    done = subprocess.run([built / name, rounds], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"{name}: ROUNDS must be from \d to 1000\n", done.stderr)


def test_new_memory_prints_both_orders_or_says_why_not(built: Path) -> None:
    done = subprocess.run([built / "new_memory", "6"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        # A host without huge pages, or with none free.
        assert re.fullmatch(r"new_memory: .*\n", done.stderr)
        return
    number = r"[-+]?\d+\.\d"
    row = rf"\| {number}, {number} \| {number}, {number} \| {number} \({number} to {number}\) \|"
    assert [name for name in ("in order", "at random") if re.search(rf"\| {name} {row}", done.stdout)] == [
        "in order",
        "at random",
    ]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_loops_fault_once_per_page(loop: str, kind: str, built: Path) -> None:
    done = subprocess.run([built / "fault_loops", loop, kind, "1", "2"], capture_output=True, text=True, check=False)
    if (loop, kind) == ("one", "processes"):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "fault_loops: processes cannot share one anonymous mapping\n"
        return
    assert done.returncode == 0, done.stderr
    rate, share, faults = map(float, done.stdout.split())
    assert rate > 1000
    assert 0 < share <= 1.05
    assert faults == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_switch_is_off_at_the_end(loop: str, built: Path, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.write_text("as it was\n")
    command = [str(built / "fault_loops"), loop, "threads", "1", "2", str(switch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[2]) == pytest.approx(1, abs=0.01)
    assert switch.read_text() == "0\n it was\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one", "threads", "1", "1", "/nowhere/switch"], "SWITCH cannot be opened for writing"),
        (["one", "threads", "0"], "N must be from 1 to 1024"),
        (["one", "threads", "1", "many"], "ROUNDS must be from 1 to 100000"),
        (["two", "threads", "1"], "LOOP must be one, apart, anonymous, private or shared"),
        (["one", "fibres", "1"], "tasks are threads or processes"),
        (["apart", "threads", "1024"], "there are fewer CPUs than tasks"),
    ],
)
def test_impossible_loops_are_refused(words: list[str], message: str, built: Path) -> None:
    done = subprocess.run([built / "fault_loops", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"fault_loops: {message}\n")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--rounds", "0"], 2, "error: --rounds must be at least 1"),
        (["--repeat", "0"], 2, "error: --repeat must be at least 1"),
        (["--tasks", "0"], 2, "error: --tasks must be at least 1"),
        (["--tasks", "9"], 1, "fault_loops: 9 CPUs: the kernel is built for 1 to 8"),
    ],
)
def test_impossible_guests_are_refused(words: list[str], status: int, message: str) -> None:
    command = [sys.executable, str(ROOT / "benches" / "fault_loops.py"), "--guest", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.endswith(f"{message}\n")
