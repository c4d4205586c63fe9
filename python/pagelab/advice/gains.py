"""What a remedy gains, what it costs in memory, and which mappings the gain comes from.

Models: a gain is the share of the busy cycles that a remedy saves. On the core with a window all cycles count. On the
    in-order core those of paging do, since it would also wait for each line that large pages have pushed out of its
    caches when they were zeroed, which stores and prefetchers hide. A gain's bar holds both, and what they were with a
    fifth fewer or more cycles, for latencies that presets estimate. A remedy helps if even the lower end of its bar is
    more than a hundredth of the program's time. It is worth it if that end is also more than a millisecond of the whole
    program, as far as it is known how long that is: what is replayed of it, by its instructions.
    What translation takes on the core with a window is the larger of the stalls for it and what a remedy spares there.
Deviations: both limits and the fifth are choices. What processors hide that neither core hides is in no bar. What is
    not replayed is taken to be like what is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab.advice.trials import TLB_FACTOR, Trials
from pagelab.headline import busy_cycles, faults
from pagelab.length import WHOLE, Length
from pagelab.report.figures import paging_cost, paging_cycles, share
from pagelab.results import SystemResult
from pagelab.stretches import is_sampled

ESTIMATED = 0.2
"""Of the cycles that a gain is made of, for what latencies are estimated"""
LEAST_SHARE = 0.01
LEAST_SECONDS = 0.001
HUGE_BYTES = 2 << 20

REMEDIES = {
    "huge": "huge pages (2 MiB) for all anonymous memory",
    "folios": "folios of 32 KiB (mTHP)",
    "populate": "memory populated when it is mapped",
    "host": "huge pages in the host",
}
"""What a user can have, by what is tried"""
CHANGES = {"tlb": f"a last-level TLB of {TLB_FACTOR} times the entries", "elsewhere": ""}
"""What a user has to buy or to move to"""
_SMALL_PAGES_ALONE = ("folios", "populate")
"""Remedies whose systems have no huge pages, not even for those who ask"""


@dataclass(frozen=True)
class Bar:
    """Between which values a figure lies."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> "Bar":
        """Holds all values."""
        return cls(min(values), max(values))

    @classmethod
    def of_gains(cls, gains: Sequence[float]) -> "Bar":
        """Holds all gains, and what they were if the cycles that make them were a fifth fewer or more."""
        ends = [_if_cycles_were(gain, factor) for gain in gains for factor in (1 - ESTIMATED, 1 + ESTIMATED)]
        return cls.around(ends)


def _if_cycles_were(gain: float, factor: float) -> float:
    """A gain whose cycles are multiplied; what remains of the program's time beside them is as it was."""
    return factor * gain / (1 - gain + factor * gain) if gain > 0 else factor * gain


@dataclass(frozen=True)
class Gain:
    """What one change gains."""

    key: str
    saved: Bar
    """Shares of the program's time."""
    saved_seconds: float | None
    """The lower end over the whole program, in seconds of the machine's clock; None if its length is not known."""
    added_bytes: int | None
    """Memory that is made ready beyond what the base makes ready; None of samples of programs."""
    memory_ratio: float
    """All that is made ready, against the base; 1 of samples."""

    @property
    def helps(self) -> bool:
        """Whether even the lower end is a gain, however short the program is."""
        return self.saved.low > LEAST_SHARE

    @property
    def is_worth_it(self) -> bool:
        """Whether the gain is also long enough to matter."""
        return self.helps and (self.saved_seconds is None or self.saved_seconds > LEAST_SECONDS)

    @property
    def is_lost(self) -> bool:
        """Whether the program is slower for certain."""
        return self.saved.high < -LEAST_SHARE


@dataclass(frozen=True)
class Helped:
    """A stretch of memory that huge pages help."""

    row: Mapping[str, Any]
    """The profile's."""
    of_gain: float
    """Its share of what huge pages save in paging."""


@dataclass(frozen=True)
class Advice:
    """All that is said of a program."""

    name: str
    trials: Trials
    walks: Bar
    """Shares of the busy cycles that wait for translation, or that its remedies spare if those are more."""
    faults: Bar
    """Shares that page faults take."""
    fault_count: int
    seconds: float
    """Of what is replayed, on the core with a window."""
    program_seconds: float | None
    """Of the whole program there, by its instructions; None if nobody knows how long it is."""
    remedies: tuple[Gain, ...]
    changes: tuple[Gain, ...]
    asks: bool
    """Whether the program has huge pages of its own accord."""
    mappings: tuple[Helped, ...]
    """Those that huge pages help, the most first."""

    @property
    def base(self) -> SystemResult:
        """The program as it is, with its profile."""
        return self.trials.window.systems[0]

    @property
    def worth_it(self) -> list[Gain]:
        """Remedies that help, the best first, if what the best one gains matters."""
        return self.helping if any(gain.is_worth_it for gain in self.helping) else []

    @property
    def helping(self) -> list[Gain]:
        """Remedies that help, were the program long enough, the best first."""
        return sorted((gain for gain in self.remedies if gain.helps), key=lambda gain: -gain.saved.low)

    @property
    def huge(self) -> Gain:
        """What huge pages change."""
        return next(gain for gain in self.remedies if gain.key == "huge")

    @property
    def paging(self) -> Bar:
        """Shares that paging takes in all."""
        return Bar.around(paging_shares(self.trials))


