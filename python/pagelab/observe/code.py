"""The program's code that caused faults: functions by name, as far as the files of the program have symbols."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pagelab.capture.symbols import Symbol, look_up_inlined
from pagelab.observe.mappings import file_of
from pagelab.observe.regions import ProcessRegions

MOST_STACKS = 200
"""Stacks that are named, those with the most faults; the others are counted without names"""
_FRAMES = 16
_LIBRARY = ("libc.", "libc-", "ld-linux", "libstdc++", "[vdso]")
_UNKNOWN = "unknown code"

# A process and the addresses of its code, the innermost first.
Stack = tuple[int, tuple[int, ...]]
Place = tuple[str, int]


@dataclass(frozen=True)
class Frame:
    """A piece of code."""

    function: str
    """Its name; without symbols, where it stands in its file"""
    object: str
    """The name of its file without folders"""
    line: str

    @property
    def in_library(self) -> bool:
        return self.object.startswith(_LIBRARY)

    @property
    def text(self) -> str:
        return f"{self.function} ({self.object})" if self.object else self.function


@dataclass(frozen=True)
class CodeFaults:
    """The faults of a stack."""

    frames: tuple[Frame, ...]
    faults: float

    @property
    def function(self) -> Frame:
        """The function of the access."""
        return self.frames[0]

    @property
    def caller(self) -> Frame | None:
        """For a function of the C library, the first function outside that the stack shows."""
        if not self.function.in_library:
            return None
        outside = (frame for frame in self.frames[1:] if not frame.in_library and frame.function != _UNKNOWN)
        return next(outside, None)


def name_stacks(
    stacks: Mapping[Stack, float], processes: Mapping[int, ProcessRegions]
) -> dict[Stack, tuple[Frame, ...]]:
    """The names of the stacks with the most faults, which come first."""
    top = sorted(stacks, key=lambda stack: -stacks[stack])[:MOST_STACKS]
    places = {stack: [_place(processes.get(stack[0]), address) for address in stack[1][:_FRAMES]] for stack in top}
    symbols = _symbols(place for ones in places.values() for place in ones)
    unknown = (Frame(_UNKNOWN, "", ""),)
    return {stack: tuple(_frame(place, symbols) for place in places[stack]) or unknown for stack in top}


def faults_by_code(stacks: Mapping[Stack, float], names: Mapping[Stack, tuple[Frame, ...]]) -> list[CodeFaults]:
    """The faults of the stacks that have names, the most first; stacks of the same functions are one."""
    named: dict[tuple[Frame, ...], float] = {}
    for stack, frames in names.items():
        named[frames] = named.get(frames, 0.0) + stacks[stack]
    return sorted((CodeFaults(*pair) for pair in named.items()), key=lambda code: -code.faults)


def _symbols(places: Iterable[Place | None]) -> dict[Place, Symbol]:
    asked = dict.fromkeys(place for place in places if place is not None and place[0].startswith("/"))
    # The function that was called, at whose call a recording can begin; the line is that of the access.
    return {place: Symbol(chain[-1].function, chain[0].line) for place, chain in look_up_inlined(asked).items()}


def _place(regions: ProcessRegions | None, address: int) -> Place | None:
    mapping = regions.mapping_at(address) if regions else None
    if mapping is None:
        return None
    name = mapping.name.removesuffix(" (deleted)")
    if not name.startswith("/"):
        return name or "code without a file", address
    return str(file_of(regions.pid, name)) if regions else name, address - mapping.begin + mapping.offset


def _frame(place: Place | None, symbols: Mapping[Place, Symbol]) -> Frame:
    if place is None:
        return Frame(_UNKNOWN, "", "")
    file, offset = place
    name = file.rpartition("/")[2]
    symbol = symbols.get(place)
    if symbol is None:
        return Frame(f"{offset:#x}" if file.startswith("/") else "without a name", name, "")
    return Frame(symbol.function, name, symbol.line)
