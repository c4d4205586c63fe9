"""Sweeps: the file, the plan, the data set, failures."""

import json
import tomllib
from pathlib import Path
from statistics import mean

import polars as pl
import pytest
from conftest import ROOT, Pagelab, assert_fails
from rich.table import Table
from sweeps import GRID, RUNS, data, results, write

import pagelab as laboratory
from pagelab import sweep
from pagelab.results.table import short
from pagelab.sweep import sources, specification
from pagelab.sweep.outcome import outcome


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the grid, undisturbed."""
    folder = tmp_path_factory.mktemp("sweep") / "grid"
    assert sweep.run(tomllib.loads(GRID), folder) == sweep.Summary(folder, RUNS, RUNS, 0)
    return folder


def test_a_frame_has_parameters_and_statistics(done: Path) -> None:
    frame = sweep.load(done)
    latency = "machine.tlb.l2_latency_cycles"
    parameters = ["key", "source", "system", "machine", "kernel", latency, "seed"]
    assert frame.columns == [*parameters, "statistic", "value", "unit"]
    assert frame.schema[latency] == pl.Int64
    assert frame["key"].n_unique() == RUNS
    # The same as one run of the same parameters.
    one = laboratory.run("gups:size=4MiB,updates=20K", "radix-2m", set={latency: 14}, seed=2)["radix-2m"]
    rows = frame.filter(
        pl.col("source") == "gups:size=4MiB,updates=20K",
        pl.col("system") == "radix-2m",
        pl.col(latency) == 14,
        pl.col("seed") == 2,
    )
    assert dict(zip(rows["statistic"], rows["value"], strict=True)) == one.stats
    about = json.loads(pl.read_parquet_metadata(done / "results" / f"{rows['key'][0]}.parquet")["pagelab"])
    assert (about["config"], about["seed"]) == (one.config, 2)
    assert set(sweep.runs(done)["state"]) == {"done"}


def test_what_is_there_is_not_made_again_and_what_is_missing_becomes_the_same(done: Path) -> None:
    before = data(done)
    assert sweep.run(tomllib.loads(GRID), done).made == 0
    lost, cut = sorted(results(done))[:2]
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:1000])
    (done / "results" / f".{lost.name}.left").write_text("of a client that was killed")
    assert sweep.run(tomllib.loads(GRID), done, workers=1).made == 2
    assert data(done) == before


def test_the_module_is_callable(done: Path) -> None:
    assert laboratory.sweep(tomllib.loads(GRID), done).made == 0  # type: ignore[operator]


def test_a_dry_run_lists_and_makes_nothing(pagelab: Pagelab, tmp_path: Path) -> None:
    write(tmp_path, '[grid]\nsources = "seq:size=1MiB"\nseeds = [1, 2]\n')
    listed = pagelab("sweep", "grid.toml", "--dry-run")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["missing", "missing"]
    assert not (tmp_path / "grid").exists()
    assert pagelab("sweep", "grid.toml").returncode == 0
    write(tmp_path, '[grid]\nsources = "seq:size=1MiB"\nseeds = [1, 2, 3]\n')
    listed = pagelab("sweep", "grid.toml", "--dry-run")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["done", "done", "missing"]


_POISONED = """
[limits]
attempts = 2
{limits}
[[grid]]
sources = "seq:size=1MiB"
seeds = [1, 2]
[[grid]]
sources = "{source}"
set = {{ "machine.memory_bytes" = "{memory}" }}
"""


@pytest.mark.parametrize(
    ("limits", "source", "why"),
    [
        ("", "gups:size=4GiB,updates=4M", "memory"),
        ("seconds_per_run = 3", "gups:size=64MiB,updates=100G", "seconds_per_run, 3 s (2 attempts)"),
        ("memory_per_run = '300MiB'", "gups:size=64GiB,updates=100M", "SIGABRT"),
    ],
    ids=["error", "forever", "memory"],
)
def test_a_poisoned_run_is_recorded_and_others_go_on(
    pagelab: Pagelab, tmp_path: Path, limits: str, source: str, why: str
) -> None:
    write(tmp_path, _POISONED.format(limits=limits, source=source, memory="64GiB" if limits else "256MiB"))
    process = pagelab("sweep", "grid.toml")
    assert process.returncode == 1, process.stderr
    assert "2 runs done, 2 of them now, 1 failed" in process.stderr
    (failure,) = (tmp_path / "grid" / "failures").iterdir()
    assert why in json.loads(failure.read_text())["error"]
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "grid" / "log.jsonl").read_text().splitlines()]
    assert outcomes.count("lost") == (2 if limits else 0)
    # It is tried again only if that is asked for; the exit status goes on to say it.
    again = pagelab("sweep", "grid.toml")
    assert again.returncode == 1
    assert "0 to make" in again.stderr
    assert sweep.runs(tmp_path / "grid")["state"].to_list() == ["done", "done", "failed"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("grid = 1", ["grid.toml: grid: ", "[grid]"]),
        ("[gird]", ["gird: unknown key; did you mean grid?", "limits"]),
        ("[grid]", ["grid.sources: is missing"]),
        ("[grid]\nsources = []", ["grid.sources: the list is empty"]),
        ("[grid]\nsources = 'seq'\nsystem = 'radix'", ["grid.system: unknown key; did you mean systems?", "kernels"]),
        ("[grid]\nsources = 'seq'\nseeds = ['1']", ["grid.seeds: '1' is not possible", "integers"]),
        ("[[grid]]\nsources = 'seq'\n[[grid]]\nsources = [{wiht = 'x'}]", ["grid[2].sources[1].wiht", "mean with?"]),
        ("[grid]\nsources = 'seq'\n[limits]\nattempts = 0", ["limits.attempts: 0", "1 to 100"]),
        ("[grid]\nsources = 'seq'\n[limits]\nmemory_per_run = 'much'", ["limits.memory_per_run", "much"]),
        ("max_accesses = 'few'\n[grid]\nsources = 'seq'", ["max_accesses", "few"]),
        ("[grid]\nsources = 'sequ:size=4KiB'", ["sequ", "seq"]),
        ("[grid]\nsources = 'a.trace'", ["a.trace"]),
        ("[grid]\nsources = 'seq'\nsystems = 'radx'", ["seq on radx", "radx", "radix"]),
        ("[grid]\nsources = 'seq'\nset = {'machine.tlb.l2_latency' = 1}", ["machine.tlb.l2_latency"]),
        ("[grid]\nsources = 'seq@99'", ["@99", "0 to 7"]),
        ("[grid]\nsources = 'seq'\nsystems = 'radix{engine.seed=3}'", ["engine.seed", "seeds"]),
        ("grid = [", ["this is not TOML"]),
    ],
)
def test_a_wrong_file_is_refused_before_anything_runs(
    pagelab: Pagelab, tmp_path: Path, text: str, parts: list[str]
) -> None:
    write(tmp_path, text)
    assert_fails(pagelab("sweep", "grid.toml"), 2 if "a.trace" not in text else 1, *parts)
    assert not (tmp_path / "grid").exists()


def test_a_folder_of_something_else_is_left_alone(pagelab: Pagelab, tmp_path: Path) -> None:
    write(tmp_path, '[grid]\nsources = "seq:size=1MiB"\n')
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "thesis.tex").touch()
    assert_fails(pagelab("sweep", "grid.toml"), 2, "grid contains something else (thesis.tex)", "--output")


def test_a_trace_is_known_by_its_content(pagelab: Pagelab, tmp_path: Path) -> None:
    samples = ROOT / "crates" / "pagelab-trace" / "tests" / "import_samples"
    for name in ("a", "other/a"):
        assert pagelab("trace", "import", samples / "lackey.txt", "-o", f"{name}.trace").returncode == 0
    write(tmp_path, '[grid]\nsources = "a.trace@0"\n')
    assert pagelab("sweep", "grid.toml").returncode == 0
    write(tmp_path, '[grid]\nsources = "other/a.trace@0"\n')
    assert "0 to make" in pagelab("sweep", "grid.toml").stderr
    write(tmp_path, '[grid]\nsources = "other/a.trace@1"\n')
    assert "1 to make" in pagelab("sweep", "grid.toml").stderr


def test_sources_are_taken_apart_as_the_engine_does() -> None:
    assert sources.split("gups:size=4MiB,updates=20K@0-1,3,memory_limit=1GiB") == (
        "gups:size=4MiB,updates=20K",
        "@0-1,3,memory_limit=1GiB",
    )
    assert sources.split("a@b.trace") == ("a@b.trace", "")
    assert sources.split("bfs:vertices=1K@1,per_second=9,count=2", arrivals=True) == (
        "bfs:vertices=1K",
        "@1,per_second=9,count=2",
    )


def test_grids_are_products_in_order() -> None:
    asked = specification.parse({"grid": [{"sources": ["a", {"name": "b", "sources": "c"}], "seeds": [1, 2]}]})
    assert [(run.sources.name, run.seed) for run in asked.runs] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_the_example_is_what_the_documentation_says() -> None:
    example = ROOT / "examples" / "tlb-latency.toml"
    assert len(specification.read(example).runs) == 200
    text = (ROOT / "docs" / "sweeps.md").read_text()
    assert example.read_text().partition("\n[grid]")[2] in text


def _cells(table: Table) -> list[list[str]]:
    """The cells of a table, row by row."""
    return [list(map(str, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_a_sweep_ends_with_what_was_run_and_what_it_cost(done: Path) -> None:
    table, frame = outcome(done), sweep.load(done)
    names = [str(column.header).split("\n")[0] for column in table.columns]
    assert names[:4] == ["source", "system", "l2_latency_cycles", "runs"]
    rows = _cells(table)
    runs = sweep.runs(done)
    assert len(rows) == len(runs.unique(["source", "system", "machine.tlb.l2_latency_cycles"]))
    for row in rows:
        counted_here = frame.filter(
            pl.col("source") == row[0],
            pl.col("system") == row[1],
            pl.col("machine.tlb.l2_latency_cycles") == int(row[2]),
        )
        assert int(row[3]) == counted_here["key"].n_unique()
        counted = ("cycles", "cycles.idle", "fault.minor.count")
        cycles, idle, faults = (list(map(int, counted_here.filter(statistic=name)["value"])) for name in counted)
        assert row[4] == short(round(mean(cycles)) - round(mean(idle)))
        assert row[11] == short(round(mean(faults)))
    # What is missing is not in the mean, and counted.
    lost = sorted(results(done))[0]
    content = lost.read_bytes()
    lost.unlink()
    try:
        assert sum("/" in row[3] for row in _cells(outcome(done))) == 1
    finally:
        lost.write_bytes(content)
    assert "more rows" in str(outcome(done, 1).caption)


def test_the_table_is_on_standard_output(pagelab: Pagelab, tmp_path: Path) -> None:
    write(tmp_path, '[grid]\nsources = "seq:size=1MiB"\nsystems = ["radix", "radix-2m"]\n')
    process = pagelab("sweep", "grid.toml", "-q")
    lines = process.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("radix")] == ["radix", "radix-2m"]
    # Settings that all runs share are no columns.
    assert "seq:size" not in process.stdout
    again = pagelab("sweep", "grid.toml", "-q")
    assert again.stdout == process.stdout
