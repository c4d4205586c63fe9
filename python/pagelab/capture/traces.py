"""Looking at traces, importing those of other tools and exporting to them: what `pagelab trace` does, as functions."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.capture.stretches import StretchTotals
from pagelab.quantities import Count, count


@dataclass(frozen=True)
class Import:
    """What became of another tool's trace."""

    path: Path
    """The trace of ours that was written."""
    format: str
    """The other tool's, as [docs/foreign-traces.md] names it: `lackey`, `champsim`, …"""
    accesses: int
    mappings: int
    """Mappings that were inferred from the accesses, as such traces have no events."""
    cut_short: bool
    """True if it stopped at `max_accesses` or `max_records`."""
    empty_accesses: int
    """Accesses of 0 bytes, which were left out."""
    left_out: int
    """Records that are no accesses of the program, which were left out: prefetches, responses, text of others."""
    sampled: bool
    """True if the accesses are a sample of the program's accesses."""
    threads: int
    processes: int
    notes: list[str]
    """What turned out on the way and matters to readers of results."""


@dataclass(frozen=True)
class Export:
    """A file for another tool."""

    path: Path
    thread: int
    """The thread of the trace whose accesses it holds."""
    instructions: int
    accesses: int
    instructions_added: int
    """Instructions that were added, as one had more accesses than a record holds."""
    accesses_dropped: int
    """Accesses of address 0, which the format cannot express."""
    by_kernel: int
    """Accesses by the kernel for the program, which became the program's."""


@dataclass(frozen=True)
class SavedSample:
    """A sample that was written as a trace of its own."""

    path: Path
    accesses: int
    """Of the sample."""
    read: int
    """Accesses of the source."""
    size_bytes: int
    stretches: StretchTotals
    """What its windows, and the rest, came to."""


def is_trace(source: str | os.PathLike[str]) -> bool:
    """Whether a source names a trace and no workload."""
    return os.fspath(source).rstrip("/").endswith(".trace")


