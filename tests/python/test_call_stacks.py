"""Call stacks of results: how they are read, named and added up."""

import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from call_stack_documents import LIBRARY, PROGRAM, Document, at, cost, recursive_sort, results_with, save
from conftest import Pagelab, assert_fails

import pagelab as package
from pagelab.call_stacks import callgrind, document, flame, listing
from pagelab.call_stacks.annotate import annotate
from pagelab.call_stacks.cost import METRICS, Cost, total
from pagelab.call_stacks.stacks import CallStacks, without_arguments
from pagelab.comparison.functions import name_functions
from pagelab.comparison.metrics import PLACE_METRICS

WHOLE = Cost(111, 2_220, 16, 16_000)


def read(stacks: Document) -> CallStacks:
    return CallStacks.from_document(document.parse(stacks), set())


def names(stacks: CallStacks) -> list[list[str]]:
    return [[frame.function for frame in stack.frames] for stack in stacks.callers]


def test_the_metrics_are_what_a_cost_has() -> None:
    costs = Cost(1, 2, 3, 4)
    assert [costs.get(metric) for metric in METRICS] == [6, 1, 2, 3, 4]


def test_stacks_begin_with_the_outermost_function_and_end_with_the_access() -> None:
    stacks = read(recursive_sort())
    assert names(stacks) == [
        ["main", "sort"],
        ["main", "sort", "sort"],
        ["main", "sort", "sort", "sort", "partition", "swap"],
        ["main", "load(char const*)", "[libheap.so]"],
        ["main", "load(char const*)", "py::key", "[unknown]"],
        ["main"],
    ]
    leaf = stacks.callers[2].frames[-1]
    assert (leaf.place, leaf.source, leaf.line, leaf.file) == ("swap.h:3", "/src/demo/swap.h", 3, PROGRAM)
    assert stacks.callers[4].frames[2].source == "/src/demo/keys.py"
    assert stacks.cost == WHOLE == total(stack.cost for stack in stacks.sites)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("main", "main"),
        ("Table::find(int) const", "Table::find"),
        ("std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector<…>::push_back"),
        ("std::map<K, std::set<V> >::at<Q>(K const&)", "std::map<…>::at<…>"),
        ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ("ns::operator<(A const&, B const&)", "ns::operator<(A const&, B const&)"),
        ("py::<lambda>", "py::<…>"),
        ("a -> b", "a -> b"),
        ("less < than", "less < than"),
        ("[libz.so.1.3]", "[libz.so.1.3]"),
    ],
)
def test_tables_name_functions_without_arguments(name: str, short: str) -> None:
    assert without_arguments(name) == short


def test_a_function_is_annotated_by_the_last_part_of_its_name() -> None:
    stacks = read(recursive_sort())
    by_last = annotate(stacks.callers, "load", "cycles", stacks.cost)
    assert by_last == annotate(stacks.callers, "load(char const*)", "cycles", stacks.cost)


def test_accesses_without_an_instruction_are_the_kernels() -> None:
    stacks = recursive_sort()
    stacks["rows"][4] |= at(None, 0)
    assert names(read(stacks))[4] == ["main", "load(char const*)", "py::key", "[kernel for the program]"]


def test_memory_whose_creation_has_no_stack_is_told_apart() -> None:
    stacks = read(recursive_sort())
    assert [[frame.function for frame in stack.frames] for stack in stacks.sites] == [
        ["main", "load(char const*)"],
        ["main", "load(char const*)"],
        ["main", "[heap outside of known blocks]"],
        ["[memory of unknown origin]"],
    ]
    early = recursive_sort() | {"sites": [{"kind": "allocation", "node": 0, "count": 1, "bytes": 8, **cost(1, 2)}]}
    assert read(early).sites[0].frames[0].function == "[allocation without a call stack]"


def test_what_a_list_leaves_out_is_a_stack_of_its_own() -> None:
    cut = recursive_sort() | {"rows_others": 9, "rows_others_cost": cost(7, 70), "sites_others_cost": cost(7, 70)}
    stacks = read(cut)
    assert names(stacks)[-1] == ["[accesses that were left out]"]
    assert stacks.cost == WHOLE + Cost(7, 70) == total(stack.cost for stack in stacks.sites)


