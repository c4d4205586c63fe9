"""Runs and passes: stages, the cost of recording them, reads past the page cache, and what faults evict from caches."""

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.major_faults import MajorFaultError
from pagelab.major_faults.events import AROUND_DEVICE, OTHERS, TRACEPOINTS
from pagelab.major_faults.footprint import (
    Caches,
    Footprint,
    FootprintPass,
    NoFootprintError,
    caches,
    displace,
    footprint,
)
from pagelab.major_faults.places import PAGE, BlockDevice, cold_file, place, ram_disk, ram_disk_refusal
from pagelab.major_faults.recorder import Pass, Recorder, Target, busy_cpus, scratch
from pagelab.major_faults.stages import Cut, Fault, Spread, cut, spans

WHOLE = 0.5
"""Share of the touches for which all events must be recorded"""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    size: int = 256 << 20
    faults: int = 2000
    runs: int = 5
    cpu: int | None = None
    ram_disk: bool = True
    footprint: bool = True
    """Whether to measure what faults evict from the caches"""

    def check(self) -> None:
        """Refuses an impossible plan.

        Raises:
            UsageError: naming the number and what would be right.
        """
        if self.size < PAGE or self.size % PAGE:
            raise UsageError(f"a file of {self.size} bytes: give a multiple of {PAGE}, such as --size 256MiB")
        if not 1 <= self.faults <= self.size // PAGE:
            raise UsageError(
                f"{self.faults:,} faults in a file of {self.size // PAGE:,} pages: each page faults once, so give 1 to "
                f"{self.size // PAGE:,}, or a larger --size"
            )
        if self.runs < 1:
            raise UsageError(f"{self.runs} runs: give at least 1")
        allowed = os.sched_getaffinity(0)
        if self.cpu is not None and self.cpu not in allowed:
            raise UsageError(f"CPU {self.cpu}: programs may run on {', '.join(map(str, sorted(allowed)))} here")


@dataclass(frozen=True)
class TracepointPasses:
    """Passes with a number of tracepoints; the medians of each run in nanoseconds.

    Other programs only make passes slower, so the fastest run is the best measurement.
    """

    tracepoint: str
    """The last tracepoint; empty for passes without any and for those only around the device"""
    touch: tuple[float, ...]
    """Times of a touch in user space"""
    beside: tuple[float, ...]
    """The same minus the device's time; empty without tracepoints"""


