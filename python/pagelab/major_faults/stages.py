"""Major faults divided into stages."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pagelab.major_faults.events import Event, Kind


@dataclass(frozen=True)
class Fault:
    """When a fault passed each point, in nanoseconds; none if it did not."""

    begin: int
    """In user space, before the touch"""
    fault: int | None
    cached: int | None
    queued: int
    issued: int | None
    interrupt: int | None
    completed: int
    waking: int | None
    away: int | None
    back: int | None
    end: int
    """In user space, after the touch"""

    @property
    def slept(self) -> bool:
        """Whether it had gone to sleep before anything woke it up."""
        if self.away is None or self.back is None or self.waking is None:
            return False
        return self.away < min(self.interrupt or self.completed, self.completed) and self.waking < self.back

    @property
    def device(self) -> int:
        """The device's time, including the doorbell and the delivery of its interrupt."""
        return (self.interrupt or self.completed) - (self.issued or self.queued)

    @property
    def beside(self) -> int:
        """Everything except the device's time."""
        return self.end - self.begin - self.device

    @property
    def awake(self) -> bool:
        """Whether the device answered before the fault could sleep."""
        return self.away is None and self.waking is None


@dataclass(frozen=True)
class Stage:
    """From one point to another; none for faults that do not have the stage."""

    name: str
    what: str
    span: Callable[[Fault], int | None]


def _between(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


STAGES = (
    Stage("exception", "touch to the handler of page faults", lambda f: _between(f.begin, f.fault)),
    Stage("handler", "handler to a frame in the page cache", lambda f: _between(f.fault, f.cached)),
    Stage("bio", "frame to the block layer: file system, bio", lambda f: _between(f.cached, f.queued)),
    Stage("block layer", "block layer to the driver", lambda f: _between(f.queued, f.issued)),
    Stage(
        "switch",
        "driver to switching away; faults that sleep",
        lambda f: _between(f.issued, f.away if f.slept else None),
    ),
    Stage("device", "driver to interrupt or completion", lambda f: f.device),
    Stage("interrupt", "handler of the interrupt to completion", lambda f: _between(f.interrupt, f.completed)),
    Stage("completion", "completion to waking up", lambda f: _between(f.completed, f.waking)),
    Stage(
        "wakeup", "waking up to running; faults that sleep", lambda f: _between(f.waking, f.back if f.slept else None)
    ),
    Stage("return", "running to user space; faults that sleep", lambda f: _between(f.back if f.slept else None, f.end)),
    Stage("return awake", "completion to user space; the others", lambda f: f.end - f.completed if f.awake else None),
    Stage("kernel", "all but the device and other programs", lambda f: f.beside if f.slept or f.awake else None),
    Stage("whole", "touch to touch done", lambda f: f.end - f.begin),
)


@dataclass(frozen=True)
class Spread:
    """Of a quantity: the median and quartiles over all faults of all runs, and the median of each run."""

    median: float
    lower: float
    upper: float
    runs: tuple[float, ...]
    count: int

    @classmethod
    def from_runs(cls, runs: Sequence[Sequence[float]]) -> "Spread | None":
        """None if there is no value."""
        every = sorted(value for run in runs for value in run)
        if not every:
            return None
        median, lower, upper = (every[(len(every) - 1) * quarter // 4] for quarter in (2, 1, 3))
        return cls(median, lower, upper, tuple(statistics.median(run) for run in runs if run), len(every))

    def times(self, factor: float) -> "Spread":
        """The same in another unit; the factor is positive."""
        median, lower, upper, *runs = (value * factor for value in (self.median, self.lower, self.upper, *self.runs))
        return Spread(median, lower, upper, tuple(runs), self.count)


@dataclass(frozen=True)
class Cut:
    """The faults of one pass."""

    faults: list[Fault]
    incomplete: int
    """Touches with too few recorded events: the page was in memory, or its read was merged with another"""
    irq: str
    """The interrupt of most of them; empty if the device has none"""


def cut(events: Sequence[Event], touches: Iterable[tuple[int, int]], *, every: bool = True) -> Cut:
    """Assigns events to touches.

    Args:
        events: In the order of time.
        touches: Begin and end of each, in the order of time.
        every: Whether faults without the handler and the page cache are gaps: all tracepoints are recorded.
    """
    cut_faults: list[tuple[Fault, list[Event]]] = []
    touched = first = 0
    for begin, end in touches:
        touched += 1
        while first < len(events) and events[first].time_ns < begin:
            first += 1
        last = first
        while last < len(events) and events[last].time_ns <= end:
            last += 1
        followed = _fault(events[first:last], begin, end)
        if followed and every and None in (followed[0].fault, followed[0].cached):
            followed = None
        first = last
        if followed:
            cut_faults.append(followed)
    irq = _irq([interrupts for _, interrupts in cut_faults])
    faults = []
    for fault, interrupts in cut_faults:
        own = [event.time_ns for event in interrupts if event.irq == irq]
        # Without the device's interrupt, a fault was completed in another way, for instance together with another one.
        if own or not irq:
            faults.append(replace(fault, interrupt=own[-1] if own else None))
    return Cut(faults, touched - len(faults), irq)


def _fault(events: Sequence[Event], begin: int, end: int) -> tuple[Fault, list[Event]] | None:
    """One touch with the interrupts between its issue and its completion; none if the chain has a gap."""

    def times(kind: Kind, after: int, sector: str | None = None) -> list[int]:
        return [
            event.time_ns
            for event in events
            if event.kind == kind and event.time_ns >= after and sector in (None, event.sector)
        ]

    fault = times("fault", begin)
    cached = times("cached", fault[0] if fault else begin)
    start = max([begin, *fault[:1], *cached[:1]])
    queues = [event for event in events if event.kind == "queued" and event.time_ns >= start]
    if not queues:
        return None
    # If devices lie on others, the last one is real.
    queued, sector = queues[-1].time_ns, queues[-1].sector
    issued = times("issued", queued, sector)
    completed = times("completed", issued[0] if issued else queued, sector)
    if not completed:
        return None
    away, back = times("away", queued), times("back", queued)
    # Another program also had the CPU.
    if len(away) > 1 or len(back) != len(away) or len(times("away", begin)) != len(away):
        return None
    waking = times("waking", queued)
    at = Fault(
        begin=begin,
        fault=fault[0] if fault else None,
        cached=cached[0] if cached else None,
        queued=queued,
        issued=issued[0] if issued else None,
        interrupt=None,
        completed=completed[0],
        waking=waking[-1] if waking else None,
        away=away[0] if away else None,
        back=back[0] if back else None,
        end=end,
    )
    issue = at.issued or at.queued
    return at, [event for event in events if event.kind == "interrupt" and issue <= event.time_ns <= at.completed]


def _irq(interrupts: Sequence[Sequence[Event]]) -> str:
    """The interrupt that at least half of the faults had."""
    counts = Counter(irq for events in interrupts for irq in {event.irq for event in events})
    for irq, count in counts.most_common(1):
        if 2 * count >= len(interrupts):
            return irq
    return ""


def spans(cuts: Sequence[Cut]) -> Mapping[str, Spread]:
    """Nanoseconds of each existing stage."""
    spreads = {}
    for stage in STAGES:
        runs = [
            [float(span) for fault in cut_pass.faults if (span := stage.span(fault)) is not None] for cut_pass in cuts
        ]
        spread = Spread.from_runs(runs)
        if spread is not None:
            spreads[stage.name] = spread
    return spreads
