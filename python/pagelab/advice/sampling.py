"""A sample of a long recording, which is replayed instead of the whole recording.

Models: its windows are those of `pagelab.replay.default_sample`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pagelab.advice.subject import Subject
from pagelab.capture.length import Length
from pagelab.capture.traces import trace_info
from pagelab.replay.default_sample import LEAST_ACCESSES, save_default_sample


def can_be_sampled(subject: Subject, max_accesses: int | None = None) -> bool:
    """Whether it is a long recording of a program, without gaps and with the instructions between accesses."""
    accesses = min(subject.accesses, max_accesses or subject.accesses)
    return subject.is_whole and accesses >= LEAST_ACCESSES and subject.recorded_instructions > 0


def sampled(
    subject: Subject,
    folder: Path,
    machine: str,
    max_accesses: int | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> Subject:
    """Saves a sample of a recording in `folder`, and returns what to replay instead of the recording.

    Raises:
        TraceError: the recording cannot be read.
    """
    part = min(max_accesses / subject.accesses, 1.0) if max_accesses else 1.0
    output = folder / f"{Path(subject.source).stem}-sample.trace"
    instructions = int(part * subject.recorded_instructions)
    save_default_sample(subject.source, output, instructions, machine, max_accesses=max_accesses, progress=progress)
    length = Length.from_info(trace_info(output))
    return replace(
        subject,
        source=str(output),
        length=replace(length, known=subject.length.known and not max_accesses),
        is_whole=False,
        is_sampled=True,
    )
