"""Call stacks with functions and source lines: frames instead of instructions, each looked up once."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePath

from pagelab.call_stacks.cost import Cost, total
from pagelab.call_stacks.document import Document, Instruction, Others, from_result, instructions
from pagelab.capture.symbols import Symbol, look_up_inlined, unchanged
from pagelab.results.results import Results, SystemResult

_PYTHON = re.compile(r"(py::.*?):(/.*|<.*>)")
"""Functions in the perf maps of `python -X perf`"""
_NODE = re.compile(r"(?:\w+:)?[*~^+]?(.*?) ((?:file://)?/[^ ]*?):(\d+)(?::\d+)?")
"""Functions in the perf maps of `node --perf-basic-prof`"""

_KINDS = {
    "allocation": "[allocation without a call stack]",
    "mapping": "[mapping without a call stack]",
    "heap": "[heap outside of known blocks]",
    "unknown": "[memory of unknown origin]",
}
"""Names of frames that stand for memory whose creation has no call stack"""


def without_arguments(function: str) -> str:
    """A C++ name with `<…>` for template arguments, and without parameters; operators stay as they are."""
    if "operator" in function or function.startswith("["):
        return function
    kept: list[str] = []
    depth = 0
    for letter in function:
        if letter == "(" and depth == 0 and kept:
            break
        depth += letter == "<"
        if depth == 0:
            kept.append(letter)
        elif letter == ">":
            depth -= 1
            kept.extend("<…>" if depth == 0 else "")
    # With unbalanced brackets it is no name of that kind.
    return "".join(kept) if depth == 0 else function


@dataclass(frozen=True)
class Frame:
    """A called function, and the place in it of the next call or the access."""

    function: str
    """Its name; in brackets what is known instead of a name."""
    source: str = ""
    """The source file; empty if unknown."""
    line: int = 0
    """The line in the source file; 0 if unknown."""
    file: str = ""
    """The program or library that holds its code; empty if unknown."""

    @property
    def place(self) -> str:
        """Source file and line as `sort.c:12`; empty if unknown."""
        name = PurePath(self.source).name
        return f"{name}:{self.line}" if self.line else name


@dataclass(frozen=True)
class Location:
    """A call or an access in a stack."""

    file: str
    """The program or library; empty if unknown."""
    offset: int
    """In the file; the address if there is none."""
    frames: tuple[Frame, ...]
    """The function that was called, then functions that were inlined there; one at least."""


@dataclass(frozen=True, eq=False)
class Call:
    """A location below its callers; stacks with the same callers share these."""

    location: Location
    caller: "Call | None" = None

    def outwards(self) -> Iterator["Call"]:
        """This one, then its caller, and so on."""
        at: Call | None = self
        while at:
            yield at
            at = at.caller


@dataclass(frozen=True)
class Stack:
    """Active calls, and the cost of paging there."""

    innermost: Call
    """The access, or the call that created memory."""
    cost: Cost
    kind: str = ""
    """How the memory was created; empty for accesses."""
    count: int = 0
    """Blocks or mappings that were created there."""
    bytes: int = 0
    """Their sizes together."""

    @property
    def locations(self) -> tuple[Location, ...]:
        """The calls and the access, the outermost first."""
        return tuple(call.location for call in self.innermost.outwards())[::-1]

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The functions, the outermost first."""
        return tuple(frame for location in self.locations for frame in location.frames)


