"""What a remedy gains, what it costs in memory, and which mappings the gain comes from.

Models: a gain is the share of the busy cycles that a remedy saves. On the core with a window all cycles count. On the
    in-order core those of paging do, since it would also wait for each line that large pages have pushed out of its
    caches when they were zeroed, which stores and prefetchers hide. A gain's bar holds both, what they may be off as
    windows differ (`estimate`), and what they were with a fifth fewer or more cycles, for latencies that presets
    estimate. In a virtual machine those of huge pages also hold both for a host with pages of 4 KiB. A remedy helps
    if even the lower end of its bar is more than a hundredth of the program's time. It is worth it if that end is
    also more than a millisecond of the whole program, as far as it is known how long that is: what is replayed of it,
    by its instructions. What translation takes on the core with a window is the larger of the stalls for it and what
    a remedy spares there.
Deviations: both limits and the fifth are choices. What processors hide that neither core hides is in no bar. What is
    not replayed is taken to be like what is, but for page faults and calls, which are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab.advice.estimate import Estimate
from pagelab.advice.trials import TLB_FACTOR, Trials
from pagelab.capture.length import WHOLE, Length
from pagelab.report.figures import paging_cost, share, whole_profile
from pagelab.results.headline import busy_cycles, faults
from pagelab.results.results import SystemResult
from pagelab.results.windows import is_sampled, program_faults

ESTIMATED = 0.2
"""Of the cycles that a gain is made of, for what latencies are estimated"""
LEAST_SHARE = 0.01
LEAST_SECONDS = 0.001
HUGE_BYTES = 2 << 20

REMEDIES = {
    "huge": "huge pages (2 MiB) for all anonymous memory",
    "malloc-huge": "huge pages (2 MiB), and malloc's heap in steps of 2 MiB",
    "folios": "folios of 32 KiB (mTHP)",
    "populate": "memory populated when it is mapped",
}
"""What a user can have, by what is tried"""
CHANGES = {
    "tlb": f"a last-level TLB of {TLB_FACTOR} times the entries",
    "small-host": "a host with pages of 4 KiB",
    "cold": "a guest that has just booted",
    "elsewhere": "",
}
"""What a user has to buy or to move to, or may find"""
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
    def of_gains(cls, gains: Sequence[float], half_widths: Sequence[float] = ()) -> "Bar":
        """Holds all gains and their intervals, and what they were if the cycles behind were a fifth fewer or more."""
        ends = [
            end
            for gain, half in zip(gains, half_widths or [0.0] * len(gains), strict=True)
            for end in (gain - half, gain + half)
        ]
        # A program does not get rid of more than all of its time.
        possible = [min(end, 1.0) for end in ends]
        return cls.around(
            [_if_cycles_were(gain, factor) for gain in possible for factor in (1 - ESTIMATED, 1 + ESTIMATED)]
        )


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
    added_bytes: int
    """Memory that is made ready beyond what the base makes ready."""
    memory_ratio: float
    """All that is made ready, against the base."""

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
    paging: Bar
    """Shares of the program's time that paging takes in all."""
    walks: Bar
    """Shares that wait for translation, or that its remedies spare if those are more."""
    faults: Bar
    """Shares that page faults take."""
    replayed_paging: Bar
    """Shares that paging takes of what is measured; the same if that is the whole program."""
    walk_count: int
    """Page walks of the program; of windows an estimate."""
    fault_count: int
    times: float
    """The program's instructions over those of its windows; 1 without."""
    seconds: float
    """Of what is measured, on the core with a window."""
    estimated_seconds: float
    """The same until the trace ends, if windows are measured."""
    program_seconds: float | None
    """Of the whole program there; None if nobody knows how long it is."""
    remedies: tuple[Gain, ...]
    changes: tuple[Gain, ...]
    asks: bool
    """Whether the program has huge pages because it asks for them."""
    mappings: tuple[Helped, ...]
    """Those that huge pages help, the most first."""
    huge_when_cold: Bar | None = None
    """What huge pages save in a guest that has just booted, if the program runs in a virtual machine."""

    @property
    def is_sampled(self) -> bool:
        """Whether windows of the program are measured."""
        return is_sampled(self.base.stats)

    @property
    def profile(self) -> Mapping[str, Any]:
        """Where paging costs, of the whole program."""
        return whole_profile(self.base.profile or {}, self.times)

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
        """What huge pages change where most memory gets them."""
        key = _most_huge(self.trials)
        return next(gain for gain in self.remedies if gain.key == key)


