"""`pagelab compare` and `pagelab.compare`: figures, exit statuses, refusals and outputs."""

import copy
import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Pagelab, assert_fails

import pagelab as library
from pagelab.comparison.limits import Limit

# Each access is to another page than the last 16,383 ones, more than any TLB holds: each misses and walks.
ONCE = "stride:size=64MiB,stride=4KiB,accesses=32768"
TWICE = "stride:size=64MiB,stride=4KiB,accesses=65536"
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
struct item { long key; char padding[PADDING]; };
static struct item *items;
static void __attribute__((noinline)) fill(size_t n) { for (size_t i = 0; i < n; i++) items[i].key = i; }
static long __attribute__((noinline)) sum(size_t n) {
    long total = 0;
    for (size_t i = 0; i < n; i++) total += items[i].key;
    return total;
}
int main(int count, char **arguments) {
    items = malloc(100000 * sizeof *items);
    fill(100000);
    printf("%ld\\n", sum(100000));
    return count > 1 ? atoi(arguments[1]) : 0;
}
"""


def _saved(path: Path, source: str = ONCE, **options: Any) -> Path:
    library.run(source, **options).save(path)
    return path


def _edited(path: Path, saved: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of saved results in which something is changed."""
    document = json.loads(saved.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    return path


def test_twice_the_accesses_make_twice_the_misses() -> None:
    comparison = library.compare(ONCE, TWICE, fail_if=["tlb_misses>+99.9%", "tlb_misses>+100%", "tlb_misses>+32768"])
    system = comparison.systems[0]
    for metric in ("accesses", "tlb_misses", "l1_tlb_misses", "instructions", "base_cycles"):
        change = system.total(metric)
        assert change is not None
        assert (change.relative, change.interval) == (1.0, None), metric
    at = system.at("anonymous 1", "walks")
    assert (at.a, at.b, at.relative) == (32768, 65536, 1.0)
    assert system.at("anonymous 1", "faults").difference == 0
    assert [verdict.outcome for verdict in comparison.verdicts] == ["exceeded", "within", "within"]


def test_classes_of_cycles_sum_to_the_busy_cycles() -> None:
    system = library.compare(ONCE, TWICE).systems[0]
    busy = system.total("cycles")
    assert busy is not None
    assert sum(row.change.a for row in system.classes) == busy.a
    assert sum(row.change.difference for row in system.classes) == busy.difference


def test_mappings_and_functions_sum_to_the_run() -> None:
    system = library.compare(ONCE, TWICE).systems[0]
    walks, waits = system.total("walks"), system.total("translation_cycles")
    assert walks is not None
    assert waits is not None
    for places in (system.mappings, system.functions):
        assert sum(system.at(place.name, "walks").b for place in places) == walks.b
        assert sum(system.at(place.name, "translation_cycles").b for place in places) == waits.b


def test_seeds_are_paired() -> None:
    a, b = "random:size=16MiB,accesses=20k", "random:size=16MiB,accesses=30k"
    comparison = library.compare(a, b, seeds=4, profile=False)
    counts = [
        [library.run(source, seed=seed)["radix"].stats["walk.count"] for seed in range(1, 5)] for source in (a, b)
    ]
    differences = [after - before for before, after in zip(*counts, strict=True)]
    mean = sum(differences) / 4
    # 97.5 % quantile of Student's distribution for 3 degrees of freedom.
    half = 3.182 * math.sqrt(sum((each - mean) ** 2 for each in differences) / 3 / 4)
    change = comparison.systems[0].total("walks")
    assert change is not None
    assert change.interval == pytest.approx((mean - half, mean + half))
    assert change.relative_interval is not None
    assert change.relative is not None
    assert change.relative_interval[0] < change.relative < change.relative_interval[1]
    assert "4 seeds, paired" in comparison.notes[0]


def test_results_of_several_seeds_are_one_system(tmp_path: Path) -> None:
    seeds = [f"radix{{engine.seed={seed}}}" for seed in (1, 2, 3)]
    a = _saved(tmp_path / "a.json", "random:size=16MiB,accesses=20k", systems=seeds)
    comparison = library.compare(a, "random:size=16MiB,accesses=30k", profile=False)
    assert len(comparison.systems) == 1
    change = comparison.systems[0].total("walks")
    assert change is not None
    assert change.interval is not None


def test_a_saved_result_sets_how_the_other_side_is_replayed(tmp_path: Path) -> None:
    a = _saved(tmp_path / "a.json", systems="radix-2m", machine="xeon-e-2136", seed=7, max_accesses=10_000)
    comparison = library.compare(a, ONCE)
    assert not comparison.differences
    assert all(row.change.difference == 0 for row in comparison.systems[0].totals)


def test_statuses(pagelab: Pagelab, tmp_path: Path) -> None:
    a, b = _saved(tmp_path / "a.json"), _saved(tmp_path / "b.json", TWICE)
    unchanged = pagelab("compare", a, a, "--fail-if", "walks>+0%")
    assert unchanged.returncode == 0, unchanged.stderr
    assert "Nothing changed" in unchanged.stdout
    assert pagelab("compare", a, b).returncode == 0
    changed = pagelab("compare", a, b, "--fail-if", "walks>+3%", "--fail-if", "faults>+3%")
    assert changed.returncode == 1
    assert "1 of 2 limits exceeded" in changed.stdout
    assert "Traceback" not in changed.stderr
    assert pagelab("compare", b, a, "--fail-if", "walks>+3%").returncode == 0
    assert pagelab("compare", b, a, "--fail-if", "walks<-3%").returncode == 1


def test_a_limit_inside_the_interval_is_undecided(pagelab: Pagelab) -> None:
    sources = ["random:size=16MiB,accesses=20k", "random:size=16MiB,accesses=30k"]
    change = library.compare(*sources, seeds=3, profile=False).systems[0].total("walks")
    assert change is not None
    assert change.interval is not None
    assert change.interval[0] < change.interval[1]
    inside = round(sum(change.interval) / 2, 3)
    process = pagelab("compare", *sources, "--seeds", "3", "--totals", "--fail-if", f"walks>{inside:+}")
    assert process.returncode == 0, process.stderr
    assert "undecided" in process.stdout
    assert "cannot be decided" in process.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"machine": "xeon-e-2136"}, ["machine: ", "xeon-e-2136 in B"]),
        ({"systems": "radix-2m"}, ["system: radix in A, radix-2m in B"]),
        ({"kernel": "linux-4.9"}, ["kernel: ", "linux-4.9 in B"]),
        ({"seed": 2}, ["seed: 1 in A, 2 in B"]),
        ({"max_accesses": 1000}, ["max accesses: none in A, 1,000 in B"]),
        ({"set": {"machine.tlb.l2_latency_cycles": 8}}, ["machine.tlb.l2_latency_cycles: 9 in A, 8 in B"]),
        ({"with_": "seq:size=64KiB"}, ["runs beside it: nothing in A, seq:size=64KiB in B"]),
        ({"sample": "every=2k,length=500,warm=500"}, ["sample: the whole program in A, windows"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_differs_is_named_and_refused(
    pagelab: Pagelab, tmp_path: Path, options: dict[str, Any], words: list[str]
) -> None:
    a, b = _saved(tmp_path / "a.json"), _saved(tmp_path / "b.json", **options)
    assert_fails(pagelab("compare", a, b), 2, "not comparable", *words, "--even-if-different")
    process = pagelab("compare", a, b, "--even-if-different")
    assert process.returncode == 0, process.stderr
    for word in words:
        assert word in process.stdout


def test_another_version_is_refused(pagelab: Pagelab, tmp_path: Path) -> None:
    a = _saved(tmp_path / "a.json")
    b = _edited(tmp_path / "b.json", a, lambda document: document.update(version="0.0.1"))
    assert_fails(pagelab("compare", a, b), 2, "pagelab version", "0.0.1 in B")


def test_an_incomplete_trace_is_refused(pagelab: Pagelab, tmp_path: Path) -> None:
    a = _saved(tmp_path / "a.json")
    b = _edited(tmp_path / "b.json", a, lambda document: document["results"][0]["sources"][0].update(complete=False))
    assert_fails(pagelab("compare", a, b), 2, "recording: complete in A, ended early in B")


def test_settings_that_change_no_result_are_named_only(pagelab: Pagelab, tmp_path: Path) -> None:
    a, b = _saved(tmp_path / "a.json"), _saved(tmp_path / "b.json", set={"engine.fast_path": False})
    process = pagelab("compare", a, b)
    assert process.returncode == 0, process.stderr
    assert "engine.fast_path: True in A, False in B" in process.stdout


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda document: document.pop("results"), ["results"]),
        (lambda document: document.update(results=[]), ["no system"]),
        (lambda document: document["results"][0].update(stats=[]), ["not all integers"]),
        (lambda document: document["results"][0]["stats"].update({"walk.count": "many"}), ["not all integers"]),
        (lambda document: document["results"][0]["stats"].update({"accesses": 0}), ["no accesses"]),
        (lambda document: document["results"][0].update(config=3), ["configuration", "no object"]),
        (lambda document: document["results"][0].update(profile={"code": {}}), ["profile", "others_cost"]),
        (lambda document: document["results"][0]["profile"]["regions"]["rows"][0].update(end=0), ["makes no sense"]),
        (lambda document: document["results"][0]["profile"]["code"]["rows"][0].update(walks=None), ["no integer"]),
        (lambda document: document["results"][0]["profile"]["code"]["rows"][0].update(file=3), ["no readable name"]),
    ],
)
def test_damaged_results_are_named(
    pagelab: Pagelab, tmp_path: Path, edit: Callable[[dict[str, Any]], object], words: list[str]
) -> None:
    a = _saved(tmp_path / "a.json", profile=True)
    b = _edited(tmp_path / "b.json", a, edit)
    assert_fails(pagelab("compare", a, b), 2, "b.json", *words)


