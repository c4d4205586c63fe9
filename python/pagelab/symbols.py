"""Functions and source lines of instructions, from the programs' files as they are now.

`addr2line` of binutils names them, at the addresses that the files' program headers give. An instruction without a
symbol is left out.
"""

import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Symbol:
    """What an instruction is part of."""

    function: str
    line: str
    """Source file and line; empty if the file has no such information."""


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
