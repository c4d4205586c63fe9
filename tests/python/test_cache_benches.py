"""The C programs of `benches/` that measure caches compile without a warning, refuse bad arguments and print tables."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2")
NAMES = ("cache_index", "new_memory")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benches")
    for name in NAMES:
        command = ["cc", *FLAGS, "-o", str(folder / name), str(ROOT / "benches" / f"{name}.c")]
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
