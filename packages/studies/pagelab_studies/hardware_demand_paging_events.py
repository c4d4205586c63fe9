"""What page misses cost beside their own time: the program's misses in caches and TLBs, and its instructions per cycle.

Models: events of the program alone, with the kernel's way and with the unit's, in windows that begin at the same
    access. What the kernel touches takes room in caches and TLBs, and the program misses more.
Deviations: instructions per cycle are an estimate. The core is in order, waits for each access and predicts every
    branch. The kernel's footprint is that of the references which its stages make, and of the lines that
    a request touches (`kernel.block_io.lines`, measured).
"""

from collections.abc import Callable, Mapping, Sequence

from pagelab.results.headline import user_ipc
from pagelab_studies.hardware_demand_paging_runs import FACTORS, LSM, OTHER_CORE, OTHER_STORE, STORE, SYSTEMS
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
FEWER = "fewer"
PAPER_IPC = 7.0


def events_title(store: str) -> str:
    """The title of the table of events in a store."""
    return f"Events per 1000 accesses of YCSB-C, {store}"


def fewer_title(store: str) -> str:
    """The title of the table of what changes of them."""
    return f"Events per access of YCSB-C, {store}: fewer with the unit"


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


def ipc_gain(measured: Measurements, store: str, word: str) -> Interval:
    """How many more instructions per cycle of the program there are with the unit, at one factor of the costs."""
    return figure(_more, *(_run(measured, store, system, word) for system in SYSTEMS))


def _run(measured: Measurements, store: str, system: str, word: str) -> Measurement:
    return measured[store, system, f"{word}, mix c"]


def section(measured: Measurements, findings: Findings) -> None:
    """The events of YCSB-C, in the tree that stands for the slides' store and in the other one."""
    for store in (LSM, STORE):
        _events(measured, store, findings)
    ipc = {
        (f"user IPC, {store}, estimate", system): _ipc(_run(measured, store, system, "measured").stats)
        for store in (LSM, STORE)
        for system in SYSTEMS
    }
    findings.series.append(Series.from_values("Processor", "Instructions per cycle of the program", "IPC", ipc))
    for store in (LSM, STORE):
        _instructions(measured, store, findings)


def _events(measured: Measurements, store: str, findings: Findings) -> None:
    cells: dict[tuple[str, str], float] = {}
    fewer: dict[tuple[str, str], Interval] = {}
    for event, names in EVENTS.items():
        for system in SYSTEMS:
            cells[event, system] = _per_1000(names)(_run(measured, store, system, "measured").stats)
        if cells[event, "kernel"]:
            by_factor = {
                word: figure(_fewer(names), *(_run(measured, store, system, word) for system in SYSTEMS))
                for word in FACTORS
            }
            fewer[event, FEWER] = Interval.around(by_factor["measured"].value, by_factor.values())
    findings.series.append(Series.from_values("Processor", events_title(store), "events", cells))
    findings.series.append(Series.within("Processor", fewer_title(store), "%", fewer))


def _instructions(measured: Measurements, store: str, findings: Findings) -> None:
    by_factor = {word: ipc_gain(measured, store, word) for word in FACTORS}
    more = Interval.around(by_factor["measured"].value, by_factor.values())
    findings.comparisons.append(
        Comparison(
            "Abstract",
            f"YCSB-C, {store}",
            "user IPC more by",
            "%",
            PAPER_IPC,
            more.value,
            "an estimate: instructions by the program's own cycles on an in-order core",
            more,
            neutral=0.0,
            unjudged="" if store == LSM else OTHER_STORE,
            unsized=OTHER_CORE if store == LSM else "",
        )
    )
    findings.claims.append(
        Claim(
            "Processor",
            f"more of the program's own instructions per cycle with hardware (YCSB-C, {store})",
            more.above(0),
            f"{more.value:.2f} % ({more.low:.2f} to {more.high:.2f}), an estimate",
            "an in-order core that predicts every branch; the footprint of the kernel, measured on a virtual machine, "
            "down to a quarter; brackets: the 95 % interval of eight parts of the window, and the kernel's cost of "
            "a request",
            ours=store != LSM,
        )
    )
