"""Call stacks made by hand for tests: documents as results hold them, with symbols of their own."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pagelab
from pagelab.results.results import Results

PROGRAM, LIBRARY = "/opt/demo/bin/sorter", "/opt/demo/lib/libheap.so"
Document = dict[str, Any]

_SYMBOLS: dict[str, dict[int, list[tuple[str, str]]]] = {
    PROGRAM: {
        0x10: [("main", "/src/demo/main.c:10")],
        0x14: [("main", "/src/demo/main.c:14")],
        0x20: [("sort", "/src/demo/sort.c:20")],
        0x22: [("sort", "/src/demo/sort.c:22")],
        0x30: [("load(char const*)", "/src/demo/load.c:31")],
        # An access in a function that was inlined twice: the innermost comes first.
        0x40: [("swap", "/src/demo/swap.h:3"), ("partition", "/src/demo/sort.c:8"), ("sort", "/src/demo/sort.c:21")],
    },
    LIBRARY: {},
}


def cost(walks: int, translation_cycles: int, faults: int = 0, fault_cycles: int = 0) -> dict[str, int]:
    return {
        "walks": walks,
        "translation_cycles": translation_cycles,
        "faults": faults,
        "fault_cycles": fault_cycles,
    }


def at(file: str | None, offset: int, **more: Any) -> Document:
    return {"process": 0, "file": file, "offset": offset, **more}


def recursive_sort() -> Document:
    """`main` calls `sort`, which calls itself; `main` calls `load`, which calls a library without symbols.

    Sums: 111 walks with 2,220 cycles, 16 faults with 16,000 cycles; 18,220 cycles together.
    """
    nodes: list[Document] = [
        {"parent": None},
        {"parent": 0, **at(PROGRAM, 0x10)},
        {"parent": 1, **at(PROGRAM, 0x22)},
        {"parent": 2, **at(PROGRAM, 0x22)},
        {"parent": 0, **at(PROGRAM, 0x14)},
        {"parent": 4, **at(PROGRAM, 0x30)},
        {"parent": 5, **at(None, 0x7F00, name="py::key:/src/demo/keys.py")},
    ]
    rows = [
        {"node": 1, **at(PROGRAM, 0x20), **cost(40, 800)},
        {"node": 2, **at(PROGRAM, 0x20), **cost(30, 600)},
        {"node": 3, **at(PROGRAM, 0x40), **cost(20, 400, 2, 2_000)},
        {"node": 5, **at(LIBRARY, 0x99), **cost(10, 200, 10, 10_000)},
        {"node": 6, **at(None, 0x8000), **cost(6, 120, 1, 1_000)},
        {"node": 0, **at(PROGRAM, 0x14), **cost(5, 100, 3, 3_000)},
        # Paging costs nothing there.
        {"node": 4, **at(PROGRAM, 0x30), **cost(0, 0)},
    ]
    sites = [
        {"kind": "allocation", "node": 5, "count": 12, "bytes": 12 << 20, **cost(90, 1_800)},
        {"kind": "mapping", "node": 5, "count": 1, "bytes": 1 << 20, **cost(10, 200, 10, 10_000)},
        {"kind": "heap", "node": 4, "count": 1, "bytes": 4096, **cost(6, 120, 1, 1_000)},
        {"kind": "unknown", "node": 0, "count": 0, "bytes": 0, **cost(5, 100, 5, 5_000)},
    ]
    symbols = {file: {str(offset): chain for offset, chain in offsets.items()} for file, offsets in _SYMBOLS.items()}
    return {"nodes": nodes, "rows": rows, "sites": sites, "symbols": symbols}


@cache
def _results() -> Results:
    return pagelab.run("random:size=8MiB,accesses=2000", ["radix", "radix-2m"], profile=True)


def results_with(stacks: Any) -> Results:
    """Results of two systems, of which the first has these call stacks."""
    document = copy.deepcopy(_results().to_document())
    document["results"][0]["profile"]["stacks"] = stacks
    return Results(document)


def save(path: Path, stacks: Any) -> Path:
    """The same in a file."""
    results_with(stacks).save(path)
    return path
