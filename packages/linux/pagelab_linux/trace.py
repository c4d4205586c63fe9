"""What a page fault of a real kernel executes, stage by stage: `pagelab linux trace`.

Models: nothing; it measures. A plugin of QEMU's translator (`kernel/plugin/fault_trace.c`) counts the kernel's
    instructions and references to memory of each fault. `kernel/plugin/stages.toml` assigns functions to stages.
Source: mm/memory.c and arch/x86/mm/fault.c of Linux 6.12.
Parameters: workloads (`kernel/tests/trace.toml`), levels of page tables, settings of kernels (`bench.toml`).
Deviations: the counts exclude what the processor does by itself: delivery of the exception with its five words on the
    stack, and the walk after the TLB miss. Lines are distinguished by their virtual addresses.
"""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from pagelab_linux import LinuxError, references
from pagelab_linux.bench import Setting
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.guest import Machine, run
from pagelab_linux.initramfs import initramfs
from pagelab_linux.layout import Layout, read_toml
from pagelab_linux.plugin import plugin
from pagelab_linux.process import remove_of_killed
from pagelab_linux.records import COUNTS, Fault, Records, Rest, read
from pagelab_linux.references import Rows
from pagelab_linux.report import GuestStep
from pagelab_linux.stages import ALL_STAGES, StageTable, functions, load

_MEMORY_MIB = 1536
_SECONDS = 3600.0
_LARGEST_GAP = 1e-3
"""Share by which the trace may differ from the guest's own count"""


@dataclass(frozen=True)
class Workload:
    """A program of the guest that marks what to record."""

    name: str
    step: str
    pages: int = 1
    """That each of its faults maps"""
    before: Sequence[str] = ()
    """Steps before it"""
    after: Sequence[str] = ()
    """Steps after it, which undo those"""

    @property
    def steps(self) -> list[str]:
        return [*self.before, self.step, *self.after]


@dataclass(frozen=True)
class Spread:
    """Of a number that each fault has."""

    mean: float
    p10: float
    p90: float

    @classmethod
    def from_values(cls, values: Sequence[int]) -> "Spread":
        low, high = np.percentile(values, [10, 90])
        return cls(float(np.mean(values)), float(low), float(high))


@dataclass(frozen=True)
class FunctionShare:
    """Functions' share of the faults of a kind."""

    function: str
    stage: str
    per_fault: Mapping[str, float]
    """`COUNTS` without lines, means over all faults of the kind"""


@dataclass(frozen=True)
class Measured:
    """The faults of a kind in a workload."""

    workload: str
    kind: str
    faults: int
    interrupted: int
    """Faults with an interrupt inside, whose instructions are excluded"""
    stages: Mapping[str, Mapping[str, Spread]]
    """By stage, then by `COUNTS`; stages in which no fault executed anything are omitted"""
    total: Mapping[str, Spread]
    """Lines: those that are new to the fault"""
    parts: Sequence[FunctionShare]


@dataclass(frozen=True)
class Check:
    """The trace of a workload, with the guest's own count of its instructions."""

    workload: str
    faults: int
    traced_faults: int
    ticks: int
    fault_instructions: int
    interrupt_instructions: int
    rest: Rest

    @property
    def traced(self) -> int:
        """All that the kernel executed in the run."""
        others = self.interrupt_instructions + self.rest.left_out_instructions + self.rest.beside
        return self.fault_instructions + others

    @property
    def gap(self) -> float:
        """Share by which the trace is above the guest's count."""
        return self.traced / self.ticks - 1 if self.ticks else float(self.traced > 0)


@dataclass(frozen=True)
class Trace:
    """All that was measured."""

    measured: Sequence[Measured]
    checks: Sequence[Check]
    dropped: Mapping[str, int]
    references: Sequence[Rows] = ()
    """Of the first faults of each workload, if they were asked for"""
    steps: Sequence[GuestStep] = ()
    """What the guest printed, steps ahead of the workloads and after them included"""


def workloads(layout: Layout) -> list[Workload]:
    """What can be traced.

    Raises:
        LinuxError: the file is wrong.
    """
    path = layout.tests / "trace.toml"
    document = read_toml(path)
    try:
        return [Workload(**each) for each in document["workload"]]
    except (KeyError, TypeError) as error:
        raise LinuxError(
            f"{path}: {error}: a [[workload]] has name and step, and may have pages, before and after"
        ) from None


