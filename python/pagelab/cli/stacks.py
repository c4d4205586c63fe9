"""`pagelab stacks`: which callers and which allocations pay for paging."""

import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pagelab import UsageError
from pagelab.call_stacks import annotate, callgrind, flame, folded, listing, pprof
from pagelab.call_stacks.cost import METRICS, Cost, total
from pagelab.call_stacks.document import has_stacks
from pagelab.call_stacks.stacks import CallStacks, Stack, frames_of
from pagelab.cli.terminal import output_width, warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.quantities import size_text
from pagelab.results.results import Results, SystemResult
from pagelab.results.table import short
from pagelab.results.windows import is_sampled

_WIDTH = 100
"""Columns of tables that are not limited by a terminal"""


class By(StrEnum):
    """The grouping of costs."""

    CALLER = "caller"
    FUNCTION = "function"
    ALLOCATION = "allocation"
    MAPPING = "mapping"


class Format(StrEnum):
    """The output format."""

    TABLE = "table"
    FOLDED = "folded"
    PPROF = "pprof"
    CALLGRIND = "callgrind"
    SVG = "svg"


class Metric(StrEnum):
    """The metric by which stacks are sorted and drawn; the keys of `METRICS`."""

    CYCLES = "cycles"
    WALKS = "walks"
    TRANSLATION_CYCLES = "translation_cycles"
    FAULTS = "faults"
    FAULT_CYCLES = "fault_cycles"


_ACCESSES = (By.CALLER, By.FUNCTION)
"""Groupings of accesses; the others are groupings of memory"""
_CONTENTS = {
    Format.FOLDED: "folded stacks",
    Format.PPROF: "a pprof profile",
    Format.CALLGRIND: "a Callgrind profile",
    Format.SVG: "a flame graph",
    Format.TABLE: "a table",
}
"""The name of each for `ensure_ending`"""


def command(
    file: Annotated[
        Path, typer.Argument(metavar="RESULT", help="A result file of `pagelab run --profile --json FILE`.")
    ],
    system: Annotated[
        str | None,
        typer.Option(
            "--system", "-s", metavar="SYSTEM", help="Which system of the results; default: the first one with stacks."
        ),
    ] = None,
    by: Annotated[
        By,
        typer.Option(
            help="caller: the call stacks of accesses. function: functions including their callees. allocation: where "
            "the accessed memory was allocated. mapping: the same, for memory from mmap only."
        ),
    ] = By.CALLER,
    metric: Annotated[
        Metric,
        typer.Option(help="The metric to sort and draw stacks by; cycles: those of translation and page faults."),
    ] = Metric.CYCLES,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="folded: for flamegraph.pl and speedscope. pprof: for `go tool pprof`. callgrind: for "
            "callgrind_annotate and KCachegrind. svg: a flame graph.",
        ),
    ] = Format.TABLE,
    annotated: Annotated[
        str | None,
        typer.Option(
            "--annotate", metavar="NAME", help="Print the source lines of a function or source file with their costs."
        ),
    ] = None,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--sources", metavar="FOLDER", help="An additional folder to search for source files; repeatable."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Number of rows.")] = 10,
    depth: Annotated[int, typer.Option(min=0, metavar="N", help="Number of callers per stack.")] = 8,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=f"Write to a file. {MISSING_FOLDERS}")
    ] = None,
) -> None:
    """Show which callers and which allocations cause paging costs, from results with call stacks.

    A program is recorded with `pagelab record --stacks`, and replayed with `pagelab run --profile --json FILE`.
    """
    _ensure_possible(by, format_, annotated, sources or [])
    if output:
        ensure_apart(output, file)
        ensure_ending(output, _CONTENTS[format_])
        ensure_writable(output)
    elif format_ is Format.PPROF and sys.stdout.isatty():
        raise UsageError("a pprof profile is binary: write it to a file with -o FILE.pb.gz")
    if file.is_dir():
        raise UsageError(f"{file}: a folder; `pagelab run --profile --json FILE {file}` makes results of a trace")
    results = Results.load(file)
    result = _choose(results, system, file)
    stacks = CallStacks.from_result(result, results)
    _warn(result, stacks, results)
    chosen = _chosen(stacks, by)
    # Accesses have the same costs as the memory that they go to.
    whole = total(stack.cost for stack in (stacks.callers if by in _ACCESSES else stacks.sites))
    key = metric.value
    title = f"{' and '.join(source.name for source in result.sources if source.role == 'main')} under {result.label}"
    if format_ is Format.PPROF:
        _write(output, pprof.render(chosen, key, f"{title}, by {by}"))
    elif format_ is Format.CALLGRIND:
        _write(output, callgrind.render(chosen, key, f"{title}, by {by}"))
    elif format_ is Format.FOLDED:
        _write(output, folded.render(chosen, key))
    elif format_ is Format.SVG:
        _write(output, flame.render(chosen, key, f"Paging of {title}, by {by}"))
    else:
        width = (output_width() if output is None else None) or _WIDTH
        if annotated:
            lines = annotate.annotate(chosen, annotated, key, whole, sources or [])
        else:
            table = _table(chosen, by, key, whole, listing.Layout(rows, depth, width))
            lines = [_summary(title, whole), "", *table]
        _write(output, "".join(f"{line}\n" for line in lines))


