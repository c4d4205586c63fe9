"""Native and simulated major faults, and the estimate of hardware-based demand paging for a native run.

Models: operations per second = operations / (time - misses * delta). Time and misses are those of the native run, whose
    kernel reads missing pages. Delta is the difference between a miss by the kernel and one by the unit, means of
    replays.
Source: Lee, Jin et al., "A Case for Hardware-Based Demand Paging", ISCA 2020, slides "Experimental Setup". Their
    formula is garbled in our text; this is how we read it.
Parameters: the native runs, and results of the same program under both systems.
Deviations: the slides take the difference from an emulated unit and a simulated one. Here both are simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError, parse_bytes
from pagelab.major_faults.native import Native, Range
from pagelab.results.results import Results, SystemResult

RESTS_ON = (
    "every native miss is one that the unit would serve; each takes Δ less, whatever else runs; Δ's costs and "
    "drive are the simulated ones; caches and branch predictors as the native kernel leaves them"
)
"""The assumptions of the estimate"""


@dataclass(frozen=True)
class Simulated:
    """Misses of one system of a result."""

    label: str
    file: str
    by_kernel: int
    by_unit: int
    latency_ns: float | None
    """Mean of the kernel's misses, or of the unit's if there is a unit; none without misses"""
    has_unit: bool
    limit_bytes: int | None
    """`kernel.cgroup_limit_bytes`; none if the result does not say"""

    @property
    def misses(self) -> int:
        return self.by_kernel + self.by_unit


@dataclass(frozen=True)
class Estimate:
    """The estimate of a native run with the unit."""

    delta_ns: Range
    """Over the pairs of results; the median is that of all pairs"""
    operations_per_second: Range
    """Over pairs and native runs"""
    gain_percent: Range
    """Over the native operations per second of the same run"""

    def to_dict(self) -> dict[str, Any]:
        return {
            "rests_on": RESTS_ON,
            **{name: vars(value) for name, value in vars(self).items()},
        }


@dataclass(frozen=True)
class Refusal:
    """Why there is no estimate."""

    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"refused": self.reason}


def simulated(paths: Sequence[Path]) -> list[Simulated]:
    """The systems of all results.

    Raises:
        OSError: a file cannot be read.
        UsageError: it holds no results, or some without major faults.
    """
    return [_system(result, str(path)) for path in paths for result in Results.load(path).systems]


def _system(result: SystemResult, file: str) -> Simulated:
    stats = result.stats
    if "fault.major.count" not in stats:
        raise UsageError(f"{file}: {result.label} has no fault.major.count; create it again with `pagelab run --json`")
    unit = [name.removesuffix(".mapped") for name in stats if name.endswith(".fault_engine.mapped")]
    # Other engines than the storage management unit map pages, but read none.
    unit = [name for name in unit if f"{name}.latency.cycles" in stats and f"{name}.joined" in stats]
    limit = result.config["kernel"].get("cgroup_limit_bytes")
    megahertz = result.config["machine"]["frequency_mhz"]
    by_kernel, by_unit = stats["fault.major.count"], sum(stats[f"{name}.mapped"] for name in unit)
    if unit:
        cycles, count = sum(stats[f"{name}.latency.cycles"] for name in unit), by_unit + _joined(stats, unit)
    else:
        cycles, count = stats["fault.major.latency.cycles"], by_kernel
    return Simulated(
        label=result.label,
        file=file,
        by_kernel=by_kernel,
        by_unit=by_unit,
        latency_ns=1000 * cycles / count / megahertz if count else None,
        has_unit=bool(unit),
        limit_bytes=parse_bytes(str(limit)) if limit is not None else None,
    )


def _joined(stats: Mapping[str, int], unit: Sequence[str]) -> int:
    return sum(stats[f"{name}.joined"] for name in unit)


def estimate(native: Native, systems: Sequence[Simulated]) -> Estimate | Refusal:
    """The slides' estimate, over all native runs and all pairs of a kernel and a unit of the same file."""
    if native.operations is None:
        return Refusal(
            "the number of operations is unknown: give it with --operations, or have the program print operations=N"
        )
    if native.range_of("major_faults").most == 0:
        return Refusal(
            "the native runs had no major faults: name the program's files with --cold, or give a smaller --memory"
        )
    deltas = _deltas(systems)
    if not deltas:
        return Refusal(
            "no results have misses of both the kernel and the unit: replay under both, `pagelab run NAME.trace -s "
            "osdp -s hwdp --json FILE`"
        )
    rates, gains = [], []
    for run in native.runs:
        for delta in deltas:
            left = run.seconds - run.major_faults * delta / 1e9
            if left <= 0:
                saved = run.major_faults * delta / 1e9
                return Refusal(
                    f"{run.major_faults:,} misses of {delta / 1000:,.2f} µs less would save {saved:.3f} s, and the "
                    f"run took only {run.seconds:.3f} s: the simulated costs are not this machine's; measure those "
                    "with `pagelab calibrate --major-faults`"
                )
            rates.append(native.operations / left)
            gains.append(100 * (run.seconds / left - 1))
    return Estimate(Range.from_values(deltas), Range.from_values(rates), Range.from_values(gains))


def _deltas(systems: Sequence[Simulated]) -> list[float]:
    """By how much the kernel takes longer than the unit, in nanoseconds, for each pair within a file."""
    return [
        kernel.latency_ns - unit.latency_ns
        for kernel in systems
        for unit in systems
        if kernel.file == unit.file and not kernel.has_unit and unit.has_unit
        if kernel.latency_ns is not None and unit.latency_ns is not None
    ]


def percent_apart(simulated_misses: int, native: Native) -> float | None:
    """By how much simulated misses differ from the native median, in per cent; none if that is 0."""
    median = native.range_of("major_faults").median
    return 100 * (simulated_misses / median - 1) if median else None


def warnings(native: Native, systems: Sequence[Simulated]) -> list[str]:
    """Warnings before the figures are compared."""
    messages = []
    left = max(run.left_in_cache for run in native.runs)
    if left:
        messages.append(
            f"{left:,} pages of the files of --cold stayed in the page cache: does another process map them?"
        )
    if not native.reported:
        messages.append(
            "the program does not print seconds=, major_faults= and minor_faults= of its requests, so starting and "
            "opening count, too"
        )
    limits = {system.limit_bytes for system in systems if system.limit_bytes is not None}
    messages += [
        f"the results have kernel.cgroup_limit_bytes={limit}, and --memory is {native.plan.memory_bytes}: give "
        "both the same"
        for limit in sorted(limits)
        if limit != native.plan.memory_bytes
    ]
    return messages