def stage_table(layout: Layout) -> StageTable:
    return load(layout.folder / "plugin" / "stages.toml")


@dataclass(frozen=True)
class Tracer:
    """What traced runs take, as it is when this is made: what is edited afterwards does not matter to them."""

    workshop: Workshop
    levels: int
    table: StageTable
    plugin: Path
    archive: Path
    images: dict[bool, Image] = field(default_factory=dict)
    """Kernels by whether they are plain"""

    @classmethod
    def from_workshop(cls, workshop: Workshop, levels: int, settings: Sequence[Setting] = ()) -> "Tracer":
        """Builds all that the settings need.

        Raises:
            LinuxError: something cannot be built.
        """
        table = stage_table(workshop.layout)
        built = plugin(workshop.layout, workshop.work, workshop.say)
        archive = initramfs(workshop.layout, workshop.work)
        plain = dict.fromkeys(setting.kernel == "plain" for setting in settings)
        return cls(workshop, levels, table, built, archive, {each: workshop.image(Variant(each)) for each in plain})

    def measure(self, setting: Setting, wanted: Sequence[Workload], most: int = 0) -> Trace:
        """Runs all workloads in one guest.

        Args:
            most: Faults of each workload whose references are kept, and those of user code until then.

        Raises:
            LinuxError: a run fails, or the counts contradict each other.
        """
        return self.run(self.images[setting.kernel == "plain"], setting, wanted, most)

    def run(self, image: Image, setting: Setting, wanted: Sequence[Workload], most: int) -> Trace:
        """The same with this kernel, whatever the setting says of one."""
        work = self.workshop.work
        remove_of_killed(work.glob(".trace.*"))
        with tempfile.TemporaryDirectory(dir=work, prefix=".trace.", suffix=f".{os.getpid()}") as temporary:
            place = Path(temporary)
            symbols, recorded, logged = place / "symbols", place / "records", place / "references"
            if re.search("[,= ]", f"{place}{self.plugin}"):
                raise LinuxError(f"{work}: QEMU's plugins take no path with comma, = or space; give another --work")
            symbols.write_text(self.table.symbols(functions(image.symbols)), encoding="ascii")
            arguments = f"{self.plugin},symbols={symbols},records={recorded}"
            machine = Machine(
                "icount",
                memory_mib=_MEMORY_MIB,
                levels=self.levels,
                seconds=_SECONDS,
                parameters=tuple(setting.parameters),
                plugin=arguments + f",references={logged},most={most}" * (most > 0),
            )
            console = work / "consoles" / f"trace-{setting.name}-{self.levels}.log"
            count = f"{len(wanted)} workload{'s' * (len(wanted) > 1)}"
            self.workshop.say(f"{setting.name}: tracing {count}; the guest says how far it is in {console}")
            steps = [*setting.before, *(step for each in wanted for step in each.steps), *setting.after]
            output = run(machine, image.kernel, self.archive, steps, console)
            problems = output.problems()
            if problems:
                raise LinuxError(f"{setting.name}: {'; '.join(problems)}; all is in {console}")
            records = read(recorded, len(ALL_STAGES))
            rows = references.read(logged) if most else None
        ends = accumulate((len(each.steps) for each in wanted), initial=len(setting.before))
        of_workloads = [output.steps[end + len(each.before)] for each, end in zip(wanted, ends, strict=False)]
        result = evaluate(self.table, wanted, of_workloads, records)
        parts = () if rows is None else [references.of_run(rows, number + 1) for number in range(len(wanted))]
        return replace(result, references=parts, steps=output.steps)


def measure(
    workshop: Workshop,
    image: Image,
    wanted: Sequence[Workload],
    levels: int,
    before: Sequence[str] = (),
    *,
    after: Sequence[str] = (),
    most: int = 0,
) -> Trace:
    """Runs all in one guest of this kernel.

    Args:
        before: Steps of the guest ahead of the workloads.
        after: Steps behind them.
        most: As of `Tracer.measure`.

    Raises:
        LinuxError: something cannot be built or run, or the counts contradict each other.
    """
    setting = Setting(image.variant.name, image.variant.name, before, after)
    return Tracer.from_workshop(workshop, levels).run(image, setting, wanted, most)


