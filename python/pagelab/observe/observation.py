"""Observing: the loop that samples, looks, and keeps to the bound on its cost.

Parameters: how long, how often at most, the bound, whether accessed bits may be cleared.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe import damon
from pagelab.observe.address_use import AddressMonitor, Snapshot, address_monitor
from pagelab.observe.budget import (
    CLOCK_SAMPLE_SECONDS,
    COUNTED_SWITCH_SECONDS,
    FAULT_SAMPLE_SECONDS,
    SAMPLED_SWITCH_SECONDS,
    Budget,
)
from pagelab.observe.code import Stack
from pagelab.observe.counters import HardwareCounts, counting
from pagelab.observe.events import EventsRefusedError
from pagelab.observe.idle import IdlePages
from pagelab.observe.looks import Looks
from pagelab.observe.machine_state import MachineState, machine_state
from pagelab.observe.pressure import Pressure, read_pressure
from pagelab.observe.processes import Identity, identify
from pagelab.observe.samples import FaultLog
from pagelab.observe.sampling import FaultSample, Sampler, Totals, sampling
from pagelab.observe.targets import Members, Program, Target
from pagelab.observe.used import AccessedBits

_FIRST_TICK = 0.02
_TICK = 0.5
_LONGEST_TICK = 2.0
_FIRST_LOOK = 0.1
"""Seconds after which a program that was just started is looked at: its loader has then finished"""
_SECOND_LOOK = 0.2


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    seconds: float | None
    """None: until the end of what is observed"""
    interval: float
    """Seconds between two looks at least"""
    budget: float
    """The bound on cost, as a share of the observed CPU time"""
    referenced: bool
    """Whether accessed bits may be cleared"""
    idle_pages: bool = False
    """Whether that is done by idle page tracking"""
    damon: bool = False
    """Whether DAMON monitors the addresses of the first process"""


@dataclass
class Observation:
    """What was observed."""

    title: str
    settings: Settings
    looks: Looks
    budget: Budget
    events_refused: str | None
    kernel_seen: bool = False
    seconds: float = 0.0
    ended: bool = False
    """Whether everything that was observed has ended"""
    interrupted: bool = False
    totals: Totals = field(default_factory=lambda: Totals(0.0, 0, 0, 0))
    rates: list[tuple[float, int, float]] = field(default_factory=list)
    """Times since the beginning, with faults and CPU seconds until then"""
    stacks: dict[Stack, float] = field(default_factory=lambda: defaultdict(float))
    """Estimated faults by the program's code"""
    elsewhere: float = 0.0
    """Faults in memory that no look has shown, estimated"""
    log: FaultLog = field(default_factory=FaultLog)
    fault_samples: int = 0
    lost: int = 0
    threads_left_out: int = 0
    from_start: bool = False
    """Whether it is a program that was observed from the start"""
    cpus: Counter[int] = field(default_factory=Counter)
    """Samples of the CPU time by CPU"""
    clock: Counter[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=Counter)
    pressure: Pressure = field(default_factory=lambda: Pressure(None, {}))
    group_pressure: bool = False
    hardware: HardwareCounts = field(default_factory=lambda: HardwareCounts({}, None))
    address_use: list[Snapshot] = field(default_factory=list)
    """What DAMON has told of the first process, if it was asked"""
    machine: MachineState | None = None
    """None if the kernel hides how its free memory lies"""
    pids: dict[int, None] = field(default_factory=dict)


def observe(
    target: Target,
    settings: Settings,
    begins: Callable[[], object] = lambda: None,
    watch: Callable[[Observation], object] = lambda _: None,
) -> Observation:
    """Observes until the time is over, everything has ended, or Ctrl-C.

    Args:
        target: What is observed. A program begins to run.
        settings: How.
        begins: Called when everything is attached, before a program runs.
        watch: Called after samples and looks, with what is known until then. Its cost counts.

    Raises:
        ProcessEndedError: everything ended before anything was seen.
        UsageError: the program cannot be executed, or the kernel has no idle page tracking or DAMON.
    """
    is_program = isinstance(target, Program)
    with ExitStack() as stack:
        sampler = stack.enter_context(sampling(on_execution=is_program))
        refused = sampler if isinstance(sampler, str) else None
        bits = (IdlePages() if settings.idle_pages else AccessedBits()) if settings.referenced else None
        if bits is not None:
            stack.callback(bits.close)
        looks = Looks(bits)
        observation = Observation(target.title, settings, looks, Budget(settings.budget), refused)
        if busy := damon.note(damon.monitors(), clears=settings.referenced and not settings.idle_pages):
            looks.notes[busy] = None
        run = _Run(target, observation, None if isinstance(sampler, str) else sampler)
        observation.from_start = is_program
        stack.callback(looks.pagemaps.close)
        run.attach()
        if settings.damon:
            run.monitor = stack.enter_context(address_monitor(next(iter(observation.pids))))
        observation.hardware = stack.enter_context(counting(list(observation.pids)))
        begins()
        run.begin()
        try:
            run.loop(watch)
        except KeyboardInterrupt:
            observation.interrupted = True
        run.finish()
    return observation