def test_mistakes_are_named(pagelab: Pagelab, tmp_path: Path) -> None:
    a = _saved(tmp_path / "a.json")
    (tmp_path / "text.json").write_text("walks: 3")
    (tmp_path / "empty").mkdir()
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "runs.parquet").touch()
    for arguments, words in (
        ([a], ["1 to compare and not two", "-- OLD ARGS -- NEW ARGS"]),
        ([a, a, a], ["3 to compare"]),
        (["--", "x", "--", "y", "--", "z"], ["more than two programs", "sh -c"]),
        ([a, "--", "true", "--fail-if", "walks>3%"], ["--fail-if", "before the first `--`"]),
        ([a, "none.json"], ["none.json", "No such file"]),
        ([a, "none.trace"], ["none.trace", "no such trace"]),
        ([a, "text.json"], ["text.json", "not JSON"]),
        ([a, "empty"], ["empty", "no results"]),
        ([a, "sweep"], ["sweep", "sweep's folder"]),
        ([a, "gupsy"], ["gupsy", "gups"]),
        ([a, "/bin/true"], ["/bin/true", "put `--` before it"]),
        ([a, "--", "no-such-program"], ["no-such-program"]),
        ([a, a, "--fail-if", "walks"], ["walks", "METRIC>AMOUNT"]),
        ([a, a, "--fail-if", "walk>3%"], ["no metric `walk`", "did you mean walks", "fault_cycles"]),
        ([a, a, "--fail-if", "walk.counts>3%"], ["walk.counts", "did you mean walk.count?"]),
        ([a, a, "--fail-if", "paging_cycles>3%"], ["translation_cycles and fault_cycles"]),
        ([a, a, "--fail-if", "accesses[heap]>3%"], ["accesses[heap]", "paging_cycles"]),
        ([a, a, "--fail-if", "walks[heap]>3%"], ["[heap]", "with profiles on both sides"]),
        ([ONCE, ONCE, "--fail-if", "walks[heep]>3%"], ["[heep]", "anonymous 1"]),
        ([a, a, "--seeds", "3"], ["--seeds", "saved results"]),
        ([a, a, "--repeat", "3"], ["--repeat", "programs"]),
        ([a, a, "-s", "radix"], ["systems", "not replayed"]),
        ([ONCE, ONCE, "--seed", "3", "--seeds", "2"], ["--seed ", "leave one"]),
        ([a, a, "--json", "-", "--csv", "-"], ["only one", "standard output"]),
        ([a, a, "--json", "x.json", "--markdown", "x.json"], ["x.json", "twice"]),
    ):
        assert_fails(pagelab("compare", *arguments), 2, *words)
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("text", "metric", "place", "amount", "relative"),
    [
        ("walks>+3%", "walks", None, 0.03, True),
        (" walk_refs > 1000 ", "walk_refs", None, 1000, False),
        ("fault_cycles[sum(long, int)]>+1.5k", "fault_cycles", "sum(long, int)", 1500, False),
        ("walks[operator[]]<-2M", "walks", "operator[]", -2e6, False),
    ],
)
def test_limits_are_read(text: str, metric: str, place: str | None, amount: float, relative: bool) -> None:
    limit = Limit.parse(text)
    assert (limit.metric, limit.place, limit.relative) == (metric, place, relative)
    assert limit.amount == pytest.approx(amount)


