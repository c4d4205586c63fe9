"""What "PTEMagnet" has no statement of: sizes, programs of other kinds, co-runners that reserve, and rivals."""

from collections.abc import Callable

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_measures import BEYOND_L2, MEMORY, all_seeds, gain, lines, misses, spread
from pagelab_studies.ptemagnet_runs import (
    AGED,
    ALONE,
    APART,
    CC,
    CHASE,
    EQUAL_COST,
    FOLIOS,
    FOR_ALL,
    FOR_ALL_AS_SET,
    FRESH,
    GUPS,
    MIB,
    ORDER_0,
    PAGERANK,
    RIVALS,
    SPARSE,
    SWEEP,
    WHOLE,
    Workload,
)
from pagelab_studies.study import Findings, Measurement, Measurements, Series


def by_size(measured: Measurements, label: str, state: str) -> list[Series]:
    """Misses of both tables, their ratio, and how scattered the host's PTEs are, by the size of a program."""
    kinds = {"beyond L2": BEYOND_L2, "served by memory": MEMORY}
    by_kind = {
        kind: {at: misses(measured, at, places, label) for at in SWEEP.values()} for kind, places in kinds.items()
    }
    beyond = by_kind["beyond L2"]
    per_walk = {(at.name, layer): one.per_walk(layer) for at, one in beyond.items() for layer in ("guest", "host")}
    ratios = {(at.name, kind): one.ratio for kind in kinds for at, one in by_kind[kind].items()}
    scatter = {(at.name, ORDER_0): spread(map(lines, all_seeds(measured, at, ORDER_0, label))) for at in SWEEP.values()}
    return [
        Series.within("Size", f"misses per walk by table, {state}", "misses beyond L2", per_walk),
        Series.within("Size", f"walk references, host's to guest's, {state}", "times", ratios),
        Series.within("Size", f"host PTE lines for each of the guest's, {state}", "lines", scatter),
    ]


def _sizes(measured: Measurements, findings: Findings) -> None:
    """How much of the ratio of misses, and of the gain, is a question of size."""
    state = "words at random, guest memory aged"
    findings.series.extend(by_size(measured, AGED, state))
    gains = {at: gain(measured, at, EQUAL_COST, AGED) for at in SWEEP.values()}
    cells = {(at.name, EQUAL_COST): one for at, one in gains.items()}
    findings.series.append(Series.within("Size", f"time saved, {state}", "% of order-0", cells))
    beyond = {at: misses(measured, at, BEYOND_L2, AGED).ratio for at in SWEEP.values()}
    ratios = ", ".join(f"{beyond[at].value:.3g} at {mib} MiB" for mib, at in SWEEP.items())
    saved = ", ".join(f"{gains[at].value:.3g} %" for at in SWEEP.values())
    scatter = [spread(map(lines, all_seeds(measured, at, ORDER_0, AGED))).value for at in SWEEP.values()]
    findings.notes.append(
        f"The ratio of misses depends on size and scattering. For words at random in aged memory it is {ratios}. "
        "Larger programs have more of the guest's PTEs beyond L2, and their host's PTEs are in "
        f"{', '.join(f'{one:.3g}' for one in scatter)} lines for each of the guest's. `ptemagnet-changes` separates "
        f"the two. PTEMagnet saves {saved} of the time."
    )


def _apart(measured: Measurements, findings: Findings) -> None:
    """Programs of other kinds, by which no statement is judged."""
    states = {FRESH: "after first touches", AGED: "guest memory aged", ALONE: "without co-runners", WHOLE: "whole"}
    cells = {
        (workload.name, text): gain(measured, workload, EQUAL_COST, label)
        for workload in APART
        for label, text in states.items()
        if workload is SPARSE or label in (FRESH, AGED)
    }
    title = f"time that {EQUAL_COST} saves programs unlike the paper's"
    findings.series.append(Series.within("Others", title, "% of order-0", cells))
    fresh, alone = (cells[SPARSE.name, states[label]] for label in (FRESH, ALONE))
    findings.notes.append(
        f"A program that touches one page of each group may lose: {SPARSE.name} saves {fresh} %, without co-runners "
        f"{alone} %. Consecutively touched pages get frames that are eight apart, so each of their host PTEs is in "
        "its own line; order-0 allocation packs them. The paper has no such program."
    )


