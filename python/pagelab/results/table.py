"""The table that puts systems side by side.

Rates and shares are derived here, from the engine's raw counts. A row appears if any of the systems counted it. Units
stand in the labels, so that four systems fit 80 columns.
"""

import html
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from pagelab.results.headline import user_ipc

Stats: TypeAlias = Mapping[str, int]
Value: TypeAlias = Callable[[Stats], float | None]

# Widths in columns: of the labels, of the first system and of each further one, whose values are followed by ratios.
_LABELS, _FIRST, _FURTHER, _GAP = 24, 8, 13, 2

_CLASSES = {
    "base": "instructions",
    "data_stall": "data",
    "translation": "translation",
    "fetch": "fetched instructions",
    "branch": "mispredicted branches",
    "sibling": "hardware threads",
    "fault": "page faults",
    "kernel": "other kernel work",
    "lock_wait": "other CPUs' faults",
    "blocked": "other threads",
    "io": "devices",
    "stolen": "interrupts",
}
SERVED = {
    "l1": "L1",
    "l2": "L2",
    "l3": "L3",
    "dram": "memory",
    "remote": "another core",
    "uncached": "no cache",
}
# Where the caches of the own core did not hold a line.
_BEYOND_L2 = ("l3", "remote", "dram")
STAGES = ("entry", "lookup", "walk", "allocation", "zeroing", "charge", "rmap", "lru", "install", "return")
IO_STAGES = ("submit", "switch", "completion", "wakeup")
"""Of kernels whose requests to devices cost something"""
_FAULT_KINDS = {
    "zero_page.count": "reads of zero page",
    "cached.count": "of cached files",
    "copy.count": "copies on write",
    "reuse.count": "no longer shared",
}
_ENGINE = ".fault_engine."
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Row:
    """A line of the table: how it is computed from the counts and how it is written."""

    label: str
    value: Value
    write: Callable[[float], str]
    ratio: bool = False
    """Whether the other systems' values are also given as multiples of the first's."""


@dataclass(frozen=True)
class Section:
    """Rows under a heading."""

    title: str
    rows: Sequence[Row]


System: TypeAlias = tuple[str, Stats]
Heading: TypeAlias = tuple[str, str]
"""What stands above a system's column, and what of it stands below the table, if anything."""


def comparison(systems: Sequence[System], width: int = 80, *, first: System | None = None) -> Table:
    """The systems' statistics as columns; ratios are against `first`, or else the first of the systems.

    Names of systems are wrapped to keep within `width` columns of text. Four systems fit 80; more take 15 each.
    Settings stand below the table, by the numbers that the names have there.
    """
    return _comparison(systems, headings([label for label, _ in systems]), width, first or systems[0])


def _comparison(systems: Sequence[System], heads: Sequence[Heading], width: int, first: System) -> Table:
    _, base = first
    widths = [_FURTHER if stats is not base else _FIRST for _, stats in systems]
    spare = max(width - _LABELS - sum(_GAP + column for column in widths), 0) // len(systems)
    notes = [line for _, note in heads for line in textwrap.wrap(note, width, subsequent_indent="    ")]
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        padding=(0, _GAP, 0, 0),
        # They may be longer than the table is wide.
        caption=Text("\n".join(["", *notes]), no_wrap=True, overflow="ignore") if notes else None,
        caption_style="",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for (name, _), column in zip(heads, widths, strict=True):
        table.add_column(Text(wrap_name(name, column + spare)), justify="right", no_wrap=True)
    for title, lines in _evaluate([stats for _, stats in systems], base):
        table.add_section()
        table.add_row(Text(title, style="bold"))
        for label, cells in lines:
            table.add_row(f"  {label}", *(_joined(*cell) for cell in cells))
    return table


