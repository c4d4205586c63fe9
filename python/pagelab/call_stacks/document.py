"""The call stacks of a profile as results keep them: contexts of calls, accesses and pieces of memory by context."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab._engine import UsageError
from pagelab.call_stacks.cost import NOTHING, Cost
from pagelab.capture.symbols import look_up_inlined, unchanged
from pagelab.results.results import Results, SystemResult

KINDS = ("allocation", "mapping", "heap", "unknown")
"""How memory was created"""


@dataclass(frozen=True)
class Instruction:
    """An instruction of a program."""

    file: str | None
    """The file that it was mapped from; none for code generated at run time, and if the file is unknown."""
    offset: int
    """Where in the file it is; its address if there is no file."""
    name: str | None = None
    """The function, if a perf map named it."""


@dataclass(frozen=True)
class Node:
    """A context: a call made in another context."""

    parent: int
    call: Instruction


@dataclass(frozen=True)
class Row:
    """Accesses of an instruction in a context."""

    node: int
    instruction: Instruction
    cost: Cost


@dataclass(frozen=True)
class Site:
    """Memory that was created in a context, and what accesses to it cost."""

    kind: str
    """One of `KINDS`."""
    node: int
    count: int
    """Blocks or mappings that were created there."""
    bytes: int
    """Their sizes together."""
    cost: Cost


@dataclass(frozen=True)
class Others:
    """What a list omits."""

    count: int = 0
    cost: Cost = NOTHING


@dataclass(frozen=True)
class Document:
    """All call-stack data of results."""

    nodes: Sequence[Node | None]
    """The first is the context in which nothing has been called. Parents come before children."""
    rows: Sequence[Row]
    sites: Sequence[Site]
    rows_others: Others
    sites_others: Others
    symbols: Mapping[str, Mapping[str, Any]]
    """What `with_symbols` found when the results were made."""


def from_result(result: SystemResult) -> Document:
    """Reads the call stacks of one system.

    Raises:
        UsageError: there are none, or they are inconsistent.
    """
    if not has_stacks(result):
        if not result.profile:
            what = "no profile: replay a trace that was recorded with --stacks by `pagelab run --profile --json FILE`"
        else:
            what = "no call stacks: record the program with `pagelab record --stacks`, and replay that"
        raise UsageError(f"the results of {result.label} have {what}")
    try:
        return parse((result.profile or {})["stacks"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"the call stacks of {result.label} are damaged: {what}") from None


def has_stacks(result: SystemResult) -> bool:
    """Whether there are call stacks."""
    return bool((result.profile or {}).get("stacks"))


def parse(stacks: Mapping[str, Any]) -> Document:
    """Reads the document of call stacks.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not such a document.
    """
    nodes = [_node(number, entry) for number, entry in enumerate(stacks["nodes"])]
    if not nodes:
        raise ValueError("there is no node for the program's start")

    def node_of(entry: Mapping[str, Any]) -> int:
        node = _natural(entry, "node")
        if node >= len(nodes):
            raise ValueError(f"there is no node {node}, of {len(nodes)}")
        return node

    rows = [Row(node_of(row), _instruction(row), Cost.from_row(row)) for row in stacks["rows"]]
    sites = [
        Site(_kind(site), node_of(site), _natural(site, "count"), _natural(site, "bytes"), Cost.from_row(site))
        for site in stacks["sites"]
    ]
    return Document(nodes, rows, sites, _others(stacks, "rows"), _others(stacks, "sites"), stacks.get("symbols") or {})


def _node(number: int, entry: Mapping[str, Any]) -> Node | None:
    parent = entry["parent"]
    if number == 0:
        if parent is not None:
            raise ValueError("node 0 has a parent")
        return None
    if type(parent) is not int or not 0 <= parent < number:
        raise ValueError(f"the parent of node {number} is {parent!r}, which is no earlier node")
    return Node(parent, _instruction(entry))


def _instruction(entry: Mapping[str, Any]) -> Instruction:
    file, name = entry.get("file"), entry.get("name")
    for text in (file, name):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{text!r} is no name")
    return Instruction(file or None, _natural(entry, "offset"), name or None)


def _natural(entry: Mapping[str, Any], key: str) -> int:
    number = entry[key]
    if type(number) is not int or number < 0:
        raise TypeError(f"{key} is {number!r}")
    return number


def _kind(site: Mapping[str, Any]) -> str:
    kind: str = site["kind"]
    if kind not in KINDS:
        raise ValueError(f"there is no kind of memory {kind!r}")
    return kind


def _others(stacks: Mapping[str, Any], what: str) -> Others:
    count, cost = f"{what}_others", stacks.get(f"{what}_others_cost")
    return Others(_natural(stacks, count) if count in stacks else 0, Cost.from_row(cost) if cost else NOTHING)


def instructions(document: Document) -> Iterator[tuple[str, int]]:
    """Files and offsets of all instructions that are in files."""
    calls = [node.call for node in document.nodes if node]
    for instruction in (*calls, *(row.instruction for row in document.rows)):
        if instruction.file:
            yield instruction.file, instruction.offset


def with_symbols(stacks: dict[str, Any], results: Results) -> dict[str, Any]:
    """The same document, with `symbols` of its files as they are now, since the files may change later.

    These are the functions and lines of each instruction, the innermost first: by file, then by offset in decimal.
    A file that has been changed since the recording has none.
    """
    document = parse(stacks)
    asked = dict.fromkeys(instructions(document))
    usable = unchanged({file for file, _ in asked}, results)
    symbols: dict[str, dict[str, list[tuple[str, str]]]] = {file: {} for file, _ in asked}
    for (file, offset), chain in look_up_inlined(one for one in asked if one[0] in usable).items():
        symbols[file][str(offset)] = [(symbol.function, symbol.line) for symbol in chain]
    return {**stacks, "symbols": symbols}
