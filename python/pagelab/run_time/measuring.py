"""Measuring a program under page-size layouts on this machine.

Models: nothing; the program runs natively. Runs of the layouts alternate, so that changes of the machine over time
    affect all of them equally.
Source: rusage of the program and the children that it waited for (getrusage(2)); `perf stat` if there are counters.
Deviations: the first run of each layout is inspected and not timed. It also brings files into the page cache. Without
    counters, walk cycles come from replays.
"""

import json
import signal
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pagelab import _engine, native
from pagelab._engine import ConfigError, UsageError
from pagelab.capture.recorder import prepare
from pagelab.capture.stretches import Stretches
from pagelab.capture.traces import trace_info
from pagelab.confidence.students_t import students_t
from pagelab.run_time import counters, frames, host
from pagelab.run_time.document import read
from pagelab.run_time.huge_share import check_share
from pagelab.run_time.layouts import Layout, parse
from pagelab.run_time.replaying import Replay, Replaying, mismatch, record_layouts, replays, trace_of
from pagelab.run_time.running import Files, Memory, Program, Run

KIND = "measurement"
LAYOUTS = ("4k", "thp")
_TOO_SHORT_SECONDS = 0.01
_SHORT_SECONDS = 0.5
_RECORDING_SLOWDOWN = 50
"""How much longer a recording takes than a run, about (docs/recorder.md); an estimate that is only printed"""
NOISY = 0.05
"""Half an interval ÷ mean, above which a layout's times are called noisy"""
_SPAN_FACTOR = 2
_LEAST_SPAN = 64 << 20
_MOSTLY_HUGE = 0.9

Report = Callable[[str], object]


