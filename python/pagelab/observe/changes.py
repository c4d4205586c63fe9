"""The page's part about changes: what larger pages, populating, placement or the allocator could save."""

from collections.abc import Iterator

from pagelab.observe.conclusions import Conclusions
from pagelab.observe.layout import PAGE_BYTES
from pagelab.observe.nodes import Topology
from pagelab.observe.projections import KEEP, PLACE, Projection, is_larger, shown_sizes
from pagelab.observe.regions import Region
from pagelab.observe.verdict import WORTH, Kind
from pagelab.quantities import size_text

MOST_ROWS = 8
TITLES = ("change", "at", "faults spared", "saves up to", "memory grows", "verdict")


def shown(conclusions: Conclusions) -> list[Projection]:
    """The projections that may be worth it, of the sizes that the page shows."""
    wanted = shown_sizes()
    return [
        one
        for one in conclusions.projections
        if one.kind is not Kind.NOTHING and one.saving and (not is_larger(one.change) or one.change in wanted)
    ]


def row(projection: Projection) -> tuple[str, ...]:
    """A row of the table of `TITLES`."""
    saving, spared = projection.saving, projection.spared
    return (
        projection.change,
        _place(projection.region),
        "–" if spared is None else f"{spared.low:,.0f} to {spared.high:,.0f}",
        f"{saving.high:.1%}" if saving else "–",
        "–" if projection.growth is None else size_text(projection.growth),
        projection.kind.value,
    )


def _place(region: Region | None) -> str:
    if region is None:
        return "comes and goes"
    return region.label[-14:] if region.small else f"{region.begin:#x}"


def lines(conclusions: Conclusions) -> Iterator[str]:
    """How the changes are made, and of which there is nothing to be had."""
    rows = shown(conclusions)
    by_setting: dict[str, dict[str, None]] = {}
    for one in rows[:MOST_ROWS]:
        by_setting.setdefault(one.setting, {})[one.change] = None
    for setting, names in by_setting.items():
        yield f"{', '.join(names)}: {setting}"
    if any(one.change == KEEP and one.spared and one.spared.low for one in rows):
        yield (
            f"{KEEP}: there are more faults than pages, so pages were given back to the kernel and taken again, by the "
            "allocator or by the program itself"
        )
    most: dict[str, float] = {}
    for one in conclusions.projections:
        if one.saving:
            change = "larger pages" if is_larger(one.change) else one.change
            most[change] = max(most.get(change, 0.0), one.saving.high)
    none = [change for change, share in most.items() if share < WORTH]
    if none:
        yield f"nothing to be had by fewer faults, less than 1 % of the CPU time: {', '.join(none)}"
    if not conclusions.observation.looks.topology.several:
        yield f"{PLACE}: nothing to be had, as this machine has one node"


def page_text(region: Region) -> str:
    """Of which sizes its pages are; empty if that is not known, or all are small."""
    orders = region.layout.orders if region.layout else ()
    sampled = sum(orders)
    if not sampled or orders[0] == sampled:
        return ""
    parts = [
        f"{count / sampled:.0%} in pages of {size_text(PAGE_BYTES << order)}"
        for order, count in enumerate(orders)
        if count >= 0.005 * sampled
    ]
    return f"{', '.join(parts)} (a sample of {sampled:,} pages)"


def node_text(region: Region, nodes: Topology) -> str:
    """On which nodes it is; empty with one node."""
    held = {node: size for node, size in region.nodes.items() if size}
    if not nodes.several or not held:
        return ""
    return ", ".join(f"{size_text(size)} on node {node}" for node, size in sorted(held.items()))
