"""An observation on a page of the terminal, 100 columns wide but for commands, which can be copied whole."""

import io
import platform
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagelab.observe import address_use, changes
from pagelab.observe.conclusions import Conclusions
from pagelab.observe.heat import curve, heat_map, merged, shades
from pagelab.observe.kernel_code import OTHER
from pagelab.observe.nodes import Topology
from pagelab.observe.pressure import EVENTS
from pagelab.observe.time_shares import Share
from pagelab.observe.verdict import Judgement
from pagelab.observe.words import cost_lines, fault_line, missing_lines, walk_line
from pagelab.quantities import counted, size_text

WIDTH = 100
TIME = ("", "of the CPU time", "95 % interval")
CODE = ("function", "called from", "line", "faults", "of all")
_MOST_REGIONS = 12
_MOST_LOOKS = 12
_MOST_CODE = 8
_COLUMNS = 56
_LEAST_PART = 0.005


def page(conclusions: Conclusions) -> str:
    """The whole page, the verdict first."""
    parts = [
        _head(conclusions),
        _verdict(conclusions),
        _time(conclusions),
        _memory(conclusions),
        _changes(conclusions),
        _over_time(conclusions),
        _heat(conclusions),
        _address_use(conclusions),
        _code(conclusions),
        _machine(conclusions),
        wrapped(missing_lines(conclusions), bullet="* "),
    ]
    titles = (
        *("", "Verdict", "Where the CPU time goes", "Memory", "What changes could save", "Over time"),
        *("Used memory over time", "Use by address (DAMON)", "Code that faults", "", "Not known here"),
    )
    return "\n\n".join(
        f"{title}\n\n{part}" if title else part for title, part in zip(titles, parts, strict=True) if part
    )


def wrapped(lines: Sequence[str], bullet: str = "") -> str:
    """Lines of at most the width of a page; what follows a bullet is indented."""
    indent = " " * len(bullet)
    return "\n".join(textwrap.fill(bullet + line, WIDTH, subsequent_indent=indent) for line in lines)


def _head(conclusions: Conclusions) -> str:
    return wrapped(head_lines(conclusions))


def head_lines(conclusions: Conclusions) -> list[str]:
    """What was observed, and what observing cost."""
    seen = conclusions.observation
    ended = " (it has ended)" if seen.ended else " (interrupted)" if seen.interrupted else ""
    processes = f", {len(seen.pids)} processes" if len(seen.pids) > 1 else ""
    title = (
        f"{seen.title}: {seen.seconds:.1f} s observed{ended}, {seen.totals.cpu_seconds:.2f} s of CPU time{processes}, "
        f"{platform.system()} {platform.release()}"
    )
    return [title, *cost_lines(conclusions)]


def _verdict(conclusions: Conclusions) -> str:
    kind = conclusions.kind.value
    lines = wrapped([f"{kind[0].upper()}{kind[1:]}: {conclusions.reason}."])
    facts = wrapped([fault_line(conclusions), walk_line(conclusions)], bullet="* ")
    recipes = "\n".join(f"    {line}" for line in conclusions.recipes)
    intro = "To record just that, of a copy that is started for it:\n" if recipes else ""
    return "\n".join(part for part in (lines, facts, intro + recipes) if part)


def _time(conclusions: Conclusions) -> str:
    return _rendered(TIME, time_rows(conclusions))


