"""Memory that pagelab itself takes."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

import memory


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


def test_the_bench_measures_peaks_and_they_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("large", memory.LARGE):
        monkeypatch.setitem(memory.WORKLOADS, name, "gups:size=32MiB,updates=50K")
    monkeypatch.setitem(memory.WORKLOADS, memory.LONGER, "gups:size=32MiB,updates=200K")
    monkeypatch.setattr(sys, "argv", ["memory.py", "radix", "hashed-open"])
    assert memory.main() == 0


def test_the_bench_tells_what_grows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def peak(workload: str, system: str, pages: str) -> float:
        grows = system == "mfoe" and workload == memory.WORKLOADS[memory.LONGER]
        return 50.0 + 10.0 * grows + 1000.0 * (pages != "small pages")

    monkeypatch.setattr(memory, "peak_mib", peak)
    monkeypatch.setattr(sys, "argv", ["memory.py", "radix", "mfoe"])
    assert memory.main() == 1
    assert capsys.readouterr().out.endswith("memory grows with the accesses: mfoe\n")
