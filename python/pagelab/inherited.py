"""What the command was started with, and what of it a recorded program inherits."""

import os
import sys
from pathlib import Path

_STANDARD_STREAMS = range(3)
_VARIABLES_OF_SHELLS = ("PWD", "OLDPWD", "SHLVL")

_opened: list[int] = []
_variables: list[str] = []


def open_missing_streams() -> None:
    """Opens /dev/null for closed standard streams: the next opened file would take the number of one and its output."""
    for descriptor in _STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            _opened.append(opened)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # the descriptor stays open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def note_variables() -> None:
    """Notes the variable that Python sets in the locale "C" (PEP 538). To be called before the command sets any."""
    if "LC_CTYPE" in os.environ and not _was_set(b"LC_CTYPE="):
        _variables.append("LC_CTYPE")


def leave_to_programs() -> None:
    """Lets programs that are started from now on inherit what the command inherited.

    Standard streams that were closed are closed, and variables that Python set are missing. Where Python's interface
    is used without the command, nothing was noted, and nothing changes.
    """
    for descriptor in _opened:
        os.set_inheritable(descriptor, False)
    for name in _variables:
        os.environ.pop(name, None)


def through_shell(script: str, *arguments: str) -> list[str]:
    """The words of a shell that executes `script`, and then the program whose words follow, which it leaves alone.

    Shells set variables for what they execute: dash sets `PWD`, bash also `OLDPWD` and `SHLVL`.
    """
    unset = " ".join(name for name in _VARIABLES_OF_SHELLS if name not in os.environ)
    return ["/bin/sh", "-c", f'{script}; {f"unset {unset}; " if unset else ""}exec "$@"', *(arguments or ("sh",))]


def _was_set(beginning: bytes) -> bool:
    """Whether the variable was set as this process started."""
    try:
        first = Path("/proc/self/environ").read_bytes()
    except OSError:
        return True
    return any(variable.startswith(beginning) for variable in first.split(b"\0"))
