"""What the simulator's kernel does for the faults of a guest's programs.

Models: the programs' accesses, replayed (`references.write_user`). Pages on which the guest did not fault are
    mapped from the start. Counting begins after the first access, to exclude their population.
Parameters: system, kernel and machine of the simulator, and overrides of their keys.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab.replay import simulation
from pagelab_linux import LinuxError
from pagelab_linux.references import FOUND, Rows, write_user
from pagelab_linux.stages import STAGES


@dataclass(frozen=True)
class Simulator:
    """What replays them."""

    system: str = "radix"
    kernel: str = "linux-6.12-traced"
    machine: str | None = None
    settings: Sequence[str] = ()
    pages: int = 1
    """That a fault of the guest maps, aligned to their number"""


@dataclass(frozen=True)
class Simulated:
    """What it counted."""

    values: Mapping[str, int]

    @property
    def faults(self) -> int:
        return self.values["fault.minor.count"]

    def instructions(self, stage: str) -> float:
        """Per fault."""
        return self.values[f"fault.stage.{stage}.instructions"] / (self.faults or 1)

    def lines(self, stage: str) -> dict[str, float]:
        """Per fault, by where they were found; those of other cores' caches are of the L3."""

        def lines(place: str) -> int:
            return self.values[f"fault.stage.{stage}.lines.{place}"]

        counts = {place: lines(place) + (lines("remote") if place == "l3" else 0) for place in FOUND}
        return {place: number / (self.faults or 1) for place, number in counts.items()}

    def all_lines(self) -> dict[str, float]:
        each = [self.lines(stage) for stage in STAGES]
        return {place: sum(lines[place] for lines in each) for place in FOUND}


def simulate(rows: Rows, simulator: Simulator) -> Simulated:
    """Replays the accesses of user code.

    Raises:
        LinuxError: there are none.
        ConfigError: there is no such system, kernel or machine, or an impossible setting.
    """
    with tempfile.TemporaryDirectory(prefix="pagelab-") as place:
        trace = write_user(rows, Path(place) / "user.trace", ["pagelab", "linux"], simulator.pages)
        results = simulation.run(
            trace,
            simulator.system,
            machine=simulator.machine,
            kernel=simulator.kernel,
            set=simulator.settings,
            warm_up=1,
        )
    result = results.systems[0]
    if result.stats["accesses.refused"]:
        raise LinuxError(f"{result.stats['accesses.refused']} accesses of the guest have no mapping in the simulator")
    return Simulated(result.stats)