def _co_runners(measured: Measurements, findings: Findings) -> None:
    """What co-runners gain that fault faster, the measured program loses in the shared cache."""
    systems = (EQUAL_COST, FOR_ALL, FOR_ALL_AS_SET)
    gains = {(CC.name, system): gain(measured, CC, system) for system in systems}
    title = "time saved, after first touches, by who reserves and at what cost"
    findings.series.append(Series.within("Co-runners", title, "% of order-0", gains))

    def stalled(m: Measurement) -> float:
        return m.main("cycles.data_stall") / m.window

    cells: dict[tuple[str, str], Interval] = {
        (CC.name, system): spread(map(stalled, all_seeds(measured, CC, system))) for system in (ORDER_0, *systems)
    }
    title = "data stalls of the measured program, after first touches"
    findings.series.append(Series.within("Co-runners", title, "cycles per access", cells))
    findings.notes.append(
        f"Co-runners that reserve at the preset's low cost fault faster and touch more in the same time. {CC.name} "
        f"saves {gains[CC.name, FOR_ALL_AS_SET]} % beside them, {gains[CC.name, FOR_ALL]} % if their reserved pages "
        f"cost as much as others; data stalls take {cells[CC.name, FOR_ALL_AS_SET].value:.2f} and "
        f"{cells[CC.name, FOR_ALL].value:.2f} cycles per access, {cells[CC.name, ORDER_0].value:.2f} with order-0 "
        "allocation."
    )


def _used(measurement: Measurement) -> float:
    return (measurement.stats["layer.guest.memory_bytes"] - measurement.stats["layer.guest.free_bytes"]) / MIB


def _rivals(measured: Measurements, findings: Findings) -> None:
    """What a reader needs to see when PTEMagnet still wins."""
    programs = (PAGERANK, CC, CHASE, GUPS, SPARSE)
    systems = (ORDER_0, EQUAL_COST, *RIVALS)
    cost = {(at.name, system): measured[at.name, system].cycles_per_access for at in programs for system in systems}
    gains = {(name, system): 100 * (1 - cost[name, system] / cost[name, ORDER_0]) for name, system in cost}
    title = "time saved, after first touches, first seed"
    findings.series.append(_bars("Rivals", title, "% of order-0", programs, systems, gains.__getitem__))
    for title, unit, value in (
        ("host PTE lines for each of the guest's", "lines", lines),
        ("cycles of a walk", "cycles", lambda run: run.main("walk.cycles") / max(run.main("walk.count"), 1)),
        ("guest memory in use at the end", "MiB", _used),
    ):

        def settled(key: tuple[str, str], value: Callable[[Measurement], float] = value) -> float:
            return value(measured[key])

        findings.series.append(_bars("Rivals", title, unit, programs, systems, settled))
    _folios(measured, findings)


def _folios(measured: Measurements, findings: Findings) -> None:
    """From the first touches on, which is where reservations and folios differ."""
    programs, systems = (PAGERANK, SPARSE), (ORDER_0, EQUAL_COST, FOLIOS)
    for title, unit, value in (
        ("page faults from the first touch on", "thousands", lambda run: run.main("fault.minor.count") / 1e3),
        (
            "zeroed by the guest, co-runners included",
            "MiB",
            lambda run: run.stats["layer.guest.fault.zeroed_bytes"] / MIB,
        ),
        ("guest memory in use at the end, co-runners included", "MiB", _used),
        ("cycles of all walks", "millions", lambda run: run.main("walk.cycles") / 1e6),
        ("cycles of page faults", "millions", lambda run: run.main("cycles.fault") / 1e6),
    ):

        def whole(key: tuple[str, str], value: Callable[[Measurement], float] = value) -> float:
            return value(measured[(*key, WHOLE)])

        findings.series.append(_bars("Folios of 32 KiB", title, unit, programs, systems, whole))
    held = measured[PAGERANK.name, EQUAL_COST].stats["layer.guest.reservations.peak_unused_bytes"]
    findings.notes.append(
        "PTEMagnet compared with folios of 32 KiB: both keep groups together. A folio takes one fault for eight "
        "pages, so dense first touches are cheaper; but it zeroes and holds all eight if a program touches one. "
        f"Reservations hold {held // 1024} KiB at most in {PAGERANK.name} and go back under pressure, page by page; "
        "folios are split."
    )


def _bars(
    figure: str,
    title: str,
    unit: str,
    programs: tuple[Workload, ...],
    systems: tuple[str, ...],
    value: Callable[[tuple[str, str]], float],
) -> Series:
    names = tuple(program.name for program in programs)
    cells = {(name, system): value((name, system)) for name in names for system in systems}
    return Series(figure, title, unit, names, systems, cells)


SECTIONS = (_sizes, _apart, _co_runners, _rivals)