@dataclass(frozen=True)
class Estimates:
    """What the program takes under each trial, on the core with a window and on the in-order one."""

    window: Mapping[str, Estimate]
    in_order: Mapping[str, Estimate]

    @classmethod
    def of(cls, trials: Trials, length: Length = WHOLE) -> "Estimates":
        """From all replays."""
        return cls(
            {key: Estimate.of(of, length) for key, of in zip(trials.keys, trials.window.systems, strict=True)},
            {key: Estimate.of(of, length) for key, of in zip(trials.keys, trials.in_order.systems, strict=True)},
        )

    @property
    def bases(self) -> tuple[Estimate, Estimate]:
        """The program as it is."""
        return self.window["base"], self.in_order["base"]


def _most_huge(trials: Trials) -> str:
    """The trial with the most memory in huge pages."""
    return "malloc-huge" if "malloc-huge" in trials.keys else "huge"


def _has_huge_pages(base: SystemResult) -> bool:
    """Whether a program has huge pages; those of a host below it are none of its own."""
    layers = base.config["system"]["layers"]
    hosts = {layer["host"] for layer in layers}
    programs = [layer["name"] for layer in layers if layer["name"] not in hosts]
    return any(base.stats.get(f"layer.{name}.pages.2M", 0) for name in programs)


def advice_of(name: str, trials: Trials, length: Length = WHOLE) -> Advice:
    """Judges what was replayed of the program `name`."""
    estimates = Estimates.of(trials, length)
    base = trials.window.systems[0]
    hertz = base.config["machine"]["frequency_mhz"] * 1e6
    seconds, estimated = busy_cycles(base.stats) / hertz, estimates.bases[0].busy / hertz
    program_seconds = _program_seconds(base.stats, estimated, length)
    gains = {key: _gain(trials, estimates, key, program_seconds) for key in trials.keys if key != "base"}
    asks = _has_huge_pages(base)
    times = estimates.bases[0].times
    cold = ("cold", "cold-huge")
    return Advice(
        name=name,
        trials=trials,
        paging=Bar.around(paging_shares(estimates)),
        walks=Bar.around(walk_shares(estimates)),
        faults=Bar.around([share(of.fault, of.busy) for of in estimates.bases]),
        replayed_paging=Bar.around(_replayed_shares(trials)),
        walk_count=round(times * base.stats.get("walk.count", 0)),
        fault_count=program_faults(base.stats) if is_sampled(base.stats) else faults(base.stats),
        times=times,
        seconds=seconds,
        estimated_seconds=estimated,
        program_seconds=program_seconds,
        remedies=tuple(gains[key] for key in REMEDIES if key in gains and not (asks and key in _SMALL_PAGES_ALONE)),
        asks=asks,
        changes=tuple(gains[key] for key in CHANGES if key in gains),
        mappings=tuple(_mappings(trials, times)),
        huge_when_cold=Bar.of_gains(*_saved(estimates, *cold)) if cold[1] in trials.keys else None,
    )


def _program_seconds(stats: Mapping[str, int], estimated: float, length: Length) -> float | None:
    """Of the whole program; windows are of all that the trace holds, and other replays may be of its begin."""
    times = length.of_replayed(stats.get("instructions", 0))
    if times is None:
        return None
    return estimated if is_sampled(stats) else times * estimated


def _replayed_shares(trials: Trials) -> list[float]:
    """The part that translation and faults take of what is measured, on each core."""
    return [
        share(stats.get("cycles.translation", 0) + stats.get("cycles.fault", 0), busy_cycles(stats))
        for stats in trials.pair("base")
    ]


def walk_shares(estimates: Estimates) -> list[float]:
    """What translation takes of the busy cycles of the base, on each core, the one with a window first.

    There it is an estimate, as stalls of accesses that overlap are of several causes. So it is at least what the trial
    that has least of it takes less, beside page faults.
    """
    window, in_order = estimates.bases
    others = [of for key, of in estimates.window.items() if key in REMEDIES or key == "tlb"]
    spared = [share((window.busy - window.fault) - (other.busy - other.fault), window.busy) for other in others]
    return [max(share(window.translation, window.busy), *spared), share(in_order.translation, in_order.busy)]


