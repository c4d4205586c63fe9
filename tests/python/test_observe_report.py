"""The page of HTML and the table of samples of an observation: the same figures as in the document."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
from altair.utils.schemapi import SchemaValidationError
from conftest import Pagelab, assert_fails

from pagelab.observe import charts, events, samples
from pagelab.observe.code import Frame
from pagelab.observe.heat import HeatMap, Interval, Row
from pagelab.observe.regions import Amounts, Region
from pagelab.observe.samples import FaultLog
from pagelab.observe.sampling import FaultSample

MIB = 1 << 20
SOURCE = Path(__file__).with_name("observed.c")


def region(begin: int, *, small: bool = False) -> Region:
    looks = {0: Amounts(resident=4 * MIB)}
    return Region(1, "heap", begin, begin + 4 * MIB, True, "rw-p", "", looks=looks, small=small)


def log() -> FaultLog:
    """Two samples in one mapping, one in small mappings, one in memory that no look has shown."""
    made = FaultLog()
    large, small = region(16 * MIB), region(0, small=True)
    for second, address, weight, where in (
        (0.5, 16 * MIB, 10.0, large),
        (9.5, 20 * MIB - 1, 30.0, large),
        (9.6, 4096, 5.0, small),
        (10.0, 7, 1.0, None),
    ):
        made.add(FaultSample(1, 0.0, address, weight, (1, 2) if where is large else (3,)), second, where)
    made.scale = 2.0
    return made


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    (values,) = spec["datasets"].values() if "datasets" in spec else [spec["data"]["values"]]
    return values  # type: ignore[no-any-return]


def test_samples_are_a_table() -> None:
    frame = log().frame({(1, (1, 2)): (Frame("fill", "a.out", "a.c:7"), Frame("main", "a.out", ""))})
    assert frame["faults"].to_list() == [20, 60, 10, 2]
    assert frame["memory"].to_list() == ["heap", "heap", "heap", None]
    assert frame["mapping"].to_list() == [16 * MIB, 16 * MIB, 0, None]
    assert frame["function"].to_list() == ["fill", "fill", "", ""]
    assert frame["stack"][0] == "main (a.out);fill (a.out)"
    assert FaultLog().frame({}).columns == frame.columns


def test_the_number_of_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST", 3)
    assert len(log()) == 3


def test_charts_of_faults_hold_all_faults() -> None:
    over_time = rows(charts.faults_over_time(log(), 10.0))
    width = 10 / 60
    assert sum(row["rate"] * width for row in over_time) == pytest.approx(92)
    by_memory = {row["memory"] for row in over_time}
    assert by_memory == {"heap 0x1000000", "heap (small)", "comes and goes"}
    assert charts.most_faulting(log()) == 0
    places = rows(charts.fault_addresses(log(), 0, 10.0))
    assert [row["faults"] for row in places] == [20, 60]
    assert (places[0]["low"], places[-1]["high"]) == (0, pytest.approx(4, rel=0.01))
    assert charts.most_faulting(FaultLog()) is None


def test_more_mappings_than_colours_are_others() -> None:
    made = FaultLog()
    for number in range(20):
        made.add(FaultSample(1, 0.0, 0, 1.0 + number, ()), 1.0, region(number * 4 * MIB))
    names = {row["memory"] for row in rows(charts.faults_over_time(made, 2.0))}
    assert len(names) == 7
    assert "other memory" in names


def test_the_heat_map_has_a_rectangle_per_known_interval() -> None:
    heat = HeatMap([Interval(0, 1), Interval(1, 3)], [Row(region(16 * MIB), [None, 0.25])], [None, MIB])
    assert rows(charts.heat(heat)) == [{"begin": 1, "end": 3, "mapping": "heap 0x1000000, 4 MiB", "used": 0.25}]


def test_charts_follow_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    # They are checked unless that is switched off.
    charts.faults_over_time(log(), 10.0)
    charts.fault_addresses(log(), 0, 10.0)
    monkeypatch.setattr(charts, "_seconds", lambda *_, **__: alt.X("begin:Q", bin="no such word"))  # type: ignore[arg-type]
    with pytest.raises(SchemaValidationError):
        charts.faults_over_time(log(), 10.0)


def test_a_page_and_a_table_are_written(pagelab: Pagelab, tmp_path: Path) -> None:
    program = tmp_path / "observed"
    subprocess.run(["gcc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", program, SOURCE], check=True)
    options = ("--report", "seen.html", "--samples", "seen.parquet", "--json", "seen.json")
    done = pagelab("observe", "-i", "0.2", "--budget", "50%", *options, "--", program, "rate", "1.5")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "seen.json").read_text())
    page = (tmp_path / "seen.html").read_text()
    assert document["verdict"]["reason"] in page
    assert "used in the interval" in page
    # It is complete by itself.
    assert not re.search(r'(src|href)="(https?:)?//', page.split("<script>")[0])
    frame = pl.read_parquet(tmp_path / "seen.parquet")
    try:
        events.access()
    except events.EventsRefusedError:
        assert frame.is_empty()
        return
    assert '<svg class="flame"' in page
    assert "touch_fresh" in page
    for part in ("Where the CPU time goes", "Code that faults"):
        assert f">{part}</h2>" in page
    assert "page faults</td>" in page
    assert frame["faults"].sum() == pytest.approx(document["faults"]["count"])
    assert frame["second"].is_between(0, document["seconds"]).all()
    # The faults go on until the end.
    assert frame["second"].max() > 1.2  # type: ignore[operator]
    # The kernel takes each seventh fault, also in bursts.
    assert frame["faults"].max() == frame["faults"].min() == pytest.approx(7, rel=0.02)
    by_function = frame.group_by("function").agg(pl.col("faults").sum()).sort("faults")
    assert by_function["function"][-1] == "touch_fresh"


def test_names_of_outputs_are_checked_first(pagelab: Pagelab) -> None:
    assert_fails(pagelab("observe", "--report", "a.json", "1"), 2, "name it a.html")
    assert_fails(pagelab("observe", "--samples", "a.csv", "1"), 2, "name it a.parquet")
    assert_fails(pagelab("observe", "--report", "a.html", "--json", "a.html", "1"), 2, "a.html")
