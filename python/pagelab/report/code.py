"""Rows about the program's code: which instructions paging cost most, by symbol and line where they are known.

Symbols come from the programs' files as they are when the report is made: by `addr2line` of binutils, for the addresses
that the files' program headers give (`readelf` says the same). What cannot be named stays a file and an offset.
"""

import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pagelab.report.figures import paging_cost, percent, share
from pagelab.results import SystemResult
from pagelab.table import short

_MOST_ROWS = 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Symbol:
    """What an instruction is part of."""

    function: str
    line: str
    """Source file and line; empty if the file has no such information."""


@dataclass(frozen=True)
class CodeRow:
    """A place in the code as the page shows it."""

    what: str
    line: str
    file: str
    walks: str
    faults: str
    cycles: str
    part: float


def rows(result: SystemResult) -> tuple[list[CodeRow], list[str]]:
    """The dearest places, instructions of one line together, and what to know about them."""
    table = (result.profile or {})["code"]
    symbols = look_up((row["file"], row["offset"]) for row in table["rows"] if row["file"])
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in table["rows"]:
        sum_ = sums.setdefault(_place(row, symbols), [0, 0, 0])
        for at, name in enumerate(("walks", "faults")):
            sum_[at] += row[name]
        sum_[2] += paging_cost(row)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    whole = sum(sum_[2] for sum_ in sums.values()) + paging_cost(table["others_cost"])
    shown = [
        CodeRow(what, line, file, short(walks), short(faults), percent(share(cycles, whole)), share(cycles, whole))
        for (what, line, file), (walks, faults, cycles) in ordered[:_MOST_ROWS]
    ]
    rest = whole - sum(sum_[2] for _, sum_ in ordered[:_MOST_ROWS])
    left = len(ordered) - len(shown) + table["others"]
    notes = [f"{left:,} more places take {percent(share(rest, whole))} of the cycles of paging."] if left else []
    if table["rows"] and not any(row["file"] or row["offset"] for row in table["rows"]):
        notes.append("The trace does not say which instruction made an access.")
    if any(row["file"] for row in table["rows"]) and not shutil.which("addr2line"):
        notes.append("Symbols are missing because addr2line is: install binutils and make the report again.")
    return shown, notes


def _place(row: Mapping[str, Any], symbols: Mapping[tuple[str, int], Symbol]) -> tuple[str, str, str]:
    file, offset = row["file"], row["offset"]
    if not file:
        return (f"{offset:#x}" if offset else "unknown instruction", "", "")
    symbol = symbols.get((file, offset))
    return (symbol.function, symbol.line, file) if symbol else (f"{Path(file).name}+{offset:#x}", "", file)


def look_up(instructions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Symbol]:
    """Symbols of instructions, each a file and the offset in it; those that nothing is known of are left out."""
    tool = shutil.which("addr2line")
    by_file: dict[str, list[int]] = {}
    for file, offset in instructions:
        by_file.setdefault(file, []).append(offset)
    found: dict[tuple[str, int], Symbol] = {}
    for file, offsets in by_file.items():
        if tool:
            found.update({(file, offset): symbol for offset, symbol in _of_file(tool, Path(file), offsets).items()})
    return found


def _of_file(tool: str, file: Path, offsets: Sequence[int]) -> dict[int, Symbol]:
    addresses = _addresses(file, offsets)
    if not addresses:
        return {}
    asked = "".join(f"{address:#x}\n" for address in addresses.values())
    try:
        done = subprocess.run(
            [tool, "-f", "-C", "-e", str(file)],
            input=asked,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    symbols, doubtful = {}, []
    for at, (offset, address) in enumerate(addresses.items()):
        function, line = lines[2 * at : 2 * at + 2]
        if line.startswith("??"):
            doubtful.append((offset, address))
            line = ""
        if function != "??":
            symbols[offset] = Symbol(function, _without_details(line))
    # Without lines the tool names the symbol before an address, even if its function has ended: in a stripped file,
    # where only exported functions have names, most of these would be wrong.
    covered = _covered(file, [address for _, address in doubtful])
    for offset, address in doubtful:
        if address not in covered:
            symbols.pop(offset, None)
    return symbols


def _covered(file: Path, addresses: Sequence[int]) -> set[int]:
    """Those of the addresses that lie within a function of the file's symbol tables."""
    if not addresses:
        return set()
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        functions = sorted(
            (symbol["st_value"], symbol["st_value"] + symbol["st_size"])
            for name in (".symtab", ".dynsym")
            if isinstance(table := elf.get_section_by_name(name), SymbolTableSection)
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC")
        )
    begins = [begin for begin, _ in functions]
    # Functions do not overlap but for aliases, of which the last one is as good as any.
    return {at for at in addresses if (n := bisect_right(begins, at)) and at < functions[n - 1][1]}


def _without_details(line: str) -> str:
    """`file:12 (discriminator 3)` without what is behind the line; `file:?` without the question mark."""
    return line.split(" (", 1)[0].removesuffix(":?").removesuffix(":0")


def _addresses(file: Path, offsets: Sequence[int]) -> dict[int, int]:
    """The address that the linker gave to each offset of an ELF file; empty for other files."""
    try:
        with file.open("rb") as stream:
            segments = [
                (part["p_offset"], part["p_filesz"], part["p_vaddr"])
                for part in ELFFile(stream).iter_segments("PT_LOAD")
            ]
    except (OSError, ELFError):
        return {}
    return {
        offset: offset - begin + address
        for offset in offsets
        for begin, size, address in segments
        if begin <= offset < begin + size
    }
