"""Looking at traces, and importing those of other tools: what `pagelab trace` does, as functions."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.counts import Count, count


@dataclass(frozen=True)
class Import:
    """What became of another tool's trace."""

    path: Path
    """The trace of ours that was written."""
    format: str
    """The other tool's: `lackey` or `champsim`."""
    accesses: int
    mappings: int
    """Mappings that were inferred from the accesses, as such traces have no events."""
    cut_short: bool
    """True if the file held more than `max_accesses`."""
    empty_accesses: int
    """Accesses of 0 bytes, which were left out."""


def import_trace(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    max_accesses: Count | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Import:
    """Turns a trace of another tool into one of pagelab's.

    Args:
        file: The other tool's trace; plain, gzip, xz or zstd.
        output: The new trace's folder, `NAME.trace`; must not exist. By default it has the file's name and is made in
            the current folder.
        format: `lackey`, `champsim`, or `auto` to recognise it.
        max_accesses: Stop after so many, such as `"100M"`.
        progress: Called with (bytes read, bytes in all if known) about ten times a second.

    Raises:
        UsageError: an unknown format, or `output` exists.
        TraceError: the file cannot be read or is no such trace; nothing is left behind.
    """
    path = Path(output or f"{Path(file).name.split('.')[0]}.trace")
    limit = count("max_accesses", max_accesses, least=1)
    summary = json.loads(_engine.import_json(Path(file), path, format, limit, progress))
    return Import(
        path=path,
        format=summary["format"],
        accesses=summary["accesses"],
        mappings=summary["mappings"],
        cut_short=summary["cut_short"],
        empty_accesses=summary["empty_accesses"],
    )


def trace_info(trace: str | os.PathLike[str], *, footprint: bool = False) -> dict[str, Any]:
    """What a trace is and holds, as `pagelab trace info --json` has it.

    Args:
        trace: A folder `NAME.trace`.
        footprint: Also count the pages touched, for which all of it is read.

    Raises:
        TraceError: it cannot be read or is damaged.
    """
    _refuse_fault_trace(trace)
    return cast("dict[str, Any]", json.loads(_engine.trace_info_json(os.fspath(trace), footprint)))


def trace_head(trace: str | os.PathLike[str], rows: int = 10) -> list[dict[str, Any]]:
    """The first accesses and events of a trace, as `pagelab trace head --json` has them.

    Raises:
        TraceError: it cannot be read or is damaged.
        UsageError: `rows` is below 1.
    """
    _refuse_fault_trace(trace)
    wanted = count("rows", rows, least=1)
    return cast("list[dict[str, Any]]", json.loads(_engine.trace_head_json(os.fspath(trace), wanted or 1)))


def _refuse_fault_trace(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix == ".faults" and Path(path).is_file():
        raise UsageError(f"{path} is a fault trace: fault_trace_info and fault_trace_head show it")
