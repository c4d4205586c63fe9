"""Options that say which stretches of a program are recorded."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pagelab.counts import count
from pagelab.results import Results, SystemResult
from pagelab.stretches import Figure, Stretches, is_sampled, program_faults, scope

Skip = Annotated[
    str | None, typer.Option("--skip", metavar="N", help="Skip the program's first N instructions, such as 2G.")
]
Windows = Annotated[
    str | None,
    typer.Option(
        "--windows",
        metavar="every=N,length=N[,warm=N][,offset=N|random][,seed=N]",
        help="Record a window of so many instructions in each period.",
    ),
]
StartAt = Annotated[
    list[str] | None,
    typer.Option(
        "--start-at",
        metavar="FUNCTION[#N]",
        help="Start where it is called: SYMBOL, OBJECT:SYMBOL or an address; #N for its Nth call; repeatable.",
    ),
]
StopAt = Annotated[
    list[str] | None,
    typer.Option("--stop-at", metavar="FUNCTION[#N]", help="Stop where it is called; repeatable."),
]
Follow = Annotated[
    str | None,
    typer.Option(
        "--follow",
        metavar="K/N",
        help="Of each N children that execute a program, record the one of number K; such as 1/20.",
    ),
]
StartOnSignal = Annotated[
    bool,
    typer.Option("--start-on-signal", help="Start when this process gets SIGUSR1, stop when it gets SIGUSR2."),
]


def stretches_of(
    skip: str | None,
    windows: str | None,
    start_at: Sequence[str] | None,
    stop_at: Sequence[str] | None,
    *,
    start_on_signal: bool,
) -> Stretches | None:
    """What the options say; none if there is none of them."""
    if skip is None and windows is None and not start_at and not stop_at and not start_on_signal:
        return None
    return Stretches(count("--skip", skip, least=1), windows, start_at or (), stop_at or (), start_on_signal)


def interval_lines(results: Results) -> list[str]:
    """The headline figures of windows with 95 % intervals, a line per system; none for whole programs."""
    sampled = [result for result in results.systems if is_sampled(result.stats)]
    if not sampled:
        return []
    return [_heading(sampled[0]), *(line for result in sampled for line in _lines(result))]


def _heading(result: SystemResult) -> str:
    number = len(result.windows)
    return scope(number, None if result.sample is None else result.sample.describe(number))


def _lines(result: SystemResult) -> list[str]:
    found = result.figures()
    texts = [f"{of} {of.name}" for of in found]
    faults = program_faults(result.stats)
    lines = [f"{result.label}: {', '.join(texts)}; {faults:,} faults of the whole program"]
    longer = [text for of in found if (text := _warmed_longer(of)) is not None]
    if result.sample is not None and longer:
        number, times = len(result.sample.longer), result.sample.longer_warm // result.sample.warm
        lines.append(
            f"{result.label}: the {number} windows that are warmed up {times} times as long differ from the others by "
            f"{', '.join(longer)}"
        )
    return lines


def _warmed_longer(of: Figure) -> str | None:
    """What a longer warm-up changes of a figure, as a share of it."""
    if of.longer is None or of.value == 0:
        return None
    difference, half_width = (100 * part / of.value for part in (of.longer.difference, of.longer.half_width))
    return f"{difference:+.2g} ± {half_width:.2g} % in {of.name}"