def blocks(systems: Sequence[System], width: int) -> list[Table]:
    """The comparison in tables of `width` columns at most, one below the other; each has one system at least."""
    further = _GAP + _FURTHER
    begin = 1 + max((width - _LABELS - _GAP - _FIRST) // further, 0)
    step = max((width - _LABELS) // further, 1)
    parts = [slice(begin), *(slice(at, at + step) for at in range(begin, len(systems), step))]
    heads = headings([label for label, _ in systems])
    return [_comparison(systems[part], heads[part], width, systems[0]) for part in parts]


def headings(labels: Sequence[str]) -> list[Heading]:
    """For each label its name, and what stands below the table: settings would be wrapped in the middle of words."""
    listed: list[Heading] = []
    for label in labels:
        name, brace, settings = label.partition("{")
        if not brace:
            listed.append((label, ""))
            continue
        mark = f"({1 + sum(bool(note) for _, note in listed)})"
        settings, _, number = settings.rpartition("}")
        listed.append((f"{name}{number} {mark}", f"{mark} {name}: {', '.join(_settings(settings))}"))
    return listed


def _settings(text: str) -> list[str]:
    """The settings of a label, between the commas that are in no bracket."""
    depth = 0
    parts = [""]
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def html_comparison(systems: Sequence[System]) -> str:
    """The table as HTML."""
    head = "".join(f"<th>{html.escape(label)}</th>" for label, _ in systems)
    lines = []
    for title, rows in _evaluate([stats for _, stats in systems], systems[0][1]):
        lines.append(f'<tr><th colspan="{len(systems) + 1}" style="text-align:left">{html.escape(title)}</th></tr>')
        for label, cells in rows:
            indented = html.escape(label).replace("  ", "&emsp;")
            values = "".join(f"<td>{html.escape(' '.join(filter(None, cell)))}</td>" for cell in cells)
            lines.append(f'<tr><td style="text-align:left">{indented}</td>{values}</tr>')
    body = "\n".join(lines)
    return f"<table>\n<thead><tr><th></th>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def sections(systems: Sequence[Stats]) -> list[Section]:
    """The sections of the table; rows that depend on layers and levels follow the names that were counted."""
    names = list(dict.fromkeys(name for stats in systems for name in stats))
    engines = any(_ENGINE in name for name in names)
    stages = STAGES + tuple(stage for stage in IO_STAGES if f"fault.stage.{stage}.cycles" in names)
    return [
        Section(
            "Program",
            [
                _count("accesses", "accesses"),
                _count("instructions", "instructions"),
                _count("accesses refused", "accesses.refused"),
            ],
        ),
        Section(
            "Time",
            [
                _count("elapsed cycles", "elapsed_cycles", ratio=True),
                *_busy(""),
                Row("busy cycles/access", _per_busy("accesses"), _decimal, ratio=True),
                *([Row("user IPC (estimate)", user_ipc, _decimal, ratio=True)] if engines else []),
                Row("% of CPU time idle", _per("cycles.idle", "cycles"), _percent),
            ],
        ),
        Section(
            "Main sources",
            [
                _count("elapsed cycles", "main.elapsed_cycles", ratio=True),
                *_busy("main."),
                _count("page walks", "main.walk.count", ratio=True),
                Row("  references per walk", _per("main.walk.refs", "main.walk.count"), _decimal, ratio=True),
                *_far("  ", "main.walk.refs"),
                _count("minor faults", "main.fault.minor.count", ratio=True),
            ],
        ),
        Section(
            "Beside them",
            [
                _count("co-runners ended", "co_runner.completed", ratio=True),
                _count("cycles of co-runners", "co_runner.cycles", ratio=True),
                _count("arrivals", "arrivals.count", ratio=True),
                Row("cycles, come to exit", _per("arrivals.sojourn.cycles", "arrivals.count"), short, True),
                _count("  50 % at most", "arrivals.sojourn.p50_cycles", ratio=True),
                _count("  99 % at most", "arrivals.sojourn.p99_cycles", ratio=True),
                _count("  all at most", "arrivals.sojourn.max_cycles", ratio=True),
            ],
        ),
        Section(
            "TLBs",
            [
                _share("% L1 data misses", "dtlb.l1.misses", "dtlb.l1.look_ups"),
                _share("% L2 data misses", "dtlb.l2.misses", "dtlb.l1.look_ups"),
                _count("L1 code misses", "itlb.l1.misses"),
                _share("% nested TLB misses", "nested_tlb.misses", "nested_tlb.look_ups"),
            ],
        ),
        Section(
            "Page walks",
            [
                _count("walks completed" if engines else "walks", "walk.count", ratio=True),
                Row("cycles per walk", _per("walk.cycles", "walk.count"), _decimal, ratio=True),
                Row("references per walk", _per("walk.refs", "walk.count"), _decimal, ratio=True),
                *_each(names, r"walk\.layer\.(.+)\.level(\d)\.refs", _level_row),
                *(_share(f"  % from {words}", f"walk.refs.{name}", "walk.refs") for name, words in SERVED.items()),
                *_far_by_layer(systems),
                *(_aborted() if engines else ()),
            ],
        ),
        Section(
            "Program's data in caches",
            [
                _share("% L1 misses", "l1d.misses.data", "cache.refs.data"),
                _share("% L2 misses", "l2.misses.data", "cache.refs.data"),
                _share("% L3 misses", "l3.misses.data", "cache.refs.data"),
            ],
        ),
        *_engines(names),
        Section(
            "Page faults",
            [
                _count("minor faults", "fault.minor.count", ratio=True),
                _count("major faults", "fault.major.count", ratio=True),
                _count("faults of the hosts", "fault.nested.count", ratio=True),
                *(_count(f"  {words}", f"fault.{name}") for name, words in _FAULT_KINDS.items()),
                _count("pages populated", "populate.pages"),
            ],
        ),
        Section(
            "Cycles per page fault",
            [
                Row("all stages", _per_fault("fault.cycles"), _decimal, ratio=True),
                *(Row(f"  {stage}", _per_fault(f"fault.stage.{stage}.cycles"), _decimal) for stage in stages),
                _share("% set by the preset", "fault.preset.cycles", "fault.cycles"),
                _share("% instructions at the core's rate", "fault.timed.cycles", "fault.cycles"),
            ],
        ),
        *_stages_by_layer(systems),
    ]


def wrap_name(label: str, width: int) -> str:
    """A system's name in lines of `width` characters at most, broken at its punctuation where it can be."""
    lines = [""]
    for part in re.findall(r"[@(]?[^-,=.@( ]+[-,=. ]?|.", label):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    lines = [line.rstrip() for line in lines]
    return "\n".join(line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width))


Cell: TypeAlias = tuple[str, str | None]
"""A value and its ratio, which is empty where it has none; none in the column that the others are compared with."""


def _evaluate(systems: Sequence[Stats], base: Stats) -> Iterator[tuple[str, list[tuple[str, list[Cell]]]]]:
    """Titles of sections with their labelled cells, without rows that nobody counted."""
    for section in sections([*systems, base]):
        rows = [(row, [row.value(stats) for stats in systems]) for row in section.rows]
        counted = [(row.label, list(_cells(row, values, systems, base))) for row, values in rows if any(values)]
        if counted:
            yield section.title, counted


def _cells(row: Row, values: Sequence[float | None], systems: Sequence[Stats], base: Stats) -> Iterator[Cell]:
    first = row.value(base)
    for value, stats in zip(values, systems, strict=True):
        written = "–" if value is None else row.write(value)
        if stats is base:
            yield written, None
        else:
            yield written, as_ratio(value / first) if row.ratio and first and value is not None else ""


def _joined(value: str, ratio: str | None) -> Text:
    """Values lie one below the other, and so do ratios."""
    cell = Text(value)
    if ratio is not None:
        cell.append(f"{ratio:>6}", style="dim")
    return cell


def _each(names: Sequence[str], pattern: str, row: Callable[[re.Match[str]], Row]) -> Iterator[Row]:
    return (row(match) for name in names if (match := re.fullmatch(pattern, name)))


def _level_row(match: re.Match[str]) -> Row:
    return Row(f"  {match[1]}, level {match[2]}", _per(match[0], "walk.count"), _decimal)


def _far(indent: str, refs: str) -> Iterator[Row]:
    """How many of a walk's references the caches of its own core did not serve, and how many no cache did."""
    yield Row(f"{indent}% beyond L2", _share_of([f"{refs}.{place}" for place in _BEYOND_L2], refs), _percent)
    yield _share(f"{indent}% from memory", f"{refs}.dram", refs)


def _far_by_layer(systems: Sequence[Stats]) -> Iterator[Row]:
    """The same of the walks' references to all tables, and to those of each layer of the systems that have several."""
    yield Row("  % beyond L2", _share_of([f"walk.refs.{place}" for place in _BEYOND_L2], "walk.refs"), _percent)
    levels = r"walk\.layer\.(.+)\.level\d\.refs"
    for layer, refs in _stacked(systems, levels).items():
        for words, places in (("beyond L2", _BEYOND_L2), ("from memory", ("dram",))):
            parts = [f"{level}.{place}" for level in refs for place in places]
            yield Row(f"    {layer}, % {words}", _share_of(parts, *refs), _percent)


def _aborted() -> Iterator[Row]:
    """Walks that ended in a miss. The kernel's way makes them again and completes them; an engine's way does not."""
    yield _count("walks aborted", "walk.aborted.count", ratio=True)
    yield Row("cycles per aborted", _per("walk.aborted.cycles", "walk.aborted.count"), _decimal, ratio=True)
    cycles = ["walk.cycles", "walk.aborted.cycles"]
    yield Row("walk cycles/access", _share_of(cycles, "accesses"), _decimal, ratio=True)


def _engines(names: Sequence[str]) -> Iterator[Section]:
    """What the fault engine of each layer did. The engines count the same under names of their own."""
    layers = list(
        dict.fromkeys(match[1] for name in names if (match := re.match(r"layer\.(.+?)\.fault_engine\.", name)))
    )
    for layer in layers:
        prefix = f"layer.{layer}{_ENGINE}"
        mapped = [f"{prefix}{name}" for name in ("mapped", "hits", "huge.hits")]
        left = [f"{prefix}{name}" for name in ("empty", "misses", "huge.misses", "failed", "gone", "raced")]
        accounted = ("kpted.pages", "accounted", "huge.accounted", "accounted_by_calls", "huge.accounted_by_calls")
        # What a unit, a walker or a call ahead of an access takes.
        took = [f"{prefix}{name}" for name in ("latency", "mapped", "ahead.mapped")]
        cycles = [f"{name}.cycles" for name in took]
        yield Section(
            "Fault engine" if len(layers) == 1 else f"Fault engine, {layer}",
            [
                Row("pages mapped", _sum_of(mapped), short, ratio=True),
                Row("  cycles each", _mean(cycles, mapped), _decimal, ratio=True),
                Row("  50 % at most", _sum_of([f"{name}.p50" for name in took]), short),
                Row("  95 % at most", _sum_of([f"{name}.p95" for name in took[1:]]), short),
                Row("  99 % at most", _sum_of([f"{name}.p99" for name in took]), short),
                _count("  waited for a register", f"{prefix}full"),
                _count("joined another miss", f"{prefix}joined"),
                Row("left to the kernel", _sum_of(left), short, ratio=True),
                Row("  no page ready", _sum_of(left[:3]), short),
                _count("  read failed", f"{prefix}failed"),
                Row("  entry had changed", _sum_of(left[4:]), short),
                Row("pages accounted for", _sum_of([f"{prefix}{name}" for name in accounted]), short),
            ],
        )


def _stages_by_layer(systems: Sequence[Stats]) -> Iterator[Section]:
    """What faults cost in each layer of the systems that have several."""
    for layer in _stacked(systems, r"layer\.(.+)\.fault\.stage\.entry\.cycles"):
        faults = f"layer.{layer}.fault.count"
        stages = [f"layer.{layer}.fault.stage.{stage}.cycles" for stage in STAGES]
        rows = [Row("all stages", _share_of(stages, faults), _decimal, ratio=True)]
        rows += [
            Row(f"  {stage}", _per(cycles, faults), _decimal) for stage, cycles in zip(STAGES, stages, strict=True)
        ]
        yield Section(f"Cycles per fault, {layer}", rows)


def _stacked(systems: Sequence[Stats], pattern: str) -> dict[str, list[str]]:
    """The layers of systems that have several, each with its names of the pattern."""
    by_layer: dict[str, dict[str, None]] = {}
    for stats in systems:
        matches = [match for name in stats if (match := re.fullmatch(pattern, name))]
        if len({match[1] for match in matches}) > 1:
            for match in matches:
                by_layer.setdefault(match[1], {})[match[0]] = None
    return {layer: list(names) for layer, names in by_layer.items()}


def _sum_of(names: Sequence[str]) -> Value:
    """The sum of some counts; none where nobody counted any of them."""

    def value(stats: Stats) -> float | None:
        counts = [stats[name] for name in names if name in stats]
        return sum(counts) if counts else None

    return value


def _mean(parts: Sequence[str], wholes: Sequence[str]) -> Value:
    """The same as a quotient; none if either was not counted."""
    part, whole = _sum_of(parts), _sum_of(wholes)

    def value(stats: Stats) -> float | None:
        count, divisor = part(stats), whole(stats)
        return count / divisor if count is not None and divisor else None

    return value


def _share_of(parts: Sequence[str], *wholes: str) -> Value:
    """The sum of some counts divided by the sum of others; none if these were not counted."""

    def value(stats: Stats) -> float | None:
        whole = sum(stats.get(name, 0) for name in wholes)
        return sum(stats.get(name, 0) for name in parts) / whole if whole else None

    return value


def _count(label: str, name: str, *, ratio: bool = False) -> Row:
    return Row(label, lambda stats: stats.get(name), short, ratio)


def _share(label: str, part: str, whole: str) -> Row:
    return Row(label, _per(part, whole), _percent)


def _busy(prefix: str) -> Iterator[Row]:
    """The cycles in which CPUs were not idle, by class."""
    yield Row("busy cycles", _busy_cycles(prefix), short, ratio=True)
    for name, words in _CLASSES.items():
        yield Row(f"  % {words}", _quotient(f"{prefix}cycles.{name}", _busy_cycles(prefix)), _percent)


def _busy_cycles(prefix: str) -> Value:
    def value(stats: Stats) -> float | None:
        cycles = stats.get(f"{prefix}cycles")
        return None if cycles is None else cycles - stats.get(f"{prefix}cycles.idle", 0)

    return value


def _per_busy(whole: str) -> Value:
    def value(stats: Stats) -> float | None:
        busy = _busy_cycles("")(stats)
        return busy / stats[whole] if busy is not None and stats.get(whole) else None

    return value


def _per(part: str, whole: str) -> Value:
    return _quotient(part, lambda stats: stats.get(whole))


def _quotient(part: str, whole: Value) -> Value:
    def value(stats: Stats) -> float | None:
        divisor = whole(stats)
        return stats[part] / divisor if part in stats and divisor else None

    return value


def _per_fault(name: str) -> Value:
    def faults(stats: Stats) -> float:
        return sum(stats.get(f"fault.{kind}.count", 0) for kind in ("minor", "major", "nested"))

    return _quotient(name, faults)


def short(value: float) -> str:
    """Four digits or so: whole numbers as they are up to 9,999, then with a decimal prefix (12.35M)."""
    for size, prefix in _PREFIXES:
        if value >= max(size, 9_999.5):
            return f"{value / size:.4g}{prefix}"
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    """Three digits or more, two of them after the point if there is room."""
    return short(value) if value >= 999.995 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def cut_in_the_middle(text: str, width: int) -> str:
    """The start and the end of a text that is longer than `width`; long symbols may differ at either end."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def as_ratio(value: float) -> str:
    """A multiple with its sign: ×1.04."""
    if value < 0.005:
        return "×<.01" if value else "×0"
    return f"×{value:.2f}" if value < 9.995 else f"×{value:.1f}" if value < 99.95 else f"×{value:.0f}"


def _percent(value: float) -> str:
    return "<0.01" if 0 < value < 0.00005 else f"{100 * value:.2f}"