def paging_shares(estimates: Estimates) -> list[float]:
    """What translation and page faults take together."""
    faults_ = [share(of.fault, of.busy) for of in estimates.bases]
    return [sum(parts) for parts in zip(walk_shares(estimates), faults_, strict=True)]


def _saved(estimates: Estimates, before: str, after: str) -> tuple[list[float], list[float]]:
    """What a change saves of the program's time on both cores, and half of the 95 % intervals of that."""
    window, other_window = estimates.window[before], estimates.window[after]
    in_order, other_in_order = estimates.in_order[before], estimates.in_order[after]
    gains = [
        1 - share(other_window.busy, window.busy),
        share(in_order.paging - other_in_order.paging, in_order.busy),
    ]
    overlapped = [of.busy - other.busy for of, other in zip(window.windows, other_window.windows, strict=True)]
    waited = [
        of.translation - other.translation for of, other in zip(in_order.windows, other_in_order.windows, strict=True)
    ]
    return gains, [window.half_width(overlapped, gains[0]), in_order.half_width(waited, gains[1])]


def _gain(trials: Trials, estimates: Estimates, key: str, program_seconds: float | None) -> Gain:
    gains, half_widths = _saved(estimates, "base", key)
    # Of a host with small pages, too: nobody in a guest knows.
    before_there, after_there = {
        "huge": ("small-host", "small-host-huge"),
        "malloc-huge": ("small-host", "small-host-malloc-huge"),
        "elsewhere": ("base", "elsewhere-small"),
    }.get(key, ("", ""))
    if after_there in trials.keys:
        others, their_half_widths = _saved(estimates, before_there, after_there)
        gains, half_widths = gains + others, half_widths + their_half_widths
    saved = Bar.of_gains(gains, half_widths)
    before, after = (_made_ready(trials, of) for of in ("base", key))
    return Gain(
        key=key,
        saved=saved,
        saved_seconds=None if program_seconds is None else saved.low * program_seconds,
        added_bytes=after - before,
        memory_ratio=after / before if before else 1.0,
    )


def _made_ready(trials: Trials, key: str) -> int:
    """Bytes that the program's kernel zeroed for it."""
    result = trials.window.systems[trials.keys.index(key)]
    name = f"layer.{result.sources[0].layer}.fault.zeroed_bytes"
    return result.stats.get(f"program.{name}" if is_sampled(result.stats) else name, 0)


def _mappings(trials: Trials, times: float) -> list[Helped]:
    """Regions by the cycles of paging that huge pages save there."""
    key = _most_huge(trials)
    rows, huge = (_regions(trials, of, times) for of in ("base", key))
    in_steps = key == "malloc-huge"
    saved = [(row, paging_cost(row) - _cost_within(huge, row)) for row in rows if _can_be_huge(row, in_steps=in_steps)]
    helped = sorted(((row, cycles) for row, cycles in saved if cycles > 0), key=lambda of: -of[1])
    whole = sum(cycles for _, cycles in helped)
    return [Helped(row, cycles / whole) for row, cycles in helped]


def _regions(trials: Trials, key: str, times: float) -> list[Mapping[str, Any]]:
    profile = trials.window.systems[trials.keys.index(key)].profile
    return list(whole_profile(profile, times)["regions"]["rows"]) if profile else []


def _can_be_huge(row: Mapping[str, Any], *, in_steps: bool) -> bool:
    """Whether a huge page may lie in a region; `in_steps` if the heap grows by whole ones."""
    end = -(-row["end"] // HUGE_BYTES) * HUGE_BYTES if in_steps and row["kind"] == "heap" else row["end"]
    return row["kind"] in ("anonymous", "heap", "file") and end - row["start"] >= HUGE_BYTES


def _cost_within(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> int:
    """Cycles of paging of the rows that begin within one of another system."""
    return sum(
        paging_cost(row)
        for row in rows
        if (row["source"], row["process"], row["kind"]) == (wanted["source"], wanted["process"], wanted["kind"])
        and row["start"] < wanted["end"]
        and row["end"] > wanted["start"]
    )
