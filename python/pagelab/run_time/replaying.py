"""Walk cycles, TLB misses and hits of a program, from replays of its recordings.

Models: the program is recorded once, with the library of layouts (`shared_recording`), and replayed on a machine under
    a system that gives huge pages where they are requested. A trace made without layouts only shows `4k` and `thp`.
    Windows stand for the whole program: counts are multiplied by the ratio of its instructions to theirs, and a warning
    gives the spread of the windows. Long recordings are sampled (`default_sample`).
Deviations: the program runs once more, under Valgrind. That run is replayed.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pagelab import _engine, native
from pagelab.capture.length import WHOLE, Length
from pagelab.capture.recorder import record
from pagelab.capture.stretches import Stretches
from pagelab.capture.traces import is_trace, trace_info
from pagelab.quantities import counted
from pagelab.replay import cores
from pagelab.replay.default_sample import LEAST_ACCESSES, save_default_sample
from pagelab.replay.simulation import Progress, Source, System, run
from pagelab.results.headline import user_cycles
from pagelab.results.results import SystemResult
from pagelab.results.windows import FEW_WINDOWS, WALK_CYCLES, is_sampled
from pagelab.run_time import shared_recording
from pagelab.run_time.layouts import Layout
from pagelab.run_time.running import Files, Program

# Virtual machines that have used their memory before, as timed runs find them (`frames`).
NESTED: System = "nested-radix"
NESTED_HUGE: System = "nested-radix-thp"
NESTED_MADVISE: System = "nested-radix-thp-madvise"

_PERIODS = 300
"""Windows of a sample: walks are rarer than the events of advice, so more windows are needed than there; a choice"""


@dataclass(frozen=True)
class Replay:
    """The counts of a layout's accesses on the simulated machine, for the whole program until its trace ends."""

    walk_cycles: int
    """Cycles of all completed walks."""
    tlb_misses: int
    """Misses of the last-level TLB, for data and instructions."""
    tlb_hits: int
    """Hits of the same: misses of the first level that it served."""
    core_cycles: int
    """Of the program's own instructions, on the machine's own core if that is in order, else as below."""
    window_cycles: int
    """The same on the core that overlaps accesses (`cores.overlapping`)."""
    mhz: float
    """The simulated machine's clock."""
    machine: str
    system: str
    accesses: int
    """Replayed and measured instructions."""
    program_by_replayed: float = 1.0
    """Instructions of the program ÷ those replayed and measured; the other counts are multiplied by it."""
    warnings: Sequence[str] = ()
    """The simulator's warnings about these replays."""


def replays(
    trace: Source, systems: Sequence[System], machine: str | os.PathLike[str] | None, progress: Progress | None = None
) -> list[Replay]:
    """A trace under systems, on a core that overlaps accesses, and on the machine's own core if that is in order."""
    length = Length.from_info(trace_info(trace)) if is_trace(trace) else WHOLE
    core = json.loads(_engine.machine_json(None if machine is None else os.fspath(machine)))["core"]
    settings = {"machine.core": cores.overlapping(core)}
    overlapped = run(trace, systems, machine=machine, set=settings, progress=progress).systems
    own = overlapped
    if core["model"] != "window":
        own = run(trace, systems, machine=machine, progress=progress).systems
    return [_replay(*pair, length) for pair in zip(own, overlapped, strict=True)]


def _replay(own: SystemResult, other: SystemResult, length: Length) -> Replay:
    stats = own.stats
    misses = sum(stats.get(f"{kind}.l2.misses", 0) for kind in ("dtlb", "itlb"))
    first = sum(stats.get(f"{kind}.l1.misses", 0) for kind in ("dtlb", "itlb"))
    times = length.of_traced(stats.get("instructions", 0))

    def of_program(count: int) -> int:
        return round(count * times)

    return Replay(
        walk_cycles=of_program(stats.get("walk.cycles", 0)),
        tlb_misses=of_program(misses),
        tlb_hits=of_program(first - misses),
        core_cycles=of_program(user_cycles(stats)),
        window_cycles=of_program(user_cycles(other.stats)),
        mhz=own.config["machine"]["frequency_mhz"],
        machine=own.machine,
        system=own.label,
        accesses=stats.get("accesses", 0),
        program_by_replayed=times,
        warnings=list(dict.fromkeys((*own.warnings, *other.warnings, *_of_parts(own, length)))),
    )


def _of_parts(result: SystemResult, length: Length) -> Iterator[str]:
    """Warnings if not the whole program was replayed."""
    if not length.known:
        yield "the trace ends before the program, so walk cycles cover only its first part"
    if is_sampled(result.stats):
        times, count = length.of_traced(result.stats.get("instructions", 0)), len(result.windows)
        few = f"; fewer than {FEW_WINDOWS} give little information: use a shorter every=" if count < FEW_WINDOWS else ""
        yield (
            f"walk cycles are those of {counted(count, 'window', 'windows')} with {100 / times:.2g} % of the "
            f"instructions, multiplied by {times:.3g}{_spread(result)}{few}"
        )


