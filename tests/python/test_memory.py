"""Memory that pagelab itself takes."""

import subprocess
import sys

import pytest
from conftest import COMMAND


@pytest.mark.parametrize(
    "system",
    [
        "radix",
        "hashed-open",
        "hashed-compact",
        "hashed-chained",
        "hashed-power",
        "elastic-cuckoo",
        "nested-hashed-compact",
    ],
)
def test_a_small_program_takes_little_memory(system: str) -> None:
    """Hashed tables have up to 1 GiB, of which a small program writes to some words."""
    command = [*COMMAND, "run", "-q", "random:size=16MiB,accesses=20K", "-s", system]
    # A process's peak includes that of the process that started it, until it executes: here a small one.
    peak = f"import resource, subprocess; subprocess.run({command}, stdout=-3, check=True); "
    peak += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    measured = subprocess.run([sys.executable, "-c", peak], stdout=subprocess.PIPE, text=True, check=True)
    assert int(measured.stdout) < 150 << 10  # KiB
