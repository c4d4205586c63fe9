"""PTEMagnet in aged memory, alone and beside co-runners: one thing is changed, whether others run.

The paper measures programs beside co-runners, and says that PTEMagnet gains there. Each gain is divided into what walks
and what data cost, since a placement also decides which lines of the caches data takes. The ratio of misses is pooled
over all judged programs, with and without the one that misses most, and with each walk or each access counting alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_measures import BEYOND_L2, MEMORY, Misses, decided, gain_by_part, points, spread
from pagelab_studies.ptemagnet_runs import AGED, CHASE, EQUAL_COST, JUDGED, ORDER_0, Workload, runs
from pagelab_studies.study import Claim, Findings, Measurement, Measurements, Run, Series

BESIDE, ALONE = "judged beside co-runners, aged", "judged alone, aged"
WHERE = {"beside": BESIDE, "alone": ALONE}
KINDS = {"beyond L2": BEYOND_L2, "served by memory": MEMORY}
_RESTS_ON = (
    "five seeds; one state of aged memory; the phases of co-runners in windows, of which those with reservations may "
    "meet others; the model of the page allocator; an in-order core that waits for each walk"
)


def colocated_runs() -> Iterator[Run]:
    """The judged programs of the main study in aged memory, beside co-runners and alone."""
    names = [workload.name for workload in JUDGED]
    for run in runs():
        if run.workload in names and run.label == AGED and run.system in (ORDER_0, EQUAL_COST):
            yield replace(run, label=BESIDE, contiguity_map=False)
            yield replace(run, label=ALONE, contiguity_map=False, beside=())


def _pairs(measured: Measurements, workload: Workload, label: str) -> list[tuple[Measurement, Measurement]]:
    before, after = (measured.seeds(workload.name, system, label) for system in (ORDER_0, EQUAL_COST))
    return [(before[seed], after[seed]) for seed in sorted(before.keys() & after.keys())]


def _translation(measured: Measurements, workload: Workload, label: str) -> list[float]:
    """Points that walks save, by seed."""
    return [points(*pair, "cycles.translation") for pair in _pairs(measured, workload, label)]


def gains(measured: Measurements, findings: Findings) -> None:
    """Time saved by program and part, and whether walks save more beside co-runners."""
    saved: dict[tuple[str, str], Interval] = {}
    for workload in JUDGED:
        for where, label in WHERE.items():
            by_part = gain_by_part(measured, workload, EQUAL_COST, label)
            saved |= {(f"{workload.name}, {where}", name): one for name, one in by_part.items()}
        beside, alone = (_translation(measured, workload, label) for label in (BESIDE, ALONE))
        more = spread(one - other for one, other in zip(beside, alone, strict=True))
        text = f"PTEMagnet saves {workload.name} more translation beside co-runners than alone (aged memory)"
        detail = f"{more.value:+.2f} ({more.low:+.2f} to {more.high:+.2f}) points of the time"
        windows = (one for label in WHERE.values() for pair in _pairs(measured, workload, label) for one in pair)
        findings.claims.append(Claim("§5", text, decided(more.above(0), windows), detail, _RESTS_ON, ours=True))
    title = f"time that {EQUAL_COST} saves in aged memory, beside co-runners and alone"
    findings.series.append(Series.within("§5", title, "% of order-0", saved))


def ratios(measured: Measurements, findings: Findings) -> None:
    """Misses in the host's table for each in the guest's, alone and beside, and by what counts the same."""
    cells: dict[tuple[str, str], Interval] = {}
    for kind, places in KINDS.items():
        for workload in JUDGED:
            cells |= {
                (f"{workload.name}, {kind}", where): Misses(
                    [measured.seeds(workload.name, ORDER_0, label)], places
                ).ratio
                for where, label in WHERE.items()
            }
        for which, programs in (
            ("all four", JUDGED),
            (f"without {CHASE.name}", [one for one in JUDGED if one != CHASE]),
        ):
            for weight, pool in (("access", _by_access), ("walk", _by_walk)):
                row = f"{which} pooled, each {weight} alike, {kind}"
                cells |= {(row, where): pool(measured, programs, label, places) for where, label in WHERE.items()}
    title = "walk references that miss, host's to guest's, aged memory"
    findings.series.append(Series.within("§5", title, "times", cells))


def _by_access(measured: Measurements, programs: Sequence[Workload], label: str, places: tuple[str, ...]) -> Interval:
    return Misses([measured.seeds(one.name, ORDER_0, label) for one in programs], places).ratio


def _by_walk(measured: Measurements, programs: Sequence[Workload], label: str, places: tuple[str, ...]) -> Interval:
    """As if each program walked as often."""
    by_program = [measured.seeds(one.name, ORDER_0, label) for one in programs]
    seeds = sorted(set.intersection(*map(set, by_program)))

    def per_walk(one: Measurement, layer: str) -> float:
        return one.walk_refs(layer, places) / max(one.main("walk.count"), 1)

    def ratio(seed: int) -> float:
        host, guest = (sum(per_walk(each[seed], layer) for each in by_program) for layer in ("host", "guest"))
        return host / max(guest, 1e-9)

    return spread(map(ratio, seeds))