def save_sample(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    sample: str | None = None,
    seed: int = 1,
    max_accesses: Count | None = None,
    reach: int | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> SavedSample:
    """Writes a sample of a source as a trace of its own, which replays in a fraction of the time.

    Args:
        source: A trace, or a workload spec.
        output: The new trace's folder, `NAME.trace`; must not exist.
        sample: `every=N,length=N[,warm=N][,offset=N]`, in instructions. Windows by the length of the source if it is
            `auto` or not given.
        seed: Draws where windows begin in their periods; and what a workload generates.
        max_accesses: Of the source's first accesses alone, such as `"100M"`.
        reach: Bytes of the largest cache that the sample is for; without it, any size will do. Of a program that uses
            other memory all the time, the sample is smaller then.
        progress: Called with (accesses read, accesses in all if known) about ten times a second.

    Raises:
        UsageError: a source that is too short for windows, or was sampled before; a wrong `sample`; `output` exists.
        TraceError: the trace cannot be read or is damaged; nothing is left behind.
    """
    _refuse_fault_trace(source)
    limit = count("max_accesses", max_accesses, least=1)
    windows = None if sample == "auto" else sample
    done = json.loads(_engine.save_sample_json(os.fspath(source), Path(output), windows, seed, limit, reach, progress))
    return SavedSample(
        path=Path(done["path"]),
        accesses=done["accesses"],
        read=done["read"],
        size_bytes=done["size_bytes"],
        stretches=StretchTotals(**done["stretches"]),
    )


def _refuse_own_trace(file: Path) -> None:
    """Raises UsageError if there is nothing to import."""
    folder = file if file.is_dir() else file.parent
    name = folder.resolve().name
    is_part = file.is_dir() or file.name == "trace.json" or file.suffix == ".parquet"
    if is_part and name.endswith(".trace") and (folder / "trace.json").is_file():
        what = "this is" if file.is_dir() else f"this is a part of {folder},"
        raise _engine.UsageError(
            f"{file}: {what} a trace of pagelab already, which needs no import; use it as it is: pagelab run {folder}"
        )


def import_trace(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    max_accesses: Count | None = None,
    max_records: Count | None = None,
    fields: str | None = None,
    record_bytes: int | None = None,
    remove_tags: bool = False,
    leave_out_kernel: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> Import:
    """Turns a trace of another tool into one of pagelab's.

    Args:
        file: The other tool's trace: plain, compressed (gzip, xz, bzip2, zstd, lz4, snappy), or in a tar or zip
            archive. Or a folder of DynamoRIO's threads.
        output: The new trace's folder, `NAME.trace`; must not exist. By default it has the file's name and is made in
            the current folder.
        format: `drmemtrace`, `gem5`, `lackey`, `perf`, `perf-data`, `pinatrace`, `ramulator`, `champsim`,
            `champsim-cloudsuite`, or `auto` to recognise it.
        max_accesses: Stop after so many, such as `"100M"`.
        max_records: Stop after so many records of the file: lines, instructions, entries or packets.
        fields: The fields of a text of `perf script`, as behind its `-F`: `"comm,pid,tid,time,event,addr"`.
        record_bytes: Bytes of ChampSim's records, 64 or 96, where the content does not tell.
        remove_tags: Take the highest byte of addresses for a tag, as AArch64 does, and remove it.
        leave_out_kernel: Leave out and count what is at addresses of the kernel's half, instead of refusing it.
        progress: Called with (bytes read, bytes in all if known) about ten times a second.

    Raises:
        UsageError: an unknown format, options of another format, or `output` exists.
        TraceError: the file cannot be read or is no such trace; nothing is left behind.
    """
    _refuse_own_trace(Path(file))
    path = Path(output or f"{Path(file).name.split('.')[0]}.trace")
    limit = count("max_accesses", max_accesses, least=1)
    records = count("max_records", max_records, least=1)
    summary = json.loads(
        _engine.import_json(
            Path(file),
            path,
            format,
            limit,
            records,
            fields=fields,
            record_bytes=record_bytes,
            remove_tags=remove_tags,
            leave_out_kernel=leave_out_kernel,
            progress=progress,
        )
    )
    return Import(
        path=path,
        format=summary["format"],
        accesses=summary["accesses"],
        mappings=summary["mappings"],
        cut_short=summary["cut_short"],
        empty_accesses=summary["empty_accesses"],
        left_out=summary["left_out"],
        sampled=summary["sampled"],
        threads=summary["threads"],
        processes=summary["processes"],
        notes=summary["notes"],
    )


def export_trace(
    trace: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str,
    thread: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Export]:
    """Turns a trace into files for another tool, one per thread.

    Args:
        trace: A folder `NAME.trace`.
        output: The file, compressed as its name ends (`.gz`, `.xz`, `.bz2`, `.zst`). Of several threads, each has its
            number in the name: `NAME-0.champsim.xz`. Must not exist; folders that are missing are made.
        format: `lackey`, `champsim` or `champsim-cloudsuite`.
        thread: Export only the thread with this number in the trace.
        progress: Called with (accesses done, accesses in all) about ten times a second.

    Raises:
        UsageError: an unknown format, no such thread, or a file exists.
        TraceError: the trace cannot be read or is damaged; nothing is left behind.
    """
    _refuse_fault_trace(trace)
    files = json.loads(_engine.export_json(Path(trace), Path(output), format, thread, progress))
    return [
        Export(
            path=Path(file["path"]),
            thread=file["thread"],
            instructions=file["instructions"],
            accesses=file["accesses"],
            **file["lost"],
        )
        for file in files
    ]


def anonymize_trace(trace: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Writes a trace anew, without what tells of its owner.

    Files have numbers instead of names, which keep their kind. Arguments, the kernel's release, the time of day and
    notes are left out. Accesses stay as they are.

    Raises:
        UsageError: `output` exists.
        TraceError: the trace cannot be read or is damaged; nothing is left behind.
    """
    _refuse_fault_trace(trace)
    _engine.anonymize_trace(Path(trace), Path(output))


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
