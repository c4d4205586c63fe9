"""`benches/throughput.py`: its rates and what they are held against."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "benches" / "throughput.py"
HOST_RATE, HOST_RATIO = 2, -1


@pytest.mark.slow
def test_every_workload_is_held_against_all_yardsticks() -> None:
    ran = subprocess.run([sys.executable, str(BENCH), "--quick"], check=True, capture_output=True, text=True)
    table = ran.stdout.partition("host –:")[0]
    words = " ".join(table.split())
    assert all(column in words for column in ("generator", "naive", "host", "replay"))
    rows = [line.replace("│", " ").split()[-8:] for line in table.splitlines()]
    rows = [cells for cells in rows if len(cells) == 8 and all(re.fullmatch(r"[0-9.e+]+|–", cell) for cell in cells)]
    assert len(rows) == 9, table
    for cells in rows:
        measured = [float(cell) for cell in cells if cell != "–"]
        assert all(0 < value < 1e5 for value in measured)
        # Only the host is left out, and only with its ratio.
        assert len(measured) == 8 or (cells[HOST_RATE] == cells[HOST_RATIO] == "–" and len(measured) == 6)
        generator, naive, host, whole, settled = (float(cell) if cell != "–" else None for cell in cells[:5])
        assert generator is not None
        assert naive is not None
        assert settled is not None
        assert whole is not None
        assert generator > naive
        for rate, ratio in ((generator, cells[5]), (naive, cells[6]), (host, cells[7])):
            assert rate is None or float(ratio) == pytest.approx(settled / rate, rel=0.02, abs=0.001)
