"""Results as one page of HTML, complete in a single file."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from pagelab.output import write_atomically
from pagelab.report import charts, code, executive, glossary, memory, settings, stacks, templates, words
from pagelab.report.figures import name_of, percent
from pagelab.report.parts import Lead
from pagelab.results.results import Results, SystemResult
from pagelab.results.table import html_comparison
from pagelab.results.windows import is_sampled, program_faults, scope

_WORDS = Markup("<!-- words -->")
"""Address of the page that lists the explained words"""
_MOST_COLUMNS = 4
"""Systems per table of all figures, so that a table fits a narrow screen"""
_SMALL, _LEAST_SHOWN = 0.01, 5
"""Rows below this share of the whole are folded, except for a few"""


@dataclass(frozen=True)
class Figure:
    """A chart and its description in words."""

    title: str
    caption: str
    spec: charts.Spec

    @property
    def json(self) -> Markup:
        # What could end the script element is written as an escape of JSON.
        return Markup(json.dumps(self.spec).replace("<", "\\u003c"))


@dataclass(frozen=True)
class Inside:
    """A profile's part about one system."""

    label: str
    stacks: stacks.StackPart | None
    """None without call stacks"""
    regions: Sequence[memory.MemoryRow]
    regions_note: str
    pages: Sequence[memory.MemoryRow]
    pages_note: str
    code: Sequence[code.CodeRow]
    code_notes: Sequence[str]
    has_lines: bool
    """Whether any place in the code is known to the line"""
    timelines: Sequence[Figure]


@dataclass(frozen=True)
class Sampled:
    """Headline figures of recorded windows, by system."""

    scope: str
    systems: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    """The name of a figure, with its value and interval under each system"""


@dataclass(frozen=True)
class Chapter:
    """All about one run."""

    title: str
    machine: str
    summary: Sequence[str]
    """For readers who read nothing else"""
    mebibytes: Sequence[executive.Cost]
    """Costs per fault and per MiB, by system"""
    mebibytes_note: str
    costs: Sequence[str]
    comparisons: Sequence[tuple[str, str, str]]
    first: str
    sampled: Sampled | None
    """None if the whole program was recorded"""
    warnings: Sequence[str]
    trust: Sequence[str]
    overview: Sequence[Figure]
    over_time: Sequence[Figure]
    distributions: Sequence[Figure]
    inside: Sequence[Inside]
    has_steps: bool
    """Whether any walk or fault can be shown step by step"""
    tables: Sequence[Markup]
    """All figures, of a few systems each"""
    systems: Sequence[SystemResult]
    differences: Sequence[tuple[str, Sequence[str]]]
    estimates: Sequence[tuple[str, str]]
    configurations: Sequence[tuple[str, str]]
    command: str
    whole_command: bool
    """Whether it repeats the same run; in results of older versions, settings are missing"""
    seed: int


def write(path: str | os.PathLike[str], runs: Sequence[Results], *, lead: Lead | None = None) -> None:
    """Writes the page for some runs to a file, completely or not at all.

    Args:
        path: The file.
        runs: The runs that it shows.
        lead: Parts that come before everything else; the runs are then the replays behind them.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(Path(path), render(runs, lead=lead))


def render(runs: Sequence[Results], *, lead: Lead | None = None) -> str:
    """The page for some runs, each with all its systems, as HTML.

    The same runs give the same bytes as long as the files that symbols are looked up in stay the same.
    """
    # Tests check the charts against Vega-Lite's schema. For each page it would take seconds.
    with charts.without_checks():
        chapters = [_chapter(run, lead) for run in runs]
    environment = templates.environment()
    environment.filters["code_marked"] = _code_marked
    environment.filters["folded"] = _folded
    page: str = environment.get_template("template.html").render(
        heading=f"Paging of {' and '.join(dict.fromkeys(chapter.title for chapter in chapters))}",
        chapters=chapters,
        lead=lead,
        words=_WORDS,
        **templates.shared(),
    )
    words_used = environment.get_template("words.html").render(words=glossary.words_in(page))
    return page.replace(_WORDS, words_used, 1)


def _code_marked(text: str) -> Markup:
    """A text in which backticks enclose code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _folded(rows: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], str]:
    """The rows that are shown, the small ones, and the share of these."""
    shown = [row for at, row in enumerate(rows) if at < _LEAST_SHOWN or row.part >= _SMALL]
    small = rows[len(shown) :]
    return shown, small, percent(sum(row.part for row in small))


def _comparison_tables(results: Sequence[SystemResult]) -> list[Markup]:
    """All figures: the first system in each table, as ratios are to it."""
    first, *others = [(result.label, result.stats) for result in results]
    step = _MOST_COLUMNS - 1
    parts = [others[at : at + step] for at in range(0, len(others), step)] or [[]]

    def explain(match: re.Match[str]) -> str:
        return f"{match[1]}{glossary.explained(Markup(match[2]))}"

    return [Markup(re.sub(r"(text-align:left\">)([^<]*)", explain, html_comparison([first, *part]))) for part in parts]


