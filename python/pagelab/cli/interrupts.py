"""Ctrl-C while a program runs under a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Deferred:
    """Whether Ctrl-C was pressed meanwhile."""

    pressed = False


@contextmanager
def deferred_interrupts() -> Iterator[Deferred]:
    """Lets what is written meanwhile become whole: Ctrl-C is noted, and is for the caller to act on afterwards."""
    deferred = Deferred()

    def note(*_: object) -> None:
        deferred.pressed = True

    previous = signal.getsignal(signal.SIGINT)
    # One that is ignored is so for a program that runs meanwhile, too.
    if previous != signal.SIG_IGN:
        signal.signal(signal.SIGINT, note)
    try:
        yield deferred
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def interrupts_for_the_program() -> Iterator[None]:
    """Ctrl-C ends the program that runs meanwhile, and not this command, which prints what is known then."""
    with deferred_interrupts():
        yield
