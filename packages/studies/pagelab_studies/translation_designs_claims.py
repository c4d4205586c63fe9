"""What the designs' papers say of them, judged by `translation-designs`.

The papers' programs and machines are others, so the sizes of effects have no verdict: only their signs and orders.
"""

from collections.abc import Callable, Sequence

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings, Measurements
from pagelab_studies.translation_designs_measures import cycles, over_seeds, references_per_walk, saved, walks
from pagelab_studies.translation_designs_runs import (
    ATP,
    DISTANCE,
    ELASTIC,
    FLATTENED,
    FLATTENED_KEPT,
    FREE,
    KEPT,
    LARGE_TLB,
    POM,
    PREFETCHERS,
    RADIX,
    REALISTIC_TLB,
    VICTIMA,
    WINDOW,
    WORKLOADS,
)

_PROGRAMS = "programs of ours on about 256 MiB, not the paper's, and another machine; the range is that of the seeds"
_OTHER_PROGRAMS = "the paper's mean is of other programs, on another machine"
_NEAR_BEST = 10.0
"""Points of walks saved by which a prefetcher may be behind the best one and still be near it; a bound of ours."""


def _nested(name: str) -> str:
    return f"nested {name}"


def _mean(values: Sequence[Interval]) -> Interval:
    return Interval.mean(values)


def _speed_ups(measured: Measurements, design: str, base: str, label: str) -> Interval:
    """Mean over programs of how much faster a design is, in per cent."""
    gains = []
    for workload in WORKLOADS:
        part = saved(measured, workload, (base, design), label, cycles)
        gains.append(
            Interval.from_values([100 * (100 / (100 - value) - 1) for value in (part.low, part.value, part.high)])
        )
    return _mean(gains)


def _part_of_memory(measured: Measurements, findings: Findings) -> None:
    """POM-TLB: Ryoo et al., ISCA 2017."""
    less = {name: saved(measured, name, (_nested(RADIX), _nested(POM)), "", walks) for name in WORKLOADS}
    detail = ", ".join(f"{name} {part} %" for name, part in less.items())
    text = "POM-TLB: nearly all walks in a virtual machine disappear: 90 %, a bound of ours"
    holds = all_hold(part.above(90) for part in less.values())
    findings.claims.append(Claim("Ryoo et al.", text, holds, detail, _PROGRAMS, "size"))
    _add_speed_up(measured, findings, "Ryoo et al.", POM, 10, virtual=True)
    _add_speed_up(measured, findings, "Kanellopoulos et al. (Utopia)", POM, 3, virtual=False)


def _add_speed_up(
    measured: Measurements,
    findings: Findings,
    source: str,
    design: str,
    paper: float,
    *,
    virtual: bool,
    base: str = RADIX,
) -> None:
    before, name = (_nested(base), _nested(design)) if virtual else (base, design)
    gain = _speed_ups(measured, name, before, WINDOW)
    where = "virtual" if virtual else "bare"
    rival = "radix tables" if base == RADIX else base
    quantity = f"faster than {rival}, {where}, mean of programs, on a core with a window"
    findings.comparisons.append(
        Comparison(
            source, design, quantity, "%", paper, gain.value, _PROGRAMS, gain, neutral=0, unsized=_OTHER_PROGRAMS
        )
    )


def _flattened(measured: Measurements, findings: Findings) -> None:
    """Flattened tables: Park et al., ASPLOS 2022."""
    for where, change, printed in (("bare", str, (1.5, 1.0)), ("virtual", _nested, (4.4, 2.8))):
        for design, paper in zip((RADIX, FLATTENED), printed, strict=True):
            name = change(design)
            mean = _mean([over_seeds(measured, one, name, "", references_per_walk) for one in WORKLOADS])
            findings.comparisons.append(
                Comparison(
                    "Park et al.", design, f"references of a walk, {where}, mean of programs", "", paper, mean.value,
                    f"{_PROGRAMS}; sizes of the paging-structure caches", mean, ranked=f"references, {where}",
                    unsized=_OTHER_PROGRAMS,
                )
            )  # fmt: skip
    _add_speed_up(measured, findings, "Park et al.", FLATTENED, 2.3, virtual=False)
    _add_speed_up(measured, findings, "Park et al.", FLATTENED, 7.1, virtual=True)
    _add_speed_up(measured, findings, "Park et al.", KEPT, 6.8, virtual=False)
    _add_speed_up(measured, findings, "Park et al.", FLATTENED_KEPT, 9.2, virtual=False)
    _add_speed_up(measured, findings, "Park et al.", FLATTENED_KEPT, 14.0, virtual=True)


def _victima(measured: Measurements, findings: Findings) -> None:
    """Victima and large TLBs: Kanellopoulos et al., MICRO 2023. Cuckoo tables: the authors of Utopia, MICRO 2023."""
    for base, printed in ((RADIX, (7.4, 28.7)), (POM, (6.2, 20.1))):
        for paper, virtual in zip(printed, (False, True), strict=True):
            _add_speed_up(
                measured, findings, "Kanellopoulos et al. (Victima)", VICTIMA, paper, virtual=virtual, base=base
            )
    _add_speed_up(measured, findings, "Kanellopoulos et al. (Victima)", LARGE_TLB, 7.4, virtual=False)
    _add_speed_up(measured, findings, "Kanellopoulos et al. (Victima)", REALISTIC_TLB, 0.8, virtual=False)
    _add_speed_up(measured, findings, "Kanellopoulos et al. (Utopia)", ELASTIC, 8, virtual=False)


def _prefetchers(measured: Measurements, findings: Findings) -> None:
    """TLB prefetchers: Kandiraju and Sivasubramaniam, ISCA 2002."""
    behind = {}
    for name in WORKLOADS:
        less = {one: saved(measured, name, (RADIX, one), "", walks) for one in PREFETCHERS}
        best = max(less.values(), key=lambda part: part.value)
        behind[name] = best.minus(less[DISTANCE])
    detail = ", ".join(f"{name} {part}" for name, part in behind.items())
    text = (
        "distance prefetching is the best TLB prefetcher for every program, or near it: "
        f"at most {_NEAR_BEST:g} points of the walks behind, a bound of ours"
    )
    findings.claims.append(
        Claim(
            "Kandiraju and Sivasubramaniam",
            text,
            all_hold(part.within(-100, _NEAR_BEST) for part in behind.values()),
            f"points behind the best: {detail}",
            f"{_PROGRAMS}; buffers of 64 entries",
            "order",
        )
    )


def _walks_saved(measured: Measurements, systems: tuple[str, str]) -> Interval:
    """Per cent of walks that the second system saves, mean of the programs."""
    return _mean([saved(measured, name, systems, "", walks) for name in WORKLOADS])


def _agile(measured: Measurements, findings: Findings) -> None:
    """ATP: Vavouliotis et al., ISCA 2021."""
    cells = {name: _walks_saved(measured, (RADIX, name)) for name in (ATP, *FREE.values())}
    best = max((cells[name] for name in FREE.values()), key=lambda part: part.value)
    text = (
        "ATP saves more walks than each of its three prefetchers alone, all with free translations (mean of programs)"
    )
    detail = ", ".join(f"{name} {part} %" for name, part in cells.items())
    findings.claims.append(
        Claim("Vavouliotis et al.", text, cells[ATP].minus(best).above(0), detail, _PROGRAMS, "order")
    )


SECTIONS: tuple[Callable[[Measurements, Findings], None], ...] = (
    _part_of_memory,
    _flattened,
    _victima,
    _prefetchers,
    _agile,
)