def test_outputs_hold_the_same_figures(pagelab: Pagelab, tmp_path: Path) -> None:
    a, b = _saved(tmp_path / "a.json", profile=True), _saved(tmp_path / "b.json", TWICE, profile=True)
    files = ["--json", "c.json", "--csv", "c.csv", "--markdown", "c.md", "--save", "saved.json"]
    process = pagelab("compare", a, b, "--fail-if", "walks>+3%", *files)
    assert process.returncode == 1, process.stderr
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["status"] == 1
    assert document["limits"][0]["outcome"] == "exceeded"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert len(rows) == len(document["changes"])
    frame = library.compare(a, b).to_polars()
    assert frame.height == len(rows)
    walks = frame.filter((frame["kind"] == "total") & (frame["metric"] == "walks")).row(0, named=True)
    assert (walks["a"], walks["b"]) == (32769, 65537)
    assert [row["b"] for row in rows if row["metric"] == "walks" and row["kind"] == "total"] == ["65537"]
    markdown = (tmp_path / "c.md").read_text()
    assert "a limit is exceeded" in markdown
    assert "| page walks | 32.77k | 65.54k | +32.77k | +100.0 % |" in markdown
    assert (tmp_path / "saved.json").read_text() == b.read_text()
    piped = pagelab("compare", a, b, "--json", "-")
    assert json.loads(piped.stdout)["changes"] == document["changes"]


