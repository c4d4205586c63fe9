"""What a remedy gains, what it costs in memory, and which mappings the gain comes from.

Models: a gain is the share of the busy cycles that a remedy saves. On the core with a window all cycles count. On the
    in-order core only those of paging count, since it would also wait for each line that the zeroing of large pages has
    evicted from its caches, which stores and prefetchers hide. The range of a gain covers both cores, their sampling
    errors (`estimate`), and a fifth fewer or more cycles, as presets estimate latencies. In a virtual machine, the
    range of huge pages also covers a host with pages of 4 KiB. A remedy helps
    if even the lower end of its range is more than a hundredth of the program's time. It is worth it if that end is
    also more than a millisecond of the whole program, whose length is estimated from the instructions replayed. The
    cost of translation on the core with a window is its stalls, or the saving of a remedy there if that is larger.
Deviations: both limits and the fifth are choices. No range covers waits that real processors hide and neither core
    hides. The rest of the program is assumed to be like the replayed part, except for page faults and calls, which are
    known.
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
"""Share by which a gain's cycles are varied, as latencies are estimates"""
LEAST_SHARE = 0.01
LEAST_SECONDS = 0.001
HUGE_BYTES = 2 << 20

REMEDIES = {
    "huge": "huge pages (2 MiB) for all anonymous memory",
    "malloc-huge": "huge pages (2 MiB), and malloc's heap in steps of 2 MiB",
    "folios": "folios of 32 KiB (mTHP)",
    "populate": "memory populated when it is mapped",
}
"""Changes that a user can make, by trial"""
CHANGES = {
    "tlb": f"a last-level TLB of {TLB_FACTOR} times the entries",
    "small-host": "a host with pages of 4 KiB",
    "cold": "a guest that has just booted",
    "elsewhere": "",
}
"""Changes that need other hardware or another host, by trial"""
_SMALL_PAGES_ALONE = ("folios", "populate")
"""Remedies whose systems have no huge pages, even if the program asks for them"""


@dataclass(frozen=True)
class Bar:
    """The bounds of a figure."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> "Bar":
        """The range that covers all values."""
        return cls(min(values), max(values))

    @classmethod
    def of_gains(cls, gains: Sequence[float], half_widths: Sequence[float] = ()) -> "Bar":
        """Covers all gains and their intervals, and the gains with a fifth fewer or more cycles."""
        ends = [
            end
            for gain, half in zip(gains, half_widths or [0.0] * len(gains), strict=True)
            for end in (gain - half, gain + half)
        ]
        # A program cannot save more than all of its time.
        possible = [min(end, 1.0) for end in ends]
        return cls.around(
            [_if_cycles_were(gain, factor) for gain in possible for factor in (1 - ESTIMATED, 1 + ESTIMATED)]
        )


def _if_cycles_were(gain: float, factor: float) -> float:
    """A gain with its cycles multiplied; the rest of the program's time stays the same."""
    return factor * gain / (1 - gain + factor * gain) if gain > 0 else factor * gain


@dataclass(frozen=True)
class Gain:
    """The gain of one change."""

    key: str
    saved: Bar
    """Shares of the program's time."""
    saved_seconds: float | None
    """The lower end for the whole program, in seconds of the machine's clock; None if its length is unknown."""
    added_bytes: int
    """Memory zeroed in addition to that of the base."""
    memory_ratio: float
    """All zeroed memory, relative to the base."""

    @property
    def helps(self) -> bool:
        """Whether even the lower end is a gain, regardless of the program's length."""
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
    """A region of memory that huge pages help."""

    row: Mapping[str, Any]
    """The profile's region."""
    of_gain: float
    """Its share of the paging cycles that huge pages save."""


