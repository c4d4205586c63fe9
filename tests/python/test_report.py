"""The report: what it says, that it needs nothing beside it, and that a browser draws it."""

import copy
import html
import json
import os
import re
import shlex
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from altair.utils.schemapi import SchemaValidationError
from call_stack_documents import recursive_sort, results_with
from conftest import ROOT, Pagelab, assert_fails
from rich.console import Console

import pagelab as package
from pagelab.replay.simulation import System
from pagelab.report import charts, executive, glossary, memory, render, words, write
from pagelab.results.request import Request
from pagelab.results.results import Results
from pagelab.results.table import short

SOURCE = "gups:size=16MiB,updates=20K"
SYSTEMS = ("radix", "radix-2m", "nested-radix")
_PROGRAM = """static int hidden(int *a) {
  return a[1];
}

int main(int n, char **v) {
  return hidden(&n);
}
"""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def results() -> Results:
    return package.run(SOURCE, SYSTEMS, windows=10, profile=True)


class _Page(HTMLParser):
    """What a browser would fetch, the specifications of charts, and ids beside the links to them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.specs: list[Any] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self._kind: str | None = None
        self._data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._data = ""
        self._kind = values.get("type") if tag == "script" else None
        self.fetched += [
            value for name in ("src", "href") if (value := values.get(name)) and not value.startswith(("#", "data:"))
        ]
        self.ids += [value] if (value := values.get("id")) else []
        self.links += [value[1:]] if (value := values.get("href")) and value.startswith("#") else []

    def handle_data(self, data: str) -> None:
        self._data += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._kind == "application/json":
            self.specs.append(json.loads(self._data))


def test_charts_follow_the_schema(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chart that does not is an error where charts are checked, as they are here."""
    monkeypatch.setattr(charts, "without_checks", nullcontext)
    assert render([results])
    monkeypatch.setattr(charts, "_BAR", "wide")
    with pytest.raises(SchemaValidationError, match="wide"):
        render([results])
    monkeypatch.undo()


def test_it_needs_nothing_beside_it(results: Results) -> None:
    page = _Page(render([results]))
    assert page.fetched == []
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    # Cycles, references, stages, three over time, two distributions; and of each system the steps of walks, the stages
    # of faults, their references and those of the slowest.
    assert len(page.specs) == 3 + 3 + 2 + 4 * len(SYSTEMS)


def test_the_same_results_give_the_same_bytes(results: Results) -> None:
    again = Results.from_json(results.to_json())
    assert render([results]) == render([again])


def test_its_words_are_the_counts(results: Results) -> None:
    first = results.systems[0]
    stats = first.stats
    share = (stats["cycles.translation"] + stats["cycles.fault"]) / stats["cycles"]
    assert f"{100 * share:.0f} % of its cycles" in executive.sentences(results.systems)[0]
    changes = {label: (ratio, text) for label, ratio, text in words.comparisons(results.systems)}
    large = results["radix-2m"].stats
    assert changes["radix-2m"][0] == f"×{large['cycles'] / stats['cycles']:.2f}"
    assert "fewer cycles" in changes["radix-2m"][1]
    assert "more cycles" in changes["nested-radix"][1]


def test_the_executive_line_is_the_statistics(results: Results) -> None:
    first, *others = results.systems
    stats = first.stats
    cost, lever = executive.sentences(results.systems)
    numbers = [float(number) for number in re.findall(r"([\d.]+) %", cost)]
    whole = stats["cycles"] - stats["cycles.idle"]
    counted = [stats["cycles.translation"] + stats["cycles.fault"], stats["cycles.fault"], stats["cycles.translation"]]
    assert numbers == [pytest.approx(100 * count / whole, abs=0.51) for count in counted]
    best = min(others, key=lambda result: result.stats["cycles"])
    assert f"{best.label} would save the most" in lever
    (saved,) = re.findall(r"([\d.]+) %", lever)
    assert float(saved) == pytest.approx(100 * (1 - best.stats["cycles"] / stats["cycles"]), abs=0.51)
    # Before everything else on the page, and the pictures right behind it.
    page = render([results])
    places = [page.index(text) for text in ("would save the most", 'id="pictures1"', 'id="changes1"', 'id="details1"')]
    assert places == sorted(places)