@dataclass(frozen=True)
class CallStacks:
    """What paging cost in all call stacks of a run."""

    callers: Sequence[Stack]
    """By who makes the accesses."""
    sites: Sequence[Stack]
    """By where the memory was created."""

    @property
    def cost(self) -> Cost:
        """What all accesses cost."""
        return total(stack.cost for stack in self.callers)

    @property
    def has_symbols(self) -> bool:
        """Whether any function of a file is known by name."""
        frames = frames_of((*self.callers, *self.sites))
        return any(frame.file and not frame.function.startswith("[") for frame in frames)

    @classmethod
    def from_result(cls, result: SystemResult, results: Results) -> "CallStacks":
        """The call stacks of one system of the results.

        Symbols are those in the results, or those of the programs' files as they are now. A file that has been
        changed since the recording gives none.

        Raises:
            UsageError: there are no call stacks, or they contradict themselves.
        """
        document = from_result(result)
        return cls.from_document(document, unchanged({file for file, _ in instructions(document)}, results))

    @classmethod
    def from_document(cls, document: Document, usable: Set[str]) -> "CallStacks":
        """The same for a document, with symbols of some files."""
        namer = _Namer(document, usable)
        contexts: list[Call | None] = []
        for node in document.nodes:
            contexts.append(None if node is None else Call(namer.locate(node.call), contexts[node.parent]))
        callers = [
            Stack(Call(namer.locate(row.instruction), contexts[row.node]), row.cost)
            for row in document.rows
            if row.cost
        ]
        sites = [
            Stack(_with_kind(contexts[site.node], site.kind), site.cost, site.kind, site.count, site.bytes)
            for site in document.sites
        ]
        callers += _left_out(document.rows_others, "[accesses that were left out]")
        sites += _left_out(document.sites_others, "[memory that was left out]")
        return cls(callers, sites)


def frames_of(stacks: Iterable[Stack]) -> Iterator[Frame]:
    """The frames of all stacks; those of a shared location come once."""
    calls: set[Call] = set()
    locations: set[int] = set()
    for stack in stacks:
        for call in stack.innermost.outwards():
            if call in calls:
                break
            calls.add(call)
            if id(call.location) not in locations:
                locations.add(id(call.location))
                yield from call.location.frames


def _with_kind(context: Call | None, kind: str) -> Call:
    """A stack that is not empty; memory without a known creating call gets a frame of its own."""
    return Call(_named(_KINDS[kind]), context) if context is None or kind in ("heap", "unknown") else context


def _left_out(others: Others, name: str) -> list[Stack]:
    return [Stack(Call(_named(name)), others.cost)] if others.cost else []


def _named(name: str) -> Location:
    return Location("", 0, (Frame(name),))


class _Namer:
    """Locations of instructions, each made once."""

    def __init__(self, document: Document, usable: Set[str]) -> None:
        self._known: dict[Instruction, Location] = {}
        self._symbols = _symbols(document, usable)

    def locate(self, instruction: Instruction) -> Location:
        known = self._known.get(instruction)
        if known is None:
            file = instruction.file or ""
            known = self._known[instruction] = Location(file, instruction.offset, self._frames(instruction, file))
        return known

    def _frames(self, instruction: Instruction, file: str) -> tuple[Frame, ...]:
        chain = self._symbols.get((file, instruction.offset))
        if chain:
            return tuple(Frame(s.function, s.source, s.line_number, file) for s in reversed(chain))
        if instruction.name:
            return (_from_perf_map(instruction.name, file),)
        if not file and instruction.offset == 0:
            # Accesses to buffers of system calls, signal frames and the first stack have no instruction of the program.
            return (Frame("[kernel for the program]"),)
        return (Frame(f"[{PurePath(file).name or 'unknown'}]", file=file),)


def _from_perf_map(name: str, file: str) -> Frame:
    """A function whose name says its source, as Python and Node write them; others stay as they are."""
    if match := _PYTHON.fullmatch(name):
        return Frame(match[1], match[2], 0, file)
    if match := _NODE.fullmatch(name):
        return Frame(match[1] or "(anonymous)", match[2].removeprefix("file://"), int(match[3]), file)
    return Frame(name, file=file)


def _symbols(document: Document, usable: Set[str]) -> Mapping[tuple[str, int], Sequence[Symbol]]:
    """The symbols in the results, and for other files those of the files as they are now."""
    named: dict[tuple[str, int], Sequence[Symbol]] = {
        (file, int(offset)): [Symbol(function, line) for function, line in chain]
        for file, offsets in document.symbols.items()
        for offset, chain in offsets.items()
    }
    asked = (one for one in instructions(document) if one[0] in usable and one[0] not in document.symbols)
    return {**named, **look_up_inlined(asked)}
