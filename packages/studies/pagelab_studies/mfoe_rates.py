"""Table 1 of the minor-fault offload engine's paper: its rates of faults beside those of programs of the same kind.

The paper prints rates of whole programs, and neither how many threads fault nor how busy they are. So its rate is
compared in two ways: as it is, and by hardware thread with ours by busy core.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pagelab_studies.study import Findings, Series

RATES = "Faults per second (thousands), and ours as a multiple of the paper's"
CHANGED = "First writes per second and busy core (thousands), with one thing changed natively"
OF_PROGRAM, OF_CORE = "here ÷ paper, all cores", "here ÷ paper, per core"
NEAR = 2.0
"""A rate is near the paper's if it is within this factor."""
LOOKUPS = "4.2 look-ups per energy instead of 1"
CHANGES = {("XSBench", LOOKUPS): 6.9 / 25.2}
"""How many times as many faults per CPU second a program has with the change. Measured: `getrusage` of `lookups 2 10000
660000` (25.0 to 28.5 K/s, four runs) and `lookups 2 10000 2883000` (6.9, two runs), in turn, on an Intel Xeon (model
207) beside a load of 10 to 12 on two CPUs. XSBench makes 17 million look-ups in its size "large", of 4.01 million
energies."""
ELSEWHERE = {
    "GCC compiler": 9.5,
    "FaaS": 24.2,
    "Parsec-dedup": 31.4,
    "Splash2X-radix": 89.2,
    "Splash2X-fft": 120.0,
    "XSBench": 25.6,
    "GAP-BC": 8.7,
    "Integer Sort": 17.7,
}
"""Thousand minor faults per CPU second of the same programs, with the sizes of their recordings, natively on the Intel
Xeon beside that load: medians of one to five runs. memcached is not installed there."""


@dataclass(frozen=True)
class Rate:
    """Thousand faults per second, of a whole program and of one core."""

    of_program: float
    of_core: float


def add(findings: Findings, rates: Mapping[str, tuple[Rate, Rate]]) -> None:
    """Adds the tables. `rates` has the paper's and ours by program."""
    cells: dict[tuple[str, str], float] = {}
    for row, (paper, ours) in rates.items():
        cells[row, "paper, all cores"], cells[row, "paper, per hardware thread"] = paper.of_program, paper.of_core
        cells[row, "here, all cores"], cells[row, "here, per busy core"] = ours.of_program, ours.of_core
        cells[row, OF_PROGRAM] = ours.of_program / paper.of_program
        cells[row, OF_CORE] = ours.of_core / paper.of_core
        if row in ELSEWHERE:
            cells[row, "per CPU second on another host"] = ELSEWHERE[row]
    if not cells:
        return
    findings.series.append(Series.from_values("Table 1", RATES, "K/s, times", cells))
    near = {
        member: [row for row in rates if 1 / NEAR <= cells[row, member] <= NEAR] for member in (OF_PROGRAM, OF_CORE)
    }
    findings.notes.append(
        f"Rates of faults within a factor of {NEAR:g} of Table 1's: of whole programs {_names(near[OF_PROGRAM])}; per "
        f"core {_names(near[OF_CORE])}. The same programs have 0.4 to 1.8 times as many faults per CPU second on "
        "another host, so rates of two machines may differ by as much."
    )
    changed = {(row, change): rates[row][1].of_core * times for (row, change), times in CHANGES.items() if row in rates}
    if changed:
        findings.series.append(Series.from_values("Table 1", CHANGED, "K/s", changed))


def _names(rows: list[str]) -> str:
    return ", ".join(rows) or "none"
