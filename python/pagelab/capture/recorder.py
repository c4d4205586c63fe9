"""Recording a program."""

import json
import math
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.capture.stretches import Stretches, StretchTotals
from pagelab.inherited import leave_to_programs
from pagelab.output import cache_folder
from pagelab.quantities import Count, count

_SOURCES = Path(__file__).parent / "valgrind"


VALGRIND_LACKS = ("Valgrind does not know the instruction", "since Valgrind does not have it")
"""Words of losses that single steps avoid, as the recorder writes them."""


@dataclass(frozen=True)
class Program:
    """What a recorded program came to."""

    accesses: int
    processes: int
    threads: int
    exit_code: int
    """How the program ended, as a shell has it."""
    signal: int | None
    """The signal that ended the program, if one did."""
    truncated_at: int | None
    """Accesses after which the recording was stopped; none if the program ran to its end."""
    truncated_by: str | None
    """The option that stopped it, such as `--max-bytes`."""
    gave_up: bool
    """Whether the recorder ended the program because its processes waited for each other's records."""
    notes: list[str]
    """What a reader should know of the recording."""
    losses: list[str]
    """What is missing although it was to be recorded, and where the program did not behave as without the recorder."""
    elapsed_seconds: float
    stretches: StretchTotals | None
    """What they came to; none if everything was recorded."""

    @property
    def status(self) -> int:
        """The exit status of a command that recorded it: the program's, unless the recorder ended the program."""
        if self.gave_up:
            return 1
        return self.exit_code if self.truncated_at is None else 0


@dataclass(frozen=True)
class Recording(Program):
    """What a recording came to."""

    size_bytes: int
    content_hash: str
    program_cpu_seconds: float
    """CPU time of the program under Valgrind, with those of its children that were waited for."""
    recorder_cpu_seconds: float
    """CPU time of this process meanwhile, which writes the trace."""
    single_step: bool = False
    """Whether the program ran natively, instruction by instruction."""

    @property
    def needs_single_steps(self) -> bool:
        """Whether Valgrind lacked something that the program used, and that single steps would have run."""
        return any(words in loss for loss in self.losses for words in VALGRIND_LACKS)


