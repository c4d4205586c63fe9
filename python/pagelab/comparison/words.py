"""A comparison as tables and sentences, for the console and as Markdown."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagelab.call_stacks.stacks import without_arguments
from pagelab.comparison.changes import Changes, Row, SystemComparison
from pagelab.comparison.intervals import Change, Interval
from pagelab.comparison.limits import EXCEEDED, UNDECIDED, WITHIN, Verdict
from pagelab.comparison.metrics import METRICS
from pagelab.comparison.places import CodePlace, change_at
from pagelab.quantities import size_text
from pagelab.results.table import short

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_MOST_PLACES = 10
_SMALL = 0.002
"""Places whose cycles changed by less than this share of the largest change are summed up."""
_MOST_PARTS = 3
_LONGEST_NAME = 36
_OUTCOMES = {
    EXCEEDED: "exceeded",
    WITHIN: "within the limit",
    UNDECIDED: "undecided: the limit lies within the interval",
}


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column is left-aligned, the others right-aligned."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def to_rich(self) -> "RichTable":
        """For a console."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            header_style="bold",
            title=Text(self.title, style="bold"),
            title_justify="left",
            caption=Text(self.note) if self.note else None,
            caption_style="",
            caption_justify="left",
        )
        for number, heading in enumerate(self.headings):
            table.add_column(Text(heading), justify="right" if number else "left", no_wrap=True)
        for row in self.rows:
            # Square brackets in a name are no markup.
            table.add_row(*map(Text, row))
        return table

    def to_markdown(self) -> str:
        """For a summary or a comment of a CI."""
        lines = [
            f"**{escaped(self.title)}**",
            "",
            _line(self.headings),
            _line(["---", *["--:"] * (len(self.headings) - 1)]),
        ]
        lines += [_line([escaped(cell) for cell in row]) for row in self.rows]
        return "\n".join([*lines, *(["", escaped(self.note)] if self.note else []), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text as it is, in Markdown: no table, emphasis, link, code or HTML comes of it."""
    for mark in "\\`*_[]|<>#~":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def parts(comparison: Changes) -> Iterator[str | Table]:
    """The printed text, the most important part first."""
    yield f"A: {comparison.a.name}\nB: {comparison.b.name}"
    several = len(comparison.systems) > 1
    for system in comparison.systems:
        yield f"{f'{system.label}: ' if several else ''}{headline(system)}"
    if comparison.verdicts:
        yield _limits(comparison.verdicts, several=several)
    if comparison.differences:
        lines = [f"  {'! ' if each.voids else ''}{each.describe()}" for each in comparison.differences]
        void = any(each.voids for each in comparison.differences)
        head = (
            "Not only the program differs. The settings marked with ! may cause changes, too:"
            if void
            else "Also different:"
        )
        yield "\n".join([head, *lines])
    yield "\n".join(comparison.notes)
    for system in comparison.systems:
        first = system.a.first
        seeds = ", ".join(map(str, dict.fromkeys(system.a.seeds + system.b.seeds)))
        yield _figures(f"Totals: {system.label} on {first.machine}, seed {seeds}", system.totals)
        yield _figures("Cycles by class", system.classes)
        for title, places in (("By mapping", system.mappings), ("By function", system.functions)):
            if places:
                yield _places(title, places, system)


def headline(system: SystemComparison) -> str:
    """What changed, in a sentence or two."""
    cycles = next((row.change for row in system.totals if row.metric == "cycles"), None)
    every = [row.change for row in (*system.totals, *system.classes)]
    if all(change.difference == 0 and _decides(change.interval) for change in every):
        return "Nothing changed: all totals are the same."
    if cycles is None:
        return "Busy cycles were not counted."
    unit = " per 1,000 instructions" if system.a.is_sampled else ""
    if not _decides(cycles.interval):
        return (
            f"No clear change of busy cycles{unit}: {_percent(cycles)}, "
            f"with a 95 % interval from {_share(cycles.relative_interval)}."
        )
    if cycles.difference == 0:
        return f"B takes as many busy cycles{unit} as A; other totals changed."
    much = f"{_percent(cycles).lstrip('+−')} {'more' if cycles.difference > 0 else 'fewer'} busy cycles{unit} than A"
    if cycles.relative is not None and cycles.relative >= 1:
        much = f"{1 + cycles.relative:.3g} times as many busy cycles{unit} as A"
    between = f" (95 %: {_share(cycles.relative_interval)})" if _has_width(cycles.relative_interval) else ""
    return f"B takes {much}{between}, {signed(cycles.difference)}: {_largest(system.classes)}.{_where(system)}"


def _has_width(interval: Interval | None) -> bool:
    return interval is not None and interval[0] < interval[1]


def _decides(interval: Interval | None) -> bool:
    """Whether an interval, if there is one, leaves 0 out or is 0 alone."""
    return interval is None or interval[0] > 0 or interval[1] < 0 or interval[0] == interval[1]


def _largest(classes: Sequence[Row]) -> str:
    """The classes that changed most."""
    changed = sorted(classes, key=lambda row: -abs(row.change.difference))[:_MOST_PARTS]
    most = abs(changed[0].change.difference) if changed else 0
    named = [row for row in changed if abs(row.change.difference) >= 0.02 * most and row.change.difference]
    return ", ".join(f"{row.name} {signed(row.change.difference)}" for row in named)


def _where(system: SystemComparison) -> str:
    """The mapping and the function in which paging changed most."""
    phrases = []
    for places in (system.mappings, system.functions):
        changed = [(change_at(one, "paging_cycles", system.a, system.b).difference, one) for one in places]
        if changed:
            difference, place = max(changed, key=lambda item: abs(item[0]))
            if difference:
                size = f", {_sizes(place)}" if place.kind == "mapping" and _sizes(place) else ""
                phrases.append(f"{_short_name(place)} ({signed(difference)}{size})")
    return f" Paging changed most in {' and in '.join(phrases)}." if phrases else ""


def _figures(title: str, rows: Sequence[Row]) -> Table:
    shown = _without_repetition([row for row in rows if row.change.a or row.change.b])
    with_interval = any(row.change.interval for row in shown)
    return Table(
        title,
        ["", "A", "B", "change", "%", *(["95 % interval, %"] if with_interval else [])],
        [
            [
                row.name,
                _value(row, row.change.a),
                _value(row, row.change.b),
                _difference(row),
                _percent(row.change),
                *([_interval(row)] if with_interval else []),
            ]
            for row in shown
        ],
    )


def _without_repetition(rows: Sequence[Row]) -> list[Row]:
    """Leaves out elapsed cycles of a single CPU that never idles, and minor faults where there are no others."""
    changes = {row.metric: row.change for row in rows}
    same = {
        metric
        for metric, whole in (("elapsed_cycles", "cycles"), ("minor_faults", "faults"))
        if changes.get(metric) == changes.get(whole)
    }
    return [row for row in rows if row.metric not in same]


def _value(row: Row, value: float) -> str:
    ratio = row.metric in METRICS and METRICS[row.metric].unit == "ratio"
    return f"{value:,.2f}" if ratio or (value < 100 and value != int(value)) else short(value)


def _difference(row: Row) -> str:
    difference = row.change.difference
    if not difference:
        return "0"
    return f"{'+' if difference > 0 else '−'}{_value(row, abs(difference))}"


def _interval(row: Row) -> str:
    return _share(row.change.relative_interval) if row.change.relative_interval else "–"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{'+' if value >= 0 else '−'}{short(abs(value))}"


def _percent(change: Change) -> str:
    if change.relative == 0:
        return "same"
    return "new" if change.relative is None else _as_percent(change.relative)


def _as_percent(value: float) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{sign}<0.1 %"
    return f"{sign}{100 * size:.1f} %" if size < 10 else f"{sign}{100 * size:,.0f} %"


def _share(interval: Interval | None) -> str:
    if interval is None:
        return "an unknown share"
    if interval[0] == interval[1]:
        return "exact"
    return f"{_as_percent(interval[0]).removesuffix(' %')} to {_as_percent(interval[1])}"


def _places(title: str, places: Sequence[CodePlace], system: SystemComparison) -> Table:
    def change(place: CodePlace, metric: str) -> Change:
        return change_at(place, metric, system.a, system.b)

    ordered = sorted(places, key=lambda one: -abs(change(one, "paging_cycles").difference))
    changed = [
        one for one in ordered if any(change(one, metric).difference for metric in ("paging_cycles", "walks", "faults"))
    ]
    least = _SMALL * abs(change(ordered[0], "paging_cycles").difference)
    shown = [one for one in changed if abs(change(one, "paging_cycles").difference) >= least][:_MOST_PLACES]
    rest = changed[len(shown) :]
    mapped = places[0].kind == "mapping"
    notes = []
    if rest:
        total = sum(change(one, "paging_cycles").difference for one in rest)
        notes.append(f"{len(rest)} more changed, together {signed(total)} cycles.")
    if same := len(places) - len(changed):
        notes.append(f"{same} unchanged.")
    return Table(
        f"{title}: address translation and page faults",
        ["", *(["size"] if mapped else []), "walks", "faults", "paging cycles", "change", "%"],
        [_place(one, change, mapped=mapped) for one in shown],
        " ".join(notes),
    )


def _place(place: CodePlace, change: Callable[[CodePlace, str], Change], *, mapped: bool) -> list[str]:
    cycles = change(place, "paging_cycles")
    return [
        _short_name(place),
        *([_sizes(place)] if mapped else []),
        *(_both(change(place, metric)) for metric in ("walks", "faults")),
        _both(cycles),
        signed(cycles.difference),
        _percent(cycles),
    ]


def _both(change: Change) -> str:
    before, after = short(change.a), short(change.b)
    return before if before == after else f"{before} → {after}"


def _sizes(place: CodePlace) -> str:
    sizes = [place.size_a, place.size_b]
    if sizes == [None, None]:
        return ""
    before, after = ("none" if size is None else size_text(size) for size in sizes)
    return before if before == after else f"{before} → {after}"


def _short_name(place: CodePlace) -> str:
    """A long C++ name without its arguments: limits take it, too."""
    long = place.kind == "function" and len(place.name) > _LONGEST_NAME
    return shortened(without_arguments(place.name) if long else place.name)


def shortened(name: str) -> str:
    """A name cut in its middle if it is long."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _limits(verdicts: Sequence[Verdict], *, several: bool) -> Table:
    return Table(
        "Limits",
        ["fails if", *(["system"] if several else []), "A", "B", "change", "95 % interval", "outcome"],
        [
            [
                verdict.limit.text,
                *([verdict.system] if several else []),
                *(short(value) if value >= 100 else f"{value:.4g}" for value in (verdict.change.a, verdict.change.b)),
                _amount(verdict),
                _limit_interval(verdict),
                _OUTCOMES[verdict.outcome],
            ]
            for verdict in verdicts
        ],
    )


def _amount(verdict: Verdict) -> str:
    return _percent(verdict.change) if verdict.limit.relative else signed(verdict.change.difference)


def _limit_interval(verdict: Verdict) -> str:
    change = verdict.change
    if verdict.limit.relative:
        return _share(change.relative_interval) if change.relative_interval else "none"
    if change.interval is None:
        return "none"
    return f"{signed(change.interval[0])} to {signed(change.interval[1])}" if _has_width(change.interval) else "exact"


def result(comparison: Changes) -> str:
    """The outcome, for the last line."""
    if not comparison.verdicts:
        return "No limits were set: --fail-if 'walks>+3%' sets one."
    exceeded = sum(verdict.outcome == EXCEEDED for verdict in comparison.verdicts)
    number = len(comparison.verdicts)
    undecided = len(comparison.undecided)
    noisy = f"; {undecided} cannot be decided, more --seeds or --repeat narrow the intervals" if undecided else ""
    return f"{exceeded} of {number} limit{'s' * (number != 1)} exceeded{noisy}."


def markdown(comparison: Changes) -> str:
    """A heading, the result, and the same tables."""
    marks = "❌ a limit is exceeded" if comparison.status else "✅ within limits" if comparison.verdicts else ""
    if not comparison.status and comparison.undecided:
        marks = "⚠️ not decided"
    lines = [f"### pagelab compare{f': {marks}' if marks else ''}", ""]
    for part in parts(comparison):
        if isinstance(part, Table):
            lines += [part.to_markdown()]
        else:
            # Two blanks at its end keep a line.
            lines += ["  \n".join(escaped(line) for line in part.splitlines()), ""]
    return "\n".join([*lines, escaped(result(comparison)), ""])
