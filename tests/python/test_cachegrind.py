"""The L1 data cache against Valgrind's own cache simulator, on a real program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pagelab
from pagelab.capture.recorder import record


def _cachegrind_misses(command: list[str]) -> tuple[int, int]:
    """Data references and D1 misses of `command` with 32 KiB of 8 ways."""
    done = subprocess.run(
        [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--D1=32768,8,64",
            "--cachegrind-out-file=/dev/null",
            *command,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    counts = {
        name: int(match[1].replace(",", ""))
        for name, pattern in {"refs": r"D +refs: +([\d,]+)", "misses": r"D1 +misses: +([\d,]+)"}.items()
        if (match := re.search(pattern, done.stderr))
    }
    return counts["refs"], counts["misses"]


@pytest.mark.parametrize(
    "command",
    [["xz", "--keep", "--force", "-6", "text"], ["sort", "--output=sorted", "text"]],
    ids=["xz", "sort"],
)
def test_l1_data_misses_agree_with_cachegrind(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1 geometry alike, the program's own accesses only: data misses within 1 %.

    With 64 sets of 64-byte lines a page covers every set once, so that physical and virtual indices are the same.
    """
    words = (f"{(n * 2654435761) % 1000003:x} line {n % 77}\n" for n in range(20_000))
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("".join(words))
    program = shutil.which(command[0])
    assert program is not None
    command = [program, *command[1:]]
    refs, misses = _cachegrind_misses(command)
    trace = tmp_path / "program.trace"
    record(command, trace)
    results = pagelab.run(
        [f"{trace}@0"],  # one cache for all threads, as Cachegrind has
        systems=["radix"],
        set={
            "engine.kernel_refs": "off",
            "machine.cache.l1.size_bytes": "32KiB",
            "machine.cache.l1.ways": 8,
            # Cachegrind knows no back-invalidation.
            "machine.cache.l3.inclusion": "non-inclusive",
        },
    )
    stats = results["radix"].stats
    own = stats["accesses"] - stats["accesses.by_kernel"] - stats["accesses.fetches"]
    assert own == pytest.approx(refs, rel=0.01)
    assert stats["l1d.misses"] == pytest.approx(misses, rel=0.01)
