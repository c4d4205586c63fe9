"""The page's charts, as Vega-Lite specifications that take their text's colour from the page."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import altair as alt
from altair.utils.schemapi import debug_mode

from pagelab.report.figures import (
    STAGES,
    cycles_by_class,
    paging_cycles,
    references,
    share,
    stage_cycles,
)
from pagelab.results.headline import busy_cycles, faults
from pagelab.results.results import SystemResult
from pagelab.results.table import SERVED

Spec: TypeAlias = dict[str, Any]

CLASS_COLOURS = {
    "instructions": "#9aa5b1",
    "data": "#4c78a8",
    "translation": "#d1495b",
    "page faults": "#f0a03c",
    "devices": "#7b5ea7",
    "waiting": "#cfd4da",
    "other kernel work": "#8c8c5a",
}
PLACE_COLOURS = {
    "L1": "#7fb685",
    "L2": "#d6c95a",
    "L3": "#f0a03c",
    "another core": "#7b5ea7",
    "memory": "#d1495b",
    "no cache": "#9aa5b1",
}
_STAGE_COLOURS = (
    "#4c78a8",
    "#9ecae9",
    "#d1495b",
    "#f0a03c",
    "#d6c95a",
    "#7fb685",
    "#54a24b",
    "#b279a2",
    "#7b5ea7",
    "#9aa5b1",
    "#8c6d31",
    "#e7969c",
    "#6b6ecf",
    "#bd9e39",
)
STAGE_COLOURS = dict(zip(STAGES, _STAGE_COLOURS, strict=True))
_SYSTEM_COLOURS = ("#4c78a8", "#f0a03c", "#54a24b", "#d1495b", "#7b5ea7", "#8c6d31", "#e7969c", "#9aa5b1")
_LEAST_REFERENCES = 0.005
"""Per walk; a level that is read less often would have no visible bar"""
_BAR = 22
"""Height of a bar, in pixels"""
_GROUND = "var(--ground)"
"""The page's own, which separates pieces in its light and its dark scheme"""


def without_checks() -> AbstractContextManager[None]:
    """Charts that are made in this context are not checked against Vega-Lite's schema."""
    return debug_mode(False)


def _values(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=[dict(row) for row in rows])


def _finish(chart: alt.Chart | alt.LayerChart | alt.FacetChart, description: str) -> Spec:
    spec: Spec = chart.properties(description=description).to_dict()
    return spec


def _colour(field: str, colours: Mapping[str, str], used: Sequence[str], legend: alt.Legend | None = None) -> alt.Color:
    domain = [name for name in colours if name in used]
    scale = alt.Scale(domain=domain, range=[colours[name] for name in domain])
    return alt.Color(f"{field}:N", scale=scale, legend=legend or _squares())


def _squares(**more: Any) -> alt.Legend:
    return alt.Legend(**{"title": None, "orient": "top", "symbolType": "square", "symbolStrokeWidth": 0, **more})


def _systems(results: Sequence[SystemResult]) -> alt.Color:
    labels = [result.label for result in results]
    colours = [_SYSTEM_COLOURS[at % len(_SYSTEM_COLOURS)] for at in range(len(labels))]
    return alt.Color("system:N", scale=alt.Scale(domain=labels, range=colours), legend=_legend())


def _width(at: int, lines: int) -> float:
    """Of a line, in pixels. Each is thinner than those below it, so that lines that coincide are all seen."""
    return 1.5 + 2 * (lines - 1 - at) / max(lines - 1, 1)


_WIDTH = alt.StrokeWidth("width:Q", scale=None, legend=None)


def _counts(**more: Any) -> alt.Axis:
    """An axis of counts with few ticks, so that their labels have room, and a zero without a unit."""
    return alt.Axis(**{"format": "~s", "labelExpr": "datum.value ? datum.label : '0'", "tickCount": 8, **more})


def _legend() -> alt.Legend:
    return alt.Legend(title=None, orient="top", labelLimit=400, columns=4)


def _wide(height: int) -> dict[str, Any]:
    return {"width": "container", "height": height, "autosize": alt.AutoSizeParams(type="fit-x", contains="padding")}