def test_the_executive_line_says_when_nothing_would_help(results: Results) -> None:
    worse = [results["radix-2m"], results["radix"], results["nested-radix"]]
    assert "None of the systems compared would save anything. nested-radix would cost" in executive.sentences(worse)[1]
    assert "`pagelab advise` does" in executive.sentences([results["radix"]])[1]


def test_walks_of_almost_every_access_are_said_in_words(results: Results) -> None:
    first = results.systems[0]

    def sentence(accesses: int) -> str:
        return words.costs(replace(first, stats={**first.stats, "accesses": accesses, "walk.count": 1000}))[0]

    assert "Almost every access needs a page walk" in sentence(1040)
    assert "One access in 1.1 needs a page walk" in sentence(1100)
    assert "One access in 12 needs a page walk" in sentence(12_000)


def test_costs_per_mib_are_of_the_memory_that_was_touched(results: Results) -> None:
    touched, how = executive.touched_bytes(results.systems)
    assert how == "touched memory"
    assert touched == pytest.approx(results["radix"].stats["fault.minor.count"] * 4096, rel=0.01)
    rows, note = executive.costs(results.systems)
    assert "of touched memory" in note
    for row, result in zip(rows, results.systems, strict=True):
        stats = result.stats
        of_faults = stats["cycles.fault"] / (touched / (1 << 20))
        assert (row.label, row.fault_cycles_per_mib) == (result.label, short(round(of_faults)))
        assert row.cycles_per_fault == f"{stats['cycles.fault'] / stats['fault.minor.count']:,.0f}"
        paging = (stats["cycles.fault"] + stats["cycles.translation"]) / (touched / (1 << 20))
        assert row.paging_cycles_per_mib == short(round(paging))
    # Pages of 2 MiB hide which parts of them were touched.
    assert executive.touched_bytes([results["radix-2m"]])[1] == "memory mapped under radix-2m"


def test_words_on_hover_are_in_the_glossary(results: Results) -> None:
    page = render([results])
    meanings = {html.unescape(title) for title in re.findall(r'<abbr title="([^"]*)">', page)}
    assert len(meanings) > 10
    assert meanings <= set(glossary.WORDS.values())
    listed = page[page.index('id="words"') :]
    for meaning in meanings:
        assert f"<dd>{html.escape(meaning, quote=False)}" in listed.replace("&#39;", "'")
    assert (ROOT / "docs" / "glossary.md").read_text() == glossary.markdown(), "run: python site/glossary.py --write"


def test_a_word_is_explained_once_and_not_within_names() -> None:
    text = str(glossary.explained("A TLB and TLBs of nested-radix on this page; <host> & seed=3, page faults"))
    assert text.count("<abbr") == 4
    assert "nested-radix on this page; &lt;<abbr" in text
    assert ">page faults</abbr>" in text


def test_small_rows_are_folded(results: Results) -> None:
    regions = results["radix"].profile
    assert regions is not None
    many = json.loads(results.to_json())
    profile = many["results"][0]["profile"]
    row = profile["regions"]["rows"][0]
    small = {**row, "translation_cycles": 1, "fault_cycles": 1}
    profile["regions"]["rows"] = [row, *[small | {"start": row["start"] + (at << 30)} for at in range(1, 10)]]
    page = render([Results.from_json(json.dumps(many))])
    assert "5 small rows, under 0.1 % together" in page


def test_tables_of_many_systems_are_several(results: Results) -> None:
    document = copy.deepcopy(results.to_document())
    document["results"] = [document["results"][at % 3] | {"system": f"s{at}"} for at in range(6)]
    page = render([Results(document)])
    assert page.count('class="wide comparison"') == 2


def test_charts_hold_all_cycles(results: Results) -> None:
    spec = _Page(render([results])).specs[0]
    for result in results.systems:
        rows = [row for row in _rows(spec) if row["system"] == result.label]
        assert sum(row["cycles"] for row in rows) == result.stats["cycles"]


