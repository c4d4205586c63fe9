"""`pagelab mrc`: misses of TLBs and caches of every size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pagelab import UsageError
from pagelab.cli.run import Json
from pagelab.cli.terminal import Quiet, print_table, progress_bars, warn
from pagelab.mrc.curves import LINE_SIZE, PAGE_SIZES, STREAMS, Curve, MissRatioCurves, miss_ratio_curves
from pagelab.mrc.marks import Mark, marks_of
from pagelab.mrc.sample import TOO_MUCH, SampleQuality, sample_quality
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.quantities import count, size_text

_TIMES = (10, 100, 1000)
_ERRORS = (0.1, 0.05, 0.02)
"""Errors for which a sample size is suggested, as shares of a curve's misses"""


def command(
    source: Annotated[str, typer.Argument(metavar="TRACE|WORKLOAD", help="The accesses to analyse.")],
    page_sizes: Annotated[
        str, typer.Option("--page-sizes", metavar="SIZE,SIZE…", help="Page sizes, powers of two; or none.")
    ] = ",".join(PAGE_SIZES),
    line_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a cache line; or none.")] = str(LINE_SIZE),
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="RATE|N",
            help="Analyse only a fraction of the pages, such as 0.01, or at most N pages per curve, such as 8K.",
        ),
    ] = None,
    ways: Annotated[
        int | None,
        typer.Option(min=1, help="Number of ways; default: fully associative."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option("--machine", "-m", help="The machine whose TLBs and caches are marked.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of a workload and of the sample; default: 1.")] = None,
    max_accesses: Annotated[
        str | None,
        typer.Option("--max-accesses", "--max", metavar="N", help="Analyse at most N accesses, such as 100M."),
    ] = None,
    json: Json = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|png|pdf", help=f"Draw the curves; needs matplotlib. {MISSING_FOLDERS}"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show how many misses TLBs and caches of every size would have, for each page size."""
    destination = Path(json) if json not in (None, "-") else None
    if destination:
        ensure_ending(destination, "JSON")
        ensure_writable(destination)
    if picture is not None:
        from pagelab.mrc.picture import ensure_drawable

        ensure_drawable(picture)
        ensure_writable(picture)
    ensure_apart(destination, picture)
    marks = marks_of(machine)
    with progress_bars(quiet=quiet) as progress:
        curves = miss_ratio_curves(
            source,
            page_sizes=[] if page_sizes == "none" else page_sizes.split(","),
            line_size=None if line_size == "none" else line_size,
            sample=sample,
            seed=seed,
            max_accesses=count("--max-accesses", max_accesses, least=1),
            sizes=sorted({mark.entries for mark in marks}),
            ways=ways,
            progress=progress,
        )
    if not curves.accesses:
        raise UsageError(f"{source} has no accesses")
    if destination:
        write_atomically(destination, curves.to_json())
    if picture is not None:
        from pagelab.mrc.picture import draw

        write_atomically(picture, draw(curves, marks, picture.suffix[1:]))
    quality = sample_quality(curves, marks)
    if quality is not None and quality.is_too_small:
        warn(_too_small(quality))
    if not curves.source.complete:
        warn(f"{curves.source.name}: the recording was cut off")
    if json == "-":
        print(curves.to_json(), end="")
    else:
        _show(curves, marks)
        if quality is not None:
            print(_sizes_of_samples(quality))


def _too_small(quality: SampleQuality) -> str:
    needed = f"±{100 * TOO_MUCH:.0f} % takes about --sample {quality.pages(TOO_MUCH)}"
    if quality.unknown:
        return f"the sample is too small for any estimate of {', '.join(quality.unknown)}; {needed}"
    return f"the sample is too small: misses may be off by ±{100 * (quality.error or 0):.0f} % of all; {needed}"


def _sizes_of_samples(quality: SampleQuality) -> str:
    """The error of this sample, and the samples that would have smaller errors."""
    lines = []
    if quality.error is not None:
        lines.append(f"At the named sizes, the error is at most ±{100 * quality.error:.2g} %.")
    sizes = ", ".join(f"{quality.pages(error)} (±{100 * error:.0f} %)" for error in _ERRORS)
    lines.append(f"For a smaller error, about: --sample {sizes}")
    return "\n".join(lines)


def _show(curves: MissRatioCurves, marks: Sequence[Mark]) -> None:
    unit, whole = ("instructions", curves.instructions) if curves.instructions else ("accesses", curves.accesses)
    print(f"{curves.source.name}: {curves.accesses:,} accesses, {curves.instructions:,} instructions")
    associativity = f"{curves.options['ways']} ways (estimated)" if curves.options["ways"] else "fully associative"
    print(f"misses per 1,000 {unit}; {associativity}, least recently used")
    for stream, title in STREAMS.items():
        stream_curves = curves.of_stream(stream)
        if stream_curves and stream_curves[0].changes and all(curve.is_empty for curve in stream_curves):
            print(f"\n{title}: the sample contains none of its pages")
        elif stream_curves and stream_curves[0].changes:
            print()
            print_table(_table(title, stream_curves, [mark for mark in marks if mark.stream == stream], 1000 / whole))
    if any(curve.sample_rate < 1 for curve in curves.curves):
        print("\n±: possible error of the sample; ?: unknown")


def _table(title: str, curves: Sequence[Curve], marks: Sequence[Mark], scale: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    of_lines = curves[0].stream == "data-cache"
    table.add_column(title, justify="right")
    for curve in curves:
        table.add_column(size_text(curve.granule_bytes), justify="right")
    if marks:
        table.add_column("")
    for entries in _rows(curves, marks):
        label = size_text(entries * curves[0].granule_bytes) if of_lines else f"{entries:,}"
        names = ", ".join(mark.name for mark in marks if mark.entries == entries)
        table.add_row(label, *(_misses(curve, entries, scale) for curve in curves), *([names] if marks else []))
    table.add_row("")
    for times in _TIMES:
        by_curve = [curve.entries_for(times) for curve in curves]
        if any(by_curve):
            cells = (_size(curve, entries, of_lines) for curve, entries in zip(curves, by_curve, strict=True))
            table.add_row(f"{times:,}× fewer", *cells)
    table.add_row("no limit", *("?" if curve.is_empty else _number(curve.first_references * scale) for curve in curves))
    return table


def _rows(curves: Sequence[Curve], marks: Sequence[Mark]) -> list[int]:
    """Powers of two, times the ways if given, until no curve falls any more; and the marks."""
    sizes = {size for curve in curves for size in curve.sizes}
    first, marked = min(sizes), {mark.entries for mark in marks} & sizes
    last = max(marked | {curve.enough for curve in curves})
    # No cache is smaller than 4 KiB.
    least = 4096 // curves[0].granule_bytes if curves[0].stream == "data-cache" else 1
    powers = {first << shift for shift in range(last.bit_length() + 1)}
    return sorted(size for size in powers | marked if least <= size < 2 * last)


def _misses(curve: Curve, entries: int, scale: float) -> str:
    at = curve.at(entries)
    misses = curve.shown[at]
    if curve.sample_rate == 1 or curve.misses_with_ways:
        return _number(misses * scale)
    if not curve.is_known(at):
        return "?"
    off = max(curve.most_misses[at] - misses, misses - curve.least_misses[at])
    return f"{_number(misses * scale)}±{_number(off * scale)}"


def _size(curve: Curve, entries: int | None, of_lines: bool) -> str:
    if entries is None:
        return "–"
    return size_text(entries * curve.granule_bytes) if of_lines else f"{entries:,}"


def _number(value: float) -> str:
    """Three digits or more."""
    if value == 0:
        return "0"
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.995 else f"{value:.2g}"