def test_markdown_of_foreign_names_is_no_markup(tmp_path: Path) -> None:
    a = _saved(tmp_path / "a.json", profile=True)

    def rename(document: dict[str, Any]) -> None:
        row = document["results"][0]["profile"]["code"]["rows"][0]
        row.update(function="f<a|b>*[x](y)`", walks=5, file="/x")

    b = _edited(tmp_path / "b.json", a, rename)
    text = library.compare(a, b).to_markdown()
    assert "f\\<a\\|b\\>\\*\\[x\\](y)\\`" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in (6, 7, 8)


def test_samples_are_compared_by_rates(tmp_path: Path) -> None:
    sample = "every=10k,length=1k,warm=1k"
    a = _saved(tmp_path / "a.json", sample=sample)
    b = _saved(tmp_path / "b.json", TWICE, sample=sample)
    comparison = library.compare(a, b, fail_if="walks>+50%")
    # Each access walks in both, and each stands for three instructions.
    change = comparison.systems[0].total("walks")
    assert change is not None
    assert change.b == pytest.approx(1000 / 3, rel=0.01)
    assert change.interval is not None
    assert comparison.status == 0
    assert any("per 1,000 instructions" in note for note in comparison.notes)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two builds of a program: structures of 16 and of 64 bytes."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "items.c").write_text(SOURCE)
    for name, padding in (("old", 8), ("new", 56)):
        (folder / name).mkdir()
        options = ["-O1", "-g", f"-DPADDING={padding}", str(folder / "items.c"), "-o", str(folder / name / "items")]
        subprocess.run(["gcc", *options], check=True)
    return folder


def test_two_builds_of_a_program(pagelab: Pagelab, programs: Path, tmp_path: Path) -> None:
    old, new = programs / "old" / "items", programs / "new" / "items"
    limits = ["--fail-if", "faults[fill]>+10%", "--fail-if", "walks[anonymous]>+10%", "--fail-if", "instructions>+1%"]
    process = pagelab("compare", "-q", *limits, "--json", "c.json", "--", old, "--", new)
    assert process.returncode == 1, process.stderr
    document = json.loads((tmp_path / "c.json").read_text())
    assert [limit["outcome"] for limit in document["limits"]] == ["exceeded", "exceeded", "within"]
    changes = {(row["kind"], row["name"], row["metric"]): row for row in document["changes"]}
    fill = changes["function", "fill", "faults"]
    # 100,000 structures of 16 and of 64 bytes, in pages of 4 KiB.
    assert fill["a"] == pytest.approx(1_600_000 / 4096, abs=2)
    assert fill["b"] == pytest.approx(6_400_000 / 4096, abs=2)
    # Matched, though the files are two.
    assert changes["mapping", "items", "faults"]["change"] == 0
    assert "Paging changed most in anonymous" in process.stdout
    unknown = pagelab("compare", "-q", "--fail-if", "walks[fil]>+3%", "--", old, "--", new)
    assert_fails(unknown, 2, "no mapping or function of that name; did you mean fill")
    # The programs' own output is not in the comparison.
    assert "4999950000" not in process.stdout