def test_references_of_faults_are_as_long_as_the_faults(results: Results) -> None:
    for result in results.systems:
        assert result.profile
        recorded = result.profile["faults"]
        assert recorded["samples"]
        _check_fault_steps(charts.fault_steps(recorded["samples"]), recorded["samples"])
        alone = charts.fault_steps([recorded["slowest"]], slowest=True)
        _check_fault_steps(alone, [recorded["slowest"]])
        assert {row["sample"].split()[0] for row in _rows(alone["layer"][0], alone["datasets"])} == {"slowest"}


def _check_fault_steps(spec: Any, samples: list[Any]) -> None:
    """That the pieces of a chart's bars, and the strips below them, are the samples from begin to end."""
    pieces, stages = (_rows(layer, spec["datasets"]) for layer in spec["layer"])
    bars = list(dict.fromkeys(row["sample"] for row in pieces))
    assert len(bars) == len(samples)
    for bar, sample in zip(bars, samples, strict=True):
        own = [row for row in pieces if row["sample"] == bar]
        assert [row["begin"] for row in own[1:]] == [row["end"] for row in own[:-1]]
        assert own[-1]["end"] == sample["cycles"]
        assert sum(1 for row in own if row["place"] not in ("instructions", "rest")) > 3
        stage_ends = [(row["of"], row["end"]) for row in stages if row["sample"] == bar]
        assert {stage_name for stage_name, _ in stage_ends} == {
            f"{stage['layer']}: {stage['stage']}" for stage in sample["stages"]
        }
        assert stage_ends[-1][1] == sum(stage["cycles"] for stage in sample["stages"])


def test_a_line_over_time_begins_where_the_run_does(results: Results) -> None:
    for _, spec in charts.over_time(results.systems):
        for result in results.systems:
            own = [row for row in _rows(spec) if row["system"] == result.label]
            assert [row["accesses"] for row in own[:2]] == [0, result.windows[0]["accesses"]]
            assert own[0]["value"] == own[1]["value"]
            assert len(own) == len(result.windows) + 1


def test_curves_that_coincide_can_be_told_apart(results: Results) -> None:
    for spec in [chart for _, chart in charts.over_time(results.systems)] + [
        charts.latencies(results.systems, "walks")
    ]:
        widths = {row["system"]: row["width"] for row in _rows(spec)}
        # Each is thinner than what it is drawn over.
        assert list(widths.values()) == sorted(widths.values(), reverse=True)
        assert len(set(widths.values())) == len(SYSTEMS)
        assert spec["encoding"]["strokeWidth"] == {
            "field": "width",
            "legend": None,
            "scale": None,
            "type": "quantitative",
        }


def test_levels_that_hardly_any_walk_reads_are_no_empty_rows(results: Results) -> None:
    first = results.systems[0]
    rare = first.stats | {f"walk.layer.native.level4.refs.{place}": 0 for place in ("l2", "l3", "dram")}
    rare |= {"walk.count": 10_000, "walk.layer.native.level4.refs.l1": 49}
    seen = rare | {"walk.layer.native.level4.refs.l1": 51}
    levels = [
        {row["level"] for row in _rows(charts.walk_references([replace(first, stats=stats)]))} for stats in (rare, seen)
    ]
    assert "native 4" not in levels[0]
    assert "native 4" in levels[1]


def test_legends_of_references_are_above_and_below(results: Results) -> None:
    spec = charts.fault_steps(results.systems[0].profile["faults"]["samples"])  # type: ignore[index]
    assert [layer["encoding"]["color"]["legend"]["orient"] for layer in spec["layer"]] == ["top", "bottom"]


@pytest.mark.parametrize(
    ("core", "sentence"),
    [
        ({"model": "window", "cycles_per_instruction": 0.25}, "it predicts every branch"),
        ({"model": "window", "cycles_per_instruction": 0.25, "branch_predictor": "tage"}, "predicts branches (tage)"),
        (
            {"model": "in-order", "cycles_per_instruction": 0.5, "l1_hit_hidden": True},
            "an in-order core that predicts every",
        ),
        (
            {"model": "in-order", "cycles_per_instruction": 1, "l1_hit_hidden": True, "branch_predictor": "tage"},
            "an in-order core that predicts branches (tage) and waits",
        ),
    ],
)
def test_the_core_is_said_as_it_is_configured(core: dict[str, Any], sentence: str) -> None:
    run = package.run("seq:size=64KiB", set={"machine.core": core})
    assert sentence in words.trust(run.systems)[0]


