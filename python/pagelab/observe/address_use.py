"""Which addresses of a process are used, by a DAMON monitor of our own.

Models: DAMON divides the addresses into regions and looks at the accessed bit of a page of each, every 5 ms. A region's
    figure is the share of these looks that saw an access, in the last 100 ms; its age is for how long that was alike.
Source: Documentation/admin-guide/mm/damon/usage.rst and design.rst of Linux 6.12.
Parameters: the intervals, and the bounds on the number of regions, below.
Deviations: a page stands for its region. DAMON flushes no TLBs, so pages whose translations stay in one seem unused.
    Only one process is monitored, without its children. A monitor outlives this process if that is killed; the next one
    ends it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe.damon import ADMIN, text_of
from pagelab.observe.processes import PROC, TICKS_PER_SECOND, identify

RECORD = Path("/run/pagelab-damon.json")
SAMPLE_US, AGGREGATION_US, UPDATE_US = 5_000, 100_000, 1_000_000
LEAST_REGIONS, MOST_REGIONS = 10, 1_000
_SAMPLES = AGGREGATION_US // SAMPLE_US
_ALL = {"sz": 2**64 - 1, "nr_accesses": 2**32 - 1, "age": 2**32 - 1}


@dataclass(frozen=True)
class Part:
    """A region of DAMON's: addresses of which it takes it that they are used alike."""

    begin: int
    end: int
    accessed: float
    """The share of looks that saw an access"""
    age_seconds: float


@dataclass(frozen=True)
class Snapshot:
    """The regions at one moment."""

    seconds: float
    """Since the observation began"""
    parts: Sequence[Part]


class AddressMonitor:
    """A monitor that runs."""

    def __init__(self, folder: Path, thread: int) -> None:
        self._folder, self._thread = folder, thread
        self._seconds = 0.0

    def snapshot(self, seconds: float) -> Snapshot | None:
        """The regions now; none once DAMON has ended, as it does with the process."""
        try:
            (self._folder / "state").write_text("update_schemes_tried_regions\n", encoding="ascii")
            folder = self._folder / "contexts/0/schemes/0/tried_regions"
            parts = [_part(one) for one in folder.iterdir() if one.name.isdecimal()]
        except OSError:
            return None
        return Snapshot(seconds, sorted(parts, key=lambda part: part.begin))

    @property
    def cpu_seconds(self) -> float:
        """CPU time of DAMON's thread; what it was last, once that has ended."""
        with suppress(OSError):
            fields = (PROC / str(self._thread) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            self._seconds = (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
        return self._seconds


def _part(folder: Path) -> Part:
    begin, end, accesses, age = (int(text_of(folder / name)) for name in ("start", "end", "nr_accesses", "age"))
    return Part(begin, end, min(accesses / _SAMPLES, 1.0), age * AGGREGATION_US / 1e6)


@contextmanager
def address_monitor(pid: int, admin: Path = ADMIN, record: Path = RECORD) -> Iterator[AddressMonitor]:
    """A monitor of a process until the end of the block.

    Raises:
        UsageError: this kernel has no DAMON for processes, this user may not use it, or somebody else does.
    """
    number = admin / "nr_kdamonds"
    try:
        _end_of_killed(admin, record)
        if text_of(number) != "0":
            raise UsageError(
                "--damon: DAMON is busy: there is a kdamond of somebody else, which is left alone; leave the option out"
            )
    except FileNotFoundError:
        raise UsageError(
            "--damon: this kernel has no DAMON (CONFIG_DAMON_VADDR, CONFIG_DAMON_SYSFS); leave the option out"
        ) from None
    except PermissionError:
        raise UsageError(f"--damon: {admin} is for root") from None
    own = identify(os.getpid())
    text = json.dumps({"pid": own.pid, "started": own.started, "target": pid})
    try:
        record.write_text(f"{text}\n", encoding="ascii")
    except OSError as error:
        raise UsageError(
            f"--damon: {record} cannot be written ({error.strerror}); it names the monitor that kill -9 would leave"
        ) from None
    try:
        thread = _start(pid, admin)
        yield AddressMonitor(admin / "0", thread)
    finally:
        _end(admin, record)


def _start(pid: int, admin: Path) -> int:
    """Starts a monitor; returns its thread."""

    def write(name: str, value: object) -> None:
        (admin / name).write_text(f"{value}\n", encoding="ascii")

    context, scheme = "0/contexts/0", "0/contexts/0/schemes/0"
    try:
        write("nr_kdamonds", 1)
        write("0/contexts/nr_contexts", 1)
        write(f"{context}/operations", "vaddr")
        for name, value in (("sample_us", SAMPLE_US), ("aggr_us", AGGREGATION_US), ("update_us", UPDATE_US)):
            write(f"{context}/monitoring_attrs/intervals/{name}", value)
        write(f"{context}/monitoring_attrs/nr_regions/min", LEAST_REGIONS)
        write(f"{context}/monitoring_attrs/nr_regions/max", MOST_REGIONS)
        write(f"{context}/targets/nr_targets", 1)
        write(f"{context}/targets/0/pid_target", pid)
        # A scheme that does nothing shows the regions that it would be for: all.
        write(f"{context}/schemes/nr_schemes", 1)
        write(f"{scheme}/action", "stat")
        for name, most in _ALL.items():
            write(f"{scheme}/access_pattern/{name}/max", most)
        write("0/state", "on")
        return int(text_of(admin / "0/pid"))
    except OSError as error:
        raise UsageError(f"--damon: the kernel does not start it ({error}); CONFIG_DAMON_VADDR is needed") from None


def _end(admin: Path, record: Path) -> None:
    # It is off already if the process has ended.
    with suppress(OSError):
        (admin / "0/state").write_text("off\n", encoding="ascii")
    with suppress(OSError):
        (admin / "nr_kdamonds").write_text("0\n", encoding="ascii")
    record.unlink(missing_ok=True)


def _end_of_killed(admin: Path, record: Path) -> None:
    """Ends the monitor that a killed observation has left, if it is just that one."""
    try:
        left = json.loads(record.read_text(encoding="ascii"))
        owner, started, target = (int(left[key]) for key in ("pid", "started", "target"))
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        record.unlink(missing_ok=True)
        return
    with suppress(ProcessEndedError):
        if identify(owner).started == started:
            return
    # One without a target is not known to be ours.
    if [text_of(path) for path in admin.glob("*/contexts/*/targets/*/pid_target")] == [str(target)]:
        _end(admin, record)
    record.unlink(missing_ok=True)


def columns(snapshots: Sequence[Snapshot], begin: int, end: int, count: int) -> list[float | None]:
    """How much the parts of a range of addresses were used, a mean over the snapshots; none where nothing is known.

    Args:
        snapshots: What DAMON has told.
        begin: The first address.
        end: The one behind the last.
        count: Parts of equal size.
    """
    width = (end - begin) / count
    sums, weights = [0.0] * count, [0.0] * count
    for snapshot in snapshots:
        for part in snapshot.parts:
            first, last = max(part.begin, begin), min(part.end, end)
            for at in range(int((first - begin) // width), count) if first < last else ():
                left, right = begin + at * width, begin + (at + 1) * width
                if left >= last:
                    break
                weight = min(right, last) - max(left, first)
                weights[at] += weight
                sums[at] += weight * part.accessed
    return [total / weight if weight else None for total, weight in zip(sums, weights, strict=True)]
