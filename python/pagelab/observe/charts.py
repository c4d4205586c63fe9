"""Charts of an observation, as Vega-Lite specifications for the scripts of reports."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt

from pagelab.observe.address_use import Snapshot
from pagelab.observe.heat import HeatMap
from pagelab.observe.layout import PAGE_BYTES
from pagelab.observe.looks import Looks
from pagelab.observe.regions import Region
from pagelab.observe.samples import FaultLog
from pagelab.quantities import size_text

Spec: TypeAlias = dict[str, Any]
_MIB = 1 << 20
_COLOURS = ("#4c78a8", "#f0a03c", "#54a24b", "#d1495b", "#7b5ea7", "#8c6d31", "#9aa5b1")
_USED = alt.Scale(domain=[0, 1], range=["#dfe5ec", "#f0a03c", "#b3172f"])
"""Colours of parts from 0 to 1"""
_OTHERS = "other memory"
_BINS = 60
_ADDRESS_BINS = 48
_MOST_ROWS = 40


def name_of(region: Region | None) -> str:
    """What stands beside the memory in all charts."""
    if region is None:
        return "comes and goes"
    label = region.label.rpartition("/")[2] if region.label.startswith("/") else region.label
    return f"{label[:24]} (small)" if region.small else f"{label[:24]} {region.begin:#x}"


def _finish(chart: alt.Chart | alt.LayerChart, height: int, description: str) -> Spec:
    size = alt.AutoSizeParams(type="fit-x", contains="padding")
    spec: Spec = chart.properties(width="container", height=height, autosize=size, description=description).to_dict()
    return spec


def _values(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=[dict(row) for row in rows])


def _seconds(field: str, **more: Any) -> alt.X:
    return alt.X(f"{field}:Q", title="second", axis=alt.Axis(tickCount=8, format="~f"), **more)


def working_set(looks: Looks) -> Spec:
    """Resident, huge and used memory at each look."""
    rows = []
    for look, amounts in looks.totals():
        parts = {"resident": amounts.resident, "in huge pages": amounts.huge, "used in the interval": amounts.used}
        rows += [
            {"second": round(look.seconds, 3), "memory": name, "MiB": size / _MIB}
            for name, size in parts.items()
            if size is not None
        ]
    names = ["resident", "in huge pages", "used in the interval"]
    colours = alt.Scale(domain=names, range=[_COLOURS[6], _COLOURS[1], _COLOURS[3]])
    chart = (
        alt.Chart(_values(rows))
        .mark_line(point=True)
        .encode(
            x=_seconds("second"),
            y=alt.Y("MiB:Q", title="MiB", axis=alt.Axis(tickCount=6)),
            color=alt.Color("memory:N", scale=colours, legend=alt.Legend(title=None, orient="top")),
            tooltip=["second:Q", "memory:N", alt.Tooltip("MiB:Q", format=".2f")],
        )
    )
    return _finish(chart, 220, "Resident, huge and used memory over time")


def heat(heat_map: HeatMap) -> Spec:
    """A row per mapping by address, a rectangle per interval: darker where more of it was used."""
    rows = [
        {
            "begin": round(interval.begin, 3),
            "end": round(interval.end, 3),
            "mapping": f"{name_of(row.region)}, {size_text(row.region.largest.resident)}",
            "used": round(part, 4),
        }
        for row in heat_map.rows[:_MOST_ROWS]
        for interval, part in zip(heat_map.intervals, row.parts, strict=True)
        if part is not None
    ]
    height = 22 * min(len(heat_map.rows), _MOST_ROWS) + 10
    chart = (
        alt.Chart(_values(rows))
        .mark_rect()
        .encode(
            x=_seconds("begin", scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=alt.Y("mapping:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)),
            color=alt.Color(
                "used:Q",
                scale=_USED,
                legend=alt.Legend(title="used", orient="top", format=".0%"),
            ),
            tooltip=["mapping:N", "begin:Q", "end:Q", alt.Tooltip("used:Q", format=".1%")],
        )
    )
    return _finish(chart, height, "Used part of each mapping in each interval")


def _by_region(log: FaultLog) -> dict[int, float]:
    """The weights of the samples by the number of their region."""
    sums: dict[int, float] = defaultdict(float)
    for number, weight in zip(log.region_numbers, log.weights, strict=True):
        sums[number] += weight
    return sums


def faults_over_time(log: FaultLog, seconds: float) -> Spec:
    """Faults per second by mapping, stacked."""
    width = max(seconds, 1e-3) / _BINS
    sums = _by_region(log)
    named = sorted(sums, key=lambda number: -sums[number])[: len(_COLOURS) - 1]
    names = {number: name_of(None if number < 0 else log.regions[number]) for number in named}
    bins: dict[tuple[int, str], float] = defaultdict(float)
    for at, number, weight in zip(log.seconds, log.region_numbers, log.weights, strict=True):
        bins[min(int(at / width), _BINS - 1), names.get(number, _OTHERS)] += weight * log.scale
    rows = [
        {
            "begin": round(at * width, 4),
            "end": round((at + 1) * width, 4),
            "memory": name,
            "rate": count / width,
        }
        for (at, name), count in sorted(bins.items())
    ]
    order = [*dict.fromkeys(names.values()), *([_OTHERS] if len(sums) > len(named) else [])]
    colours = alt.Scale(domain=order, range=list(_COLOURS[: len(order)]))
    chart = (
        alt.Chart(_values(rows))
        .mark_bar()
        .encode(
            x=_seconds("begin", bin="binned", scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=alt.Y("rate:Q", title="faults per second", stack="zero", axis=alt.Axis(tickCount=6, format="~s")),
            color=alt.Color("memory:N", scale=colours, legend=alt.Legend(title=None, orient="top", labelLimit=300)),
            tooltip=["memory:N", "begin:Q", "end:Q", alt.Tooltip("rate:Q", format=",.0f")],
        )
    )
    return _finish(chart, 220, "Faults per second by mapping")


def most_faulting(log: FaultLog) -> int | None:
    """The number of the mapping of 2 MiB or more with the most faults; none if there is none."""
    large = {n: weight for n, weight in _by_region(log).items() if n >= 0 and not log.regions[n].small}
    return max(large, key=lambda number: large[number], default=None)


def address_use(snapshots: Sequence[Snapshot], begin: int, end: int, seconds: float) -> Spec:
    """How much the addresses of a mapping were used over time, as DAMON tells."""
    ends = [*(snapshot.seconds for snapshot in snapshots[1:]), seconds]
    rows = [
        {
            "begin": round(snapshot.seconds, 3),
            "end": round(after, 3),
            "low": (max(part.begin, begin) - begin) / _MIB,
            "high": (min(part.end, end) - begin) / _MIB,
            "accessed": round(part.accessed, 3),
        }
        for snapshot, after in zip(snapshots, ends, strict=True)
        for part in snapshot.parts
        if part.begin < end and begin < part.end
    ]
    legend = alt.Legend(title="looks with an access", orient="top", format=".0%")
    colour = alt.Color("accessed:Q", scale=_USED, legend=legend)
    tooltip = ["begin:Q", "low:Q", "high:Q", alt.Tooltip("accessed:Q", format=".0%")]
    return _finish(_by_address(rows, begin, colour, tooltip), 260, "Use by address and time")


def fault_addresses(log: FaultLog, number: int, seconds: float) -> Spec:
    """Where in a mapping faults are, over time."""
    chosen = [at for at, region in enumerate(log.region_numbers) if region == number]
    begin = min(log.addresses[at] for at in chosen) // PAGE_BYTES * PAGE_BYTES
    end = max(log.addresses[at] for at in chosen) + PAGE_BYTES
    width = max(seconds, 1e-3) / _BINS
    height = max(-(-(end - begin) // _ADDRESS_BINS), PAGE_BYTES)
    bins: dict[tuple[int, int], float] = defaultdict(float)
    for at in chosen:
        place = (min(int(log.seconds[at] / width), _BINS - 1), (log.addresses[at] - begin) // height)
        bins[place] += log.weights[at] * log.scale
    rows = [
        {
            "begin": round(column * width, 4),
            "end": round((column + 1) * width, 4),
            "low": row * height / _MIB,
            "high": (row + 1) * height / _MIB,
            "faults": count,
        }
        for (column, row), count in sorted(bins.items())
    ]
    legend = alt.Legend(title="faults", orient="top", format="~s")
    colour = alt.Color("faults:Q", scale=alt.Scale(range=["#f6d7a8", "#b3172f"]), legend=legend)
    tooltip = ["begin:Q", "low:Q", alt.Tooltip("faults:Q", format=",.0f")]
    return _finish(_by_address(rows, begin, colour, tooltip), 260, "Faults by address and time")


def _by_address(rows: Sequence[Mapping[str, Any]], begin: int, colour: alt.Color, tooltip: Sequence[Any]) -> alt.Chart:
    """Rectangles over time and the addresses from `begin` on."""
    chart: alt.Chart = (
        alt.Chart(_values(rows))
        .mark_rect()
        .encode(
            x=_seconds("begin", scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=alt.Y("low:Q", title=f"MiB after {begin:#x}", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=6)),
            y2="high:Q",
            color=colour,
            tooltip=list(tooltip),
        )
    )
    return chart
