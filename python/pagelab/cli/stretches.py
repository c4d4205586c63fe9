"""Options that say which stretches of a program are recorded."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pagelab.counts import count
from pagelab.results import Results
from pagelab.stretches import Stretches, figures, is_sampled, program_faults, scope

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
    """The headline figures of recorded windows with 95 % intervals, a line per system; none for whole programs."""
    lines: list[str] = []
    for result in results.systems:
        if not is_sampled(result.stats):
            continue
        if not lines:
            lines.append(scope(len(result.windows)))
        texts = [f"{of} {of.name}" for of in figures(result.windows)]
        faults = program_faults(result.stats)
        lines.append(f"{result.label}: {', '.join(texts)}; {faults:,} faults of the whole program")
    return lines
