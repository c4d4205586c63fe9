"""Synchronous refills of the unit's queue with kpoold and without it: by mix of requests, and by length of the queue.

The slides print 44 to 78 % fewer in YCSB's workloads. Each mix is compared with this range by itself, with the preset's
queue of 4,096 pages. How long the slides' queue is they do not say: so one mix has shorter ones, too.
"""

import math
from collections.abc import Mapping

from pagelab_studies.hardware_demand_paging_runs import KPOOLD_MIXES, QUEUES, STORE, STORES, of_queue
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings, Measurements, Series

_REFILLS = "layer.native.fault_engine.empty"
_Z = 1.96
"""Of a 95 % interval."""
BY_QUEUE = "of mix c, by length of the queue"
PAPER = (44.0, 78.0)
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
    """How many refills are fewer, by mix and by queue."""

    def counted(with_it: str, label: str) -> tuple[Interval, str]:
        kept, without = (
            measured[STORE, "unit", f"{which}, {label}"].stats[_REFILLS] for which in (with_it, "without kpoold")
        )
        return fewer(kept, without), f"{kept} refills with kpoold, {without} without"

    by_mix = {mix: counted("measured", of_queue(mix, None)) for mix in KPOOLD_MIXES}
    by_queue = {queue: counted("with kpoold", of_queue("c", queue)) for queue in QUEUES}
    for mix, (interval, counts) in by_mix.items():
        findings.comparisons.append(
            Comparison(
                "Free pages",
                STORES[mix].partition(":")[0],
                "synchronous refills fewer by",
                "%",
                PAPER[1],
                interval.value,
                f"the slides print 44 to 78 over YCSB's workloads; {counts}; a B+tree",
                interval,
                neutral=0.0,
                printed=PAPER,
            )
        )
    rows: Mapping[str, Mapping[str, tuple[Interval, str]]] = {
        "by mix, with a queue of 4096 pages": {f"mix {mix}": one for mix, one in by_mix.items()},
        BY_QUEUE: {f"{queue} free pages": one for queue, one in by_queue.items()},
    }
    for where, of_rows in rows.items():
        cells = {(row, "fewer"): interval for row, (interval, _) in of_rows.items()}
        findings.series.append(Series.within("Free pages", f"Fewer synchronous refills {where}", "%", cells))
        holds = all_hold(one.above(0) for one in cells.values())
        low, high = (end(one.value for one in cells.values()) for end in (min, max))
        text = f"kpoold reduces synchronous refills ({where})"
        detail = f"{low:.0f} to {high:.0f} % fewer"
        of_queues = where == BY_QUEUE
        findings.claims.append(Claim("Free pages", text, holds, detail, _RESTS_ON, ours=of_queues))