def _rendered(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table, or nothing if it has no rows."""
    table = borderless(*titles, left=left)
    for row in rows:
        table.add_row(*row)
    return _render(table) if rows else ""


def time_rows(conclusions: Conclusions) -> list[tuple[str, ...]]:
    """Where the CPU time goes, under the headings of `TIME`; nothing if it is not known."""
    times = conclusions.times
    # Without samples of the kernel, all others would be the program's own.
    if times.missing or not times.activities:
        return []
    names = {OTHER: "other work of the kernel"}
    rows = [(names.get(name, name), *_shares(share)) for name, share in times.activities.items()]
    parts = [(f"  {name}", *_shares(share)) for name, share in times.parts.items() if share.share >= _LEAST_PART]
    return [*rows, *([("of that, in the kernel:", "", "")] if parts else []), *parts]


def _shares(share: Share) -> tuple[str, str]:
    return f"{share.share:.1%}", f"{share.low:.1%} to {share.high:.1%}"


def _memory(conclusions: Conclusions) -> str:
    judged = conclusions.judgements[:_MOST_REGIONS]
    if not judged:
        return ""
    titles = memory_titles(conclusions)
    table = borderless("", *titles[1:], left=(0, 1, len(titles) - 1))
    for one in judged:
        table.add_row(*memory_row(one, conclusions))
    others = len(conclusions.judgements) - len(judged)
    more = [f"… and {others} more (--json has them)"] if others else []
    return "\n".join([_render(table), *more, *_wrapped_each(details(judged, conclusions.observation.looks.topology))])


def _several(conclusions: Conclusions) -> bool:
    return len(conclusions.observation.looks.regions) > 1


def memory_titles(conclusions: Conclusions) -> tuple[str, ...]:
    """The headings of `memory_row`."""
    process = ("process",) if _several(conclusions) else ()
    return ("memory", "at", *process, "size", "resident", "huge", "used", "faults", "verdict")


def memory_row(judged: Judgement, conclusions: Conclusions) -> tuple[str, ...]:
    """What memory it is, where, of which process if there are several, its sizes, faults and verdict."""
    region, amounts = judged.region, judged.region.largest
    used = "–" if region.most_used is None else size_text(region.most_used)
    place = f"{region.begin:#x}" if not region.small else counted(region.mappings, "mapping", "mappings")
    return (
        shortened(region.label, 16 if _several(conclusions) else 18),
        place,
        *([str(region.pid)] if _several(conclusions) else []),
        size_text(amounts.size),
        size_text(amounts.resident),
        size_text(amounts.huge),
        used,
        f"{region.faults:,.0f}",
        judged.kind.value,
    )


def shortened(label: str, columns: int = 18) -> str:
    """A label in so many columns: of a path, its last part."""
    label = label.rpartition("/")[2] if label.startswith("/") else label
    return label if len(label) <= columns else f"{label[: columns - 1]}…"


def _wrapped_each(lines: Iterable[str]) -> list[str]:
    return [wrapped([line], bullet="* ") for line in lines]


def details(judged: Sequence[Judgement], nodes: Topology) -> Iterator[str]:
    """A line for each of which there is more to say than its row does."""
    for one in judged:
        sizes = (changes.page_text(one.region), changes.node_text(one.region, nodes))
        parts = [*_facts(one), *filter(None, sizes)]
        if parts:
            place = f"{shortened(one.region.label)} at {one.region.begin:#x}"
            yield f"{place}: {'; '.join(parts)}"


def _facts(judged: Judgement) -> Iterator[str]:
    region, layout = judged.region, judged.region.layout
    if judged.traits:
        yield ", ".join(judged.traits)
    if judged.saving and judged.saving.high >= _LEAST_PART:
        yield f"fewer faults by larger pages save 0 to {judged.saving.high:.1%} of the CPU time"
    if "sparse" in judged.traits:
        yield f"huge pages would add up to {size_text(judged.growth)}"
    if "cold huge pages" in judged.traits:
        yield f"at least {size_text(judged.cold_huge)} of its huge pages were not used in the median interval"
    if layout and layout.contiguity and layout.contiguity.groups and judged.traits:
        yield f"{layout.contiguity.pte_lines_per_group:.2f} lines of PTEs per group of 8 pages"
    if region.last.swapped:
        yield f"{size_text(region.last.swapped)} in swap"
    if region.last.shared >= max(region.last.resident // 2, 1):
        yield f"{size_text(region.last.shared)} shared with other processes"


def _changes(conclusions: Conclusions) -> str:
    rows = changes.shown(conclusions)
    table = borderless(*changes.TITLES, left=(0, 1, 5))
    for one in rows[: changes.MOST_ROWS]:
        table.add_row(*changes.row(one))
    others = len(rows) - changes.MOST_ROWS
    more = [f"… and {others} more (--json has them)"] if others > 0 else []
    parts = [_render(table)] if rows else []
    return "\n".join([*parts, *more, wrapped(list(changes.lines(conclusions)), bullet="* ")])


def _over_time(conclusions: Conclusions) -> str:
    totals = conclusions.observation.looks.totals()
    if not totals:
        return ""
    step = -(-len(totals) // _MOST_LOOKS)
    shown = [*totals[:-1:step], totals[-1]]
    table = borderless("second", "resident", "huge", "swapped", "shared", "used", "in the last", left=())
    for look, amounts in shown:
        used = "–" if amounts.used is None else size_text(amounts.used)
        interval = "–" if look.interval_seconds is None else f"{look.interval_seconds:.2f} s"
        sizes = (amounts.resident, amounts.huge, amounts.swapped, amounts.shared)
        table.add_row(f"{look.seconds:.2f}", *map(size_text, sizes), used, interval)
    return _render(table)


def _heat(conclusions: Conclusions) -> str:
    """The working set, and a line of the heat map per mapping; a column is an interval, or the most of several."""
    heat = heat_map(conclusions.observation.looks)
    known = [used for used in heat.working_set if used is not None]
    if not known:
        return ""
    table = borderless("at", "resident", "used", left=(0, 2))
    most = f"{size_text(min(known))} to {size_text(max(known))}"
    table.add_row("working set", most, curve(merged(heat.working_set, _COLUMNS)))
    hottest = sorted(heat.rows, key=lambda row: -(row.region.most_used or 0))[:_MOST_REGIONS]
    for row in heat.rows:
        if row in hottest:
            place = f"{row.region.begin:#x}" if not row.region.small else shortened(row.region.label, 14)
            table.add_row(place, size_text(row.region.largest.resident), shades(merged(row.parts, _COLUMNS)))
    begin, end = heat.intervals[0].begin, heat.intervals[-1].end
    others = len(heat.rows) - len(hottest)
    more = f"; {others} more mappings are in --json" if others else ""
    note = (
        f"Second {begin:.1f} to {end:.1f}, {len(heat.intervals)} intervals. Blank: less than 1 % of the mapping was "
        f"used, ░ to 25 %, ▒ to 50 %, ▓ to 90 %, █ more, · unknown{more}."
    )
    return f"{_render(table)}\n{wrapped([note])}"


def monitored(conclusions: Conclusions) -> list[Judgement]:
    """The mappings of 2 MiB or more of the process that DAMON monitors, the first one."""
    first = next(iter(conclusions.observation.pids), None)
    return [one for one in conclusions.judgements if one.region.pid == first and not one.region.small]


def _address_use(conclusions: Conclusions) -> str:
    """A line per mapping of 2 MiB or more of the process that DAMON monitors; a column is a part of its addresses."""
    seen = conclusions.observation
    if not seen.address_use:
        return ""
    table = borderless("at", "size", "part of the looks that saw an access", left=(0, 2))
    regions = [one.region for one in monitored(conclusions)[:_MOST_REGIONS]]
    for region in sorted(regions, key=lambda one: one.begin):
        parts = address_use.columns(seen.address_use, region.begin, region.end, _COLUMNS)
        table.add_row(f"{region.begin:#x}", size_text(region.end - region.begin), shades(parts))
    note = (
        f"Mean of {len(seen.address_use)} snapshots. Each line goes from the first address of a mapping to its last "
        "one. Blank: less than 1 %, ░ to 25 %, ▒ to 50 %, ▓ to 90 %, █ more, · unknown. Memory whose translations stay "
        "in a TLB seems unused."
    )
    return f"{_render(table)}\n{wrapped([note])}"


def _code(conclusions: Conclusions) -> str:
    return _rendered(CODE, code_rows(conclusions), left=(0, 1, 2))


def code_rows(conclusions: Conclusions) -> list[tuple[str, ...]]:
    """The code that faults most, under the headings of `CODE`."""
    total = max(conclusions.observation.totals.faults, 1)
    return [
        (
            shortened(one.function.text, 40),
            shortened(one.caller.text if one.caller else "", 24),
            shortened(one.function.line.rpartition("/")[2]),
            f"{one.faults:,.0f}",
            f"{one.faults / total:.1%}",
        )
        for one in conclusions.code[:_MOST_CODE]
    ]


def _machine(conclusions: Conclusions) -> str:
    seen = conclusions.observation
    events = [f"{value:,} {EVENTS[name]}" for name, value in seen.pressure.events.items() if value > 0]
    lines = [f"The whole machine, meanwhile: {', '.join(events)}."] if events else []
    if seen.pressure.stalled_us is not None:
        of_group = "its group" if seen.group_pressure else "the machine"
        times = {kind: value / 1e6 / max(seen.seconds, 1e-9) for kind, value in seen.pressure.stalled_us.items()}
        lines.append(
            f"Memory pressure (PSI) of {of_group}: some task waited for it during {times.get('some', 0):.1%} of the "
            f"time, all of them during {times.get('full', 0):.1%}."
        )
    return wrapped(lines)


def drawn(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text."""
    table = borderless(*titles)
    for row in rows:
        table.add_row(*row)
    return _render(table)


def borderless(*titles: str, left: Sequence[int] = (0,)) -> Table:
    """A table without lines; the columns named in `left` are aligned to the left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number in left else "right", no_wrap=True)
    return table


def _render(table: Table) -> str:
    # Square brackets in names are not markup.
    for column in table.columns:
        column._cells = [Text(cell) if isinstance(cell, str) else cell for cell in column._cells]
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
