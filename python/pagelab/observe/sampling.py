"""Faults and CPU time of the observed threads, sampled at rates that keep the bound on cost.

Models: every fault is counted, and one of a number is sampled, which follows the rate of faults. A sample stands for
    that number. Faults after the last sample, and those while sampling is off, are taken to be like the sampled ones.
Parameters: the rates, below. To keep the bound, `Sampler.sample` turns sampling off for a while.
"""

import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pagelab.observe import events
from pagelab.observe.events import EventsRefusedError, Rings, Software, ThreadEndedError
from pagelab.observe.processes import threads

FAULTS_PER_SECOND = 1000
"""Sampled at most, by all threads together"""
PERIODS = (7, 11, 17, 29, 47, 79, 127, 211, 347, 577, 947, 1567, 2609, 4349, 7247, 12071, 20117)
"""Faults per sample; prime, so that patterns of faults do not fall in step with them. With the first, a burst of
500,000 faults per second costs the program a seventh of its time, until the next tick"""
CLOCK_NANOSECONDS = 2_003_001
"""About 499 samples per second of CPU time; not a multiple of timers that programs use"""
_SPARE_DESCRIPTORS = 100
_COUNTED = (Software.TASK_CLOCK, Software.PAGE_FAULTS, Software.MAJOR_FAULTS, Software.CONTEXT_SWITCHES)


@dataclass(frozen=True)
class FaultSample:
    """A sampled fault."""

    pid: int
    seconds: float
    """When it was, by `time.monotonic`"""
    address: int
    weight: float
    """Faults that it stands for"""
    user: tuple[int, ...]


@dataclass(frozen=True)
class Totals:
    """Counts since the beginning."""

    cpu_seconds: float
    faults: int
    minor: int
    major: int
    switches: int = 0
    """Of context; 0 if the kernel hides them from this user"""


class Sampler:
    """The events of all observed threads."""

    def __init__(self, *, on_execution: bool = False) -> None:
        """
        Args:
            on_execution: Whether events begin when the process executes a program.

        Raises:
            EventsRefusedError: the kernel gives this user no events.
        """
        self.access = events.access()
        self._on_execution = on_execution
        self._faults = Rings(Software.PAGE_FAULTS, self.access, PERIODS[0])
        self._clock = Rings(Software.CPU_CLOCK, self.access, CLOCK_NANOSECONDS)
        self._sampling = True
        self.is_attached = True
        """Whether there are events; nothing is counted or sampled after they were closed"""
        self._counters: dict[Software, list[int]] = {event: [] for event in _COUNTED}
        self.left_out = 0
        """Threads without events, as there may not be so many"""
        self.clock_samples: Counter[tuple[int, tuple[int, ...], tuple[int, ...]]] = Counter()
        """By process, kernel code and the program's code"""
        self.cpus: Counter[int] = Counter()
        """Samples of the CPU time by CPU"""
        self.fault_samples = 0
        self.sampled_processes: set[int] = set()

    def attach(self, pid: int) -> None:
        """Adds the threads of a process, and what they start from now on.

        Raises:
            EventsRefusedError: this user may not, or the kernel refuses it.
        """
        each = 2 * len(events.online_cpus()) + len(_COUNTED)
        limit = _raised_limit()
        for thread in threads(pid):
            used = sum(map(len, (self._faults.descriptors, self._clock.descriptors, *self._counters.values())))
            if used + each + _SPARE_DESCRIPTORS > limit:
                self.left_out += 1
                continue
            try:
                for event, descriptors in self._counters.items():
                    descriptors.append(events.count(event, thread, self.access, on_execution=self._on_execution))
                self._faults.attach(thread, on_execution=self._on_execution)
                self._clock.attach(thread, on_execution=self._on_execution)
            except ThreadEndedError:
                continue

    def drain(self) -> tuple[list[FaultSample], int]:
        """The faults sampled since the last call, and the number of samples of the CPU time."""
        faults = [sample for sample in self._faults.drain() if sample.pid]
        self.fault_samples += len(faults)
        clocked = list(self._clock.drain())
        for sample in clocked:
            self.clock_samples[sample.pid, sample.kernel, sample.user] += 1
            self.cpus[sample.cpu] += 1
            self.sampled_processes.add(sample.pid)
        self.sampled_processes.update(sample.pid for sample in faults)
        weighted = [
            FaultSample(fault.pid, fault.seconds, fault.address, float(fault.period), fault.user) for fault in faults
        ]
        return weighted, len(clocked)

    def totals(self) -> Totals:
        faults, major = self._sum(Software.PAGE_FAULTS), self._sum(Software.MAJOR_FAULTS)
        seconds, switches = self._sum(Software.TASK_CLOCK) / 1e9, self._sum(Software.CONTEXT_SWITCHES)
        return Totals(seconds, faults, faults - major, major, switches)

    def adapt(self, faults: int, seconds: float) -> None:
        """Follows the rate of faults: so many in so many seconds."""
        wanted = faults / max(seconds, 1e-3) / FAULTS_PER_SECOND
        self._faults.set_period(next((period for period in PERIODS if period >= wanted), PERIODS[-1]))

    @property
    def samples(self) -> bool:
        """Whether sampling is on."""
        return self._sampling

    def sample(self, wanted: bool) -> None:
        """Turns sampling on or off; counting goes on."""
        if wanted != self._sampling:
            self._sampling = wanted
            for rings in (self._faults, self._clock):
                rings.enable(wanted)

    def _sum(self, event: Software) -> int:
        return sum(map(events.read, self._counters[event]))

    @property
    def lost(self) -> int:
        """Samples for which the rings had no room."""
        return self._faults.lost + self._clock.lost

    def close(self) -> None:
        self.is_attached = False
        self._faults.close()
        self._clock.close()
        for descriptors in self._counters.values():
            for descriptor in descriptors:
                events.close(descriptor)
            descriptors.clear()


def _raised_limit() -> int:
    """How many files this process may have open, after asking for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


@contextmanager
def sampling(*, on_execution: bool = False) -> Iterator["Sampler | str"]:
    """A sampler until the end of the block, or why there is none."""
    try:
        sampler = Sampler(on_execution=on_execution)
    except EventsRefusedError as error:
        yield str(error)
        return
    try:
        yield sampler
    finally:
        sampler.close()