@pytest.mark.parametrize(
    ("name", "function", "place"),
    [
        ("py::run:/srv/app.py", "py::run", "app.py"),
        ("py::<module>:<frozen importlib._bootstrap>", "py::<module>", "<frozen importlib._bootstrap>"),
        ("JS:*handle /srv/app.js:12:5", "handle", "app.js:12"),
        ("LazyCompile:~ file:///srv/app.mjs:7:1", "(anonymous)", "app.mjs:7"),
        ("Lcom/example/Sorter;::sort", "Lcom/example/Sorter;::sort", ""),
    ],
)
def test_perf_maps_name_functions_and_sources(name: str, function: str, place: str) -> None:
    rows = [{"node": 0, **at(None, 0x7F0000, name=name), **cost(1, 1)}]
    frame = read({"nodes": [{"parent": None}], "rows": rows, "sites": []}).callers[0].frames[0]
    assert (frame.function, frame.place) == (function, place)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("nodes", [], "no node for the program's start"),
        ("nodes", [{"parent": 0}], "node 0 has a parent"),
        ("nodes", [{"parent": None}, {"parent": 1, "file": None, "offset": 1}], "the parent of node 1 is 1"),
        ("nodes", [{"parent": None}, {"parent": 0, "file": None, "offset": -1}], "offset is -1"),
        ("nodes", [{"parent": None}, {"parent": 0, "file": 3, "offset": 1}], "3 is no name"),
        ("rows", [{"node": 7, **at(None, 1), **cost(1, 1)}], "no node 7"),
        ("rows", [{"node": 0, **at(None, 1), **cost(-1, 1)}], "walks is -1"),
        ("rows", [{"node": 0, **at(None, 1), "walks": 1}], "'translation_cycles' is missing"),
        ("rows", 3, "not iterable"),
        ("sites", [{"kind": "pool", "node": 0, "count": 1, "bytes": 1, **cost(1, 1)}], "kind of memory 'pool'"),
        ("sites", [{"kind": "heap", "node": 0, "count": 1.5, "bytes": 1, **cost(1, 1)}], "count is 1.5"),
        ("rows_others", "many", "rows_others is 'many'"),
    ],
)
def test_damaged_stacks_are_refused(key: str, value: Any, message: str) -> None:
    results = results_with({"nodes": [{"parent": None}], "rows": [], "sites": []} | {key: value})
    with pytest.raises(package.UsageError, match=rf"call stacks of radix are damaged: .*{re.escape(message)}"):
        CallStacks.from_result(results["radix"], results)


def test_results_without_stacks_say_how_to_get_them(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "none.json", None)
    assert_fails(pagelab("stacks", "none.json"), 2, "radix have no call stacks", "pagelab record --stacks")
    save(tmp_path / "r.json", recursive_sort())
    assert_fails(pagelab("stacks", "r.json", "-s", "radix-2m"), 2, "radix-2m have no call stacks")
    assert_fails(pagelab("stacks", "r.json", "-s", "ecpt"), 2, "r.json", "no system 'ecpt'", "radix, radix-2m")
    assert pagelab("run", "seq:size=64KiB", "--json", "bare.json", "-q").returncode == 0
    (tmp_path / "folder.trace").mkdir()
    assert_fails(pagelab("stacks", "folder.trace"), 2, "folder.trace", "--profile --json")
    assert_fails(pagelab("stacks", "bare.json"), 2, "have no profile", "--profile", "--stacks")


