"""Exports of call stacks, read by their own readers or by ones written for the test: totals are the profile's."""

import gzip
import re
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from call_stack_documents import LIBRARY, PROGRAM, Document, at, cost, recursive_sort, save
from conftest import Pagelab
from hypothesis import given
from hypothesis import strategies as st

from pagelab.call_stacks import callgrind, document, flame, folded, pprof
from pagelab.call_stacks.cost import METRICS, Cost, total
from pagelab.call_stacks.stacks import CallStacks, Stack

EVENTS = ["cycles", "walks", "translation_cycles", "faults", "fault_cycles"]
PPROF_METRICS = ["walks", "translation_cycles", "faults", "fault_cycles", "cycles"]


def read(stacks: Document) -> CallStacks:
    return CallStacks.from_document(document.parse(stacks), set())


# Names that an export could take for something else.
NAMES = ["main", "operator;()", "(1) f", "a  b\nc", "f", "std::f<int>", "größer", "[x]", "g"]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Any calling-context tree of few functions, so that recursion is frequent."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    symbols = {
        str(number): [(name, f"/src/{number % 2}.c:{number}")] + ([("outer", "/src/0.c:9")] if number % 3 == 2 else [])
        for number, name in enumerate(names)
    }

    def instruction() -> Document:
        offset = draw(st.integers(0, 6))
        return draw(st.sampled_from([at(PROGRAM, offset), at(LIBRARY, offset), at(None, offset, name="py::f:/x.py")]))

    number_of_calls = draw(st.integers(0, 12))
    calls = [{"parent": draw(st.integers(0, number)), **instruction()} for number in range(number_of_calls)]
    nodes: list[Document] = [{"parent": None}, *calls]
    counts = st.integers(0, 1 << 40)
    rows = [
        {
            "node": draw(st.integers(0, len(nodes) - 1)),
            **instruction(),
            **cost(draw(counts), draw(counts), draw(counts), draw(counts)),
        }
        for _ in range(draw(st.integers(0, 6)))
    ]
    return {
        "nodes": nodes,
        "rows": rows,
        "sites": [],
        "rows_others": 1,
        "rows_others_cost": cost(draw(counts), 2, 3, 4),
        "symbols": {PROGRAM: symbols, LIBRARY: {}},
    }


def parse_folded(text: str) -> dict[tuple[str, ...], int]:
    counts = {}
    for line in text.splitlines():
        names, _, count = line.rpartition(" ")
        counts[tuple(names.split(";"))] = int(count)
    assert len(counts) == text.count("\n")
    return counts


