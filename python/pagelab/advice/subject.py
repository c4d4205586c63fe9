"""The subject of advice: a trace or a workload, and what is known about its program."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab.capture.length import WHOLE, Length
from pagelab.capture.traces import trace_info


@dataclass(frozen=True)
class Subject:
    """A source, and what its trace says about the program; a workload has no such information."""

    source: str
    name: str
    cpu_model: str | None = None
    """The processor that it was recorded on; None for workloads and imported traces."""
    virtualised: bool | None = None
    """Whether that was a virtual machine; None if unknown."""
    length: Length = WHOLE
    tells_dependencies: bool = True
    """Whether it has dependencies between loads."""
    is_whole: bool = True
    """Whether no stretch was skipped."""
    is_sampled: bool = False
    """Whether it is a sample made for the advice."""
    accesses: int = 0
    """Number of recorded accesses; 0 for workloads."""
    recorded_instructions: int = 0
    """The same."""

    @classmethod
    def from_source(cls, source: str) -> "Subject":
        """The subject for a trace, or for a workload's spec.

        Raises:
            TraceError: the trace cannot be read.
        """
        if not Path(source).is_dir():
            return cls(source, source)
        info = trace_info(source)
        meta = info["meta"]
        # Imported traces do not say where they were made.
        host = meta.get("host") or {}
        return cls(
            source=source,
            name=_name(source, meta),
            cpu_model=host.get("cpu_model"),
            virtualised=host.get("virtualised"),
            length=Length.from_info(info),
            tells_dependencies=bool(meta.get("dependencies")),
            is_whole=not meta.get("stretches"),
            accesses=info["accesses"],
            recorded_instructions=meta["accesses"]["instructions"],
        )


def _program_name(command: list[str]) -> str:
    """A program with its arguments as one types them, without its folder."""
    return shlex.join([Path(command[0]).name, *command[1:]])


def _name(source: str, meta: Mapping[str, Any]) -> str:
    command = meta["command"]
    if not command:
        return source
    # The command of an imported trace is the file that it was made from.
    return (
        _program_name(command) if meta.get("host") else f"{Path(source).name} (imported from {Path(command[0]).name})"
    )
