"""Functions and lines of instructions, by what binutils says of compiled programs."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from pagelab.capture.symbols import Symbol, look_up, look_up_inlined


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("addr2line"), reason="needs gcc and binutils")
def test_instructions_are_named_by_function_and_line(tmp_path: Path) -> None:
    source = tmp_path / "touch.c"
    source.write_text(
        "static int hidden(int *a) {\n  return a[1];\n}\nint main(int n, char **v) {\n  return hidden(&n);\n}\n"
    )
    for name, options in (("full", ("-g",)), ("bare", ("-s",))):
        subprocess.run(["gcc", "-O0", *options, "-o", tmp_path / name, source], check=True)
    full, bare = tmp_path / "full", tmp_path / "bare"
    symbols = subprocess.run(["nm", full], capture_output=True, text=True, check=True).stdout
    address = int(re.search(r"^(\w+) t hidden$", symbols, re.MULTILINE)[1], 16)  # type: ignore[index]
    offset = _offset(full, address)
    named = look_up([(str(full), offset), (str(bare), _offset(bare, address)), ("/etc/passwd", 3)])
    assert named[str(full), offset].function == "hidden"
    assert named[str(full), offset].line.endswith("touch.c:1")
    # A stripped file says nothing, rather than the name of some function before.
    assert list(named) == [(str(full), offset)]


def _offset(file: Path, address: int) -> int:
    """Where in an ELF file the byte of an address is."""
    raw = file.read_bytes()
    table, size, count = struct.unpack_from("<Q", raw, 32)[0], *struct.unpack_from("<HH", raw, 54)
    for at in range(count):
        kind, _, begin, virtual, _, length = struct.unpack_from("<IIQQQQ", raw, table + at * size)
        if kind == 1 and virtual <= address < virtual + length:
            return int(begin + address - virtual)
    raise AssertionError(f"{address:#x} is not in {file}")


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("addr2line"), reason="needs gcc and binutils")
def test_inlined_functions_are_named_from_the_innermost_on(tmp_path: Path) -> None:
    source, program = tmp_path / "inlined.c", tmp_path / "inlined"
    source.write_text(
        "static inline __attribute__((always_inline)) int inner(int *a) {\n  return a[1];\n}\n"
        "static inline __attribute__((always_inline)) int middle(int *a) {\n  return inner(a) + 1;\n}\n"
        "int called(int *a) {\n  return middle(a);\n}\n"
        "int main(int n, char **v) {\n  return called(&n);\n}\n"
    )
    subprocess.run(["gcc", "-O0", "-g", "-o", program, source], check=True)
    symbols = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout
    begin, size = (int(part, 16) for part in re.search(r"^(\w+) (\w+) T called$", symbols, re.MULTILINE).groups())  # type: ignore[union-attr]
    offset = _offset(program, begin)
    instructions = [(str(program), offset + at) for at in range(size)]
    chains = look_up_inlined(instructions)
    assert ("inner", "middle", "called") in {tuple(symbol.function for symbol in chain) for chain in chains.values()}
    for chain in chains.values():
        assert chain[-1].function == "called"
        if len(chain) == 3:
            assert [symbol.line_number for symbol in chain[1:]] == [5, 8]
            assert {symbol.source for symbol in chain} == {str(source)}
    assert look_up(instructions) == {instruction: chain[0] for instruction, chain in chains.items()}


def test_a_line_is_taken_apart() -> None:
    symbol = Symbol("f", "/src/a:b.c:12")
    assert (symbol.source, symbol.line_number) == ("/src/a:b.c", 12)
    unknown = Symbol("f", "a.c")
    assert (unknown.source, unknown.line_number) == ("a.c", 0)
    assert (Symbol("f", "").source, Symbol("f", "").line_number) == ("", 0)
