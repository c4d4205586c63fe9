"""How a recorded program ended, in words."""

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pagelab.capture.traces import is_trace

SIGNALLED = 128
"""A shell's exit status for a command that a signal ended is this and the signal's number"""
_MOST_SIGNALS = 64
_SHELLS = {126: "a command that cannot be executed", 127: "a command that was not found"}


def failure(exit_: Mapping[str, Any] | None) -> str | None:
    """How the program failed; none if it did not, or if that is not known.

    Args:
        exit_: `exit` of a `trace.json`: the `status`, and the `signal` that ended the program, if one did.
    """
    if not exit_ or not exit_["status"]:
        return None
    status, number = exit_["status"], exit_.get("signal")
    if number is not None:
        return f"it was ended by signal {_signal_text(number)}"
    if SIGNALLED < status <= SIGNALLED + _MOST_SIGNALS:
        by = _signal_text(status - SIGNALLED)
        return f"exit status {status}: of a shell, this means a command ended by signal {by}"
    meaning = f": of a shell, this means {_SHELLS[status]}" if status in _SHELLS else ""
    return f"exit status {status}{meaning}"


def _signal_text(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


_MOST_LOSSES = 3
"""Losses of a trace that are told; `trace info` has all"""


def failures(sources: Iterable[str]) -> Iterator[str]:
    """Sentences for traces among the sources that lack something, or whose program failed and may have ended early."""
    for source in dict.fromkeys(sources):
        if not is_trace(source):
            continue
        try:
            meta = json.loads((Path(source) / "trace.json").read_bytes())
        except (OSError, ValueError):
            # Whoever replays it says what is wrong with it.
            continue
        losses = meta.get("losses", [])
        for loss in losses[:_MOST_LOSSES]:
            yield f"{source}: the trace is incomplete: {loss}"
        if len(losses) > _MOST_LOSSES:
            yield f"{source}: the trace lacks {len(losses) - _MOST_LOSSES} more things; `pagelab trace info` lists them"
        if failed := failure(meta.get("exit")):
            yield f"{source}: the recorded program failed: {failed}; the figures cover what it did until then"
