"""Recording a program."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.cache import cache_folder
from pagelab.counts import Count, count
from pagelab.stretches import Stretches, StretchTotals

_SOURCES = Path(__file__).parent / "valgrind"


@dataclass(frozen=True)
class Program:
    """What a recorded program came to."""

    accesses: int
    processes: int
    threads: int
    exit_code: int
    """How the program ended, as a shell has it."""
    truncated_at: int | None
    """Accesses after which the recording was stopped; none if the program ran to its end."""
    notes: list[str]
    """What is missing and why."""
    elapsed_seconds: float
    stretches: StretchTotals | None
    """What they came to; none if everything was recorded."""


@dataclass(frozen=True)
class Recording(Program):
    """What a recording came to."""

    size_bytes: int
    content_hash: str


def record(
    command: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    max_accesses: Count | None = None,
    max_threads: int | None = None,
    stretches: Stretches | None = None,
    follow: str | None = None,
    dependencies: bool = True,
    progress: Callable[[int], object] | None = None,
) -> Recording:
    """Runs a program under Valgrind and records it into a new trace at `output`.

    The program has this process's standard input, output and error. Signals that this process gets are passed on to it.

    Args:
        command: The program and its arguments, each a text of its own.
        output: The trace's folder, `NAME.trace`; must not exist.
        max_accesses: End the program after so many accesses, such as `"100M"`.
        max_threads: Threads that each process may have at once; default 2,000. Valgrind ends one that starts more.
        stretches: What to record of a long program; everything unless given. Of the rest, events and first touches of
            pages are recorded.
        follow: `"K/N"`, such as `"1/20"`: of each N children of the program that execute another, in the order in which
            it makes them, record the one of number K, with all its children. The others run natively.
        dependencies: Record which load each address comes from, and conditional branches: what a core with a window
            (`machine.core`) looks at. Without them recording takes a quarter less CPU time.
        progress: Called with the accesses recorded so far, about ten times a second.

    Raises:
        TypeError: `command` is one text in place of a list.
        UsageError: the program cannot be recorded, Valgrind or gcc is missing, `output` exists, or `stretches` or
            `follow` make no sense.
        TraceError: the trace cannot be written; what it holds by then opens, and is marked incomplete.
    """
    program = words(command, "record")
    limit = count("max_accesses", max_accesses, least=1)
    wanted = stretches.to_json() if stretches else None
    tool = prepare()
    answer = _engine.record_json(
        program, Path(output), tool, limit, max_threads, progress, wanted, follow, dependencies
    )
    return Recording(**facts(json.loads(answer)))


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
    """The folder of the Valgrind tool, which is compiled if it is not there yet."""
    return _engine.prepare_recorder(_SOURCES, cache_folder())
