"""An observation as one page of HTML, complete in a single file, with the scripts and the style of reports."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pagelab.call_stacks import flame
from pagelab.call_stacks.cost import Cost
from pagelab.call_stacks.stacks import Call, Frame, Location, Stack
from pagelab.observe import changes, charts, page
from pagelab.observe.conclusions import Conclusions
from pagelab.observe.heat import heat_map
from pagelab.observe.words import fault_line, missing_lines, walk_line
from pagelab.report import templates
from pagelab.report.charts import without_checks
from pagelab.report.page import Figure

_ESTIMATED = (
    "Estimated from samples. While sampling paused to keep the bound on cost, there are no bars, and the others are "
    "higher by as much."
)


@dataclass(frozen=True)
class Part:
    """A heading with charts, a table and remarks."""

    title: str
    id: str
    figures: Sequence[Figure] = ()
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    graph: Markup | None = None


def render(conclusions: Conclusions) -> str:
    """The page."""
    with without_checks():
        parts = [
            Part("Where the CPU time goes", "cpu", titles=page.TIME, rows=page.time_rows(conclusions)),
            _memory(conclusions),
            _over_time(conclusions),
            Part("Code that faults", "code", titles=page.CODE, rows=page.code_rows(conclusions)),
            _faults(conclusions),
            _changes(conclusions),
        ]
    missing = missing_lines(conclusions)
    if missing:
        parts.append(Part("Not known here", "missing", notes=missing))
    kind, title = conclusions.kind.value, conclusions.observation.title.strip("`")
    return (
        templates.environment("pagelab.observe")
        .get_template("observation.html")
        .render(
            heading=f"Observation of {title}",
            title=title,
            head=page.head_lines(conclusions),
            verdict=f"{kind[0].upper()}{kind[1:]}: {conclusions.reason}.",
            facts=[fault_line(conclusions), walk_line(conclusions)],
            commands=conclusions.recipes,
            parts=[part for part in parts if part.figures or part.rows or part.notes],
            **templates.shared(),
        )
    )


def _memory(conclusions: Conclusions) -> Part:
    nodes = conclusions.observation.looks.topology
    return Part(
        "Memory",
        "memory",
        titles=page.memory_titles(conclusions),
        rows=[page.memory_row(one, conclusions) for one in conclusions.judgements],
        notes=list(page.details(conclusions.judgements, nodes)),
    )


def _over_time(conclusions: Conclusions) -> Part:
    looks = conclusions.observation.looks
    heat = heat_map(looks)
    figures = []
    if looks.looks:
        caption = "Of all processes together. What was used is that of the interval that ends there."
        figures.append(Figure("Working set", caption, charts.working_set(looks)))
    if heat.intervals and heat.rows:
        caption = (
            "A row is a mapping of 2 MiB or more, in the order of addresses; a rectangle is an interval. The colour is "
            "the used part of the most that was resident. Where there is none, it is not known."
        )
        figures.append(Figure("Used memory by mapping and time", caption, charts.heat(heat)))
    use = conclusions.observation.address_use
    regions = [one.region for one in page.monitored(conclusions)]
    if use and regions:
        region = max(regions, key=lambda one: one.largest.resident)
        caption = "Of the mapping with the most memory: the part of DAMON's looks that saw an access."
        spec = charts.address_use(use, region.begin, region.end, conclusions.observation.seconds)
        figures.append(Figure(f"Use by address and time: {charts.name_of(region)}", caption, spec))
    return Part("Over time", "time", figures)


def _faults(conclusions: Conclusions) -> Part:
    seen = conclusions.observation
    if not len(seen.log):
        return Part("Page faults", "faults")
    figures = [
        Figure("Faults over time by mapping", _ESTIMATED, charts.faults_over_time(seen.log, seen.seconds)),
    ]
    number = charts.most_faulting(seen.log)
    if number is not None:
        title = f"Where in {charts.name_of(seen.log.regions[number])}"
        caption = "Of the mapping with the most faults: their addresses over time."
        figures.append(Figure(title, caption, charts.fault_addresses(seen.log, number, seen.seconds)))
    graph = flame.draw(_stacks(conclusions), "faults", "Flame graph of page faults")
    notes = [
        "Each bar is a function in one context, below the function that called it. Its width is the share of the "
        "sampled page faults in it and in what it called, as far as frame pointers lead. Point at a bar for its "
        f"figures. {graph.note}".strip()
    ]
    return Part("Page faults", "faults", figures, notes=notes, graph=Markup(graph.svg))


def _stacks(conclusions: Conclusions) -> list[Stack]:
    """The stacks of faults as those of results are."""
    stacks = []
    for code in conclusions.code:
        call: Call | None = None
        for frame in reversed(code.frames):
            source, _, line = frame.line.rpartition(":")
            number = int(line) if line.isdecimal() else 0
            named = Frame(frame.function, source or frame.line, number, frame.object)
            call = Call(Location(frame.object, 0, (named,)), call)
        if call is not None:
            stacks.append(Stack(call, Cost(faults=round(code.faults))))
    return stacks


def _changes(conclusions: Conclusions) -> Part:
    return Part(
        "What changes could save",
        "changes",
        titles=changes.TITLES,
        rows=[changes.row(one) for one in changes.shown(conclusions)],
        notes=list(changes.lines(conclusions)),
    )
