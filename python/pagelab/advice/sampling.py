"""A sample of a long recording, which is replayed in place of all of it.

Models: about a hundred periods, each with a window after as much that warms it up (`docs/sampling.md`). Of what lies
    between, the sample keeps events, first touches and last touches.
Deviations: choices, which `docs/advice.md` compares with whole replays: recordings of ten million accesses and more are
    sampled; a window is a fiftieth of its period, but no shorter than 20,000 instructions.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pagelab.advice.subject import Subject
from pagelab.length import Length
from pagelab.traces import save_sample, trace_info

LEAST_ACCESSES = 10_000_000
"""Shorter recordings are replayed in seconds"""
_PERIODS = 100
_LEAST_WINDOW = 20_000
_WINDOW = 50
"""A window is one part in so many of its period"""


def windows_of(instructions: int) -> str:
    """The windows of a program of so many instructions, as samples name them."""
    every = max(instructions // _PERIODS, 1)
    length = min(max(every // _WINDOW, _LEAST_WINDOW), max(every // 4, 1))
    return f"every={every},length={length},warm={length}"


def can_be_sampled(subject: Subject, max_accesses: int | None = None) -> bool:
    """Whether it is a long recording of a program, without gaps and with the instructions between accesses."""
    accesses = min(subject.accesses, max_accesses or subject.accesses)
    return subject.is_whole and accesses >= LEAST_ACCESSES and subject.recorded_instructions > 0


def sampled(
    subject: Subject,
    folder: Path,
    max_accesses: int | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Subject:
    """Saves a sample of a recording in `folder`, and says what is to be replayed in its place.

    Raises:
        TraceError: the recording cannot be read.
    """
    part = min(max_accesses / subject.accesses, 1.0) if max_accesses else 1.0
    output = folder / f"{Path(subject.source).stem}-sample.trace"
    windows = windows_of(int(part * subject.recorded_instructions))
    save_sample(subject.source, output, sample=windows, max_accesses=max_accesses, progress=progress)
    length = Length.of(trace_info(output))
    return replace(
        subject,
        source=str(output),
        length=replace(length, known=subject.length.known and not max_accesses),
        is_whole=False,
        is_sampled=True,
    )