class _Run:
    """The state of an observation that goes on."""

    def __init__(self, target: Target, observation: Observation, sampler: Sampler | None) -> None:
        self._target, self._observation, self._sampler = target, observation, sampler
        self._looks, self._budget = observation.looks, observation.budget
        self._settings = observation.settings
        self._due = 0.0
        self._pending: list[FaultSample] = []
        self._tick = _FIRST_TICK
        self._group = target.group.pressure if isinstance(target, Members) else None
        self._base: dict[int, Identity] = {}
        self._counts: dict[int, Totals] = {}
        self._earlier = Totals(0.0, 0, 0, 0)
        """What events counted until they were given up"""
        self._passed_over: set[int] = set()
        self._begin: float | None = None
        self.monitor: AddressMonitor | None = None

    def attach(self) -> None:
        """Adds the processes that there are."""
        for pid in self._target.members():
            self._add(pid)
        if not self._observation.pids:
            raise ProcessEndedError(f"{self._target.title} has ended")

    def begin(self) -> None:
        """Lets a program begin, and looks for the first time at what runs already."""
        observation = self._observation
        observation.group_pressure = self._group is not None
        observation.pressure = read_pressure(self._group)
        observation.kernel_seen = self._sampler is not None and self._sampler.access.kernel
        self._begin = time.monotonic()
        if isinstance(self._target, Program):
            self._target.execute()
            self._due = _FIRST_LOOK
        else:
            self._look(first=True)
            self._due = min(_SECOND_LOOK, self._settings.interval)

    def loop(self, watch: Callable[[Observation], object]) -> None:
        while True:
            left = float("inf") if self._settings.seconds is None else self._settings.seconds - self._elapsed
            if left <= 0:
                return
            if not self._target.wait(max(min(self._tick, left, max(self._due - self._elapsed, 0.005)), 0.0)):
                self._observation.ended = True
                return
            self._sample()
            if self._elapsed >= self._due:
                self._look_if_allowed()
            watch(self._observation)

    def finish(self) -> None:
        """Takes what there is, and a last look if the bound allows it."""
        observation = self._observation
        self._sample()
        observation.seconds = self._elapsed
        if not observation.ended and self._elapsed - self._last_look > 0.2 * self._settings.interval:
            self._look_if_allowed()
        self._resolve()
        self._scale()
        observation.pressure = read_pressure(self._group).since(observation.pressure)
        observation.machine = machine_state()
        if self._sampler:
            observation.fault_samples = self._sampler.fault_samples
            observation.lost, observation.threads_left_out = self._sampler.lost, self._sampler.left_out
            observation.clock, observation.cpus = self._sampler.clock_samples, self._sampler.cpus
        self._budget.close()

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - (self._begin or 0.0)

    @property
    def _last_look(self) -> float:
        return self._looks.looks[-1].seconds if self._looks.looks else 0.0

    def _scale(self) -> None:
        """Makes what was sampled stand for all faults, those without a sample included."""
        observation, regions = self._observation, self._looks.all_regions()
        sampled = observation.elsewhere + sum(region.faults for region in regions)
        if sampled:
            scale = observation.totals.faults / sampled
            observation.elsewhere *= scale
            observation.log.scale = scale
            observation.stacks = {stack: faults * scale for stack, faults in observation.stacks.items()}
            for region in regions:
                region.faults *= scale

    def _add(self, pid: int) -> None:
        """Adds a process, unless it has its events from the one that started it."""
        known = self._observation.pids
        if pid in self._passed_over:
            return
        try:
            identity = identify(pid)
        except ProcessEndedError:
            return
        except UsageError:
            # A group may have kernel threads.
            self._passed_over.add(pid)
            return
        inherited = identity.parent in known or (self._sampler is not None and pid in self._sampler.sampled_processes)
        later = self._begin is not None
        known[pid] = None
        self._base[pid] = identity
        if self._sampler and self._sampler.is_attached and not (inherited and later):
            try:
                self._sampler.attach(pid)
            except EventsRefusedError as error:
                self._looks.notes[f"process {pid} ({identity.name}): {error}"] = None

    def _sample(self) -> None:
        """Takes the samples, and adapts rates to faults and cost."""
        begin = time.process_time()
        faults: list[FaultSample] = []
        clocked = 0
        switched, before = 0.0, self._observation.totals
        if self._sampler and self._sampler.is_attached:
            faults, clocked = self._sampler.drain()
            self._pending += faults
            for fault in faults:
                self._observation.stacks[fault.pid, fault.user] += fault.weight
            self._observation.totals = self._sampler.totals()
            switched = self._switched(self._observation.totals.switches - before.switches)
        else:
            self._observation.totals = self._counted_by_processes()
        totals, now = self._observation.totals, self._elapsed
        if self._sampler and self._sampler.is_attached and self._observation.rates:
            earlier, faults_before, _ = self._observation.rates[-1]
            self._sampler.adapt(totals.faults - faults_before, now - earlier)
        self._observation.rates.append((now, totals.faults, totals.cpu_seconds))
        in_program = len(faults) * FAULT_SAMPLE_SECONDS + clocked * CLOCK_SAMPLE_SECONDS
        self._budget.in_program += in_program
        self._budget.sampling += time.process_time() - begin + in_program + switched
        often = self._elapsed < _LONGEST_TICK or self._budget.allows_sampling(totals.cpu_seconds)
        self._tick = min(2 * self._tick, _TICK if often else _LONGEST_TICK)
        if self._sampler and self._sampler.is_attached:
            self._sampler.sample(self._budget.allows_sampling(totals.cpu_seconds))
            if not self._budget.allows_switches(totals.cpu_seconds):
                self._give_up_events(self._sampler)

    def _switched(self, switches: int) -> float:
        """Counts what so many switches of context took; returns what sampling took of it."""
        sampled = switches * SAMPLED_SWITCH_SECONDS if self._sampler and self._sampler.samples else 0.0
        took = switches * COUNTED_SWITCH_SECONDS + sampled
        self._budget.switches += took
        self._budget.in_program += took
        return sampled

    def _give_up_events(self, sampler: Sampler) -> None:
        """Counts go on from /proc/PID/stat, since each switch of context costs more with events."""
        self._earlier = self._observation.totals
        self._counts.clear()
        self._base.clear()
        for pid in self._observation.pids:
            with suppress(ProcessEndedError):
                self._base[pid] = identify(pid)
        sampler.close()
        rate = self._earlier.switches / max(self._earlier.cpu_seconds, 1e-9)
        self._looks.notes[
            f"Faults by their place, and time, from second {self._elapsed:.1f} on: the program switches context "
            f"{rate:,.0f} times per second of its CPU time, and with performance events each switch takes about 2 µs "
            "more. So there are none since, and counts are those of /proc/PID/stat."
        ] = None

    def _counted_by_processes(self) -> Totals:
        """Counts from /proc/PID/stat; what processes counted after they were last asked is missing."""
        for pid, base in self._base.items():
            with suppress(ProcessEndedError):
                now = identify(pid)
                minor, major = now.minor_faults - base.minor_faults, now.major_faults - base.major_faults
                self._counts[pid] = Totals(now.cpu_seconds - base.cpu_seconds, minor + major, minor, major)
        counts = [self._earlier, *self._counts.values()]
        return Totals(
            sum(count.cpu_seconds for count in counts),
            sum(count.faults for count in counts),
            sum(count.minor for count in counts),
            sum(count.major for count in counts),
            self._earlier.switches,
        )

    def _look_if_allowed(self) -> None:
        """Looks, or waits until the bound allows it."""
        looks = self._looks.looks
        expected = looks[-1].cost_seconds + looks[-1].in_program_seconds if looks else 0.0
        if self._budget.allows(expected, self._observation.totals.cpu_seconds) or not looks:
            self._look(first=not looks)
        # Short programs have some looks, too.
        self._due = self._elapsed + min(self._settings.interval, max(_SECOND_LOOK, 0.5 * self._elapsed))

    def _look(self, *, first: bool = False) -> None:
        for pid in self._target.members():
            if pid not in self._observation.pids:
                self._add(pid)
        look = self._looks.look(self._observation.pids, self._begin or 0.0)
        if self.monitor and not first:
            if snapshot := self.monitor.snapshot(self._elapsed):
                self._observation.address_use.append(snapshot)
            self._budget.monitor = self.monitor.cpu_seconds
        self._budget.in_program += look.in_program_seconds
        if first:
            self._budget.first_look = look.cost_seconds + look.in_program_seconds
        self._resolve()

    def _resolve(self) -> None:
        """Says which memory the sampled faults were in, by the last look."""
        for fault in self._pending:
            process = self._looks.regions.get(fault.pid)
            region = process.region_at(fault.address) if process else None
            self._observation.log.add(fault, fault.seconds - (self._begin or 0.0), region)
            if region is None:
                self._observation.elsewhere += fault.weight
            else:
                region.faults += fault.weight
                region.samples += 1
        self._pending.clear()
