"""Hashed tables in a virtual machine: clusters of the guest for a large program, and independent hash functions (§4.4).

Fig 9's reason is tested: which cache serves the references to each layer's table. Elsewhere guest and host have the
same hash function; here the same windows are also run with two.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from pagelab_studies.hash_dont_cache_clusters import PLACES, by_cache, served
from pagelab_studies.hash_dont_cache_runs import (
    CLUSTERS,
    GUPS,
    HASH_SEEDS,
    MCF,
    MILC,
    MORE_SEEDS,
    NESTED,
    XALAN,
    Workload,
    drawn,
    seed_settings,
    window_of,
)
from pagelab_studies.hash_dont_cache_samples import over, rests_on
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Findings, Measurement, Measurements, Run, Series, per_walk

FIGURE_9 = GUPS[1]
"""Its guest's table lies in 4,096 lines of the host's with clusters of 8, and in 512 with clusters of 4,096."""
BOTH_WAYS = {MILC: MORE_SEEDS, MCF: MORE_SEEDS, XALAN: MORE_SEEDS, GUPS[0]: 8}
"""Programs whose guest and host have one hash function, or two, and how many are drawn."""
SAME, APART = "same functions", "independent functions"
_APART_BY = 1000
LAYERS = ("guest", "host")
_SYSTEM = "nested hashed"
CLOSE = 1.0
"""Per cent within which we call the references of a walk equal: a choice of ours."""

Stats = Mapping[str, int]


def _settings(number: int, relation: str) -> tuple[str, ...]:
    if relation == SAME:
        return seed_settings(_SYSTEM, number)
    layers = zip(LAYERS, (number, number + _APART_BY), strict=True)
    return tuple(f"system.layers.{layer}.page_table.seed={seed}" for layer, seed in layers)


def _label(cluster: int, relation: str) -> str:
    return f"cluster {cluster}, {relation}"


def runs() -> Iterator[Run]:
    """The windows, once for each hash function."""
    for cluster in CLUSTERS:
        yield from _windows_of(FIGURE_9, cluster, SAME, HASH_SEEDS)
    for workload, functions in BOTH_WAYS.items():
        for relation in (SAME, APART):
            yield from _windows_of(workload, CLUSTERS[-1], relation, functions)


def _windows_of(workload: Workload, cluster: int, relation: str, functions: int) -> Iterator[Run]:
    for number in range(functions):
        more = (f"system.layers.guest.page_table.cluster={cluster}", *_settings(number, relation))
        yield window_of(workload, _SYSTEM, NESTED[_SYSTEM], drawn(number, _label(cluster, relation)), more)


def _windows(
    measured: Measurements, workload: Workload, cluster: int, relation: str, functions: int
) -> list[Measurement]:
    return [measured[workload.name, _SYSTEM, drawn(number, _label(cluster, relation))] for number in range(functions)]


def _mean(quantity: Callable[..., float], windows: Sequence[Measurement]) -> Interval:
    return over(quantity, [(one,) for one in windows])


def independent_functions(measured: Measurements, findings: Findings) -> None:
    """What changes if guest and host have hash functions of their own."""
    pairs = {
        workload: tuple(_windows(measured, workload, CLUSTERS[-1], relation, functions) for relation in (SAME, APART))
        for workload, functions in BOTH_WAYS.items()
    }
    for statistic, unit in (("walk.refs", "references"), ("walk.cycles", "cycles")):
        cells = {
            (f"{workload.name}, {len(windows)} functions", relation): _mean(per_walk(statistic), windows)
            for workload, both in pairs.items()
            for relation, windows in zip((SAME, APART), both, strict=True)
        }
        title = f"{unit} of a 2D walk by the hash functions of guest and host"
        findings.series.append(Series.within("§4.4", title, unit, cells))
    for workload, (same, apart) in pairs.items():
        more = over(_more_references, list(zip(same, apart, strict=True)))
        text = (
            f"one hash function for guest and host gives the references of independent ones within ±{CLOSE:g} %, a "
            "bound of ours"
        )
        detail = f"independent ones take {more} % more"
        rests = rests_on(f"a window, {len(same)} pairs of hash functions", workload.name)
        within = more.within(-CLOSE, CLOSE)
        findings.claims.append(Claim("§4.4", f"{text} ({workload.name})", within, detail, rests, "size", ours=True))


def _more_references(same: Stats, apart: Stats) -> float:
    """Per cent, of a walk."""
    references = per_walk("walk.refs")
    return 100 * (references(apart) / references(same) - 1)


def lines_of_the_host(measured: Measurements, findings: Findings) -> None:
    """§4.4, Fig 9: what larger clusters of the guest spare, and where."""
    windows = {cluster: _windows(measured, FIGURE_9, cluster, SAME, HASH_SEEDS) for cluster in CLUSTERS}
    title = f"references of a 2D walk by layer and by the cache that serves them ({FIGURE_9.name})"
    findings.series.append(Series.within("§4.4", title, "references", by_cache(windows)))
    for quantity, unit, text in (
        (per_walk("walk.cycles"), "cycles", "larger guest clusters lower the cycles of a 2D walk"),
        (
            served("host", PLACES[1:]),
            "references",
            "larger guest clusters: fewer lines of the host's table come from beyond the L1",
        ),
    ):
        figures = [_mean(quantity, of_cluster) for of_cluster in windows.values()]
        falls = [_fall(quantity, *pair) for pair in pairwise(windows.values())]
        detail = ", ".join(f"{one.value:.4g}" for one in figures)
        steps = ", ".join(f"{one.value:.3g} ({one.low:.3g} to {one.high:.3g})" for one in falls)
        rests = rests_on(f"a window, {HASH_SEEDS} hash functions; cycles by the latencies of the preset's caches")
        findings.claims.append(
            Claim(
                "Fig 9",
                f"{text} ({FIGURE_9.name})",
                all_hold(one.above(0) for one in falls),
                f"{detail} {unit} with clusters of 8, 512 and 4,096; falls: {steps}",
                rests,
                "order",
            )
        )


def _fall(quantity: Callable[[Stats], float], before: Sequence[Measurement], after: Sequence[Measurement]) -> Interval:
    return over(lambda one, other: quantity(one) - quantity(other), list(zip(before, after, strict=True)))
