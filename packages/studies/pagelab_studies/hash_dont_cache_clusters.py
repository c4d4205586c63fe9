"""Pages per cluster of a hashed table, by "Hash, Don't Cache (the Page Table)": one thing is changed at a time.

A slot of one line is best (§4.3), compact slots at the load of clustered ones take half the memory (§4.3), and the
guest's clusters should be larger than the host's (§4.4). All tables of a comparison have the same number of bytes, but
those of half the memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from pagelab_studies.hash_dont_cache_runs import (
    DESIGNS,
    HASH_SEEDS,
    MCF,
    MILC,
    NESTED,
    XALAN,
    Workload,
    drawn,
    seed_settings,
    window_of,
)
from pagelab_studies.hash_dont_cache_samples import over, rests_on
from pagelab_studies.hash_dont_cache_tables import OF_CLUSTERS
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Findings, Measurement, Measurements, Run, Series, per_walk

PROGRAMS = (MILC, MCF, XALAN)
# Pages per slot of `hashed-clustered`: half a line, a line, two lines.
SIZES = (2, 4, 8)
LINE = 4
# The load of clustered slots: the compact table then has half their bytes.
CLUSTERED_LOAD = 1 / 4
HALF = "half the memory"
# Clusters of guest and host: 8 in both, as the paper had expected, and the guest's or both larger.
PAIRS = ((8, 8), (512, 8), (512, 512), (4096, 8), (4096, 512), (4096, 4096))
ALIKE, CHOSEN = (8, 8), (4096, 8)
GUESTS = (8, 512, 4096)
"""Clusters of the guest over a host's of 8: Fig 9."""
PLACES = ("l1", "l2", "l3", "dram")
QUANTITIES = (("walk.cycles", "cycles"), ("walk.refs", "lines"), ("walk.refs.dram", "references to DRAM"))
_NESTED = f"the window of one analogue, {HASH_SEEDS} hash functions; cycles by the latencies of the preset's caches"

NOTES = (
    "Slots of `hashed-clustered` take 32 bytes for 2 pages, 64 for 4 and 128 for 8, so all three tables have 64 bytes "
    "per page of the program's memory at their load of 1/4. Two things differ beside the size: two slots of half a "
    "line share a line, so every other further probe costs no reference; and behind a tag of 8 bytes the last of eight "
    "entries lies in the second line, so an eighth of a reference more follows from the layout.",
    "The paper says that the host should have clusters of a line (§1), and prints no figure for others. Guest and host "
    "have the same hash functions.",
)


def _size_label(pages: int) -> str:
    return f"{pages} pages per slot"


def _pair_label(guest: int, host: int) -> str:
    return f"guest {guest}, host {host}"


def runs() -> Iterator[Run]:
    """The windows of each question, once for each hash function."""
    for number in range(HASH_SEEDS):
        seed = seed_settings("hashed", number)
        for workload in PROGRAMS:
            for pages in SIZES:
                more = (f"system.layers.native.page_table.cluster={pages}", *seed)
                label = drawn(number, _size_label(pages))
                yield window_of(workload, "clustered", DESIGNS["clustered"], label, more)
            label = drawn(number, HALF)
            yield window_of(workload, "compact", DESIGNS["compact"], label, seed, load=CLUSTERED_LOAD)
        for guest, host in PAIRS:
            more = tuple(
                f"system.layers.{layer}.page_table.cluster={pages}"
                for layer, pages in (("guest", guest), ("host", host))
            )
            more = (*more, *seed_settings("nested hashed", number))
            label = drawn(number, _pair_label(guest, host))
            yield window_of(MILC, "nested hashed", NESTED["nested hashed"], label, more)


def _windows(measured: Measurements, workload: Workload, system: str, label: str) -> list[Measurement]:
    """One for each hash function."""
    return [measured[workload.name, system, drawn(number, label)] for number in range(HASH_SEEDS)]


def _mean(statistic: str, windows: Sequence[Measurement]) -> Interval:
    return over(per_walk(statistic), [(one,) for one in windows])


def _more_of(statistic: str, one: Sequence[Measurement], than: Sequence[Measurement]) -> Interval:
    """How much more a walk takes in the first windows, under the same hash functions."""
    quantity = per_walk(statistic)

    def difference(before: Mapping[str, int], after: Mapping[str, int]) -> float:
        return quantity(before) - quantity(after)

    return over(difference, list(zip(one, than, strict=True)))


