"""Synchronous refills of the unit's queue with kpoold and without it: by mix, and with one change at a time.

The slides print 44 to 78 % fewer in YCSB's workloads. Each mix of the slides' table is compared with this range by
itself, on the log-structured tree that stands for their store. They do not say how long the unit's queue is, how often
kpoold runs, or how many pages a fault puts into an empty queue: so mix C has other values of each, too, and all mixes
have a short queue.
"""

import math

from pagelab_studies.hardware_demand_paging_runs import (
    BATCHES,
    KPOOLD_MIXES,
    LSM,
    LSM_THREADS,
    NOT_IN_SLIDES,
    PERIODS,
    QUEUES,
    SHORT,
    STORES,
    of_threads,
)
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, Measurements, Series

_REFILLS = "layer.native.fault_engine.empty"
_Z = 1.96
"""Of a 95 % interval."""
PAPER = (44.0, 78.0)
PRESET = "as in the preset"
BY_MIX = "Fewer synchronous refills, by mix"
BY_CHANGE = "Fewer synchronous refills of YCSB-C, by change"
FEWER = "fewer"
CHANGES = (*QUEUES, *BATCHES, *PERIODS)
_RESTS_ON = (
    "what the slides do not say about the unit: registers, sizes of queues, periods; intervals: as if refills came at "
    "random, each by itself"
)


def fewer(kept: int, without: int) -> Interval:
    """Per cent fewer refills, with the 95 % interval of the ratio of two counts; none counts as half a refill there."""
    margin = _Z * math.sqrt(1 / max(kept, 0.5) + 1 / max(without, 0.5))
    ratio = kept / max(without, 0.5)
    least, most = (max(kept, 0.5) / max(without, 0.5) * math.exp(sign * margin) for sign in (-1, 1))
    return Interval(100 * (1 - most), 100 * (1 - ratio), 100 * (1 - (least if kept else 0.0)))


def section(measured: Measurements, findings: Findings) -> None:
    """How many refills are fewer, by mix and by change."""

    def counted(with_it: str, without: str) -> tuple[Interval, str]:
        kept, all_of_them = (
            measured[LSM, "unit", label].stats[_REFILLS] for label in (with_it, f"without kpoold, {without}")
        )
        return fewer(kept, all_of_them), f"{kept} refills with kpoold, {all_of_them} without"

    names = {STORES[mix].partition(":")[0]: mix for mix in KPOOLD_MIXES}
    by_mix = {name: counted(f"measured, mix {mix}", f"mix {mix}") for name, mix in names.items()}
    cells = {(name, PRESET): interval for name, (interval, _) in by_mix.items()}
    for name, mix in names.items():
        cells[name, SHORT], _ = counted(*[f"{SHORT}, mix {mix}"] * 2)
    findings.series.append(Series.within("Free pages", BY_MIX, "%", cells))
    changed = {PRESET: by_mix["YCSB-C"]}
    for change in CHANGES:
        label = f"{change}, mix c"
        changed[change] = counted(label, "mix c" if change in PERIODS else label)
    cells = {(change, FEWER): interval for change, (interval, _) in changed.items()}
    findings.series.append(Series.within("Free pages", BY_CHANGE, "%", cells))
    for requests, (interval, counts) in by_mix.items():
        ours = requests == STORES[NOT_IN_SLIDES].partition(":")[0]
        findings.comparisons.append(
            Comparison(
                "Free pages",
                requests,
                "synchronous refills fewer by",
                "%",
                None if ours else PAPER[1],
                interval.value,
                f"{counts}; a log-structured tree" + ("" if ours else "; the slides' range is over YCSB's workloads"),
                interval,
                without="the slides' table has no YCSB-F",
                printed=None if ours else PAPER,
            )
        )
        findings.claims.append(_claim(f"{requests}, 1 thread", interval, counts, ours=ours))
    findings.claims += [
        _claim(f"YCSB-C, {change}", *one, ours=True) for change, one in changed.items() if change != PRESET
    ]
    several = [measured[LSM, "unit", f"measured, {of_threads('mix c', threads)}"] for threads in LSM_THREADS[1:]]
    findings.notes.append(
        "Refills were counted without kpoold for one thread only. With kpoold, "
        f"{' and '.join(str(run.stats[_REFILLS]) for run in several)} misses of mix C still find the queue empty with "
        f"{' and '.join(map(str, LSM_THREADS[1:]))} threads."
    )


def _claim(where: str, interval: Interval, counts: str, *, ours: bool) -> Claim:
    text = f"kpoold reduces synchronous refills ({where})"
    detail = f"{interval.value:.0f} % ({interval.low:.0f} to {interval.high:.0f}) fewer: {counts}"
    return Claim("Free pages", text, interval.above(0), detail, _RESTS_ON, ours=ours)
