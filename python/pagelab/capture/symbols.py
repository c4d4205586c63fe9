"""Functions and source lines of instructions, from the programs' files as they are now.

`addr2line` of binutils names them, at the addresses that the files' program headers give. An instruction without a
symbol is left out. Files may have changed since a trace was recorded, so `unchanged` says which of them still fit.
"""

import re
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pagelab.capture.traces import is_trace, trace_info
from pagelab.results.results import Results

_TIMEOUT_SECONDS = 60
_ADDRESS = re.compile(r"0x[0-9a-f]+")
"""What `addr2line -a` writes before what it says of an address; no name of a function looks so"""


@dataclass(frozen=True)
class Symbol:
    """What an instruction is part of."""

    function: str
    line: str
    """Source file and line; empty if the file has no such information."""

    @property
    def source(self) -> str:
        """The source file; empty if unknown."""
        return self._parts()[0]

    @property
    def line_number(self) -> int:
        """The line in the source file, from 1; 0 if unknown."""
        return self._parts()[1]

    def _parts(self) -> tuple[str, int]:
        source, _, number = self.line.rpartition(":")
        return (source, int(number)) if source and number.isdecimal() else (self.line, 0)


_Chain: TypeAlias = tuple[Symbol, ...]
"""The function of an instruction, then the function that it was inlined into, and so on to the one that was called"""


def look_up(instructions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Symbol]:
    """Symbols of instructions, each a file and the offset in it; those that nothing is known of are left out."""
    return {instruction: chain[0] for instruction, chain in look_up_inlined(instructions).items()}


def look_up_inlined(instructions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[Symbol, ...]]:
    """The same with the functions that each was inlined into: the innermost first, the one that was called last."""
    tool = shutil.which("addr2line")
    by_file: dict[str, dict[int, None]] = {}
    for file, offset in instructions:
        by_file.setdefault(file, {})[offset] = None
    named: dict[tuple[str, int], _Chain] = {}
    for file, offsets in by_file.items():
        if tool:
            chains = _look_up_in_file(tool, Path(file), list(offsets))
            named.update({(file, offset): chain for offset, chain in chains.items()})
    return named


def _look_up_in_file(tool: str, file: Path, offsets: Sequence[int]) -> dict[int, _Chain]:
    addresses = _addresses(file, offsets)
    if not addresses:
        return {}
    asked = "".join(f"{address:#x}\n" for address in addresses.values())
    try:
        done = subprocess.run(
            [tool, "-a", "-f", "-C", "-i", "-e", str(file)],
            input=asked,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    symbols: dict[int, _Chain] = {}
    doubtful = []
    blocks = _blocks(done.stdout.splitlines())
    for (offset, address), block in zip(addresses.items(), blocks, strict=True):
        if block[1].startswith("??"):
            doubtful.append((offset, address))
        pairs = zip(block[::2], block[1::2], strict=True)
        chain = tuple(Symbol(function, _line_of(line)) for function, line in pairs if function != "??")
        if chain:
            symbols[offset] = chain
    # Without lines the tool names the symbol before an address, even if its function has ended: in a stripped file,
    # where only exported functions have names, most of these would be wrong.
    covered = _covered(file, [address for _, address in doubtful])
    for offset, address in doubtful:
        if address not in covered:
            symbols.pop(offset, None)
    return symbols


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """What the tool says of each address: the function and the line, of each call that was inlined there."""
    blocks: list[list[str]] = []
    for line in lines:
        if _ADDRESS.fullmatch(line):
            blocks.append([])
        else:
            blocks[-1].append(line)
    return blocks


def _covered(file: Path, addresses: Sequence[int]) -> set[int]:
    """Those of the addresses that lie within a function of the file's symbol tables."""
    # These take longer to import than the command line takes to answer.
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

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


def _line_of(line: str) -> str:
    """`file:12` of `file:12 (discriminator 3)`, `file` of `file:?`, nothing of `??:?`."""
    known = line.split(" (", 1)[0].removesuffix(":?").removesuffix(":0")
    return "" if known.startswith("??") else known


def _addresses(file: Path, offsets: Sequence[int]) -> dict[int, int]:
    """The address that the linker gave to each offset of an ELF file; empty for other files."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

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


def unchanged(files: Iterable[str], results: Results) -> set[str]:
    """Those of the files whose symbols can be used: they are as they were when what was replayed was recorded."""
    recorded = _recording_time(results)
    return {file for file in files if recorded is None or not _changed_since(Path(file), recorded)}


def _recording_time(results: Results) -> int | None:
    """When the first of the traces that were replayed was recorded, in seconds since 1970; none of other sources."""
    sources = results.request.sources if results.request else []
    # What stands behind a name pins it to CPUs or limits its memory.
    names = [re.sub(r"(\.trace/?)([@,].*)$", r"\1", source) for source in sources]
    times = [trace_info(name)["meta"].get("started_unix_seconds") for name in names if is_trace(name)]
    return min((time for time in times if time is not None), default=None)


def _changed_since(file: Path, seconds: int) -> bool:
    try:
        # Recordings keep whole seconds. The time of the last change of the inode is also that of an installation.
        return int(file.stat().st_ctime) > seconds
    except OSError:
        return True