def cycles(results: Sequence[SystemResult]) -> Spec:
    """Busy cycles by class, a bar per system, as shares of the first system's."""
    whole = busy_cycles(results[0].stats)
    rows = [
        {"system": result.label, "class": name, "cycles": count, "share": share(count, whole), "order": order}
        for result in results
        for order, (name, count) in enumerate(cycles_by_class(result.stats).items())
        if count
    ]
    chart = (
        alt.Chart(_values(rows))
        .mark_bar(height=_BAR)
        .encode(
            x=alt.X(
                "share:Q", title="busy cycles; the first system takes 1", axis=alt.Axis(format=".2~f", tickCount=8)
            ),
            y=alt.Y("system:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            color=_colour("class", CLASS_COLOURS, [str(row["class"]) for row in rows]),
            order=alt.Order("order:Q"),
            tooltip=["system:N", "class:N", alt.Tooltip("cycles:Q", format=",d"), alt.Tooltip("share:Q", format=".4f")],
        )
        .properties(**_wide(len(results) * (_BAR + 12)))
    )
    return _finish(chart, "Busy cycles of each system by class")


def walk_references(results: Sequence[SystemResult]) -> Spec:
    """References per walk for each level of each layer's table, by where they hit. The page sets the width."""
    rows = []
    for result in results:
        walks = result.stats.get("walk.count", 0)
        for level, places in references(result.stats).items():
            if share(sum(places.values()), walks) < _LEAST_REFERENCES:
                continue
            for order, (place, words) in enumerate(SERVED.items()):
                if places.get(place):
                    rows.append(
                        {
                            "system": result.label,
                            "level": level.label,
                            "place": words,
                            "refs": share(places[place], walks),
                            "order": order,
                        }
                    )
    chart = (
        alt.Chart(_values(rows))
        .mark_bar(height=14)
        .encode(
            x=alt.X("refs:Q", title="references per walk", axis=alt.Axis(tickCount=8)),
            y=alt.Y("level:N", sort=None, title=None),
            color=_colour("place", PLACE_COLOURS, [str(row["place"]) for row in rows]),
            order=alt.Order("order:Q"),
            row=alt.Row("system:N", sort=[result.label for result in results], title=None, header=_row_header()),
            tooltip=["system:N", "level:N", "place:N", alt.Tooltip("refs:Q", format=".4f")],
        )
        .properties(height=alt.Step(20))
        .resolve_scale(y="independent")
    )
    return _finish(chart, "References per walk by layer, level and place")


def _row_header() -> alt.Header:
    return alt.Header(labelAnchor="start", labelOrient="top", labelFontWeight="bold", labelLimit=500)


def fault_stages(results: Sequence[SystemResult]) -> Spec:
    """Cycles per page fault by stage, a bar per system."""
    rows = [
        {
            "system": result.label,
            "stage": stage,
            "cycles": share(count, faults(result.stats)),
            "order": STAGES.index(stage),
        }
        for result in results
        for stage, count in stage_cycles(result.stats).items()
    ]
    chart = (
        alt.Chart(_values(rows))
        .mark_bar(height=_BAR)
        .encode(
            x=alt.X("cycles:Q", title="cycles per page fault of the program", axis=_counts(format=",d")),
            y=alt.Y("system:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            color=_colour("stage", STAGE_COLOURS, [str(row["stage"]) for row in rows]),
            order=alt.Order("order:Q"),
            tooltip=["system:N", "stage:N", alt.Tooltip("cycles:Q", format=",.1f")],
        )
        .properties(**_wide(len(results) * (_BAR + 12)))
    )
    return _finish(chart, "Cycles per page fault by stage")


def over_time(results: Sequence[SystemResult]) -> list[tuple[str, Spec]]:
    """Walks, faults and the share of paging in each part of the run; a title and a chart each."""
    measures: tuple[tuple[str, Callable[[Mapping[str, int]], float]], ...] = (
        ("Page walks per 1,000 accesses", lambda part: 1000 * share(part["walk.count"], part["accesses"])),
        ("Page faults per 1,000 accesses", lambda part: 1000 * share(faults(part), part["accesses"])),
        ("Share of cycles that paging takes", lambda part: share(paging_cycles(part), busy_cycles(part))),
    )
    charts = []
    for title, measure in measures:
        rows = []
        for at, result in enumerate(results):
            done, line = 0, {"system": result.label, "width": _width(at, len(results))}
            for part in result.windows:
                value = measure(part)
                if not done:
                    # The line of a part ends where the part does, so the first one needs its beginning.
                    rows.append({**line, "accesses": 0, "value": value})
                done += part["accesses"]
                rows.append({**line, "accesses": done, "value": value})
        if not any(row["value"] for row in rows):
            continue
        chart = (
            alt.Chart(_values(rows))
            .mark_line(interpolate="step-before")
            .encode(
                x=alt.X("accesses:Q", title="accesses", axis=_counts()),
                y=alt.Y(
                    "value:Q",
                    title=None,
                    scale=alt.Scale(domainMin=0),
                    axis=alt.Axis(format=".0%" if "Share" in title else ",.3~r"),
                ),
                color=_systems(results),
                strokeWidth=_WIDTH,
                tooltip=[
                    "system:N",
                    alt.Tooltip("accesses:Q", format=",d"),
                    alt.Tooltip("value:Q", format=".4g"),
                ],
            )
            .properties(**_wide(160))
        )
        charts.append((title, _finish(chart, f"{title} over the run")))
    return charts


def latencies(results: Sequence[SystemResult], kind: str) -> Spec:
    """The share of `walks` or `faults` that took at most a number of cycles."""
    rows = []
    for at, result in enumerate(results):
        line = {"system": result.label, "width": _width(at, len(results))}
        counts = (result.profile or {})[kind]["latencies"]
        whole, below = sum(count for _, count in counts), 0
        for cycles_, count in counts:
            below += count
            rows.append({**line, "cycles": max(cycles_, 1), "share": share(below, whole)})
    chart = (
        alt.Chart(_values(rows))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("cycles:Q", title=f"cycles of one of the {kind}", scale=alt.Scale(type="log"), axis=_log_axis()),
            y=alt.Y("share:Q", title="share that took no more", axis=alt.Axis(format=".0%")),
            color=_systems(results),
            strokeWidth=_WIDTH,
            tooltip=["system:N", alt.Tooltip("cycles:Q", format=",d"), alt.Tooltip("share:Q", format=".2%")],
        )
        .properties(**_wide(180))
    )
    return _finish(chart, f"Distribution of the cycles of {kind}")


def _log_axis() -> alt.Axis:
    return alt.Axis(format="~s", labelOverlap=True)


def steps(samples: Sequence[Mapping[str, Any]], kind: str) -> Spec:
    """A bar per sample, the last one the slowest, divided into its steps: references of walks, stages of faults."""
    rows = []
    for number, sample in enumerate(samples, 1):
        at = 0
        label = _label(sample, number, slowest=number == len(samples))
        for step in _steps(sample, kind):
            rows.append({"sample": label, "begin": at, "end": at + step["cycles"], **step})
            at += step["cycles"]
        rest = sample["cycles"] - at
        if rest > 0:
            rows.append({"sample": label, "begin": at, "end": at + rest, "cycles": rest, "what": "rest", "of": "–"})
    colours = {**(PLACE_COLOURS if kind == "walks" else STAGE_COLOURS), "rest": "#cfd4da"}
    field = "place" if kind == "walks" else "stage"
    chart = (
        alt.Chart(_values(rows))
        .mark_bar(height=16, stroke=_GROUND, strokeWidth=0.7)
        .encode(
            x=alt.X("begin:Q", title="cycles", axis=_counts()),
            x2="end:Q",
            y=alt.Y("sample:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            color=_colour("what", colours, [str(row["what"]) for row in rows]),
            tooltip=[
                alt.Tooltip("of:N", title="step"),
                alt.Tooltip("what:N", title=field),
                alt.Tooltip("cycles:Q", format=",d"),
            ],
        )
        .properties(**_wide(len(samples) * 24))
    )
    return _finish(chart, f"Sampled {kind}, step by step")


_SERVED_LINES = ("L1", "L2", "L3", "another core", "memory")
"""The places of a step's lines, in the engine's order, the nearest first"""
_NO_LINES = "instructions"
"""The place of a step without lines"""


def fault_steps(samples: Sequence[Mapping[str, Any]], *, slowest: bool = False) -> Spec:
    """A bar per sample, divided into its references; below each, a strip of their stages.

    Args:
        samples: The faults.
        slowest: Whether it is only the slowest one.
    """
    rows: list[dict[str, Any]] = []
    stages: list[dict[str, Any]] = []
    for number, sample in enumerate(samples, 1):
        at, label = 0, _label(sample, number, slowest=slowest)
        for step in sample["steps"]:
            begin, at = at, at + step["cycles"]
            stage_label = f"{step['layer']}: {step['stage']}"
            where = _farthest(step["lines"])
            if step["cycles"]:
                lines = _lines(step["lines"])
                rows.append({"sample": label, "begin": begin, "end": at, "place": where, "of": stage_label + lines})
            if stages and (stages[-1]["sample"], stages[-1]["of"]) == (label, stage_label):
                stages[-1]["end"] = at
            else:
                stages.append({"sample": label, "begin": begin, "end": at, "stage": step["stage"], "of": stage_label})
        if sample["cycles"] > at:
            rows.append({"sample": label, "begin": at, "end": sample["cycles"], "place": "rest", "of": "–"})
    for row in (*rows, *stages):
        row["cycles"] = row["end"] - row["begin"]
    stages = [row for row in stages if row["cycles"]]
    # Places and stages share hues, so their legends are separate and have titles.
    places = {**PLACE_COLOURS, _NO_LINES: "#c6ccd4", "rest": "#e6e9ed"}
    bars = _pieces(rows, "place", places, height=12, offset=-4, legend=_squares(title="references (bars)"))
    # A fault engine's work has no stages.
    below = _squares(title="stages (strips)", orient="bottom")
    strips = [_pieces(stages, "stage", STAGE_COLOURS, height=5, offset=7, legend=below)] if stages else []
    chart = alt.layer(bars, *strips).resolve_scale(color="independent").properties(**_wide(len(samples) * 30))
    return _finish(chart, "Sampled faults, reference by reference")


def _pieces(
    rows: Sequence[Mapping[str, Any]],
    field: str,
    colours: Mapping[str, str],
    *,
    height: int,
    offset: int,
    legend: alt.Legend,
) -> alt.Chart:
    """Pieces of bars with this height, and this far below the middle of their rows, in pixels."""
    chart: alt.Chart = (
        alt.Chart(_values(rows))
        .mark_bar(height=height, yOffset=offset, stroke=_GROUND, strokeWidth=0.4)
        .encode(
            x=alt.X("begin:Q", title="cycles", axis=_counts()),
            x2="end:Q",
            y=alt.Y("sample:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            color=_colour(field, colours, [str(row[field]) for row in rows], legend),
            tooltip=[
                alt.Tooltip("of:N", title="step"),
                alt.Tooltip(f"{field}:N", title=field),
                alt.Tooltip("cycles:Q", format=",d"),
            ],
        )
    )
    return chart


def _label(sample: Mapping[str, Any], number: int, *, slowest: bool) -> str:
    what = f"{sample['intent']} {sample['address']:#x}"
    return f"slowest {what}" if slowest else f"{number}. {what}"


def _farthest(lines: Sequence[int]) -> str:
    """The farthest place in which lines were found."""
    return next((place for place, count in reversed(list(zip(_SERVED_LINES, lines, strict=True))) if count), _NO_LINES)


def _steps(sample: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    if kind == "walks":
        return [
            {"what": SERVED[ref["place"]], "of": f"{ref['layer']} level {ref['level']}", "cycles": ref["cycles"]}
            for ref in sample["refs"]
        ]
    return [
        {
            "what": stage["stage"],
            "of": f"{stage['layer']}: {stage['stage']}{_lines(stage['lines'])}",
            "cycles": stage["cycles"],
        }
        for stage in sample["stages"]
    ]


def _lines(lines: Sequence[int]) -> str:
    phrases = [f"{count} from {place}" for count, place in zip(lines, _SERVED_LINES, strict=True) if count]
    return f" ({', '.join(phrases)})" if phrases else ""