@dataclass(frozen=True)
class Advice:
    """The complete advice on a program."""

    name: str
    trials: Trials
    paging: Bar
    """Share of the program's time that all of paging takes."""
    walks: Bar
    """Share of waiting for translation, or the saving of its remedies if that is more."""
    faults: Bar
    """Share of page faults."""
    replayed_paging: Bar
    """Share of paging in the replayed part; the same if that is the whole program."""
    walk_count: int
    """Page walks of the program; an estimate if windows are replayed."""
    fault_count: int
    times: float
    """The program's instructions ÷ those of its windows; 1 without windows."""
    seconds: float
    """Of the replayed part, on the core with a window."""
    estimated_seconds: float
    """The same until the trace ends, if windows are replayed."""
    program_seconds: float | None
    """Of the whole program there; None if its length is unknown."""
    remedies: tuple[Gain, ...]
    changes: tuple[Gain, ...]
    asks: bool
    """Whether the program has huge pages because it asks for them."""
    mappings: tuple[Helped, ...]
    """Regions that huge pages help, the largest gain first."""
    huge_when_cold: Bar | None = None
    """The gain of huge pages in a guest that has just booted, if the program runs in a virtual machine."""

    @property
    def is_sampled(self) -> bool:
        """Whether windows of the program are replayed."""
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
        """Remedies that help, the best first, if the gain of the best one matters."""
        return self.helping if any(gain.is_worth_it for gain in self.helping) else []

    @property
    def helping(self) -> list[Gain]:
        """Remedies that would help if the program were long enough, the best first."""
        return sorted((gain for gain in self.remedies if gain.helps), key=lambda gain: -gain.saved.low)

    @property
    def huge(self) -> Gain:
        """The change by huge pages in the trial in which most memory gets them."""
        key = _most_huge(self.trials)
        return next(gain for gain in self.remedies if gain.key == key)


@dataclass(frozen=True)
class Estimates:
    """The program's estimate under each trial, on the core with a window and on the in-order one."""

    window: Mapping[str, Estimate]
    in_order: Mapping[str, Estimate]

    @classmethod
    def from_trials(cls, trials: Trials, length: Length = WHOLE) -> "Estimates":
        """From all replays."""
        return cls(
            {
                key: Estimate.from_result(result, length)
                for key, result in zip(trials.keys, trials.window.systems, strict=True)
            },
            {
                key: Estimate.from_result(result, length)
                for key, result in zip(trials.keys, trials.in_order.systems, strict=True)
            },
        )

    @property
    def bases(self) -> tuple[Estimate, Estimate]:
        """The unchanged program."""
        return self.window["base"], self.in_order["base"]


def _most_huge(trials: Trials) -> str:
    """The trial with the most memory in huge pages."""
    return "malloc-huge" if "malloc-huge" in trials.keys else "huge"


def _has_huge_pages(base: SystemResult) -> bool:
    """Whether a program has huge pages itself, apart from those of its host."""
    layers = base.config["system"]["layers"]
    hosts = {layer["host"] for layer in layers}
    programs = [layer["name"] for layer in layers if layer["name"] not in hosts]
    return any(base.stats.get(f"layer.{name}.pages.2M", 0) for name in programs)


def advice_of(name: str, trials: Trials, length: Length = WHOLE) -> Advice:
    """Judges the replays of the program `name`."""
    estimates = Estimates.from_trials(trials, length)
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
        faults=Bar.around([share(estimate.fault, estimate.busy) for estimate in estimates.bases]),
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
    """Of the whole program. Windows cover the whole trace; other replays may cover only its start."""
    times = length.of_replayed(stats.get("instructions", 0))
    if times is None:
        return None
    return estimated if is_sampled(stats) else times * estimated


def _replayed_shares(trials: Trials) -> list[float]:
    """The share of translation and faults in the replayed part, on each core."""
    return [
        share(stats.get("cycles.translation", 0) + stats.get("cycles.fault", 0), busy_cycles(stats))
        for stats in trials.pair("base")
    ]