def _ensure_possible(by: By, format_: Format, annotated: str | None, sources: Sequence[Path]) -> None:
    if by is By.FUNCTION and format_ is not Format.TABLE:
        raise UsageError(f"--by function is a table; --format {format_} takes caller, allocation or mapping")
    if annotated and format_ is not Format.TABLE:
        raise UsageError(f"--annotate prints source lines: leave out --format {format_}")
    if annotated and by is By.FUNCTION:
        raise UsageError(
            "--annotate works with --by caller, allocation or mapping: it shows the callees of each line anyway"
        )
    if sources and not annotated:
        raise UsageError("--sources works only with --annotate NAME")
    for folder in sources:
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder to look for source files in")


def _choose(results: Results, system: str | None, file: Path) -> SystemResult:
    """The requested system, or the first one with call stacks."""
    if system is None:
        return next((result for result in results.systems if has_stacks(result)), results.systems[0])
    try:
        return results[system]
    except KeyError as error:
        raise UsageError(f"{file}: {error.args[0]}") from None


def _chosen(stacks: CallStacks, by: By) -> Sequence[Stack]:
    if by in _ACCESSES:
        return stacks.callers
    if by is By.ALLOCATION:
        return stacks.sites
    return [stack for stack in stacks.sites if stack.kind == "mapping"]


def _warn(result: SystemResult, stacks: CallStacks, results: Results) -> None:
    """Prints what is missing in the stacks, and why functions have no names."""
    if is_sampled(result.stats):
        warn("only parts of the program were recorded: page faults between them belong to no stack")
    elif _lacks_large_pages(result) and results.request and not results.request.warm_up:
        warn(f"no memory was in large pages under {result.label}: all costs are for pages of 4 KiB")
    files = {frame.file for frame in frames_of(stacks.callers)} - {""}
    if files and not stacks.has_symbols:
        if shutil.which("addr2line"):
            warn("no function has a name: the programs' files are stripped, missing, or newer than the recording")
        else:
            warn("no function has a name because addr2line is missing: install binutils")


def _lacks_large_pages(result: SystemResult) -> bool:
    """Whether a system that maps large pages where it can has mapped none since counting began."""
    layers = [layer["name"] for layer in result.config["system"]["layers"] if layer["page_size"] != "4K"]
    made = [result.stats.get(f"layer.{name}.pages.{size}", 0) for name in layers for size in ("2M", "1G")]
    return bool(layers) and not any((*made, result.stats.get("khugepaged.collapsed", 0)))


def _summary(title: str, cost: Cost) -> str:
    return (
        f"{title}: {short(cost.walks)} walks with {short(cost.translation_cycles)} cycles of translation, "
        f"{short(cost.faults)} page faults with {short(cost.fault_cycles)}"
    )


def _table(stacks: Sequence[Stack], by: By, metric: str, whole: Cost, layout: listing.Layout) -> list[str]:
    if not any(stack.cost.get(metric) for stack in stacks):
        return [f"No {METRICS[metric]} in any of these stacks."]
    make = {By.CALLER: listing.callers, By.FUNCTION: listing.functions}.get(by, listing.sites)
    return make(stacks, metric, whole, layout)


def _write(output: Path | None, content: str | bytes) -> None:
    if output:
        write_atomically(output, content)
        print(f"{output}: {size_text(output.stat().st_size)}")
    elif isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    else:
        print(content, end="")