def advice_of(name: str, trials: Trials, length: Length = WHOLE) -> Advice:
    """Judges what was replayed of the program `name`."""
    bases = trials.pair("base")
    machine = trials.window.systems[0].config["machine"]
    seconds = busy_cycles(bases[0]) / (machine["frequency_mhz"] * 1e6)
    times = length.of_replayed(bases[0].get("instructions", 0))
    program_seconds = None if times is None else times * seconds
    gains = {key: _gain(trials, key, program_seconds) for key in trials.keys if key != "base"}
    asks = any(name.endswith(".pages.2M") and count for name, count in bases[0].items())
    return Advice(
        name=name,
        trials=trials,
        walks=Bar.around(walk_shares(trials)),
        faults=Bar.around(_shares(trials, "cycles.fault")),
        fault_count=faults(bases[0]),
        seconds=seconds,
        program_seconds=program_seconds,
        remedies=tuple(gains[key] for key in REMEDIES if key in gains and not (asks and key in _SMALL_PAGES_ALONE)),
        asks=asks,
        changes=tuple(gains[key] for key in CHANGES),
        mappings=tuple(_mappings(trials)),
    )


def _shares(trials: Trials, name: str) -> list[float]:
    """The part of the busy cycles of the base that a class of them is, on each core."""
    return [share(stats.get(name, 0), busy_cycles(stats)) for stats in trials.pair("base")]


def walk_shares(trials: Trials) -> list[float]:
    """What translation takes of the busy cycles of the base, on each core, the one with a window first.

    There it is an estimate, as stalls of accesses that overlap are of several causes. So it is at least what the trial
    that has least of it takes less, beside page faults.
    """
    of_window, of_in_order = _shares(trials, "cycles.translation")
    base = trials.pair("base")[0]
    others = [trials.pair(key)[0] for key in trials.keys if key in REMEDIES or key == "tlb"]
    spared = [share(_beside_faults(base) - _beside_faults(other), busy_cycles(base)) for other in others]
    return [max(of_window, *spared), of_in_order]


def paging_shares(trials: Trials) -> list[float]:
    """What translation and page faults take together."""
    return [sum(parts) for parts in zip(walk_shares(trials), _shares(trials, "cycles.fault"), strict=True)]


def _beside_faults(stats: Mapping[str, int]) -> int:
    return busy_cycles(stats) - stats.get("cycles.fault", 0)


def _gain(trials: Trials, key: str, program_seconds: float | None) -> Gain:
    (window, in_order), (other_window, other_in_order) = (trials.pair(of) for of in ("base", key))
    gains = [
        1 - share(busy_cycles(other_window), busy_cycles(window)),
        share(paging_cycles(in_order) - paging_cycles(other_in_order), busy_cycles(in_order)),
    ]
    saved = Bar.of_gains(gains)
    before, after = (_made_ready(trials, of) for of in ("base", key))
    sampled = is_sampled(trials.window.systems[0].stats)
    return Gain(
        key=key,
        saved=saved,
        saved_seconds=None if program_seconds is None else saved.low * program_seconds,
        added_bytes=None if sampled else after - before,
        memory_ratio=after / before if before and not sampled else 1.0,
    )


def _made_ready(trials: Trials, key: str) -> int:
    """Bytes that the program's kernel zeroed for it."""
    result = trials.window.systems[trials.keys.index(key)]
    return result.stats.get(f"layer.{result.sources[0].layer}.fault.zeroed_bytes", 0)


def _mappings(trials: Trials) -> list[Helped]:
    """Regions by the cycles of paging that huge pages save there."""
    rows, huge = (_regions(trials, key) for key in ("base", "huge"))
    saved = [(row, paging_cost(row) - _cost_within(huge, row)) for row in rows if _can_be_huge(row)]
    helped = sorted(((row, cycles) for row, cycles in saved if cycles > 0), key=lambda of: -of[1])
    whole = sum(cycles for _, cycles in helped)
    return [Helped(row, cycles / whole) for row, cycles in helped]


def _regions(trials: Trials, key: str) -> list[Mapping[str, Any]]:
    profile = trials.window.systems[trials.keys.index(key)].profile
    return list(profile["regions"]["rows"]) if profile else []


def _can_be_huge(row: Mapping[str, Any]) -> bool:
    return row["kind"] in ("anonymous", "heap", "file") and row["end"] - row["start"] >= HUGE_BYTES


def _cost_within(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> int:
    """Cycles of paging of the rows that begin within one of another system."""
    return sum(
        paging_cost(row)
        for row in rows
        if (row["source"], row["process"], row["kind"]) == (wanted["source"], wanted["process"], wanted["kind"])
        and row["start"] < wanted["end"]
        and row["end"] > wanted["start"]
    )
