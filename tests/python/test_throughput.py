"""`benches/throughput.py`, `systems.py`, `designs.py`, `recordings.py`: their rates and what they are held against."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagelab_studies.translation_designs_runs import BARE, DESIGNS, VIRTUAL

BENCHES = Path(__file__).parents[2] / "benches"
HOST_RATE, HOST_RATIO = 2, -1


def rows_of(table: str) -> dict[str, list[str]]:
    """The cells of each row by its first one."""
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if line.startswith("│")
    ]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.slow
def test_every_workload_is_held_against_all_yardsticks() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHES / "throughput.py"), "--quick"], check=True, capture_output=True, text=True
    )
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


@pytest.mark.slow
def test_every_system_has_a_rate_and_a_cost_of_faults() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHES / "systems.py"), "--quick"], check=True, capture_output=True, text=True
    )
    rates, _, faults = ran.stdout.partition("A page fault")
    rows = rows_of(rates)
    assert len(rows) == 13, rates
    for title, (rate, of_naive, of_radix) in rows.items():
        assert 0 < float(of_naive.split()[0]) < 10, title
        assert float(rate) > 0, title
        assert bool(of_radix) == (title not in ("radix", "radix, random"))
        # One round: the range is the ratio.
        if of_radix:
            middle, low, high = re.findall(r"[0-9.]+", of_radix)
            assert middle == low == high
    costs = {title: float(cells[0]) for title, cells in rows_of(faults).items()}
    assert costs["radix"] < costs["nested-radix"]


@pytest.mark.slow
def test_every_design_has_a_rate_where_it_runs() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHES / "designs.py"), "--quick"], check=True, capture_output=True, text=True
    )
    rows = rows_of(ran.stdout)
    assert list(rows) == [design.name for design in DESIGNS]
    for design in DESIGNS:
        cells = rows[design.name]
        for layer, rate, ratio in ((BARE, *cells[:2]), (VIRTUAL, *cells[2:])):
            assert (rate == ratio == "–") == (not design.preset(layer)), design.name
            assert rate == "–" or float(rate) > 0


@pytest.mark.slow
def test_every_program_is_recorded_in_every_way() -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHES / "recordings.py"), "--quick"], check=True, capture_output=True, text=True
    )
    times, _, beside = ran.stdout.partition("Times cachegrind's")
    for title, cells in rows_of(times).items():
        native, valgrind, cachegrind, record, whole, live = map(float, cells)
        assert native < valgrind < min(cachegrind, record, live), title
        assert record < whole, title
        ratio = rows_of(beside)[title][0].split()[0]
        assert float(ratio) == pytest.approx(record / cachegrind, rel=0.05), title
