"""Recording a program."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab import _engine

_SOURCES = Path(__file__).parent / "valgrind"


@dataclass(frozen=True)
class Recording:
    """What a recording came to."""

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
    size_bytes: int
    content_hash: str


def record(
    command: Sequence[str],
    output: str | os.PathLike[str],
    *,
    max_accesses: int | None = None,
    max_threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Recording:
    """Runs a program under Valgrind and records it into a new trace at `output`.

    The program has this process's standard input, output and error. Signals that this process gets are passed on to it.

    Args:
        command: The program and its arguments.
        output: The trace's folder, `NAME.trace`; must not exist.
        max_accesses: End the program after so many accesses.
        max_threads: Threads that each process may have at once; default 2,000. Valgrind ends one that starts more.
        progress: Called with the accesses recorded so far, about ten times a second.

    Raises:
        UsageError: the program cannot be recorded, Valgrind or gcc is missing, or `output` exists.
        TraceError: the trace cannot be written; what it holds by then opens, and is marked incomplete.
    """
    tool = _engine.prepare_recorder(_SOURCES, _cache())
    answer = _engine.record_json(list(command), Path(output), tool, max_accesses, max_threads, progress)
    return Recording(**json.loads(answer))


def _cache() -> Path:
    """Where the compiled tool is kept (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "pagelab"
