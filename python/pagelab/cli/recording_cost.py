"""The cost of a recording, estimated before it and reported after it."""

import shutil
from pathlib import Path

from pagelab._engine import UsageError
from pagelab.capture.recorder import Recording
from pagelab.capture.stretches import Stretches
from pagelab.quantities import count

_SLOWDOWN = (30, 150)
"""Times the program's own time, a rough estimate from single recordings; no systematic measurement"""
_BYTES_PER_SECOND = (0.5e9, 1.5e9, 3e9)
"""Of trace per second of the program's own time, estimates: 1.5 bytes per access, as of the builds in
docs/recorder.md, at 0.3, 1 and 2 billion accesses per second, which are assumed. Regular programs take far less."""


_SECONDS_PER_MILLION_STEPS = 23
"""CPU time of a million single steps, as docs/recorder.md measures it on one virtual machine"""


def estimate(trace: Path, stretches: Stretches | None, most_bytes: int | None, *, single_step: bool = False) -> str:
    """The estimate before a recording, when the program has not run yet."""
    if single_step:
        return (
            f"single steps take about {_SECONDS_PER_MILLION_STEPS} s of CPU time per million instructions "
            "(an estimate, from one machine)"
        )
    least, typical, most = (f"{rate / 1e9:g}" for rate in _BYTES_PER_SECOND)
    slow = f"{_SLOWDOWN[0]} to {_SLOWDOWN[1]} times the program's own time"
    share = _recorded_share(stretches)
    if stretches is None:
        size = f"{typical} GB ({least} to {most}) per second of it"
    elif share is not None:
        size = f"{100 * share:.2g} % of {typical} GB ({least} to {most}) per second of it"
    else:
        size = f"at most {typical} GB ({least} to {most}) per second of it, as only stretches are recorded"
    room = _room(trace, share or 1.0, most_bytes)
    return f"recording takes about {slow} and {size} (estimates, from other programs); {room}"


def _room(trace: Path, share: float, most_bytes: int | None) -> str:
    folder = trace.absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return "the free disk space is unknown"
    room = min(free, most_bytes or free)
    what = f"--max-bytes allows {_size(room)}" if room < free else f"{_size(free)} are free"
    return f"{what}, enough for about {room / (share * _BYTES_PER_SECOND[1]):.2g} s of its time"


def _recorded_share(stretches: Stretches | None) -> float | None:
    """The part of all instructions that is recorded; none if it is not known in advance."""
    return _share_of_windows(stretches.windows) if stretches and stretches.windows else None


def _share_of_windows(windows: str) -> float | None:
    """None if the text does not describe windows: the recorder reports the error."""
    given = {key: value for key, _, value in (part.partition("=") for part in windows.split(","))}
    try:
        every, length, warm = (count(key, given.get(key, "0")) or 0 for key in ("every", "length", "warm"))
    except UsageError:
        return None
    return min((length + warm) / every, 1.0) if every else None


def _size(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def cost(recording: Recording) -> str:
    """What a recording has cost; the slowdown is not there, as the program did not run natively."""
    program, recorder = recording.program_cpu_seconds, recording.recorder_cpu_seconds
    if recording.single_step:
        parts = f"the program took {program:.1f} s, and stepping and writing"
    else:
        parts = f"the program under Valgrind took {program:.1f} s and writing"
    return (
        f"{program + recorder:.1f} s of CPU time, of which {parts} {recorder:.1f} s; "
        f"{_size(recording.size_bytes)} written"
    )
