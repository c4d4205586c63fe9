"""How long the program is that a trace is of, in whole or in part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagelab.stretches import StretchTotals

_STOPPED = "recording was stopped after"
"""How the note of a recording begins whose program was ended (`crates/pagelab-trace`, the recorder)"""


@dataclass(frozen=True)
class Length:
    """How long the program is that was replayed, in whole or in part."""

    instructions: int | None = None
    """Of all of it; None if what was replayed is all."""
    known: bool = True
    """False if it was ended before its end, so that nobody knows."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Length":
        """From what `trace_info` says of a trace."""
        meta = info["meta"]
        if not info["complete"] or any(note.startswith(_STOPPED) for note in meta["notes"]):
            return cls(known=False)
        stretches = meta.get("stretches")
        if stretches:
            return cls(StretchTotals(**stretches).program_instructions)
        return cls(meta["accesses"]["instructions"])

    def of_replayed(self, instructions: int) -> float | None:
        """The whole program by what was replayed of it; None if that is not known."""
        if not self.known:
            return None
        return max(self.instructions / instructions, 1.0) if self.instructions and instructions else 1.0


WHOLE = Length()