def walk_shares(estimates: Estimates) -> list[float]:
    """The share of translation in the busy cycles of the base, on each core, the one with a window first.

    There it is an estimate, as stalls of overlapping accesses have several causes. So it is at least the saving of the
    trial with the least translation, page faults excluded.
    """
    window, in_order = estimates.bases
    others = [estimate for key, estimate in estimates.window.items() if key in REMEDIES or key == "tlb"]
    spared = [share((window.busy - window.fault) - (other.busy - other.fault), window.busy) for other in others]
    return [max(share(window.translation, window.busy), *spared), share(in_order.translation, in_order.busy)]


def paging_shares(estimates: Estimates) -> list[float]:
    """The share of translation and page faults together."""
    faults_ = [share(estimate.fault, estimate.busy) for estimate in estimates.bases]
    return [sum(parts) for parts in zip(walk_shares(estimates), faults_, strict=True)]


def _saved(estimates: Estimates, before: str, after: str) -> tuple[list[float], list[float]]:
    """The share of the program's time that a change saves on both cores, and half of its 95 % intervals."""
    window, other_window = estimates.window[before], estimates.window[after]
    in_order, other_in_order = estimates.in_order[before], estimates.in_order[after]
    gains = [
        1 - share(other_window.busy, window.busy),
        share(in_order.paging - other_in_order.paging, in_order.busy),
    ]
    overlapped = [
        window_part.busy - other.busy for window_part, other in zip(window.windows, other_window.windows, strict=True)
    ]
    waited = [
        order_part.translation - other.translation
        for order_part, other in zip(in_order.windows, other_in_order.windows, strict=True)
    ]
    return gains, [window.half_width(overlapped, gains[0]), in_order.half_width(waited, gains[1])]


def _gain(trials: Trials, estimates: Estimates, key: str, program_seconds: float | None) -> Gain:
    gains, half_widths = _saved(estimates, "base", key)
    # With a host with small pages, too: a guest cannot know.
    before_there, after_there = {
        "huge": ("small-host", "small-host-huge"),
        "malloc-huge": ("small-host", "small-host-malloc-huge"),
        "elsewhere": ("base", "elsewhere-small"),
    }.get(key, ("", ""))
    if after_there in trials.keys:
        others, their_half_widths = _saved(estimates, before_there, after_there)
        gains, half_widths = gains + others, half_widths + their_half_widths
    saved = Bar.of_gains(gains, half_widths)
    before, after = (_made_ready(trials, tried) for tried in ("base", key))
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
    """Regions with the paging cycles that huge pages save there."""
    key = _most_huge(trials)
    rows, huge = (_regions(trials, tried, times) for tried in ("base", key))
    in_steps = key == "malloc-huge"
    saved = [(row, paging_cost(row) - _cost_within(huge, row)) for row in rows if _can_be_huge(row, in_steps=in_steps)]
    helped = sorted(((row, cycles) for row, cycles in saved if cycles > 0), key=lambda pair: -pair[1])
    whole = sum(cycles for _, cycles in helped)
    return [Helped(row, cycles / whole) for row, cycles in helped]


def _regions(trials: Trials, key: str, times: float) -> list[Mapping[str, Any]]:
    profile = trials.window.systems[trials.keys.index(key)].profile
    return list(whole_profile(profile, times)["regions"]["rows"]) if profile else []


def _can_be_huge(row: Mapping[str, Any], *, in_steps: bool) -> bool:
    """Whether a huge page fits into a region; `in_steps` if the heap grows by whole ones."""
    end = -(-row["end"] // HUGE_BYTES) * HUGE_BYTES if in_steps and row["kind"] == "heap" else row["end"]
    return row["kind"] in ("anonymous", "heap", "file") and end - row["start"] >= HUGE_BYTES


def _cost_within(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> int:
    """Paging cycles of the rows that begin within a row of another system."""
    return sum(
        paging_cost(row)
        for row in rows
        if (row["source"], row["process"], row["kind"]) == (wanted["source"], wanted["process"], wanted["kind"])
        and row["start"] < wanted["end"]
        and row["end"] > wanted["start"]
    )
