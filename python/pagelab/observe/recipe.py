"""The command that records the part of a program that an observation found worth it."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pagelab.observe.code import CodeFaults
from pagelab.observe.processes import PROC

_WINDOWS = "every=1G,length=10M"
_MOST_ACCESSES = "100M"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENTRIES = frozenset({"main", "_start"})
_LEAST_SHARE = 0.5
_LONGEST = 300


def commands(command: Sequence[str] | None, code: Sequence[CodeFaults], *, faults: bool) -> list[str]:
    """Commands of which each records less than the whole program.

    Args:
        command: The program with its arguments, if they are known.
        code: The code of its faults, the most frequent first.
        faults: Whether faults are what is worth it.
    """
    program = shlex.join(command) if command else ""
    program = program if 0 < len(program) <= _LONGEST else "PROGRAM ARGUMENTS…"
    lines = [f"pagelab record --faults -o NAME.faults -- {program}"] if faults else []
    function = faulting_function(code) if faults else None
    if function:
        lines.append(f"pagelab advise --start-at {function} --max-accesses {_MOST_ACCESSES} -- {program}")
    else:
        lines.append(f"pagelab advise --windows {_WINDOWS} -- {program}")
    return lines


def faulting_function(code: Sequence[CodeFaults]) -> str | None:
    """The function of the program with at least half of the faults, at whose call a recording can begin."""
    total = sum(one.faults for one in code)
    sums: dict[str, float] = {}
    for one in code:
        frame = one.caller or one.function
        if not frame.in_library and _NAME.fullmatch(frame.function) and frame.function not in _ENTRIES:
            sums[frame.function] = sums.get(frame.function, 0.0) + one.faults
    function = max(sums, key=lambda name: sums[name], default=None)
    return function if function and sums[function] >= _LEAST_SHARE * total else None


def command_of(pid: int) -> list[str] | None:
    """How a process was started, as it tells now; none if it has ended or hides it."""
    try:
        text = (PROC / str(pid) / "cmdline").read_bytes()
        program = Path(PROC / str(pid) / "exe").readlink()
    except OSError:
        return None
    words = [word.decode(errors="replace") for word in text.rstrip(b"\0").split(b"\0")]
    return [str(program), *words[1:]] if words and words[0] else None