def _spread(result: SystemResult) -> str:
    """Half the 95 % interval of walk cycles over windows, as their share; empty if unknown."""
    walks = next((figure for figure in result.figures() if figure.name == WALK_CYCLES), None)
    if walks is None or not walks.value or walks.half_width is None:
        return ""
    return f", ± {walks.half_width / walks.value:.0%}"


def mismatch(trace: Source, command: Sequence[str]) -> str | None:
    """A warning if a trace is of another program or of other arguments; none if it is of this one."""
    name = os.fspath(trace)
    if not is_trace(trace):
        return f"{name} is a workload, not a recording of {shlex.join(command)}, which was measured"
    recorded = trace_info(name)["meta"].get("command") or []
    if list(recorded) == list(command):
        return None
    what = shlex.join(recorded) if recorded else "an unnamed program"
    return f"{name} is a recording of {what}, and {shlex.join(command)} was measured"


def trace_of(layout: Layout, folder: Path) -> Path:
    """Where the recording of a layout is kept."""
    return folder / f"{layout.name.replace('%', '')}.trace"


def record_layouts(
    program: Program,
    layouts: Sequence[Layout],
    span_bytes: int,
    folder: Path,
    how: "Replaying",
    stretches: Stretches | None = None,
    keep: Path | None = None,
) -> dict[str, Path]:
    """Records a program once, and writes the recording that each layout would have given.

    Args:
        folder: Where the traces are to be replayed from; those of long programs are samples.
        stretches: Only record these.
        keep: Keep whole recordings there.

    Returns:
        The trace of each layout, by its name.

    Raises:
        UsageError: it cannot be recorded, or the stretches are invalid.
        TraceError: the recording cannot be written.
    """
    recording = folder / "recording.trace"
    # The recorder gives this process's environment, input and output to the program.
    with _environment(program.environment(shared_recording.WHOLE, span_bytes)), _redirected(program.files):
        record(program.command, recording, stretches=stretches)
    library = native.layout_library()
    if keep:
        for layout in layouts:
            shared_recording.derive(recording, layout, trace_of(layout, keep), library, span_bytes)
    replayed = how.sampled(recording, folder)
    traces = {layout.name: trace_of(layout, folder) for layout in layouts}
    for layout in layouts:
        shared_recording.derive(replayed, layout, traces[layout.name], library, span_bytes)
    return traces


@dataclass(frozen=True)
class Replaying:
    """The machine, and the kind of system, for replays of recordings."""

    machine: str | os.PathLike[str] | None = None
    nested: bool = False
    whole: bool = False
    """Replay whole long recordings instead of samples."""
    progress: Progress | None = None

    def sampled(self, trace: Path, folder: Path) -> Path:
        """A sample of a long recording, saved in `folder`; the recording itself if it is short or contains windows.

        Raises:
            TraceError: the recording cannot be read.
        """
        info = trace_info(trace)
        instructions = info["meta"]["accesses"]["instructions"]
        if self.whole or info["accesses"] < LEAST_ACCESSES or info["meta"].get("stretches") or not instructions:
            return trace
        sample = folder / "sample.trace"
        progress = partial(self.progress, "sample") if self.progress else None
        machine = None if self.machine is None else os.fspath(self.machine)
        save_default_sample(trace, sample, instructions, machine, periods=_PERIODS, progress=progress)
        return sample

    @property
    def advised(self) -> System:
        """The system that gives huge pages where the program or a layout requests them."""
        return NESTED_MADVISE if self.nested else "radix-thp-madvise"

    def check(self) -> None:
        """Raises a replay's errors about the machine.

        Raises:
            ConfigError: there is no such machine.
        """
        run("seq:size=4KiB,passes=1", [self.advised], machine=self.machine)

    @property
    def small(self) -> System:
        """The system of `4k`, without requests for huge pages."""
        return NESTED if self.nested else "radix"

    @property
    def preset(self) -> str:
        """The same, for presets whose host allocates memory at first touches."""
        return "nested-radix" if self.nested else "radix"

    @property
    def huge(self) -> System:
        """The system of `thp`, for traces that were made without layouts."""
        return NESTED_HUGE if self.nested else "radix-thp"


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    old = {key: os.environ.get(key) for key in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for key, value in old.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@contextmanager
def _redirected(files: Files) -> Iterator[None]:
    """Standard input from the program's file or /dev/null, and output to /dev/null."""
    kept = {number: os.dup(number) for number in (0, 1)}
    try:
        with (files.stdin or Path(os.devnull)).open("rb") as stdin, Path(os.devnull).open("wb") as stdout:
            os.dup2(stdin.fileno(), 0)
            os.dup2(stdout.fileno(), 1)
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
