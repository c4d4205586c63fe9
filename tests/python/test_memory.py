"""Memory that pagelab itself takes."""

import os
import subprocess

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
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss < 150 << 10  # KiB
