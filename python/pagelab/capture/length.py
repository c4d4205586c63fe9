"""How long the program is that a trace is of, in whole or in part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagelab.capture.stretches import StretchTotals

_STOPPED = ("recording was stopped after", "sampling was stopped after")
"""How the note of a trace begins that ends before its program (`crates/pagelab-trace`, the recorder and the sampler)"""


@dataclass(frozen=True)
class Length:
    """How long the program is that was replayed, in whole or in part."""

    instructions: int | None = None
    """Of all of it, or until it was ended; None if what was replayed is all."""
    known: bool = True
    """False if it was ended before its end, so that nobody knows."""

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "Length":
        """From what `trace_info` says of a trace."""
        meta = info["meta"]
        known = info["complete"] and not any(note.startswith(_STOPPED) for note in meta["notes"])
        stretches = meta.get("stretches")
        if stretches:
            return cls(StretchTotals(**stretches).program_instructions, known)
        return cls(meta["accesses"]["instructions"] if known else None, known)

    def of_replayed(self, instructions: int) -> float | None:
        """The whole program by what was replayed of it; None if that is not known."""
        return self.of_traced(instructions) if self.known else None

    def of_traced(self, instructions: int) -> float:
        """The program until the trace ends, by what was replayed of it."""
        return max(self.instructions / instructions, 1.0) if self.instructions and instructions else 1.0


WHOLE = Length()