def pages_per_slot(measured: Measurements, findings: Findings) -> None:
    """§4.3: a slot smaller than a line exploits less locality; a larger one may take two references."""
    for statistic, unit in QUANTITIES:
        cells = {
            (workload.name, _size_label(pages)): _mean(
                statistic, _windows(measured, workload, "clustered", _size_label(pages))
            )
            for workload in PROGRAMS
            for pages in SIZES
        }
        title = f"{unit} of a walk by the size of clusters"
        findings.series.append(Series.within("§4.3", title, unit, cells))
    smaller, larger = (pages for pages in SIZES if pages != LINE)
    for workload in PROGRAMS:
        windows = {pages: _windows(measured, workload, "clustered", _size_label(pages)) for pages in SIZES}
        for pages, text, statistic in (
            (
                smaller,
                "slots of half a line cost more DRAM references of a walk than slots of a line",
                "walk.refs.dram",
            ),
            (larger, "slots of two lines cost more cycles of a walk than slots of a line", "walk.cycles"),
        ):
            more = _more_of(statistic, windows[pages], windows[LINE])
            detail = f"{more.value:.3g} ({more.low:.3g} to {more.high:.3g}) more"
            based = rests_on(OF_CLUSTERS, workload.name)
            findings.claims.append(Claim("§4.3", f"{text} ({workload.name})", more.above(0), detail, based))


def half_the_memory(measured: Measurements, findings: Findings) -> None:
    """§4.3: compact slots at the load of clustered ones take half the memory; what a walk then costs."""
    designs = {"clustered": ("clustered", _size_label(LINE)), "compact, half the memory": ("compact", HALF)}
    for statistic, unit in QUANTITIES:
        cells = {
            (workload.name, name): _mean(statistic, _windows(measured, workload, *design))
            for workload in PROGRAMS
            for name, design in designs.items()
        }
        findings.series.append(Series.within("§4.3", f"{unit} of a walk at a load of 1/4", unit, cells))


def served(layer: str, places: Sequence[str]) -> Callable[[Mapping[str, int]], float]:
    """References of a walk to a layer's table that these places serve."""
    names = [f"walk.layer.{layer}.level1.refs.{place}" for place in places]
    return lambda stats: sum(stats.get(name, 0) for name in names) / max(stats["walk.count"], 1)


def by_cache(windows: Mapping[int, Sequence[Measurement]]) -> dict[tuple[str, str], Interval]:
    """References of a walk by table and by the cache that serves them, of windows by the guest's clusters."""
    return {
        (f"guest clusters of {guest}", f"{layer}: {place}"): over(served(layer, (place,)), [(one,) for one in of_guest])
        for guest, of_guest in windows.items()
        for layer in ("guest", "host")
        for place in PLACES
    }


def lines_of_the_host(measured: Measurements, findings: Findings) -> None:
    """§4.4, Fig 9's reason: larger clusters of the guest need fewer lines of the host's table."""
    windows = {guest: _windows(measured, MILC, "nested hashed", _pair_label(guest, 8)) for guest in GUESTS}
    title = f"references of a 2D walk, by table and by the cache that serves them ({MILC.name})"
    findings.series.append(Series.within("§4.4", title, "references", by_cache(windows)))
    beyond = served("host", PLACES[1:])
    figures = [over(beyond, [(one,) for one in of_guest]).value for of_guest in windows.values()]
    falls = [
        over(lambda before, after: beyond(before) - beyond(after), list(zip(*pair, strict=True)))
        for pair in pairwise(windows.values())
    ]
    text = f"larger guest clusters: fewer references to the host's table miss the L1 data cache ({MILC.name})"
    steps = ", ".join(f"{one.value:.3g} ({one.low:.3g} to {one.high:.3g})" for one in falls)
    detail = (
        f"{', '.join(f'{value:.4f}' for value in figures)} of a walk with clusters of 8, 512 and 4,096; less: {steps}"
    )
    holds = all_hold(one.above(0) for one in falls)
    findings.claims.append(Claim("Fig 9", text, holds, detail, rests_on(_NESTED, MILC.name), "order"))


def guest_and_host(measured: Measurements, findings: Findings) -> None:
    """§4.4: guest and host tables should not be tuned alike."""
    windows = {pair: _windows(measured, MILC, "nested hashed", _pair_label(*pair)) for pair in PAIRS}
    for statistic, unit in QUANTITIES:
        cells = {
            (f"guest {guest} pages", f"host {host} pages"): _mean(statistic, windows[guest, host])
            for guest, host in PAIRS
        }
        title = f"{unit} of a 2D walk by the clusters of guest and host ({MILC.name})"
        findings.series.append(Series.within("§4.4", title, unit, cells))
    more = _more_of("walk.cycles", windows[ALIKE], windows[CHOSEN])
    detail = f"{more.value:.3g} ({more.low:.3g} to {more.high:.3g}) cycles more with 8 pages in both"
    text = "clusters of 4,096 pages in the guest cost fewer cycles of a 2D walk than 8 pages in both tables"
    findings.claims.append(Claim("§4.4", text, more.above(0), detail, rests_on(_NESTED, MILC.name), "order"))