def _chapter(run: Results, lead: Lead | None) -> Chapter:
    first = run.systems[0]
    profiled = [result for result in run.systems if result.profile]
    inside = [_inside(result, run) for result in profiled]
    mebibytes, note = executive.costs(run.systems)
    return Chapter(
        title=lead.name if lead else name_of(first),
        machine=first.machine,
        summary=[words.of_replays(first)] if lead else executive.sentences(run.systems),
        mebibytes=mebibytes,
        mebibytes_note=note,
        costs=words.costs(first),
        comparisons=words.comparisons(run.systems),
        first=first.label,
        sampled=_sampled(run.systems),
        warnings=run.warnings,
        trust=[*words.trust(run.systems), *words.orders(run)],
        overview=_overview(run.systems),
        over_time=_over_time(run.systems),
        distributions=_distributions(profiled),
        inside=inside,
        has_steps=any(inner.timelines for inner in inside),
        tables=_comparison_tables(run.systems),
        systems=run.systems,
        differences=settings.differences(run.systems),
        estimates=settings.estimates(run.systems),
        configurations=[(result.label, settings.whole(result)) for result in run.systems],
        command=settings.command(run),
        whole_command=run.request is not None,
        seed=first.seed,
    )


def _sampled(results: Sequence[SystemResult]) -> Sampled | None:
    sampled = [result for result in results if is_sampled(result.stats)]
    if not sampled:
        return None
    columns = [{figure.name: str(figure) for figure in result.figures()} for result in sampled]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, [column.get(name, "–") for column in columns]) for name in names]
    rows.append(("faults of the whole program", [f"{program_faults(result.stats):,}" for result in sampled]))
    number, sample = len(sampled[0].windows), sampled[0].sample
    of_a_sample = None if sample is None else sample.describe(number)
    return Sampled(scope(number, of_a_sample), [result.label for result in sampled], rows)


def _overview(results: Sequence[SystemResult]) -> list[Figure]:
    figures = [
        Figure(
            "Where the cycles go",
            "All busy cycles by class, relative to the first system. Waiting means: for other threads, where the "
            "recorded order requires it, and for faults that other CPUs handle.",
            charts.cycles(results),
        )
    ]
    if any(result.stats.get("walk.count") for result in results):
        figures.append(
            Figure(
                "What a page walk reads",
                "References per completed walk, by layer and level of the page table (leaves are level 1), coloured "
                "by the cache or memory that served them. Levels that MMU caches held are omitted, and so are "
                "entries that fewer than one walk in 200 reads.",
                charts.walk_references(results),
            )
        )
    if any(result.stats.get("fault.cycles") for result in results):
        figures.append(
            Figure(
                "What a page fault costs",
                "Cycles per page fault of the program, by stage of the handler, from exception to return. They "
                "include the work of hosts.",
                charts.fault_stages(results),
            )
        )
    return figures


def _over_time(results: Sequence[SystemResult]) -> list[Figure]:
    if not any(len(result.windows) > 1 for result in results):
        return []
    return [Figure(title, "", spec) for title, spec in charts.over_time(results)]


def _distributions(results: Sequence[SystemResult]) -> list[Figure]:
    figures = []
    for kind, title in (("walks", "How long page walks take"), ("faults", "How long page faults take")):
        if any(_profile(result)[kind]["latencies"] for result in results):
            caption = "The percentage that took at most this many cycles."
            figures.append(Figure(title, caption, charts.latencies(results, kind)))
    return figures


def _inside(result: SystemResult, run: Results) -> Inside:
    regions, regions_note = memory.regions(result)
    pages, pages_note = memory.pages(result)
    rows, notes = code.rows(result)
    lines = any(row.line for row in rows)
    return Inside(
        result.label,
        stacks.make(result, run),
        regions,
        regions_note,
        pages,
        pages_note,
        rows,
        notes,
        lines,
        _timelines(result),
    )


_REFERENCES = (
    "Page faults, reference by reference",
    "Faults chosen at random, with the work of their handlers in order. Each piece is a reference, or the "
    "instructions of a step. Its length is the time that it adds to the fault; its colour is the farthest place "
    "that held its lines. The strip below shows the stages. A page that is cleared or copied is one reference.",
)


_SLOWEST = ("The slowest page fault, reference by reference", "Drawn in the same way, on a separate axis.")


def _timelines(result: SystemResult) -> list[Figure]:
    figures = []
    about = {
        "walks": (
            "Walks, step by step",
            "Walks chosen at random, and below them the slowest. Each piece is a reference, coloured by where it "
            "was served; the rest is time in MMU caches and nested TLBs, or overlap.",
        ),
        "faults": (
            "Page faults, step by step",
            "Faults chosen at random, and below them the slowest. Each piece is a stage, with the lines that it "
            "referred to; the rest is waiting and the walks around it.",
        ),
    }
    for kind, (title, caption) in about.items():
        recorded = _profile(result)[kind]
        if recorded["slowest"]:
            samples = [*recorded["samples"], recorded["slowest"]]
            figures.append(Figure(title, caption, charts.steps(samples, kind)))
            # Results of versions before there were steps have none.
            if kind == "faults" and all("steps" in sample for sample in samples):
                if recorded["samples"]:
                    figures.append(Figure(*_REFERENCES, charts.fault_steps(recorded["samples"])))
                figures.append(Figure(*_SLOWEST, charts.fault_steps([recorded["slowest"]], slowest=True)))
    return figures


def _profile(result: SystemResult) -> dict[str, Any]:
    return result.profile or {}
