"""What the tests share: the command as users run it."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "pagelab")

needs_recorder = pytest.mark.skipif(not shutil.which("valgrind") or not shutil.which("gcc"), reason="needs valgrind")

Pagelab: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


# Tables are as wide as these say. pytest's workers and some shells set them.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)


@pytest.fixture
def pagelab(tmp_path: Path) -> Pagelab:
    """Runs `pagelab ARGUMENTS…` in an empty folder."""

    def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def read_terminal(ours: int) -> str:
    """What is written to a terminal until its other end is closed; closes this end."""
    output = bytearray()
    try:
        while part := os.read(ours, 1 << 16):
            output += part
    except OSError:
        # How Linux says that the other end is closed.
        pass
    finally:
        os.close(ours)
    return output.decode()


def load_bench(name: str) -> ModuleType:
    """The module of a script in `benches`."""
    spec = importlib.util.spec_from_file_location(f"{name}_bench", ROOT / "benches" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def assert_fails(process: subprocess.CompletedProcess[str], status: int, *parts: str) -> None:
    """The command ended with `status` and one line of error that holds all of `parts`."""
    assert process.returncode == status, process.stderr
    assert "Traceback" not in process.stderr
    lines = process.stderr.strip().splitlines()
    assert len(lines) == 1, process.stderr
    assert lines[0].startswith("pagelab: error: ")
    for part in parts:
        assert part in lines[0]
