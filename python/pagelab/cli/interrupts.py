"""Ctrl-C while a program runs under a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_for_the_program() -> Iterator[None]:
    """Ctrl-C ends the program that runs meanwhile, and not this command, which prints what is known then."""
    previous = signal.getsignal(signal.SIGINT)
    # One that is ignored is so for the program, too.
    if previous != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