def record(
    command: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    max_accesses: Count | None = None,
    max_bytes: int | str | None = None,
    max_seconds: float | None = None,
    max_idle_seconds: float = 60.0,
    max_threads: int | None = None,
    stretches: Stretches | None = None,
    follow: str | None = None,
    dependencies: bool = True,
    force: bool = False,
    anonymous: bool = False,
    call_stacks: bool = False,
    single_step: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Recording:
    """Runs a program under Valgrind, or by single steps, and records it into a new trace at `output`.

    The program has this process's standard input, output and error. Signals that this process gets are passed on to it.

    Args:
        command: The program and its arguments, each a text of its own.
        output: The trace's folder, `NAME.trace`; must not exist unless `force` is set.
        max_accesses: End the program after so many accesses, such as `"100M"`.
        max_bytes: End it once the trace has about so many bytes, such as `"2GB"`.
        max_seconds: End it so many seconds after its start, by the clock.
        max_idle_seconds: Once the program has ended, end processes of it that have done nothing for so long.
        max_threads: Threads that each process may have at once; default 2,000. Valgrind ends one that starts more.
        stretches: What to record of a long program; everything unless given. Of the rest, events and first touches of
            pages are recorded.
        follow: `"K/N"`, such as `"1/20"`: of each N children of the program that execute another, in the order in which
            it makes them, record the one of number K, with all its children. The others run natively.
        dependencies: Record which load each address comes from, and conditional branches: what a core with a window
            (`machine.core`) looks at. Without them recording takes a quarter less CPU time.
        force: Replace a trace at `output`, which stays until the new one is whole.
        anonymous: Number files instead of naming them, and leave out arguments, the kernel's release and notes.
        call_stacks: Record the call stack of each access, and which call allocated which memory.
        single_step: Run the program natively, and stop it after each instruction. Every instruction and system call of
            this machine works, but a million instructions take seconds. Needs no Valgrind.
        progress: Called with the accesses recorded so far, about ten times a second.

    Raises:
        TypeError: `command` is one text instead of a list.
        UsageError: the program cannot be recorded, Valgrind or gcc is missing, `output` exists, or `stretches` or
            `follow` make no sense.
        TraceError: the trace cannot be written; what it holds by then opens, and is marked incomplete.
    """
    program = words(command, "record")
    limit = count("max_accesses", max_accesses, least=1)
    most_bytes = byte_limit("max_bytes", max_bytes)
    if max_seconds is not None and not (math.isfinite(max_seconds) and max_seconds > 0):
        raise _engine.UsageError(f"max_seconds: {max_seconds} is not possible; allowed is more than 0")
    if not (math.isfinite(max_idle_seconds) and max_idle_seconds > 0):
        raise _engine.UsageError(f"max_idle_seconds: {max_idle_seconds} is not possible; allowed is more than 0")
    wanted = stretches.to_json() if stretches else None
    if single_step:
        check_single_step(max_threads=max_threads, call_stacks=call_stacks)
    tool = None if single_step else prepare()
    leave_to_programs()
    before = _cpu_seconds()
    answer = _engine.record_json(
        program,
        Path(output),
        tool,
        limit,
        max_threads,
        progress,
        wanted,
        follow,
        dependencies,
        most_bytes,
        max_seconds,
        force,
        anonymous,
        call_stacks,
        max_idle_seconds,
    )
    own, children = (after - start for after, start in zip(_cpu_seconds(), before, strict=True))
    return Recording(
        **facts(json.loads(answer)),
        program_cpu_seconds=children,
        recorder_cpu_seconds=own,
        single_step=single_step,
    )


def check_single_step(*, max_threads: int | None, call_stacks: bool) -> None:
    """Fails for options that single steps do not have.

    Raises:
        UsageError: `max_threads` or `call_stacks` is set.
    """
    if max_threads is not None:
        raise _engine.UsageError("--max-threads is not possible with --single-step, which has no such limit")
    if call_stacks:
        raise _engine.UsageError(
            "--stacks is not possible with --single-step, which does not see which call allocates memory"
        )


def _cpu_seconds() -> tuple[float, float]:
    """CPU time of this process, and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def byte_limit(name: str, value: int | str | None) -> int | None:
    """The bytes that `value` says, such as `"2GB"`; none stays none.

    Raises:
        UsageError: it is no number of bytes, or less than one.
    """
    if value is None:
        return None
    try:
        size = _engine.parse_bytes(value) if isinstance(value, str) else value
    except _engine.UsageError as error:
        raise _engine.UsageError(f"{name}: {error}") from None
    if size < 1:
        raise _engine.UsageError(f"{name}: {size} is not possible; allowed is 1 and more")
    return size


def facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Program` or `Recording` from what the recorder answers."""
    totals = answer["stretches"]
    return {**answer, "stretches": StretchTotals(**totals) if totals else None}


def words(command: Sequence[str | os.PathLike[str]], function: str) -> list[str]:
    """A program and its arguments as texts.

    Raises:
        TypeError: it is one text, where `function` takes a list.
    """
    if isinstance(command, str | bytes | os.PathLike):
        raise TypeError(
            f"{function} takes the program and its arguments as a list, such as ['ls', '-l'], not {command!r}; "
            "shlex.split makes one of a shell's words"
        )
    return [os.fspath(word) for word in command]


def prepare() -> Path:
    """The folder of the Valgrind tool, which is compiled if it is not there yet.

    Raises:
        UsageError: Valgrind or gcc is missing, or the cache folder cannot be used.
    """
    folder = cache_folder()
    try:
        return _engine.prepare_recorder(_SOURCES, folder)
    except _engine.TraceError as error:
        raise _engine.UsageError(
            f"{error}; the recorder's Valgrind tool is compiled into {folder}: let XDG_CACHE_HOME name a folder that "
            "you can write"
        ) from None