def test_folded_stacks(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    made = pagelab("stacks", "r.json", "--format", "folded", "--metric", "walks")
    assert made.returncode == 0, made.stderr
    assert parse_folded(made.stdout) == {
        ("main",): 5,
        ("main", "load(char const*)", "[libheap.so]"): 10,
        ("main", "load(char const*)", "py::key", "[unknown]"): 6,
        ("main", "sort"): 40,
        ("main", "sort", "sort"): 30,
        ("main", "sort", "sort", "sort", "partition", "swap"): 20,
    }


class Callgrind:
    """What a file of format 1 says, read by the format's rules and nothing more."""

    def __init__(self, text: str) -> None:
        self.own: Counter[tuple[str, ...]] = Counter()
        """By function, the first event"""
        self.received: Counter[tuple[str, ...]] = Counter()
        """By called function, what calls of it cost"""
        self.spent: Counter[tuple[str, ...]] = Counter()
        """By calling function"""
        self.headers: dict[str, str] = {}
        names: dict[str, str] = {}
        callee: tuple[str, ...] | None = None
        for line in text.splitlines():
            if match := re.fullmatch(r"(\w+): (.*)", line):
                self.headers[match[1]] = match[2]
            elif match := re.fullmatch(r"(ob|fl|fn|cob|cfi|cfn)=(.*)", line):
                names[match[1]] = match[2]
            elif match := re.fullmatch(r"calls=(\d+) (\d+)", line):
                assert int(match[1]) > 0
                callee = (names["cob"], names["cfi"], names["cfn"])
            elif line and not line.startswith("#"):
                _, first, *others = map(int, line.split())
                assert len(others) == len(EVENTS) - 1
                function = (names["ob"], names["fl"], names["fn"])
                if callee is None:
                    self.own[function] += first
                else:
                    self.received[callee] += first
                    self.spent[function] += first
                    callee = None


def annotate(path: Path, *options: str) -> str:
    """What callgrind_annotate says of a file. It comes with Valgrind, which pagelab records with."""
    done = subprocess.run(
        ["callgrind_annotate", "--auto=no", "--threshold=100", *options, path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_callgrind_annotate_reads_the_export(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    made = pagelab("stacks", "r.json", "--format", "callgrind", "-o", "callgrind.out.1")
    assert made.returncode == 0, made.stderr
    path = tmp_path / "callgrind.out.1"
    flat = annotate(path, "--show-percs=no")
    totals = re.search(r"^ *([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +PROGRAM TOTALS", flat, re.MULTILINE)
    assert totals
    assert totals.groups() == ("18,220", "111", "2,220", "16", "16,000")
    inclusive = annotate(path, "--inclusive=yes", "--show-percs=no", "--show=cycles,walks")
    annotated = {
        match[3]: (match[1], match[2])
        for match in re.finditer(r"^ *([\d,]+) +([\d,]+) +\S*?:(.*?) \[.*\]$", inclusive, re.MULTILINE)
    }
    assert annotated["main"] == ("18,220", "111")
    # Three levels of the same function are one.
    assert annotated["sort"] == ("3,800", "90")
    assert annotated["load(char const*)"] == ("11,320", "16")
    assert annotated["[libheap.so]"] == ("10,200", "10")
    assert annotated["[all stacks]"] == ("18,220", "111")
    tree = annotate(path, "--tree=both", "--inclusive=yes", "--show-percs=no", "--show=walks", "--sort=walks")
    assert re.search(r"90 +< .*:main \(1x\).*\n(?:.*<.*\n)*.*\* .*:sort .*\n", tree)


def test_callgrind_counts_costs_of_lines(tmp_path: Path) -> None:
    source = tmp_path / "sort.c"
    source.write_text("".join(f"line {number};\n" for number in range(1, 31)))
    stacks = recursive_sort()
    stacks["symbols"][PROGRAM] = {
        offset: [(function, line.replace("/src/demo/sort.c", str(source))) for function, line in chain]
        for offset, chain in stacks["symbols"][PROGRAM].items()
    }
    path = tmp_path / "callgrind.out"
    path.write_text(callgrind.render(read(stacks).callers, "walks", "sorter"))
    shown = annotate(path, "--auto=yes", "--show-percs=no", "--show=walks")
    assert re.search(r"^ *70 +line 20;$", shown, re.MULTILINE)
    assert "Profiled target:  sorter" in shown


def test_callgrind_annotate_finds_nothing_strange_in_sources_without_lines(tmp_path: Path) -> None:
    stacks = recursive_sort()
    for name in ("main.c", "sort.c", "load.c", "swap.h", "keys.py"):
        (tmp_path / name).write_text("line;\n" * 30)
    offsets = {
        offset: [(function, line.replace("/src/demo", str(tmp_path))) for function, line in chain]
        for offset, chain in stacks["symbols"][PROGRAM].items()
    }
    stacks["symbols"][PROGRAM] = offsets
    # A file without a known line, one of whose lines only call, and code that a perf map names with its file.
    offsets[str(0x40)][0] = ("swap", f"{tmp_path}/swap.h")
    stacks["nodes"][6]["name"] = f"py::key:{tmp_path}/keys.py"
    stacks["rows"] = [row for row in stacks["rows"] if row.get("offset") != 0x14]
    path = tmp_path / "callgrind.out"
    path.write_text(callgrind.render(read(stacks).callers, "cycles", "sorter"))
    for options in ((), ("--inclusive=yes",), ("--tree=both", "--inclusive=yes"), ("--sort=faults",)):
        shown = annotate(path, "--auto=yes", *options)
        assert f"-- Auto-annotated source: {tmp_path}/sort.c" in shown
    assert "???:py::key [keys.py]" in shown
    assert "???:swap [swap.h]" in shown


def test_functions_of_several_files_with_one_name_stay_apart(tmp_path: Path) -> None:
    loader = "/lib64/ld-linux-x86-64.so.2"
    stacks: Document = {
        "nodes": [{"parent": None}],
        "rows": [
            {"node": 0, **at(PROGRAM, 1), **cost(1, 10)},
            {"node": 0, **at(loader, 1), **cost(2, 20)},
            {"node": 0, **at(loader, 2), **cost(4, 40)},
        ],
        "sites": [],
        "symbols": {PROGRAM: {"1": [("_start", "")]}, loader: {"1": [("_start", "")], "2": [("_dl_start", "")]}},
    }
    path = tmp_path / "callgrind.out"
    path.write_text(callgrind.render(read(stacks).callers, "walks", "sorter"))
    shown = annotate(path, "--show-percs=no", "--show=walks")
    annotated = dict(re.findall(r"^ *(\d+) +\?\?\?:(_.*)$", shown, re.MULTILINE))
    assert annotated == {
        "1": f"_start [sorter] [{PROGRAM}]",
        "2": f"_start [ld-linux-x86-64.so.2] [{loader}]",
        "4": f"_dl_start [{loader}]",
    }


@given(documents())
def test_callgrind_keeps_all_costs(stacks: Document) -> None:
    callers = read(stacks).callers
    text = callgrind.render(callers, "cycles", "p")
    parsed = Callgrind(text)
    whole = total(stack.cost for stack in callers)
    assert parsed.headers["events"].split() == EVENTS
    summary = [whole.cycles, whole.walks, whole.translation_cycles, whole.faults, whole.fault_cycles]
    assert parsed.headers["summary"] == parsed.headers["totals"] == " ".join(map(str, summary))
    assert sum(parsed.own.values()) == whole.cycles
    # By callgrind_annotate's rule: what a function's callers spend on it.
    inclusive: Counter[tuple[str, ...]] = Counter()
    for stack in callers:
        inclusive.update(dict.fromkeys(_functions(stack), stack.cost.cycles))
    written = {name for stack in callers if stack.cost for name in _functions(stack)}
    assert sorted(parsed.received.values()) == sorted(inclusive[name] for name in written)
    assert parsed.spent["???", "???", "[all stacks]"] == whole.cycles
    assert not re.search(r"^c?fn=\(\d+\)", text, re.MULTILINE)


def _functions(stack: Stack) -> set[tuple[str, ...]]:
    return {(frame.file or "???", frame.source or "???", frame.function) for frame in stack.frames}


@given(documents(), st.sampled_from(sorted(METRICS)))
def test_folded_stacks_keep_all_costs(stacks: Document, metric: str) -> None:
    callers = read(stacks).callers
    text = folded.render(callers, metric)
    costs = parse_folded(text)
    assert sum(costs.values()) == total(stack.cost for stack in callers).get(metric)
    lengths = {len(stack.frames) for stack in callers}
    assert {len(names) for names in costs} <= lengths
    assert text == "".join(sorted(text.splitlines(keepends=True), key=lambda line: line.rpartition(" ")[0]))


@given(documents(), st.sampled_from(sorted(METRICS)))
def test_flame_graphs_are_whole_pictures(stacks: Document, metric: str) -> None:
    callers = read(stacks).callers
    root = ElementTree.fromstring(flame.render(callers, metric, "a & b"))
    space = "{http://www.w3.org/2000/svg}"
    bars = [bar for bar in root.iter(f"{space}svg") if bar.find(f"{space}title") is not None]
    widths: Counter[int] = Counter()
    for bar in bars:
        widths[int(bar.attrib["y"])] += round(1000 * float(bar.attrib["width"].removesuffix("%")))
    whole = total(stack.cost for stack in callers).get(metric)
    if whole:
        # Each that is not drawn takes less than 0.1 %.
        assert 0 <= 100_000 - widths[0] + 10 <= 100 * len({stack.frames[0] for stack in callers}) + 20
    levels = [widths[y] for y in sorted(widths)]
    assert all(below <= above + 10 for above, below in pairwise(levels))


Field = tuple[int, Any]


def fields(message: bytes) -> list[Field]:
    """Fields of a message of protocol buffers, by the wire format alone: numbers and bytes."""
    parsed: list[Field] = []
    at_ = 0

    def varint() -> int:
        nonlocal at_
        value = shift = 0
        while True:
            byte = message[at_]
            at_ += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at_ < len(message):
        key = varint()
        if key & 7 == 0:
            parsed.append((key >> 3, varint()))
        else:
            assert key & 7 == 2, "neither a number nor bytes"
            size = varint()
            parsed.append((key >> 3, message[at_ : at_ + size]))
            assert at_ + size <= len(message)
            at_ += size
    return parsed


def numbers(packed: bytes) -> list[int]:
    """Packed numbers."""
    parsed, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            parsed.append(value)
            value = shift = 0
    assert shift == 0
    return parsed


class Pprof:
    """A profile as profile.proto defines it."""

    def __init__(self, content: bytes) -> None:
        parts: dict[int, list[Any]] = {}
        for field, value in fields(gzip.decompress(content)):
            parts.setdefault(field, []).append(value)
        self.texts = [text.decode() for text in parts[6]]
        assert self.texts[0] == ""
        assert len(set(self.texts)) == len(self.texts)
        self.types = [self._texts(message) for message in parts[1]]
        self.functions = {message[1]: message for message in map(dict, map(fields, parts.get(5, [])))}
        self.mappings = {message[1]: message for message in map(dict, map(fields, parts.get(3, [])))}
        self.locations = {dict(fields(message))[1]: fields(message) for message in parts.get(4, [])}
        self.samples = [dict(fields(message)) for message in parts.get(2, [])]
        self.default_type = self.texts[parts[14][0]]
        self.comment = self.texts[numbers(parts[13][0])[0]]

    def _texts(self, message: bytes) -> tuple[str, str]:
        label = dict(fields(message))
        return self.texts[label[1]], self.texts[label[2]]

    def stack(self, sample: dict[int, Any]) -> list[str]:
        """Functions of a sample, the innermost first."""
        names = []
        for location in numbers(sample[1]):
            for field, value in self.locations[location]:
                if field == 4:
                    names.append(self.texts[self.functions[dict(fields(value))[1]][2]])
        return names

    def totals(self) -> list[int]:
        columns = zip(*(numbers(sample[2]) for sample in self.samples), strict=True)
        return [sum(column) for column in columns] or [0] * len(self.types)


def test_pprof_profiles(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    options = ("--format", "pprof", "--metric", "faults")
    for name in ("a.pb.gz", "b.pb.gz"):
        assert pagelab("stacks", "r.json", *options, "-o", name).returncode == 0
    content = (tmp_path / "a.pb.gz").read_bytes()
    assert content == (tmp_path / "b.pb.gz").read_bytes()
    profile = Pprof(content)
    assert profile.types == [
        ("walks", "count"),
        ("translation_cycles", "cycles"),
        ("faults", "count"),
        ("fault_cycles", "cycles"),
        ("cycles", "cycles"),
    ]
    assert profile.default_type == "faults"
    assert "under radix" in profile.comment
    assert profile.totals() == [111, 2_220, 16, 16_000, 18_220]
    assert [profile.stack(sample) for sample in profile.samples][2] == [
        *("swap", "partition", "sort"),
        *("sort", "sort", "main"),
    ]
    # The functions that were inlined are lines of one location.
    inlined = profile.locations[numbers(profile.samples[2][1])[0]]
    assert [dict(fields(value))[2] for field, value in inlined if field == 4] == [3, 8, 21]
    files = {profile.texts[mapping[5]]: mapping for mapping in profile.mappings.values()}
    assert set(files) == {PROGRAM, LIBRARY}
    for location in profile.locations.values():
        values = dict(location)
        if mapping := profile.mappings.get(values.get(2, 0)):
            assert mapping[2] <= values[3] < mapping[3]
    ranges = sorted((mapping[2], mapping[3]) for mapping in profile.mappings.values())
    assert ranges[0][1] <= ranges[1][0]


def test_pprof_profiles_of_memory_say_how_much_was_created() -> None:
    profile = Pprof(pprof.render(read(recursive_sort()).sites, "cycles", "p"))
    assert profile.types[-2:] == [("blocks", "count"), ("created", "bytes")]
    assert profile.totals()[-2:] == [14, (13 << 20) + 4096]
    assert profile.totals()[:5] == [111, 2_220, 16, 16_000, 18_220]


@given(documents())
def test_pprof_profiles_keep_all_costs(stacks: Document) -> None:
    callers = read(stacks).callers
    profile = Pprof(pprof.render(callers, "cycles", "p"))
    whole = total(stack.cost for stack in callers)
    assert profile.totals() == [whole.get(metric) for metric in PPROF_METRICS]
    expected = [[frame.function for frame in reversed(stack.frames)] for stack in callers if stack.cost]
    assert [profile.stack(sample) for sample in profile.samples] == expected


def test_large_numbers_survive() -> None:
    stack = read(recursive_sort()).callers[0]
    big = Stack(stack.innermost, Cost((1 << 63) - 1, 300, 0, 127))
    assert Pprof(pprof.render([big], "walks", "p")).totals()[:4] == [(1 << 63) - 1, 300, 0, 127]


@pytest.mark.slow
def test_go_reads_the_profile(pagelab: Pagelab, tmp_path: Path) -> None:
    go = shutil.which("go")
    assert go, "`go tool pprof` reads the export: install the package golang-go"
    save(tmp_path / "r.json", recursive_sort())
    made = pagelab("stacks", "r.json", "--format", "pprof", "-o", "r.pb.gz", "--metric", "walks")
    assert made.returncode == 0, made.stderr
    top = _pprof(go, tmp_path, "-top", "-cum", "-nodefraction=0")
    assert re.search(r"^Showing nodes accounting for 111, 100% of 111 total$", top, re.MULTILINE)
    lines = re.finditer(r"^ *(\d+) .*% +(\d+) +[\d.]+%  (.*)$", top, re.MULTILINE)
    rows = {match[3]: (match[1], match[2]) for match in lines}
    assert rows["main"] == ("5", "111")
    assert rows["sort"] == ("70", "90")
    assert rows["swap (inline)"] == ("20", "20")
    faults = _pprof(go, tmp_path, "-top", "-sample_index=fault_cycles")
    assert "of 16000cycles total" in faults
    raw = _pprof(go, tmp_path, "-raw")
    assert "walks/count[dflt] translation_cycles/cycles faults/count fault_cycles/cycles cycles/cycles" in raw
    assert PROGRAM in raw


def _pprof(go: str, folder: Path, *options: str) -> str:
    # The first run builds the tool.
    done = subprocess.run(
        [go, "tool", "pprof", *options, "r.pb.gz"], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