def test_results_without_steps_of_faults_make_a_page(results: Results) -> None:
    document = copy.deepcopy(results.to_document())
    for result in document["results"]:
        recorded = result["profile"]["faults"]
        for sample in (*recorded["samples"], recorded["slowest"]):
            del sample["steps"]
    assert "reference by reference" in render([results])
    assert "reference by reference" not in render([Results(document)])


def _rows(spec: Any, datasets: Any = None) -> list[dict[str, Any]]:
    """What a chart draws, or a layer of one that has these data sets."""
    rows: list[dict[str, Any]] = (datasets or spec["datasets"])[spec["data"]["name"]]
    return rows


def test_regions_are_the_programs(results: Results) -> None:
    rows, _ = memory.regions(results.systems[0])
    assert (rows[0].what, rows[0].size) == ("anonymous memory", "16 MiB")
    assert max(rows[0].spark) == 1
    assert sum(row.part for row in rows) == pytest.approx(1)


def test_cycles_per_fault_are_of_the_programs_faults() -> None:
    # A guest that has just booted: its host handles faults, too.
    results = package.run(SOURCE, "nested-radix-cold")
    stats = results["nested-radix-cold"].stats
    mean = stats["cycles.fault"] / stats["fault.minor.count"]
    assert stats["fault.nested.count"] > 1000
    assert f"{mean:,.0f} cycles each" in " ".join(words.costs(results["nested-radix-cold"]))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(results.summary())
    line = next(line for line in captured.get().splitlines() if line.startswith("nested-radix-cold"))
    assert line.split()[-1] == f"{mean:,.0f}"


def test_a_run_without_paging_has_no_empty_parts() -> None:
    run = package.run("seq:size=64KiB,accesses=20K", "radix", warm_up="10K", windows=4, profile=True)
    text = render([run])
    assert "No access waited for its translation" in text
    assert "Step by step" not in text
    assert "<h3>Regions</h3>" not in text
    # Where the cycles go, alone.
    assert len(_Page(text).specs) == 1


def test_waiting_is_a_class_of_its_own() -> None:
    run = package.run("pagerank:vertices=4K,threads=2@0-1", "radix", profile=True)
    stats = run.systems[0].stats
    assert stats["cycles.blocked"] > 0
    rows = {row["class"]: row["cycles"] for row in _rows(_Page(render([run])).specs[0])}
    assert rows["waiting"] == stats["cycles.blocked"] + stats["cycles.lock_wait"]


def test_commands_in_sentences_are_code() -> None:
    page = render([package.run("pagerank:vertices=4K,threads=2@0-1", "radix")])
    assert "<code>pagelab run --interleavings K</code>" in page
    assert not [paragraph for paragraph in re.findall(r"<p[ >].*?</p>", page, re.DOTALL) if "`" in paragraph]


def test_text_of_a_trace_is_no_markup() -> None:
    document = copy.deepcopy(package.run("seq:size=64KiB", "radix", profile=True).to_document())
    evil = "<script>alert(1)</script></script>"
    document["results"][0]["sources"][0]["name"] = evil
    document["results"][0]["profile"]["regions"]["rows"][0]["file"] = evil
    document["results"][0]["label"] = evil
    document["results"][0]["warnings"] = [f"`{evil}`"]
    page = render([Results(document)])
    assert "<script>alert" not in page
    assert all(evil == row["system"] for spec in _Page(page).specs[:1] for row in _rows(spec))


