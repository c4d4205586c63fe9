"""Options that choose the stretches of a program to record."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pagelab.capture.stretches import Stretches
from pagelab.quantities import count

Skip = Annotated[
    str | None, typer.Option("--skip", metavar="N", help="Skip the program's first N instructions, such as 2G.")
]
Windows = Annotated[
    str | None,
    typer.Option(
        "--windows",
        metavar="every=N,length=N[,warm=N][,offset=N|random][,seed=N]",
        help="Record a window of `length` instructions in each period of `every`.",
    ),
]
StartAt = Annotated[
    list[str] | None,
    typer.Option(
        "--start-at",
        metavar="FUNCTION[#N]",
        help="Start recording when this function is called: SYMBOL, OBJECT:SYMBOL or an address; #N for its Nth call; "
        "repeatable.",
    ),
]
StopAt = Annotated[
    list[str] | None,
    typer.Option("--stop-at", metavar="FUNCTION[#N]", help="Stop recording when this function is called; repeatable."),
]
Follow = Annotated[
    str | None,
    typer.Option(
        "--follow",
        metavar="K/N",
        help="Record one in N child processes that execute a program: the Kth of each N, such as 1/20.",
    ),
]
StartOnSignal = Annotated[
    bool,
    typer.Option(
        "--start-on-signal", help="Start recording when this process receives SIGUSR1, stop when it receives SIGUSR2."
    ),
]


def stretches_of(
    skip: str | None,
    windows: str | None,
    start_at: Sequence[str] | None,
    stop_at: Sequence[str] | None,
    *,
    start_on_signal: bool,
) -> Stretches | None:
    """The stretches that the options choose; none without such options."""
    if skip is None and windows is None and not start_at and not stop_at and not start_on_signal:
        return None
    return Stretches(count("--skip", skip, least=1), windows, start_at or (), stop_at or (), start_on_signal)
