"""Drives fitted to measurements of fio."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from pagelab._engine import PagelabError

BLOCK = 4096
DEEP = 16
"""Fewest requests at a time with which a job counts as keeping the drive busy"""
SLOW = 0.01
"""Share of the reads that get the time by which the mean exceeds the median"""
BUFFER_BLOCKS = 4096
MOST_NS = 2**32 - 1

Direction = Literal["read", "write"]


class FioError(PagelabError):
    """The file lacks the measurements that a drive needs."""


@dataclass(frozen=True)
class Job:
    """What one job of fio measured in one direction; times in nanoseconds."""

    name: str
    depth: int
    """Requests at a time, of all its processes"""
    per_second: float
    mean: float
    median: float


def fit(path: Path, name: str) -> str:
    """The drive preset `name`, as TOML, for the drive that fio measured.

    Args:
        path: Output of `fio --output-format=json` for random accesses of 4 KiB: reads one at a time, and enough reads
            at a time to keep the drive busy; optionally writes in the same way.

    Raises:
        FioError: it is not output of fio, or a required job is missing.
    """
    version, jobs = _read(path)
    alone, busy = _pair(path, jobs["read"], "read")
    controller = round(1e9 / busy.per_second)
    read = max(round(alone.median) - controller, 0)
    excess = max(alone.mean - alone.median, 0)
    units = _power_of_two(4 * busy.per_second * alone.mean / 1e9)
    deepest = max(job.depth for listed in jobs.values() for job in listed)
    device = {
        "model": "drive",
        "queue_depth": max(deepest, 32),
        "controller_ns": controller,
        "block_ns": controller,
        "units": units,
        "read_ns": read,
        "slow_per_million": round(SLOW * 1e6),
        "slow_ns": min(round(excess / SLOW), MOST_NS),
        "buffer_blocks": BUFFER_BLOCKS,
    }
    origin = {
        "queue_depth": "estimate: the most that fio asked for at a time, or 32",
        "controller_ns": f"measured: {busy.per_second:,.0f} reads per second with {busy.depth} at a time "
        f"(job {busy.name})",
        "block_ns": "estimate: as the first block of a request, since no job has larger blocks",
        "units": "estimate: four times the reads that the drive serves at a time, a power of two",
        "read_ns": f"measured: median of {alone.median:,.0f} ns of reads one at a time (job {alone.name}), "
        "less the controller's time. It includes the host's part in a completion",
        "slow_ns": f"measured: the mean of {alone.mean:,.0f} ns exceeds the median by the slowest hundredth's time",
        "slow_per_million": "estimate: a hundredth",
        "buffer_blocks": "estimate: 16 MiB",
    }
    if jobs["write"]:
        alone, busy = _pair(path, jobs["write"], "write")
        device |= {
            "write_ns": max(round(alone.median) - controller, 0),
            "program_ns": min(round(units * 1e9 / busy.per_second), MOST_NS),
        }
        origin |= {
            "write_ns": f"measured: median of {alone.median:,.0f} ns of writes one at a time (job {alone.name}), "
            "less the controller's time",
            "program_ns": f"measured: {busy.per_second:,.0f} writes per second with {busy.depth} at a time "
            f"(job {busy.name}), over the units",
        }
    else:
        device |= {"write_ns": read, "program_ns": read}
        origin |= {
            "write_ns": "estimate: as a read, since no job writes",
            "program_ns": "estimate: as a read",
        }
    preset = {
        "name": name,
        "description": f"A drive fitted to what {version} measured on it",
        "device": device,
        "origin": {f"device.{key}": text for key, text in origin.items()},
    }
    return tomli_w.dumps(preset)


def _read(path: Path) -> tuple[str, dict[Direction, list[Job]]]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FioError(f"{path}: not JSON ({error}); expected what `fio --output-format=json` writes") from None
    if not isinstance(report, dict) or not isinstance(report.get("jobs"), list):
        raise FioError(f"{path}: not output of fio: it has no list `jobs`")
    jobs: dict[Direction, list[Job]] = {"read": [], "write": []}
    for entry in report["jobs"]:
        options = {**report.get("global options", {}), **entry.get("job options", {})}
        for direction, listed in jobs.items():
            try:
                job = _job(entry, options, direction)
            except (KeyError, TypeError, ValueError) as error:
                raise FioError(
                    f"{path}: a job of fio that cannot be understood ({type(error).__name__}: {error})"
                ) from None
            if job:
                listed.append(job)
    return str(report.get("fio version", "fio")), jobs


def _job(entry: Mapping[str, Any], options: Mapping[str, str], direction: Direction) -> Job | None:
    """The measurement, if it is of random accesses of one block; else none."""
    measured = entry[direction]
    if (
        not measured["total_ios"]
        or measured["io_bytes"] != measured["total_ios"] * BLOCK
        or "rand" not in options.get("rw", "")
    ):
        return None
    times = measured["clat_ns"]
    depth = int(options.get("iodepth", 1)) * int(options.get("numjobs", 1))
    median = float(times.get("percentile", {}).get("50.000000", times["mean"]))
    return Job(str(entry["jobname"]), depth, float(measured["iops"]), float(times["mean"]), median)


def _pair(path: Path, jobs: Sequence[Job], direction: Direction) -> tuple[Job, Job]:
    """The job with one request at a time, and that with the most per second."""
    alone = [job for job in jobs if job.depth == 1]
    busy = [job for job in jobs if job.depth >= DEEP]
    option, kind = f"--rw=rand{direction} --bs=4k", f"random {direction}s of 4 KiB"
    if not alone:
        raise FioError(f"{path}: no job of {kind} one at a time; run fio {option} --iodepth=1, too")
    if not busy:
        raise FioError(f"{path}: no job of {kind} {DEEP} or more at a time; run fio {option} --iodepth=256, too")
    return alone[0], max(busy, key=lambda job: job.per_second)


def _power_of_two(least: float) -> int:
    return 1 << max(int(least) - 1, 0).bit_length()
