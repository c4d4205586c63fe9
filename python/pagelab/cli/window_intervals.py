"""Headline figures of windows, as tables of the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pagelab.quantities import counted
from pagelab.results.results import Results, SystemResult
from pagelab.results.windows import Figure, digits, is_sampled, program_faults, scope


def intervals(results: Results) -> list[str | Table]:
    """The headline figures of windows with 95 % intervals, and what they cover; none for whole programs."""
    sampled = [result for result in results.systems if is_sampled(result.stats)]
    if not sampled:
        return []
    number, sample = len(sampled[0].windows), sampled[0].sample
    rows = [{figure.name: str(figure) for figure in result.figures()} for result in sampled]
    for row, result in zip(rows, sampled, strict=True):
        row["faults of the whole program"] = f"{program_faults(result.stats):,}"
    parts: list[str | Table] = [
        scope(number, None if sample is None else sample.describe(number)),
        _table(sampled, rows),
    ]
    longer = [
        {figure.name: text for figure in result.figures() if (text := _warmed_longer(figure))} for result in sampled
    ]
    if sample is not None and any(longer):
        windows = counted(len(sample.longer), "window that is", "windows that are")
        times = sample.longer_warm // sample.warm
        parts += [f"The {windows} warmed up {times} times as long differ from the others by", _table(sampled, longer)]
    return parts


def _table(results: Sequence[SystemResult], columns: Sequence[Mapping[str, str]]) -> Table:
    """A row per figure, a column per system."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for result in results:
        # Square brackets in a label are no markup.
        table.add_column(Text(result.label), justify="right")
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "–") for column in columns))
    return table


def _warmed_longer(figure: Figure) -> str | None:
    """The change of a figure by a longer warm-up, as a share of it."""
    if figure.longer is None or figure.value == 0:
        return None
    difference, half_width = (
        100 * part / figure.value for part in (figure.longer.difference, figure.longer.half_width)
    )
    return f"{digits(difference, 2, '+')} ± {digits(half_width, 2)} %"
