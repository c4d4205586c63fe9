"""What page misses cost beside their own time: the program's misses in caches and TLBs, and its instructions per cycle.

Models: events of the program alone, with the kernel's way and with the unit's, in windows that begin at the same
    access. What the kernel touches takes room in caches and TLBs, and the program misses more.
Deviations: instructions per cycle are an estimate. The core is in order, waits for each access and predicts every
    branch. The kernel's footprint is that of the references which its stages make, and of the lines that
    a request touches (`kernel.block_io.lines`, measured).
"""

from collections.abc import Callable, Mapping, Sequence

from pagelab.results.headline import user_ipc
from pagelab_studies.hardware_demand_paging_runs import FACTORS, STORE, SYSTEMS
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, Measurement, Measurements, Series, figure

EVENTS = {
    "L1 misses, data": ("l1d.misses.data",),
    "L2 misses, data": ("l2.misses.data",),
    "L3 misses, data": ("l3.misses.data",),
    "L1 TLB misses": ("dtlb.l1.misses",),
    "L2 TLB misses": ("dtlb.l2.misses",),
    "cycles of its walks": ("walk.cycles", "walk.aborted.cycles"),
    "lines that kernels touch": ("cache.refs.kernel",),
    "TLB misses of kernels": ("tlb.kernel.l1.misses",),
}
"""Of what the program meets, and of what the kernel does meanwhile."""
FEWER_EVENTS, FEWER = "Events per access of YCSB-C: fewer with the unit", "fewer"


def _ipc(stats: Mapping[str, int]) -> float:
    return user_ipc(stats) or 0.0


def _more(kernel: Mapping[str, int], unit: Mapping[str, int]) -> float:
    return 100 * (_ipc(unit) / _ipc(kernel) - 1)


def _per_1000(names: Sequence[str]) -> Callable[[Mapping[str, int]], float]:
    return lambda stats: 1000 * sum(stats[name] for name in names) / stats["accesses"]


def _fewer(names: Sequence[str]) -> Callable[[Mapping[str, int], Mapping[str, int]], float]:
    """Per cent fewer events with the unit than with the kernel; 0 if a part of the window has none."""
    events = _per_1000(names)
    return lambda kernel, unit: 100 * (1 - events(unit) / events(kernel)) if events(kernel) else 0.0


def section(measured: Measurements, findings: Findings) -> None:
    """The events of YCSB-C."""

    def run(word: str, system: str) -> Measurement:
        return measured[STORE, system, f"{word}, mix c"]

    by_factor = {word: figure(_more, *(run(word, system) for system in SYSTEMS)) for word in FACTORS}
    more = Interval.around(by_factor["measured"].value, by_factor.values())
    cells: dict[tuple[str, str], float] = {}
    fewer: dict[tuple[str, str], Interval] = {}
    both = [run("measured", system) for system in SYSTEMS]
    for event, names in EVENTS.items():
        for one in both:
            cells[event, one.run.system] = _per_1000(names)(one.stats)
        if cells[event, both[0].run.system]:
            fewer[event, FEWER] = figure(_fewer(names), *both)
    findings.series.append(Series.from_values("Processor", "Events per 1000 accesses of YCSB-C", "events", cells))
    findings.series.append(Series.within("Processor", FEWER_EVENTS, "%", fewer))
    ipc = {("user IPC, estimate", system): _ipc(run("measured", system).stats) for system in SYSTEMS}
    findings.series.append(Series.from_values("Processor", "Instructions per cycle of the program", "IPC", ipc))
    reason = (
        "an estimate: instructions by the program's own cycles on an in-order core; the paper's is from a real core"
    )
    findings.comparisons.append(
        Comparison("Abstract", "YCSB-C", "user IPC more by", "%", 7.0, more.value, reason, more, neutral=0.0)
    )
    findings.claims.append(
        Claim(
            "Processor",
            "more of the program's own instructions per cycle with hardware (YCSB-C)",
            more.above(0),
            f"{more.value:.2f} % ({more.low:.2f} to {more.high:.2f}), an estimate",
            "an in-order core that predicts every branch; the footprint of the kernel, measured on a virtual machine, "
            "down to a quarter; brackets: the 95 % interval of eight parts of the window, and the kernel's cost of "
            "a request",
        )
    )