def test_the_table_has_the_most_expensive_stacks_first(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    shown = pagelab("stacks", "r.json", "--rows", "2")
    assert shown.returncode == 0, shown.stderr
    assert "111 walks with 2,220 cycles of translation, 16 page faults with 16k" in shown.stdout
    lines = shown.stdout.splitlines()
    first = next(at for at, line in enumerate(lines) if "libheap.so+0x99" in line)
    assert re.match(r" +56\.0 % +10\.2k +10 +10  libheap", lines[first])
    assert lines[first + 1].split() == ["<", "load", "(load.c:31)"]
    assert lines[first + 2].split() == ["<", "main", "(main.c:14)"]
    assert lines[-1] == "4 more places take 27.0 % of cycles; --rows shows more."
    by_walks = pagelab("stacks", "r.json", "--metric", "walks", "--rows", "1").stdout
    assert re.search(r"36\.0 % +800 +40 +sort \(sort\.c:20\)\n +< main \(main\.c:10\)", re.sub(r" +0 ", " ", by_walks))


def test_memory_is_listed_by_who_created_it(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    shown = pagelab("stacks", "r.json", "--by", "allocation", "--metric", "walks").stdout
    assert re.search(r"81\.1 % +1,800 +90 +0 +12 +12 MiB  allocated by load \(load\.c:31\)", shown)
    assert re.search(r"9\.0 % .* 1 MiB  mapped by load", shown)
    assert "[heap outside of known blocks]" in shown
    mapped = pagelab("stacks", "r.json", "--by", "mapping", "--metric", "walks").stdout
    assert re.search(r"9\.0 % .* 1 MiB  mapped by load", mapped)
    assert "allocated" not in mapped


def test_recursive_functions_count_once(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    shown = pagelab("stacks", "r.json", "--by", "function", "--metric", "walks").stdout
    row = r"^ *([\d.]+) % +(?:([\d.]+) %)? +([\d.,k]+) +(\d+) +\d+  (.*)$"
    by_function = {match[5]: match.groups()[:4] for match in re.finditer(row, shown, re.MULTILINE)}
    assert by_function["main in sorter"][::3] == ("100.0", "111")
    # 40 and 30 of its own, and 20 of what is inlined in it.
    assert by_function["sort in sorter"] == ("81.1", "63.1", "3,800", "90")
    assert by_function["[libheap.so]"][3] == "10"


def test_long_symbols_are_folded_and_not_cut() -> None:
    name = "std::map<" + ", ".join(f"Key{n}<Value{n}>" for n in range(20)) + ">::operator[](int)"
    long = recursive_sort()
    long["symbols"][PROGRAM]["16"] = [(name, "/src/demo/main.c:10")]
    stacks = read(long)
    for lines in (
        listing.callers(stacks.callers, "cycles", WHOLE, listing.Layout(10, 8, 100)),
        listing.functions(stacks.callers, "cycles", WHOLE, listing.Layout(10, 8, 100)),
    ):
        assert max(map(len, lines)) <= 100
        assert "".join(name.split()) in "".join("".join(lines).split())


def test_callers_beyond_the_depth_are_counted(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    shown = pagelab("stacks", "r.json", "--depth", "1").stdout
    # Of one more, its line says as much as its number.
    assert re.search(r"libheap.*\n +< load.*\n +< main", shown)
    assert re.search(r"swap.*\n +< partition.*\n +< 4 more callers; --depth shows more", shown)


def test_mistakes_on_the_command_line(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    for arguments, message in (
        (("--by", "function", "--format", "folded"), "--by function is a table"),
        (("--annotate", "main", "--format", "svg"), "leave out --format svg"),
        (("--annotate", "main", "--by", "function"), "--annotate works with --by caller"),
        (("--sources", "."), "only with --annotate"),
        (("--annotate", "main", "--sources", "nowhere"), "nowhere: there is no such folder"),
        (("--format", "svg", "-o", "a.html"), "a.html: the output is a flame graph"),
        (("-o", "r.json"), "r.json is named twice"),
        (("--annotate", "lod"), "no stack with any cost contains a function or source file lod"),
    ):
        assert_fails(pagelab("stacks", "r.json", *arguments), 2, message)
    assert json.loads((tmp_path / "r.json").read_text())["results"]
    assert not (tmp_path / "a.html").exists()


def test_source_lines_have_their_costs(tmp_path: Path) -> None:
    source = tmp_path / "demo" / "sort.c"
    source.parent.mkdir()
    source.write_text("".join(f"\tline {number};\n" for number in range(1, 31)))
    stacks = read(recursive_sort())
    lines = annotate(stacks.callers, "sort.c", "walks", WHOLE, [tmp_path])
    assert lines[:2] == ["/src/demo/sort.c", f"read from {source}"]
    by_number = {
        match[2]: match[1].split() for line in lines if (match := re.match(r"(.*?)(\d+)      line \2;$", line))
    }
    assert by_number["20"] == ["63.1", "%", "1,400", "70"]
    # What calls cost stands alone: 50 walks by sort's calls of itself, of which a stack of two counts once.
    assert by_number["22"] == ["50"]
    assert by_number["21"] == ["20"] == by_number["8"]
    assert by_number["17"] == []
    assert "12" not in by_number
    assert [line.strip() for line in lines].count("…") == 1


def test_annotations_say_what_is_missing() -> None:
    stacks = read(recursive_sort())
    lines = annotate(stacks.callers, "load", "cycles", WHOLE)
    assert lines[0] == "/src/demo/load.c"
    assert "The source file was not found" in lines[1]
    assert lines[-1].split() == ["11.32k", "31"]
    with pytest.raises(package.UsageError, match=r"the source lines of \[libheap.so\] are unknown: compile it with -g"):
        annotate(stacks.callers, "[libheap.so]", "cycles", WHOLE)
    with pytest.raises(package.UsageError, match=r"a function or source file sorting; there is sort"):
        annotate(stacks.callers, "sorting", "cycles", WHOLE)


def test_a_source_newer_than_the_program_is_told(tmp_path: Path) -> None:
    program, source = tmp_path / "sorter", tmp_path / "sort.c"
    program.write_text("")
    source.write_text("int main(void) {\n    return 0;\n}\n")
    rows = [{"node": 0, **at(str(program), 16), **cost(1, 1)}]
    symbols = {str(program): {"16": [("main", f"{source}:2")]}}
    stacks = read({"nodes": [{"parent": None}], "rows": rows, "sites": [], "symbols": symbols})
    for seconds, is_told in ((-100, False), (100, True)):
        os.utime(source, (1_700_000_000 + seconds,) * 2)
        os.utime(program, (1_700_000_000,) * 2)
        lines = annotate(stacks.callers, "main", "cycles", Cost(1, 1))
        assert any(line.startswith(f"The source file is newer than {program}") for line in lines) == is_told
        assert any(re.search(r"100\.0 % +1 +1 +2      return 0;$", line) for line in lines)


def test_a_flame_graph_is_as_wide_as_its_costs() -> None:
    stacks = read(recursive_sort())
    graph = flame.draw(stacks.callers, "walks", "a <label>")
    bars = re.findall(r'<svg x="([\d.]+)%" y="(\d+)" width="([\d.]+)%".*?<title>(.*?)[: ]', graph.svg)
    widths = {(name, int(y) // 18): float(width) for _, y, width, name in bars}
    assert widths["main", 0] == 100
    assert widths["sort", 1] == pytest.approx(100 * 90 / 111, abs=0.001)
    assert widths["load(char", 1] == pytest.approx(100 * 16 / 111, abs=0.001)
    assert "a &lt;label&gt;" in graph.svg
    assert "load(char const*)</text>" in graph.svg
    assert (graph.height, graph.note) == (6 * 18, "")
    # Children stand below their callers.
    begins = {(name, int(y) // 18): float(x) for x, y, _, name in bars}
    assert begins["load(char", 1] == pytest.approx(widths["sort", 1], abs=0.001)
    assert begins["[libheap.so]", 2] == begins["load(char", 1]


@pytest.mark.parametrize(
    ("metric", "colours"),
    [
        ("walks", {"#e28e99"}),
        ("translation_cycles", {"#e28e99"}),
        ("faults", {"#f6c486"}),
        ("fault_cycles", {"#f6c486"}),
    ],
)
def test_a_flame_graphs_colour_is_that_of_its_metric(metric: str, colours: set[str]) -> None:
    stacks = read(recursive_sort())
    assert set(re.findall(r'fill="(#\w+)"/>', flame.draw(stacks.callers, metric, "").svg)) == colours
    assert "Red:" not in flame.render(stacks.callers, metric, "")
    mixed = flame.draw(stacks.callers, "cycles", "").svg
    assert len(set(re.findall(r'fill="(#\w+)"/>', mixed))) > 2
    assert "Red: translation, orange: page faults" in flame.render(stacks.callers, "cycles", "")


def test_metrics_have_one_spelling(pagelab: Pagelab, tmp_path: Path) -> None:
    save(tmp_path / "r.json", recursive_sort())
    assert set(METRICS) - {"cycles"} == set(PLACE_METRICS) - {"paging_cycles"}
    table = pagelab("stacks", "r.json").stdout
    assert re.search(r"^ +share +cycles +walks +faults ", table, re.MULTILINE)
    for metric in METRICS:
        made = pagelab("stacks", "r.json", "--metric", metric, "--format", "callgrind")
        assert made.returncode == 0, made.stderr
        events = re.search(r"^events: (.*)$", made.stdout, re.MULTILINE)
        assert events
        assert events[1].split()[0] == metric
        assert set(events[1].split()) == set(METRICS)


def test_a_system_that_maps_no_large_page_says_so(pagelab: Pagelab, tmp_path: Path) -> None:
    document = results_with(recursive_sort()).to_json()
    warning = "no memory was in large pages under radix-2m"
    for name, pages, warm_up, is_said in (
        ("none.json", 0, None, True),
        ("some.json", 3, None, False),
        # Those that were mapped before counting began are in no statistic.
        ("later.json", 0, 100, False),
    ):
        changed = json.loads(document)
        radix, large = changed["results"]
        large["profile"]["stacks"] = radix["profile"]["stacks"]
        large["stats"] |= {"layer.native.pages.2M": pages, "khugepaged.collapsed": 0}
        changed["request"]["warm_up"] = warm_up
        (tmp_path / name).write_text(json.dumps(changed))
        shown = pagelab("stacks", name, "-s", "radix-2m")
        assert shown.returncode == 0, shown.stderr
        assert (warning in " ".join(shown.stderr.split())) is is_said
        assert warning not in pagelab("stacks", name, "-s", "radix").stderr


def test_costs_of_deep_stacks_are_added_once_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    depth, rows = 300, 200
    deep: Document = {"nodes": [{"parent": None}], "sites": []}
    deep["nodes"] += [{"parent": number, **at(LIBRARY, number % 7)} for number in range(depth)]
    deep["rows"] = [{"node": depth, **at(PROGRAM, number), **cost(1, 1)} for number in range(rows)]
    stacks = read(deep)
    added = 0
    add = Cost.__add__

    def count(one: Cost, other: Cost) -> Cost:
        nonlocal added
        added += 1
        return add(one, other)

    monkeypatch.setattr(Cost, "__add__", count)
    for make in (flame.draw, lambda profile, metric, _: callgrind.render(profile, metric, "")):
        added = 0
        make(stacks.callers, "walks", "")
        # A few for each function and each row, where adding stack by stack takes rows times depth.
        assert rows <= added < 10 * (depth + rows)


def test_what_a_flame_graph_does_not_draw_is_told() -> None:
    deep: Document = {"nodes": [{"parent": None}], "sites": []}
    deep["nodes"] += [{"parent": number, **at(LIBRARY, number)} for number in range(200)]
    deep["rows"] = [
        {"node": 200, **at(PROGRAM, 0x20), **cost(100_000, 1)},
        {"node": 0, **at(PROGRAM, 0x10), **cost(9, 1)},
    ]
    graph = flame.draw(read(deep).callers, "walks", "deep")
    assert graph.svg.count("<title>") == 100
    assert graph.height == 1800
    assert "1 function below 0.1 % each, 0.0 % together" in graph.note
    assert "Calls deeper than 100 levels are not drawn." in graph.note


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("addr2line"), reason="needs gcc and binutils")
def test_results_keep_symbols_of_their_files(tmp_path: Path) -> None:
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("int main(void) {\n  return 0;\n}\n")
    subprocess.run(["gcc", "-O0", "-g", "-no-pie", "-o", program, source], check=True)
    nm = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    # Segments of such a program are where their addresses say, but for the base.
    offset = int(re.search(r"^(\w+) T main$", nm, re.MULTILINE)[1], 16) - 0x400000  # type: ignore[index]
    stacks = {
        "nodes": [{"parent": None}],
        "rows": [{"node": 0, **at(str(program), offset), **cost(1, 1)}],
        "sites": [],
    }
    results = results_with(stacks)
    before = CallStacks.from_result(results["radix"], results)
    kept = name_functions(results)
    program.unlink()
    after = CallStacks.from_result(kept["radix"], kept)
    assert [stack.frames for stack in before.callers] == [stack.frames for stack in after.callers]
    assert [frame.function for frame in after.callers[0].frames] == ["main"]
    assert names(CallStacks.from_result(results["radix"], results)) == [["[p]"]]


def test_reading_changes_no_document() -> None:
    stacks = recursive_sort()
    before = copy.deepcopy(stacks)
    read(stacks)
    assert stacks == before