def test_a_baseline_names_functions_after_its_program_has_changed(
    pagelab: Pagelab, programs: Path, tmp_path: Path
) -> None:
    program = tmp_path / "items"
    shutil.copy(programs / "old" / "items", program)
    assert pagelab("record", "-q", "-o", "old.trace", "--", program).returncode == 0
    saved = pagelab("run", "-q", "old.trace", "--profile", "--json", "baseline.json")
    assert saved.returncode == 0, saved.stderr
    shutil.copy(programs / "new" / "items", program)
    limit = ["--fail-if", "faults[fill]>+10%", "--save", "next.json"]
    process = pagelab("compare", "-q", "baseline.json", *limit, "--", program)
    assert process.returncode == 1, process.stderr
    assert "exceeded" in process.stdout
    # No path of a folder that is gone.
    assert json.loads((tmp_path / "next.json").read_text())["request"]["sources"] == ["items.trace"]
    assert pagelab("compare", "next.json", "next.json", "--fail-if", "walks>+0").returncode == 0


def test_symbols_of_a_program_that_has_changed_since_are_not_used(
    pagelab: Pagelab, programs: Path, tmp_path: Path
) -> None:
    program = tmp_path / "items"
    shutil.copy(programs / "old" / "items", program)
    assert pagelab("record", "-q", "-o", "old.trace", "--", program).returncode == 0
    head = tmp_path / "old.trace" / "trace.json"
    facts = json.loads(head.read_text())
    # As if the program had been written long after the recording.
    facts["started_unix_seconds"] -= 1_000_000_000
    head.write_text(json.dumps(facts))
    result = pagelab("run", "-q", "old.trace", "--profile", "--json", "-")
    rows = json.loads(result.stdout)["results"][0]["profile"]["code"]["rows"]
    assert not any("function" in row for row in rows)


def test_a_program_that_fails_is_not_compared(pagelab: Pagelab, programs: Path) -> None:
    program = programs / "old" / "items"
    process = pagelab("compare", "-q", "--", program, "--", program, "3")
    assert process.returncode == 2
    assert "exit status of the program: 0 in A, 3 in B" in process.stderr


def test_saved_results_keep_how_the_program_ended(pagelab: Pagelab, programs: Path) -> None:
    program = programs / "old" / "items"
    saved = pagelab("compare", "-q", "--totals", "--save", "good.json", "--", program, "--", program)
    assert saved.returncode == 0, saved.stderr
    failed = pagelab("compare", "-q", "--totals", "--save", "failed.json", "good.json", "--", program, "3")
    assert failed.returncode == 2
    assert "exit status of the program: 0 in A, 3 in B" in failed.stderr
    assert_fails(pagelab("compare", "failed.json", "good.json"), 2, "3 in A, 0 in B")
    assert pagelab("compare", "failed.json", "failed.json").returncode == 0
    stopped = pagelab("record", "-q", "-o", "stopped.trace", "--max-accesses", "100K", "--", program)
    assert stopped.returncode == 0, stopped.stderr
    assert pagelab("run", "-q", "stopped.trace", "--json", "stopped.json").returncode == 0
    assert_fails(pagelab("compare", "stopped.json", "good.json"), 2, "recording: ended early in A, complete in B")


def test_both_programs_are_looked_for_before_one_is_recorded(pagelab: Pagelab) -> None:
    process = pagelab("compare", "--totals", "--", "true", "--", "./none")
    assert_fails(process, 2, "./none: no such program")


def test_a_crash_is_not_compared_with_a_crash(pagelab: Pagelab) -> None:
    crash = ["--", "sh", "-c", "kill -SEGV $$"]
    process = pagelab("compare", "-q", "--totals", *crash, *crash)
    assert process.returncode == 2
    assert "ended by a signal): 139 in A, 139 in B" in process.stderr


def test_repeated_recordings_give_intervals(programs: Path) -> None:
    commands = [[str(programs / name / "items")] for name in ("old", "new")]
    comparison = library.compare(*commands, repeat=2, profile=False, fail_if="walks>+10%")
    change = comparison.systems[0].total("walks")
    assert change is not None
    assert change.interval is not None
    assert change.interval[0] <= change.difference <= change.interval[1]
    assert "2 recordings of A and 2 of B" in comparison.notes[0]


