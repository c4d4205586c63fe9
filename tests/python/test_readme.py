"""The commands of the README work as written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
# Those that generate their accesses; recording and big traces have tests of their own.
COMMANDS = [
    line.removeprefix("$ ")
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
    if line.startswith(("$ pagelab run gups", "$ pagelab list", "$ pagelab schema"))
]
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, tmp_path: Path) -> None:
    words = shlex.split(command.partition("|")[0])
    process = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_python(program: str, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr


def test_there_is_something_to_test() -> None:
    assert COMMANDS
    assert PROGRAMS
