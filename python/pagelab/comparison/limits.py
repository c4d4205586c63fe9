"""Limits on changes, as `--fail-if 'walks>+3%'` sets them."""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

from pagelab._engine import UsageError
from pagelab.comparison.intervals import Change
from pagelab.comparison.metrics import METRICS, PLACE_METRICS

_LIMIT = re.compile(
    r"\s*(?P<metric>[\w.\-]+)\s*(?:\[(?P<place>.+)\])?\s*(?P<sign>[<>])\s*"
    r"(?P<amount>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>%|[kMG]?)\s*"
)
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

EXCEEDED, WITHIN, UNDECIDED = "exceeded", "within", "undecided"


@dataclass(frozen=True)
class Limit:
    """A limit on a change."""

    text: str
    metric: str
    place: str | None
    """A mapping or function; none for the whole run."""
    above: bool
    """Whether larger changes exceed it; else smaller ones."""
    amount: float
    relative: bool
    """Whether the amount is a share of A's figure."""

    @classmethod
    def parse(cls, text: str) -> "Limit":
        """Reads `METRIC[PLACE]>AMOUNT`, such as `walks>+3%` or `fault_cycles[heap]>+10k`.

        Raises:
            UsageError: it is not a limit.
        """
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise UsageError(f"--fail-if {text!r}: a limit is METRIC>AMOUNT, such as walks>+3% or walks[heap]>+1000")
        metric, place, unit = match["metric"], match["place"], match["unit"]
        if place is not None and metric not in PLACE_METRICS:
            raise UsageError(f"--fail-if {text!r}: a mapping or function has {', '.join(PLACE_METRICS)}")
        amount = float(match["amount"]) * (0.01 if unit == "%" else _UNITS[unit])
        return cls(text.strip(), metric, place, match["sign"] == ">", amount, unit == "%")

    def ensure_known(self, statistics: Collection[str] = ()) -> None:
        """Refuses a metric that is neither in `METRICS` nor one of the engine's statistics.

        Raises:
            UsageError: naming the nearest one, and all.
        """
        if self.place is not None or self.metric in METRICS or self.metric in statistics:
            return
        if self.metric == "paging_cycles":
            raise UsageError(
                f"--fail-if {self.text!r}: only mappings and functions have paging_cycles; the whole run has "
                "translation_cycles and fault_cycles"
            )
        near = difflib.get_close_matches(self.metric, [*METRICS, *statistics], 1)
        hint = f" did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"--fail-if {self.text!r}: there is no metric `{self.metric}`;{hint} there are {', '.join(METRICS)}, and "
            "the statistics of results by name"
        )

    def ensure_plausible(self) -> None:
        """Refuses an unknown metric before long work; the names of statistics contain a point.

        Raises:
            UsageError: as `ensure_known`.
        """
        if "." not in self.metric:
            self.ensure_known()

    def judge(self, change: Change) -> str:
        """`exceeded`, `within` or `undecided`: an interval on both sides of the limit does not decide it."""
        if self.relative and change.relative is None:
            # From 0 to something is more than any share.
            return EXCEEDED if self.above == (change.difference > 0) else WITHIN
        interval = change.relative_interval if self.relative else change.interval
        value = change.relative if self.relative else change.difference
        low, high = interval or (value or 0.0, value or 0.0)
        if not self.above:
            low, high = -high, -low
        limit = self.amount if self.above else -self.amount
        return EXCEEDED if low > limit else WITHIN if high <= limit else UNDECIDED


@dataclass(frozen=True)
class Verdict:
    """The verdict on a limit under a system."""

    limit: Limit
    system: str
    change: Change
    outcome: str