def test_repeated_recordings_are_saved_as_a_folder(pagelab: Pagelab, programs: Path, tmp_path: Path) -> None:
    program = programs / "old" / "items"
    options = ["-q", "--totals", "--repeat", "2"]
    saved = pagelab("compare", *options, "--save", "base", "--", program, "--", program)
    assert saved.returncode == 0, saved.stderr
    assert sorted(file.name for file in (tmp_path / "base").iterdir()) == ["1.json", "2.json"]
    again = pagelab("compare", *options, "base", "--fail-if", "walks>+10%", "--", program)
    assert again.returncode == 0, again.stderr
    assert "2 recordings of A and 2 of B" in again.stdout
    assert "single recording" not in again.stderr
    assert_fails(pagelab("compare", *options, "--save", "base", "base", "--", program), 2, "base exists already")
    single = pagelab("compare", *options, "base/1.json", "--", program)
    assert "one side has a single recording" in single.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_show_takes_several_files(pagelab: Pagelab, tmp_path: Path) -> None:
    small = "seq:size=64KiB"
    a, b = _saved(tmp_path / "a.json", small), _saved(tmp_path / "b.json", small, systems="radix-2m")
    other = _saved(tmp_path / "other.json", "seq:size=128KiB")
    together = pagelab("show", a, b)
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("busy") == 1
    assert "×1.00" in together.stdout or "radix-2m" in together.stdout
    apart = pagelab("show", a, other)
    assert apart.stdout.count("busy") == 2
    assert "other.json:" in apart.stdout
    same = pagelab("show", "a.json", "a.json")
    assert "radix (a.json)" in same.stdout


def test_comparing_changes_nothing() -> None:
    a = library.run(ONCE, profile=True)
    before = copy.deepcopy(a.to_document())
    assert library.compare(a, a).to_json() == library.compare(a, a).to_json()
    assert a.to_document() == before


CI = ROOT / "examples" / "continuous-integration"


def test_the_script_for_a_ci(tmp_path: Path) -> None:
    """It fails without a baseline, passes for the same build, and fails for one that is worse or cannot be compared."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "pagelab"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pagelab "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }

    def build(*options: str) -> None:
        subprocess.run(["gcc", "-O2", "-g", *options, "-o", "items", str(CI / "items.c")], cwd=tmp_path, check=True)

    def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CI / "compare.sh"), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert compare().returncode == 2
    build()
    baseline, following = tmp_path / "baseline.json", tmp_path / "next-baseline.json"
    first = compare("baseline.json", "./items")
    assert (first.returncode, baseline.exists()) == (2, False), first.stderr
    assert "baseline.json does not exist" in first.stderr
    following.rename(baseline)
    same = compare("baseline.json", "./items")
    assert same.returncode == 0, same.stderr
    assert "within limits" in (tmp_path / "comparison.md").read_text()
    build("-DPADDED", "-DSCATTERED")
    worse = compare("baseline.json", "./items")
    assert worse.returncode == 1, worse.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert "a limit is exceeded" in summary
    assert "| fill |" in summary
    assert following.exists()

    # Of another version: refused, without what the runs before left, and with what becomes the next baseline.
    older = json.loads(baseline.read_text())
    baseline.write_text(json.dumps(older | {"version": "0.0.1"}))
    refused = compare("baseline.json", "./items")
    assert refused.returncode == 2, refused.stderr
    assert "pagelab version" in refused.stderr
    assert not (tmp_path / "comparison.md").exists()
    following.rename(baseline)
    assert compare("baseline.json", "./items").returncode == 0
    missing = compare("baseline.json", "./none")
    assert (missing.returncode, following.exists()) == (2, False), missing.stderr

    # Recorded several times, baselines are folders.
    environment["REPEAT"] = "2"
    assert compare("base", "./items").returncode == 2
    (tmp_path / "next-baseline").rename(tmp_path / "base")
    assert compare("base", "./items").returncode == 0
    assert "2 recordings of A and 2 of B" in (tmp_path / "comparison.md").read_text()


def test_the_page_holds_the_script_and_the_workflow() -> None:
    page = (ROOT / "docs" / "continuous-integration.md").read_text()
    for name in ("compare.sh", "github-workflow.yml"):
        assert f"\n{(CI / name).read_text()}```" in page, name