def test_results_without_a_profile_make_a_page(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("run", SOURCE, "--max-accesses", "1K", "--json", "r.json", "-q").returncode == 0
    made = pagelab("report", "r.json", "-o", "new/page.html")
    assert made.returncode == 0, made.stderr
    assert "r.json has no profile" in made.stderr
    text = (tmp_path / "new/page.html").read_text()
    assert "What was run" in text
    assert "Where in memory and code" not in text


def test_run_writes_a_report_and_results_that_give_the_same(pagelab: Pagelab, tmp_path: Path) -> None:
    run = pagelab("run", SOURCE, "-s", "radix", "--report", "a.html", "--json", "r.json", "-q")
    assert run.returncode == 0, run.stderr
    assert pagelab("report", "r.json", "-o", "b.html").returncode == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def _shown(page: Path) -> str:
    match = re.search(r"<h2>What was run</h2>.*?<pre>(.*?)</pre>", page.read_text(), re.DOTALL)
    assert match
    return html.unescape(match[1])


def test_the_command_on_the_page_makes_the_same_run(pagelab: Pagelab, tmp_path: Path) -> None:
    asked = [f"{SOURCE}@0", "seq:size=1MiB@1-2,memory_limit=64MiB"]
    asked += ["--with", "random:size=2MiB,accesses=2K@3", "--arrivals", "seq:size=64KiB@1,per_second=1000,count=2"]
    asked += ["-s", "radix", "-s", "radix@linux-4.9{machine.tlb.l2_latency_cycles=14}", "-s", "nested-radix"]
    asked += ["-m", "sandybridge-e5-2420", "-k", "linux-4.19", "--set", "machine.tlb.l2_latency_cycles=9"]
    swap = {"size_bytes": "8GiB", "model": "fixed-latency", "read_cycles": 9, "write_cycles": 9, "queue_depth": 32}
    asked += [
        "--set",
        f"kernel.swap={json.dumps(swap)}",
        "--seed",
        "3",
        "--max-accesses",
        "5K",
        "--warm-up",
        "100",
        "--check",
    ]
    made = pagelab("run", *asked, "--json", "r.json", "--report", "a.html", "-q")
    assert made.returncode == 0, made.stderr
    command = shlex.split(_shown(tmp_path / "a.html"))
    again = pagelab(*command[1:], "--json", "s.json", "-q")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "r.json").read_bytes() == (tmp_path / "s.json").read_bytes()


def test_what_no_command_can_ask_for_is_shown_in_python(tmp_path: Path) -> None:
    systems: list[System] = ["radix", ("radix", {"engine.seed": 7})]
    before = package.run(SOURCE, systems, windows=7, contiguity_map=True, set={"kernel.pcids": 4}, threads=1)
    write(tmp_path / "a.html", [before])
    names: dict[str, Any] = {}
    exec(_shown(tmp_path / "a.html"), names)
    assert names["results"].to_json() == before.to_json()
    assert package.run(SOURCE, windows=7).request != package.run(SOURCE).request


def test_a_live_run_is_shown_with_its_program() -> None:
    asked = {
        "sources": [],
        "systems": ["radix"],
        "set": ["kernel.pcids=4"],
        "command": ["ls", "-l", "a b"],
        "cpus": 2,
    }
    again = Request.from_document(asked).again()
    assert again == "pagelab run --live -s radix --set kernel.pcids=4 --cpus 2 -- ls -l 'a b'"
    stretches = {"skip": 5, "windows": None, "start_at": ["f", "g#2"], "stop_at": [], "start_on_signal": True}
    part = Request.from_document(asked | {"follow": "1/20", "stretches": stretches})
    options = "--cpus 2 --follow 1/20 --skip 5 --start-at f --start-at 'g#2' --start-on-signal"
    assert part.again() == f"pagelab run --live -s radix --set kernel.pcids=4 {options} -- ls -l 'a b'"
    chosen = "stretches=pagelab.Stretches(**{'skip': 5, 'start_at': ['f', 'g#2'], 'start_on_signal': True})"
    in_python = Request.from_document(asked | {"stretches": stretches, "max_threads": 3}).again()
    assert chosen in in_python
    limited = Request.from_document(asked | {"max_threads": 3}).again()
    assert "pagelab.run_live(['ls', '-l', 'a b'], ['radix'], set=['kernel.pcids=4'], cpus=2, max_threads=3)" in limited


