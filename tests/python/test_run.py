"""The Python interface."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pagelab
from pagelab import _engine

SMALL = "random:size=64MiB,accesses=200K"


def test_frames_and_tables_come_from_the_same_counts() -> None:
    results = pagelab.run(SMALL, ["radix", "radix-no-mmu-cache"], set={"engine.kernel_refs": "off"})
    assert results["radix"].stats["accesses"] >= 200_000
    assert results["radix"].config["engine"]["kernel_refs"] is False

    long = results.to_polars()
    assert long.columns == ["system", "statistic", "value", "unit", "description"]
    assert long.null_count().sum_horizontal().item() == 0
    walks = long.filter(pl.col("statistic") == "walk.count", pl.col("system") == "radix")["value"].item()
    assert walks == results["radix"].stats["walk.count"]

    wide = results.wide()
    assert wide.columns == ["statistic", "radix", "radix-no-mmu-cache"]
    assert wide.filter(pl.col("statistic") == "walk.count")["radix"].item() == walks

    again = pagelab.Results.from_json(results.to_json())
    assert again.to_polars().equals(long)


def test_a_walk_without_mmu_cache_reads_every_level() -> None:
    results = pagelab.run(
        SMALL,
        [
            "radix-no-mmu-cache",
            "radix-perfect-mmu-cache",
            "nested-radix-no-mmu-cache",
            "nested-radix-perfect-mmu-cache",
        ],
    )
    per_walk = {r.system: r.stats["walk.refs"] / r.stats["walk.count"] for r in results.systems}
    assert list(per_walk.values()) == [4, 1, 24, 3]


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    texts = [pagelab.run(SMALL, ["radix", "radix-2m"], seed=seed, threads=n).to_json() for seed, n in ((7, 1), (7, 2))]
    assert texts[0] == texts[1]
    assert pagelab.run(SMALL, "radix", seed=8)["radix"].stats != pagelab.run(SMALL, "radix", seed=7)["radix"].stats


def test_a_system_has_settings_of_its_own() -> None:
    key = "system.layers.native.page_table.table_bytes"
    latency = "machine.tlb.l2_latency_cycles"
    age = '{"free_fraction":0.4,"huge_free_fraction":0.1,"unmovable_fraction":0.2,"seed":1}'
    results = pagelab.run(
        SMALL,
        [
            "radix",
            f"hashed-compact{{{key}=128MiB}}",
            ("hashed-compact", {key: "64MiB", latency: 30}),
            ("radix@linux-4.9", {"system.layers.0.age": age, "system.description": "one, two"}),
        ],
        set={latency: 20},
    )
    assert [result.label for result in results.systems] == [
        "radix",
        "hashed-compact{table_bytes=128MiB}",
        "hashed-compact{table_bytes=64MiB,l2_latency_cycles=30}",
        f'radix@linux-4.9{{age={age},description="one, two"}}',
    ]
    assert [r.config["machine"]["tlb"]["l2_latency_cycles"] for r in results.systems] == [20, 20, 30, 20]
    small, large = (
        results[f"hashed-compact{{{key}={size}}}"] for size in ("128MiB", "64MiB,machine.tlb.l2_latency_cycles=30")
    )
    assert small.stats["layer.native.page_table.slots"] == 2 * large.stats["layer.native.page_table.slots"]
    assert results["hashed-compact"] is small
    assert results.systems[3].config["system"]["description"] == "one, two"
    assert results.systems[3].settings[1] == 'system.description="one, two"'
    assert pagelab.Results.from_json(results.to_json()).systems == results.systems


def test_a_setting_that_one_of_the_systems_lacks_names_it_and_the_way_out() -> None:
    message = r"`table_bytes`.*system `radix`; .*-s 'SYSTEM\{KEY=VALUE\}'"
    with pytest.raises(pagelab.ConfigError, match=message):
        pagelab.run(SMALL, ["hashed-compact", "radix"], set={"system.layers.native.page_table.table_bytes": "128MiB"})
    with pytest.raises(pagelab.ConfigError, match="write the settings last"):
        pagelab.run(SMALL, "radix{engine.seed=3}@linux-4.9")


def test_progress_tells_systems_apart() -> None:
    seen: set[str] = set()
    pagelab.run(SMALL, ["radix", "radix{engine.seed=3}"], progress=lambda system, *_: seen.add(system))
    assert seen == {"radix", "radix{seed=3}"}


def test_progress_counts_up_and_what_it_raises_ends_the_run() -> None:
    seen: list[tuple[str, int, int | None]] = []
    pagelab.run("random:size=1GiB,accesses=3M", "radix", progress=lambda *report: seen.append(report))
    done = [accesses for _, accesses, _ in seen]
    assert done
    assert done == sorted(done)
    assert seen[-1][0] == "radix"

    def stop(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pagelab.run("gups:size=8GiB,updates=1G", "radix", progress=stop)


def test_results_go_to_pandas_csv_html_and_back(tmp_path: Path) -> None:
    results = pagelab.run(SMALL, ["radix", "radix{engine.seed=3}"])
    long = results.to_polars()
    assert results.to_pandas().values.tolist() == [list(row) for row in long.rows()]
    rows = list(csv.reader(io.StringIO(results.to_csv(tmp_path / "new" / "r.csv"))))
    assert rows[0] == long.columns
    assert rows[1:] == [[str(value) for value in row] for row in long.rows()]
    assert (tmp_path / "new" / "r.csv").read_text() == results.to_csv()
    html = results._repr_html_()
    assert html.count("<th>radix") == 2
    assert html.count("<tr>") == html.count("</tr>") > 20
    walks = results["radix"].stats["walk.count"]
    assert f"<td>{walks / 1000:.4g}k</td>" in html
    results.save(tmp_path / "r.json")
    assert pagelab.Results.load(tmp_path / "r.json").to_csv() == results.to_csv()


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"version": "1", "statistics": {}, "results": [{}]}', "{"])
def test_what_are_no_results_is_refused(text: str) -> None:
    with pytest.raises(pagelab.UsageError, match="this is not a pagelab result file"):
        pagelab.Results.from_json(text)


def test_numbers_of_numpy_and_counts_with_units_are_accepted() -> None:
    nested = {"entries": np.uint8(16), "ways": 16, "latency_cycles": np.array(2)}
    settings = {"machine.tlb.l2_latency_cycles": np.int64(9), "machine.tlb.nested": nested}
    results = pagelab.run(SMALL, set=settings, max_accesses="100K", seed=np.int32(7), warm_up="1K")
    tlb = results["radix"].config["machine"]["tlb"]
    assert (tlb["l2_latency_cycles"], tlb["nested"]["entries"], results["radix"].seed) == (9, 16, 7)
    with pytest.raises(pagelab.UsageError, match="max_accesses: 0 is not possible; allowed is 1 and more"):
        pagelab.run(SMALL, max_accesses=0)
    # The engine refuses it as well, whoever asks.
    with pytest.raises(pagelab.ConfigError, match="max_accesses: 0 leaves nothing to replay"):
        _engine.run_json(json.dumps({"sources": [SMALL], "systems": ["radix"], "max_accesses": 0}))
    with pytest.raises(pagelab.UsageError, match="'100Q' is not a count"):
        pagelab.run(SMALL, max_accesses="100Q")
    with pytest.raises(TypeError, match=r"max_accesses takes an integer or a text such as '100M', not 1\.5"):
        pagelab.run(SMALL, max_accesses=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is no value of a setting"):
        pagelab.run(SMALL, set={"machine.cores": object()})


def test_errors_are_python_exceptions() -> None:
    with pytest.raises(pagelab.ConfigError, match="cubist"):
        pagelab.run(SMALL, "cubist")
    with pytest.raises(pagelab.UsageError, match="gupsy"):
        pagelab.run("gupsy")
    with pytest.raises(pagelab.OutOfMemoryError, match="memory"):
        pagelab.run("seq:size=1GiB", "radix", set={"machine.memory_bytes": "256MiB"})
    with pytest.raises(TypeError, match="key=value"):
        pagelab.run(SMALL, set="engine.seed=1")


def test_check_accepts_a_correct_run() -> None:
    results = pagelab.run(SMALL, ["radix", "nested-radix", "radix-5level"], check=True)
    assert len(results.systems) == 3


BESIDE: dict[str, Any] = {
    "with_": "seq:size=256KiB,passes=1@0",
    "arrivals": "seq:size=64KiB,passes=1@1-2,per_second=5000",
}


def test_co_runners_and_arrivals_are_counted_apart() -> None:
    results = pagelab.run("random:size=8MiB,accesses=100K@0", ["radix", "nested-radix"], **BESIDE, check=True)
    assert [source.role for source in results["radix"].sources] == ["main", "co-runner", "arrivals"]
    assert results["radix"].sources[2].cpus == (1, 2)
    for result in results.systems:
        stats = result.stats
        assert stats["co_runner.completed"] > 0
        assert stats["arrivals.count"] > 0
        assert stats["arrivals.sojourn.p50_cycles"] <= stats["arrivals.sojourn.p99_cycles"]
        parts = [stats[f"{role}.walk.count"] for role in ("main", "co_runner", "arrivals")]
        assert sum(parts) == stats["walk.count"]
    texts = [
        pagelab.run("random:size=8MiB,accesses=100K@0", ["radix", "radix-2m"], **BESIDE, threads=n).to_json()
        for n in (1, 2)
    ]
    assert texts[0] == texts[1]


def test_arrivals_alone_need_a_count() -> None:
    with pytest.raises(pagelab.ConfigError, match=r"without a main source the run has no end; write .*,count=N"):
        pagelab.run(arrivals="seq:size=64KiB,passes=1,per_second=100")
    results = pagelab.run(arrivals="seq:size=64KiB,passes=1,per_second=100,count=3,spacing=uniform")
    assert results["radix"].stats["arrivals.count"] == 3
    assert "main.cycles" not in results["radix"].stats


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ("seq,per_second=0", "per_second=0: must be a number of arrivals"),
        ("seq,per_second=5,colour=red", "`colour` is not known here; known are per_second, count, spacing"),
        ("seq,per_second=5,spacing=odd", "spacing=odd: must be uniform or poisson"),
        ("seq", "per_second is missing"),
    ],
)
def test_impossible_arrivals_are_refused(arrivals: str, message: str) -> None:
    with pytest.raises(pagelab.ConfigError, match=message):
        pagelab.run(SMALL, arrivals=arrivals)


def test_a_warm_up_is_not_counted() -> None:
    """Its accesses are made, so that what follows finds TLBs, caches and memory as it left them."""
    spec = "random:size=16MiB,accesses=1M"
    whole, warm = (pagelab.run(spec, "radix", warm_up=warm_up)["radix"].stats for warm_up in (None, 500_000))
    assert 450_000 < warm["accesses"] <= 500_000
    assert whole["fault.minor.count"] == 4096 + 1
    assert warm["fault.minor.count"] == 0
    assert warm["layer.native.free_bytes"] == whole["layer.native.free_bytes"]
    classes = [name for name in warm if name.startswith("cycles.")]
    assert sum(warm[name] for name in classes) == warm["cycles"] < whole["cycles"]
    with pytest.raises(pagelab.ConfigError, match="ended after 1000000 accesses, before a warm-up of 2000000"):
        pagelab.run(spec, "radix", warm_up=2_000_000)


@pytest.mark.parametrize("warm_up", [None, 500_000])
def test_windows_are_parts_of_the_whole(warm_up: int | None) -> None:
    spec = "random:size=16MiB,accesses=1M"
    result = pagelab.run(spec, "radix", warm_up=warm_up, windows=4)["radix"]
    assert result.stats == pagelab.run(spec, "radix", warm_up=warm_up)["radix"].stats
    assert len(result.windows) == 4
    for name in ("accesses", "walk.refs", "cycles.translation"):
        assert sum(window[name] for window in result.windows) == result.stats[name], name
    equal = result.stats["accesses"] / 4
    assert all(abs(window["accesses"] - equal) < 70_000 for window in result.windows)
    with pytest.raises(pagelab.ConfigError, match="windows: 0 parts"):
        pagelab.run(spec, "radix", windows=0)