def evaluate(table: StageTable, wanted: Sequence[Workload], steps: Sequence[GuestStep], records: Records) -> Trace:
    """What records and console say together. The runs are the workloads in their order.

    Raises:
        LinuxError: they contradict each other.
    """
    if sorted(records.rests) != list(range(1, len(wanted) + 1)):
        raise LinuxError(
            f"{len(wanted)} workloads made {len(records.rests)} runs: each must call trace_begin() and trace_end() "
            "once (kernel/tests/guest.h)"
        )
    measured, checks = [], []
    for number, (workload, step) in enumerate(zip(wanted, steps, strict=True), start=1):
        faults = [fault for fault in records.faults if fault.run == number]
        kinds: dict[str, list[Fault]] = {}
        for fault in faults:
            kinds.setdefault(table.kind(fault.met), []).append(fault)
        measured += [_measured(table, workload.name, number, kind, kinds[kind], records) for kind in kinds]
        checks.append(_check(workload, step, faults, records.rests[number]))
    return Trace(sorted(measured, key=_order(wanted)), checks, records.dropped)


def _order(wanted: Sequence[Workload]) -> Any:
    names = [workload.name for workload in wanted]
    return lambda each: (names.index(each.workload), -each.faults)


def _check(workload: Workload, step: GuestStep, faults: Sequence[Fault], rest: Rest) -> Check:
    figures = [step.last(key) for key in ("faults", "ticks")]
    if not all(value and value.lstrip("-").isdecimal() for value in figures):
        raise LinuxError(f"{workload.step}: printed no faults and ticks as whole numbers")
    counted, ticks = (int(str(value)) for value in figures)
    instructions = sum(fault.instructions for fault in faults)
    interrupts = sum(fault.interrupt_instructions for fault in faults)
    check = Check(workload.name, counted, len(faults), ticks, instructions, interrupts, rest)
    if check.traced_faults + rest.left_out != counted:
        raise LinuxError(
            f"{workload.step}: the guest counts {counted} faults, and the trace {check.traced_faults} and "
            f"{rest.left_out} left out"
        )
    if abs(check.gap) > _LARGEST_GAP:
        raise LinuxError(
            f"{workload.step}: the guest counts {ticks} instructions, and the trace {check.traced}: "
            f"{100 * check.gap:+.2f} %"
        )
    return check


def _measured(
    table: StageTable, workload: str, run: int, kind: str, faults: Sequence[Fault], records: Records
) -> Measured:
    nothing = (0,) * len(COUNTS)
    stages = {}
    for number, stage in enumerate(ALL_STAGES):
        counts = [fault.stages.get(number, nothing) for fault in faults]
        if any(map(any, counts)):
            stages[stage] = _spreads(counts)
    sums = [tuple(map(sum, zip(*fault.stages.values(), strict=True))) for fault in faults]
    # A line that several stages touch is one of the fault's lines.
    total = _spreads([(*each[:4], each[5], each[5]) for each in sums])
    parts: dict[tuple[str, int], list[int]] = {}
    for group in records.groups:
        if group.run == run and table.kind(group.met) == kind:
            so_far = parts.setdefault((group.function, group.stage), [0] * len(group.counts))
            parts[group.function, group.stage] = [a + b for a, b in zip(so_far, group.counts, strict=True)]
    listed = [
        FunctionShare(name, ALL_STAGES[stage], {key: n / len(faults) for key, n in zip(COUNTS, counts, strict=False)})
        for (name, stage), counts in parts.items()
    ]
    listed.sort(key=lambda part: -part.per_fault["instructions"])
    interrupted = sum(fault.interrupts > 0 for fault in faults)
    return Measured(workload, kind, len(faults), interrupted, stages, total, listed)


def _spreads(counts: Sequence[tuple[int, ...]]) -> dict[str, Spread]:
    return {key: Spread.from_values(values) for key, values in zip(COUNTS, zip(*counts, strict=True), strict=True)}