@dataclass(frozen=True)
class Figure:
    """A quantity of several runs."""

    median: float
    mean: float
    half_interval: float | None
    """Half the 95 % interval of the mean; none for a single run."""

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Figure":
        mean = statistics.fmean(values)
        half = None
        if len(values) > 1:
            half = students_t(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
        return cls(statistics.median(values), mean, half)

    @property
    def relative(self) -> float | None:
        """Half the interval ÷ the mean."""
        return None if self.half_interval is None or not self.mean else self.half_interval / self.mean


@dataclass(frozen=True)
class Measured:
    """A layout's runs."""

    layout: str
    memory: Memory
    runs: Sequence[Run]
    replay: Replay | None

    def figure(self, value: Callable[[Run], float]) -> Figure:
        return Figure.from_values([value(run) for run in self.runs])


@dataclass(frozen=True)
class Measurement:
    """A program under several layouts."""

    command: Sequence[str]
    machine: host.Machine
    layouts: Sequence[Measured]
    counters_missing: str | None
    """Why perf counted nothing, or no cycles of walks."""
    walk_cycles_from: str | None
    """`counters`, `replay`, or none."""
    nested: bool
    """Whether replays were of a virtual machine's nested tables."""
    replay_machine: str | None
    """The machine of the replays, as requested."""
    warnings: Sequence[str]
    touched_bytes: int = 0
    """Memory touched before each run, so that the host of a virtual machine has backed the frames of all runs."""

    def to_json(self) -> str:
        """The document, in the form that `load` reads."""
        return json.dumps({"kind": KIND, "pagelab": _engine.__version__, **asdict(self)}, indent=1) + "\n"


@dataclass(frozen=True)
class Plan:
    """How a program is measured."""

    layouts: Sequence[str] = LAYOUTS
    repeat: int = 5
    files: Files = field(default_factory=Files)
    any_status: bool = False
    """Whether a program may end with another status than 0."""
    record: bool = False
    """Whether the program is recorded, and replayed under each layout."""
    stretches: Stretches | None = None
    """The recorded part of the program; all of it by default."""
    trace: Path | None = None
    """A recording made without layouts, which is replayed instead of new ones."""
    keep_traces: Path | None = None
    replaying: Replaying = field(default_factory=Replaying)


def measure(command: Sequence[str], plan: Plan, report: Report = lambda _: None) -> Measurement:
    """Runs a program under layouts, alternating, and takes its time, faults and events.

    Args:
        report: Called with the current step.

    Raises:
        UsageError: layouts cannot be given to the program, it fails, or ends too soon to be measured.
    """
    layouts = _layouts(plan)
    machine = host.machine()
    _check(command, layouts, machine)
    _check_plan(plan, layouts)
    available = counters.find(machine.vendor)
    program = Program(command, plan.files, native.layout_library(), host.pool_bytes())
    first, memories, span = _look(program, layouts, plan, report)
    report(_estimate(first.wall_seconds, layouts, plan))
    largest = max(memory.resident_bytes for memory in memories.values())
    touched = frames.enough(largest) if machine.virtualised else 0
    runs = _repeat(program, layouts, span, plan, available, touched, report)
    shown, failures = _replays(program, layouts, span, plan, report)
    measured = [
        Measured(layout.name, memories[layout.name], runs[layout.name], shown.get(layout.name)) for layout in layouts
    ]
    counted = all("load_walk_cycles" in run.counters for layout in measured for run in layout.runs)
    return Measurement(
        command=list(command),
        machine=machine,
        layouts=measured,
        counters_missing=available.missing,
        walk_cycles_from="counters" if counted else "replay" if shown else None,
        nested=plan.replaying.nested,
        replay_machine=None if plan.replaying.machine is None else str(plan.replaying.machine),
        warnings=[*_warnings(command, machine, measured, layouts, plan), *failures],
        touched_bytes=touched,
    )


def _layouts(plan: Plan) -> list[Layout]:
    layouts = [parse(text) for text in plan.layouts]
    names = [layout.name for layout in layouts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"--layout {min(twice)} is given twice")
    return layouts


def _check(command: Sequence[str], layouts: Sequence[Layout], machine: host.Machine) -> None:
    if not command:
        raise UsageError("there is no program; name one after --")
    why = host.refusal(command[0])
    loaded = [layout.name for layout in layouts if layout.touched and not layout.small]
    if why and loaded:
        raise UsageError(f"layout {loaded[0]} is impossible: {why}; --layout 4k and --layout host need no library")
    if machine.huge_pages == "never" and loaded:
        raise UsageError(
            f"layout {loaded[0]} is impossible: transparent huge pages are off; as root, write madvise to "
            "/sys/kernel/mm/transparent_hugepage/enabled"
        )


def _check_plan(plan: Plan, layouts: Sequence[Layout]) -> None:
    """Finds errors before the first run that would otherwise appear after the last."""
    if plan.trace and plan.record:
        raise UsageError("a recording is given (--trace) or made (--replay): leave one out")
    if plan.files.stdin:
        plan.files.stdin.open("rb").close()
    if plan.record:
        if plan.stretches:
            plan.stretches.check()
        prepare()
        for layout in layouts:
            kept = plan.keep_traces and trace_of(layout, plan.keep_traces)
            if kept and kept.exists():
                raise UsageError(f"{kept}: exists; name another folder")
    if plan.trace:
        trace_info(plan.trace)
    if plan.trace or plan.record:
        plan.replaying.check()


def _look(
    program: Program, layouts: Sequence[Layout], plan: Plan, report: Report
) -> tuple[Run, dict[str, Memory], int]:
    """The first run, each layout's memory, and bytes of a heap within which shares are made."""
    memories: dict[str, Memory] = {}
    plain = Layout("4k")
    report("first run, to see how much memory the program uses")
    first, memory = program.look(plain, 0)
    _check_ending(first, plain, plan)
    if first.cpu_seconds < _TOO_SHORT_SECONDS:
        raise UsageError(
            f"{program.command[0]} ends after {1e3 * first.cpu_seconds:.1f} ms of CPU time, most of which is "
            "start-up; give it more work, at least one second"
        )
    span = max(_SPAN_FACTOR * memory.resident_bytes, memory.heap_extent_bytes, _LEAST_SPAN)
    for layout in layouts:
        if layout.small:
            memories[layout.name] = memory
            continue
        report(f"{layout.name}: untimed run, to look at its memory")
        run, memories[layout.name] = program.look(layout, span)
        _check_ending(run, layout, plan)
        if run.exit_code != first.exit_code:
            raise UsageError(
                f"the program ends with status {first.exit_code} under 4k, and {run.exit_code} under {layout.name}"
            )
        check_share(layout, memory, memories[layout.name])
    return first, memories, span


def _estimate(seconds: float, layouts: Sequence[Layout], plan: Plan) -> str:
    """The plan, and its duration estimated from a first run that took this many seconds."""
    runs = len(layouts) * plan.repeat
    text = f"{runs} timed runs of about {seconds:.2g} s, {runs * seconds:.2g} s in all"
    if plan.record:
        replays = sum(layout.touched for layout in layouts)
        text += f"; then a recording of about {_RECORDING_SLOWDOWN * seconds:.2g} s, and {replays} replays"
    return text


def _check_ending(run: Run, layout: Layout, plan: Plan) -> None:
    if run.exit_code and not plan.any_status:
        raise UsageError(
            f"the program ended with {_status(run.exit_code)} under {layout.name}; its standard error is above, and "
            "--stdout FILE keeps its other output. --any-status measures it anyway"
        )


def _status(code: int) -> str:
    """An exit status as in a shell, with the signal that ended the program."""
    names = {128 + number.value: number.name for number in signal.Signals}
    return f"status {code} ({names[code]})" if code in names else f"status {code}"


def _repeat(
    program: Program,
    layouts: Sequence[Layout],
    span: int,
    plan: Plan,
    available: counters.Counters,
    touched_bytes: int,
    report: Report,
) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {layout.name: [] for layout in layouts}
    for number in range(plan.repeat):
        # Forward and back: a drift of the machine's speed affects all layouts equally.
        for layout in layouts if number % 2 == 0 else reversed(layouts):
            report(f"run {number + 1} of {plan.repeat}, {layout.name}")
            frames.touch(touched_bytes)
            run = _counted(program, layout, span, available) if available.events else program.run(layout, span)
            _check_ending(run, layout, plan)
            runs[layout.name].append(run)
    return runs


def _counted(program: Program, layout: Layout, span: int, available: counters.Counters) -> Run:
    with tempfile.NamedTemporaryFile(prefix="pagelab-perf-", mode="r") as output:
        run = program.run(layout, span, available.command(Path(output.name)))
        return replace(run, counters=available.read(output.read()))


def _replays(
    program: Program, layouts: Sequence[Layout], span: int, plan: Plan, report: Report
) -> tuple[dict[str, Replay], list[str]]:
    """Replays by layout, and why some are missing: the timed runs are kept in any case."""
    how = plan.replaying
    if not (plan.trace or plan.record):
        return {}, []
    with tempfile.TemporaryDirectory(prefix="pagelab-measure-", dir=plan.keep_traces) as folder:
        if plan.trace:
            return _replays_of(plan.trace, layouts, how, Path(folder)), []
        recorded = [layout for layout in layouts if layout.touched]
        if not recorded:
            return {}, []
        report("recording, which takes much longer than a run")
        traces = record_layouts(program, recorded, span, Path(folder), how, plan.stretches, plan.keep_traces)
        shown: dict[str, Replay] = {}
        failures: list[str] = []
        for name, trace in traces.items():
            report(f"{name}: replaying")
            try:
                shown[name] = replays(trace, [how.advised], how.machine, how.progress)[0]
            except ConfigError as error:
                if plan.stretches is None:
                    raise
                failures.append(f"{name}: no walk cycles, as no window lies in the program: {error}")
        return shown, failures


def _replays_of(trace: Path, layouts: Sequence[Layout], how: Replaying, folder: Path) -> dict[str, Replay]:
    """Replays of a recording that was made without layouts."""
    systems = {
        layout.name: how.small if layout.small else how.huge for layout in layouts if layout.small or layout.whole
    }
    if not systems:
        return {}
    replayed = replays(how.sampled(trace, folder), list(systems.values()), how.machine, how.progress)
    return dict(zip(systems, replayed, strict=True))


def _warnings(
    command: Sequence[str],
    machine: host.Machine,
    measured: Sequence[Measured],
    layouts: Sequence[Layout],
    plan: Plan,
) -> list[str]:
    warnings = []
    if plan.trace and (other := mismatch(plan.trace, command)):
        warnings.append(other)
    if machine.virtualised:
        nested = "" if plan.replaying.nested or not (plan.record or plan.trace) else "; --nested replays such walks"
        warnings.append(
            "this machine is a virtual machine: its walks are nested, its host chooses the page size below the "
            f"guest's pages, and other guests may take time{nested}"
        )
    if machine.load > machine.cpus / 2:
        warnings.append(
            f"{machine.load:.1f} programs ran here in the last minute, on {machine.cpus} CPUs: times are noisy"
        )
    for result, layout in zip(measured, layouts, strict=True):
        cpu = result.figure(lambda run: run.cpu_seconds)
        if cpu.relative is not None and cpu.relative > NOISY:
            warnings.append(f"{result.layout}: CPU time is known to ±{cpu.relative:.0%} only; use more runs (--repeat)")
        if result.memory.without_library and layout.touched and not layout.small:
            warnings.append(
                f"{result.layout}: {result.memory.without_library} processes did not load the library of layouts"
            )
        if layout.whole and result.memory.huge_share < _MOSTLY_HUGE:
            warnings.append(
                f"{result.layout}: {result.memory.huge_share:.0%} of the memory became huge: the rest is in mappings "
                "below 2 MiB, in stacks, of programs without the library, or no huge page was free"
            )
    warnings += replay_warnings(measured)
    shortest = min(result.figure(lambda run: run.wall_seconds).median for result in measured)
    if shortest < _SHORT_SECONDS:
        warnings.append(f"a run takes {shortest:.2g} s, part of which is start-up: give the program more work")
    return warnings


def replay_warnings(measured: Sequence[Measured]) -> list[str]:
    """Warnings about the replays, with the layouts unless they are for all."""
    replayed = [result for result in measured if result.replay]
    layouts: dict[str, list[str]] = {}
    for result in replayed:
        for warning in result.replay.warnings if result.replay else ():
            layouts.setdefault(warning, []).append(result.layout)
    return [text if len(names) == len(replayed) else f"{', '.join(names)}: {text}" for text, names in layouts.items()]


def load(path: Path) -> Measurement:
    """Reads a file of `pagelab measure`.

    Raises:
        UsageError: it is no such file.
        OSError: it cannot be read.
    """
    return read(path, KIND, "result of `pagelab measure`", _of_document)


def _run(values: Mapping[str, Any]) -> Run:
    run = Run(**values)
    for name in ("user_seconds", "system_seconds", "wall_seconds"):
        if not isinstance(seconds := getattr(run, name), int | float):
            raise TypeError(f"{name} is {seconds!r}, which is no number")
    return run


def _of_document(document: Mapping[str, Any]) -> Measurement:
    fields = {key: value for key, value in document.items() if key not in ("kind", "pagelab")}
    layouts = [
        Measured(
            entry["layout"],
            Memory(**entry["memory"]),
            [_run(run) for run in entry["runs"]],
            None if entry["replay"] is None else Replay(**entry["replay"]),
        )
        for entry in fields.pop("layouts")
    ]
    return Measurement(machine=host.Machine(**fields.pop("machine")), layouts=layouts, **fields)