@dataclass(frozen=True)
class Device:
    """The measurements on one device; times in nanoseconds."""

    name: str
    file_system: str
    cpu: int
    real_time: bool
    irq: str
    """The interrupt that completes requests; empty if none does"""
    stages: Mapping[str, Spread]
    """With all tracepoints"""
    plain: Spread
    """Touches without any"""
    direct: Spread | None
    """Reads of such pages past the page cache, one at a time"""
    steps: Sequence[TracepointPasses]
    faults: int
    slept: int
    awake: int
    incomplete: int
    event_ns: float
    """The cost of recording one event, from `_event_ns`"""
    instructions: float | None
    """Of the kernel per fault"""
    footprint: Footprint | None = None
    """What a fault evicts from the program's caches"""
    no_footprint: str = ""
    """Why that was not measured"""

    @property
    def sleeps(self) -> bool:
        """Whether enough faults slept to measure the cost of waking up."""
        return self.slept >= max(10, self.faults // 20)

    @property
    def always_sleeps(self) -> bool:
        """Whether so many slept that the driver cannot be waiting for the device before it returns."""
        return self.slept >= 0.9 * self.faults


@dataclass(frozen=True)
class Measured:
    """The cost of major faults on this machine."""

    kernel: str
    cpu_model: str
    cycles_per_nanosecond: float
    runs: int
    drive: Device
    memory: Device | None
    """A device in memory, which answers without an interrupt"""
    no_memory: str
    """Why there is none"""

    @property
    def event_ns(self) -> float:
        """The cost of recording one event, measured on the device in memory, whose own time is short and steady."""
        return (self.memory or self.drive).event_ns

    def net(self, stage: str) -> Spread:
        """A stage on the drive minus the cost of recording: the end of one event and the start of another."""
        spread = self.drive.stages[stage]
        median, lower, upper, *runs = (
            max(ns - self.event_ns, 0.0) for ns in (spread.median, spread.lower, spread.upper, *spread.runs)
        )
        return Spread(median, lower, upper, tuple(runs), spread.count)

    @property
    def without_sleep(self) -> str:
        """The kernel's cost of a fault without interrupt and sleep; empty without the device in memory."""
        if not self.memory:
            return ""
        whole, device = self.memory.plain.median, self.memory.stages["device"].median - self.memory.event_ns
        text = (
            f"the kernel's part without interrupt and switch: {whole - device:,.0f} ns, a touch less the device's time"
        )
        if self.memory.direct:
            text += f"; {max(whole - self.memory.direct.median, 0):,.0f} ns more than a direct read"
        return text

    def __str__(self) -> str:
        return f"{self.kernel}, {self.cpu_model}, clock at {self.cycles_per_nanosecond:.3f} GHz"


def measure(folder: Path, plan: Plan, report: Callable[[str], object] | None = None) -> Measured:
    """Measures major faults of a file in a folder, and of one on a device in memory.

    Args:
        report: Called with the current step.

    Raises:
        MajorFaultError: they cannot be measured there.
    """
    say = report or (lambda _: None)
    plan.check()
    place(folder)
    with scratch() as data:
        recorder = Recorder(data)
        drive, host = _device(folder, plan, recorder, say)
        why = "not asked for" if not plan.ram_disk else ram_disk_refusal(plan.size)
        memory = None
        if why is None:
            with ram_disk(plan.size) as ram:
                memory, _ = _device(ram, plan, recorder, say)
    return Measured(host.kernel, host.cpu_model, host.cycles_per_nanosecond, plan.runs, drive, memory, why or "")


def _device(folder: Path, plan: Plan, recorder: Recorder, say: Callable[[str], object]) -> tuple[Device, Pass]:
    where = place(folder)
    say(f"{where.name_and_system}: writing a file of {plan.size >> 20} MiB")
    with cold_file(folder, plan.size) as path, busy_cpus():
        # At most fifteen bytes, and different from other processes.
        thread = f"pagelab-{os.getpid()}"
        cpu = plan.cpu if plan.cpu is not None else _choose_cpu(path, plan, recorder, thread)
        target = Target(path, plan.faults, cpu, thread)
        passes = _Passes(recorder, target, plan)
        for run in range(plan.runs):
            say(f"{where.name_and_system}: run {run + 1} of {plan.runs}, on CPU {cpu}")
            done = passes.run()
        instructions = recorder.instructions(target, 1)
    _ensure_whole(passes.cuts, plan)
    return passes.device(where, done, instructions), done


def _choose_cpu(path: Path, plan: Plan, recorder: Recorder, thread: str) -> int:
    """The one of our first two CPUs that wakes up faults sooner; the last if no fault sleeps.

    It is the one that the device interrupts, as drives with a queue per CPU do.
    """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    soonest: dict[int, float] = {}
    for cpu in cpus:
        target = Target(path, min(plan.faults, 500), cpu, thread)
        done, events = recorder.touch(target, cpu + 1, TRACEPOINTS)
        faults = cut(events, done.touches)
        if sum(fault.slept for fault in faults.faults) >= max(10, len(faults.faults) // 20):
            soonest[cpu] = spans([faults])["wakeup"].median
    return min(soonest, key=lambda cpu: soonest[cpu]) if soonest else cpus[-1]


def _ensure_whole(cuts: Sequence[Cut], plan: Plan) -> None:
    whole = min(len(cut_pass.faults) for cut_pass in cuts)
    if whole < WHOLE * plan.faults:
        raise MajorFaultError(
            f"of {plan.faults:,} touches, only {whole:,} have all their events: other programs have the CPU, or the "
            "device's reads cannot be followed; try an idle machine or another folder"
        )


class _Passes:
    """The results of the passes on one device, by run."""

    def __init__(self, recorder: Recorder, target: Target, plan: Plan) -> None:
        self._recorder, self._target = recorder, target
        self._seed = 0
        self.cuts: list[Cut] = []
        """Of the passes with all tracepoints"""
        self._plain: list[list[float]] = []
        self._direct: list[list[float]] = []
        self._touch: list[list[float]] = []
        self._beside: list[list[float]] = []
        self._footprints: list[FootprintPass] = []
        self._caches: Caches | None = None
        self._no_footprint = "" if plan.footprint else "not asked for"
        if plan.footprint:
            assert target.cpu is not None
            try:
                self._caches = caches(target.cpu)
            except NoFootprintError as error:
                self._no_footprint = str(error)

    def run(self) -> Pass:
        """Passes without tracepoints, with those around the device, with one more each time, and into working sets."""
        plain = self._target.touch(self._next())
        touch, beside = [statistics.median(plain.times)], []
        for count in range(len(OTHERS) + 1):
            every = count == len(OTHERS)
            done, events = self._recorder.touch(self._target, self._next(), (*AROUND_DEVICE, *OTHERS[:count]))
            cut_pass = cut(events, done.touches, every=every)
            touch.append(statistics.median(done.times))
            beside.append(statistics.median(fault.beside for fault in cut_pass.faults) if cut_pass.faults else math.nan)
        self.cuts.append(cut_pass)
        self._plain.append(plain.times)
        self._direct.append(self._target.touch(self._next(), direct=True).times)
        self._touch.append(touch)
        self._beside.append(beside)
        if self._caches:
            try:
                self._footprints.append(displace(self._target, self._next(), self._caches))
            except NoFootprintError as error:
                self._caches, self._no_footprint = None, str(error)
        return done

    def _next(self) -> int:
        self._seed += 1
        return self._seed

    def device(self, where: BlockDevice, done: Pass, instructions: float | None) -> Device:
        """The combined result."""
        plain = Spread.from_runs(self._plain)
        assert plain
        assert self._target.cpu is not None
        faults = [fault for cut_pass in self.cuts for fault in cut_pass.faults]
        steps = self._steps()
        pushed_out, no_footprint = self._footprint()
        return Device(
            name=where.device,
            file_system=where.file_system,
            cpu=self._target.cpu,
            real_time=done.real_time,
            irq=next((cut_pass.irq for cut_pass in self.cuts if cut_pass.irq), ""),
            stages=spans(self.cuts),
            plain=plain,
            direct=Spread.from_runs(self._direct),
            steps=steps,
            faults=len(faults),
            slept=sum(fault.slept for fault in faults),
            awake=sum(fault.awake for fault in faults),
            incomplete=sum(cut_pass.incomplete for cut_pass in self.cuts),
            event_ns=_event_ns(faults, steps),
            instructions=instructions,
            footprint=pushed_out,
            no_footprint=no_footprint,
        )

    def _footprint(self) -> tuple[Footprint | None, str]:
        """What faults evict, or why that cannot be measured."""
        if not self._caches:
            return None, self._no_footprint
        try:
            return footprint(self._footprints, self._caches), ""
        except NoFootprintError as error:
            return None, str(error)

    def _steps(self) -> list[TracepointPasses]:
        touches, besides = list(zip(*self._touch, strict=True)), list(zip(*self._beside, strict=True))
        steps = [TracepointPasses("", touches[0], ()), TracepointPasses("", touches[1], besides[0])]
        return steps + [
            TracepointPasses(tracepoint.name, *times)
            for tracepoint, *times in zip(OTHERS, touches[2:], besides[1:], strict=True)
        ]


def _event_ns(faults: Sequence[Fault], steps: Sequence[TracepointPasses]) -> float:
    """The cost of recording one event.

    If a device answers at once, its time is steady, so touches with all tracepoints are compared with touches without
    any. On another device, passes with all tracepoints are compared with those only around the device, whose time is
    excluded.
    """
    if all(fault.issued is None for fault in faults):
        # The handler, the page cache, the read's way to the device and its end.
        return max(min(steps[-1].touch) - min(steps[0].touch), 0.0) / 4
    # The handler, the page cache; waking up and running again, where faults sleep. Switching away is no part of this.
    woken = sum(fault.waking is not None and fault.back is not None for fault in faults) > len(faults) / 2
    return max(min(steps[-1].beside) - min(steps[1].beside), 0.0) / (4 if woken else 2)