def test_results_that_do_not_hold_their_request_say_so(tmp_path: Path) -> None:
    document = package.run(SOURCE, max_accesses="1K").to_document()
    older = Results({key: value for key, value in document.items() if key != "request"})
    assert older.request is None
    write(tmp_path / "a.html", [older])
    assert _shown(tmp_path / "a.html").startswith(f"pagelab run {SOURCE} -s radix -m kabylake-7700hq")
    assert "did not keep what was asked for" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (3, "its request is no object"),
        ({"systems": []}, "its request has no sources"),
        ({"sources": [], "systems": "radix"}, "systems of its request"),
        ({"sources": [], "systems": [], "seed": True}, "seed of its request"),
        ({"sources": [], "systems": [], "color": 1}, "color"),
    ],
)
def test_a_damaged_request_is_named(request_: Any, message: str) -> None:
    document = {"version": "1", "statistics": {}, "results": [], "request": request_}
    with pytest.raises(package.UsageError, match=message):
        Results.from_json(json.dumps(document))


def test_the_report_has_a_flame_graph_and_allocation_sites() -> None:
    page = render([results_with(recursive_sort())])
    assert page.count('<svg class="flame"') == 1
    assert (
        page.index("<h3>Callers</h3>")
        < page.index("<h3>Memory by who created it</h3>")
        < page.index("<h3>Regions</h3>")
    )
    assert "allocated by load (load.c:31)" in page
    assert "main (main.c:14)" in page
    without = render([results_with(None)])
    assert "<h3>Callers</h3>" not in without
    assert "<h3>Regions</h3>" in without
    with pytest.raises(package.UsageError, match="the call stacks of radix are damaged: 'nodes' is missing"):
        render([results_with({"rows": []})])


def test_mistakes_are_named(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    assert_fails(pagelab("report", "list.json"), 2, "list.json", "no object")
    assert_fails(pagelab("report", "none.json"), 1, "none.json", "No such file")
    (tmp_path / "text.json").write_text("no results")
    assert_fails(pagelab("report", "text.json"), 2, "text.json", "not a pagelab result file")
    assert pagelab("run", SOURCE, "--max-accesses", "1K", "--json", "r.json", "-q").returncode == 0
    assert_fails(pagelab("report", "r.json", "-o", "r.json"), 2, "r.json is named twice")
    assert_fails(pagelab("report", "r.json", "-o", "."), 1, "Is a directory")
    assert json.loads((tmp_path / "r.json").read_text())["results"]


_CLIPPED = """<script>
addEventListener("load", () => setTimeout(() => {
  const closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((details) => { details.open = true; });
  const parts = [...document.querySelectorAll("table, td, th, p, pre, h1, h2, h3, h4, .wide")];
  const edge = document.documentElement.clientWidth + 1;
  const beyond = (part) => part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > edge;
  const clipped = parts.filter(beyond);
  document.title = "clipped: " + clipped.slice(0, 5).map((part) => part.outerHTML.slice(0, 80)).join(" ");
  closed.forEach((details) => { details.open = false; });
}, 3000));
</script>"""
"""Puts what does not fit the window into the title, parts that are folded included"""


def _in_browser(results: Results, folder: Path, width: int) -> str:
    """The page as a browser of this width makes it, without complaint and with nothing clipped."""
    page = folder / "page.html"
    # Text of the page's libraries holds the end of a body, too.
    content, _, end = render([results]).rpartition("</body>")
    page.write_text(f"{content}{_CLIPPED}</body>{end}")
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=8000",
        f"--window-size={width},2000",
        "--enable-logging=stderr",
    ]
    done = subprocess.run(
        [str(CHROMIUM), *options, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"HOME": str(folder)},
    )
    assert "CONSOLE" not in done.stderr
    assert re.findall(r"<title>(.*?)</title>", done.stdout)[:1] == ["clipped: "]
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_flame_graphs(tmp_path: Path, width: int) -> None:
    shown = _in_browser(results_with(recursive_sort()), tmp_path, width)
    # `main`, `sort` three times, `partition`, `swap`, `load`, and what that calls.
    assert shown.count('<rect width="100%"') == 10
    assert "load(char const*)</text>" in shown


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_it_without_complaint(results: Results, tmp_path: Path, width: int) -> None:
    shown = _in_browser(results, tmp_path, width)
    drawn = _Page(shown)
    body = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    # Those of closed parts are drawn when these are opened.
    charts = len(drawn.specs) - 4 * (len(SYSTEMS) - 1)
    assert body.count("<svg") - body.count('class="spark"') == charts
    assert "could not be drawn" not in body
