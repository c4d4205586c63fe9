"""Which stretches of a long program are recorded, and what they came to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pagelab import _engine
from pagelab.quantities import Count, count


@dataclass(frozen=True)
class Stretches:
    """Which stretches of a program are recorded, of all its processes and threads together.

    By instructions (`skip`, `windows`), or by what happens (`start_at`, `stop_at`, `start_on_signal`).
    """

    skip: Count | None = None
    """Instructions that are skipped at first, such as `"2G"`."""
    windows: str | None = None
    """`every=1G,length=20M[,warm=5M][,offset=N|random][,seed=N]`: a window of `length` instructions in each period of
    `every`; the `warm` ones before it are recorded, too, and not measured."""
    start_at: str | Sequence[str] = ()
    """Functions at whose calls recording starts: `SYMBOL`, `OBJECT:SYMBOL`, `OBJECT:0xADDRESS` or `0xADDRESS`; `#3`
    behind it for the third call alone."""
    stop_at: str | Sequence[str] = ()
    """Functions at whose calls it stops."""
    start_on_signal: bool = False
    """SIGUSR1 to the recording process starts it, SIGUSR2 stops it."""

    def to_json(self) -> str:
        """What the recorder takes.

        Raises:
            UsageError: `skip` is no count.
        """
        return json.dumps(
            {
                "skip": count("skip", self.skip, least=1),
                "windows": self.windows,
                "start_at": _several(self.start_at),
                "stop_at": _several(self.stop_at),
                "start_on_signal": self.start_on_signal,
            }
        )

    def check(self) -> None:
        """Finds what a recording would fail of.

        Raises:
            UsageError: there are no such stretches.
        """
        _engine.check_stretches(self.to_json())


def _several(functions: str | Sequence[str]) -> list[str]:
    return [functions] if isinstance(functions, str) else list(functions)


@dataclass(frozen=True)
class StretchTotals:
    """What the stretches of a recording came to."""

    windows: int
    """Recorded stretches that are to be measured."""
    measured_instructions: int
    warming_instructions: int
    """Instructions recorded before them, to warm up."""
    skipped_instructions: int
    skipped_accesses: int
    """Accesses of skipped stretches that were left out: all but first touches."""

    @property
    def program_instructions(self) -> int:
        """All of the program's."""
        return self.measured_instructions + self.warming_instructions + self.skipped_instructions

    def describe(self) -> str:
        """In a sentence: so many windows, so much of the program."""
        total = self.program_instructions
        share = 100 * self.measured_instructions / total if total else 0
        warm = f", {self.warming_instructions:,} before them to warm up" if self.warming_instructions else ""
        return (
            f"{self.windows:,} window{'s' * (self.windows != 1)} of {self.measured_instructions:,} instructions, "
            f"{share:.3g} % of the program's {total:,}{warm}"
        )
