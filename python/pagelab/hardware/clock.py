"""The rate of the core's clock, its error, and the rates that the machine states.

Models: nothing. `crates/pagelab-host/src/clock.rs` decides on which rate several chains of instructions agree.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab import _engine

_TOLERANCE = 0.05
"""A core may run this much above the highest rate that is stated, since boosts of some processors are rounded down"""


@dataclass(frozen=True)
class StatedRate:
    """A rate that the processor or the kernel states."""

    source: str
    cycles_per_nanosecond: float

    def __str__(self) -> str:
        return f"{self.cycles_per_nanosecond:.3g} GHz ({self.source})"


@dataclass(frozen=True)
class Clock:
    """The measured rate of the core's clock."""

    cycles_per_nanosecond: float
    uncertainty: float
    """The error of the rate, as a share of it"""
    stated: Sequence[StatedRate] = ()

    def __str__(self) -> str:
        return f"{self.cycles_per_nanosecond:.3f} GHz ± {100 * self.uncertainty:.1f} %"

    @property
    def comparison(self) -> str:
        """The measurement and the stated rates, in one sentence."""
        if not self.stated:
            return "neither the processor nor the kernel states the clock rate"
        return f"the machine states {', '.join(map(str, self.stated))}"

    @property
    def warnings(self) -> Sequence[str]:
        """A warning if the clock seems to be faster than stated."""
        most = max((rate.cycles_per_nanosecond for rate in self.stated), default=0.0)
        if not most or self.cycles_per_nanosecond <= (1 + _TOLERANCE) * most:
            return ()
        return (
            f"the core's clock was measured at {self}, above all rates that the machine states: {self.comparison}; "
            "hypervisors often state those of another processor",
        )


def from_measurement(clock: Mapping[str, float], stated: Sequence[Mapping[str, Any]]) -> Clock:
    """The clock of a measurement by `crates/pagelab-host`."""
    return Clock(**clock, stated=tuple(StatedRate(**rate) for rate in stated))


def agree(rates: Mapping[str, float]) -> Clock:
    """The clock on which chains of instructions agree.

    Args:
        rates: Cycles per nanosecond from each chain, by its name.

    Raises:
        UsageError: most of them disagree, or agree on an impossible rate.
    """
    answer = json.loads(_engine.core_clock_json(json.dumps(dict(rates))))
    return from_measurement(answer["clock"], answer["stated_rates"])
