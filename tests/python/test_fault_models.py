"""`pagelab model` and the models of page faults in time."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails
from fault_text import perf_script

import pagelab as package


def test_a_process_gives_a_table_and_json(pagelab: Pagelab, tmp_path: Path) -> None:
    done = pagelab("model", "mfoe", "even:rate=142857,cores=1,seconds=1,latency_ns=26", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    for text in ("% hits", "89.", "estimated speed-up", "limited by the rings", "all 26 ns, as the spec says"):
        assert text in done.stdout, done.stdout
    study = json.loads((tmp_path / "out.json").read_text())
    assert study["runs"][0]["outcome"]["hit_rate"] == pytest.approx(0.896, abs=0.002)
    assert study["model"] == "mfoe"
    assert study["info"]["duration_ns"] == 1_000_000_000


def test_the_same_seed_gives_the_same_bytes(pagelab: Pagelab) -> None:
    outputs = [
        pagelab("model", "mfoe", "poisson:rate=500K,cores=3,seconds=0.3", "--seed", seed, "--json", "-").stdout
        for seed in ("7", "7", "8")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


def test_a_sweep_has_a_line_for_each_combination(pagelab: Pagelab) -> None:
    spec = "bursts:rate=200K,cores=4,seconds=0.3,burst=600"
    sweep = ("--sweep", "ring_entries=128,1024", "--sweep", "period_us=2000,32000")
    done = pagelab("model", "mfoe", spec, *sweep)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in (["128"], ["1024"])]
    assert [row[:2] for row in rows] == [["128", "2000"], ["128", "32000"], ["1024", "2000"], ["1024", "32000"]]
    hits = [float(row[2]) for row in rows]
    assert hits[2] > hits[0] > hits[1]


def test_text_needs_a_latency(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "faults.txt").write_text(perf_script())
    assert_fails(pagelab("model", "mfoe", "faults.txt"), 2, "latencies of these faults are unknown", "fault_latency_ns")
    settings = ("--set", "fault_latency_ns=1000", "--set", "initial_fill=done", "--set", "parallelism=1")
    done = pagelab("model", "mfoe", "faults.txt", *settings)
    assert done.returncode == 0, done.stderr
    # 2,000 faults of 1 us in 19.99 ms.
    assert "10.01" in done.stdout
    assert "2,000 on 2 cores" in done.stdout


def test_fault_traces_are_shown(pagelab: Pagelab, tmp_path: Path) -> None:
    package.run("seq:size=64KiB,passes=1,write=1", "radix", faults=tmp_path / "seq.faults")
    shown = pagelab("trace", "info", "seq.faults")
    assert shown.returncode == 0, shown.stderr
    lines = {tuple(line.split("  ", 1)) for line in map(str.strip, shown.stdout.splitlines())}
    texts = {label.strip(): text.strip() for label, text in (line for line in lines if len(line) == 2)}
    assert texts["writes of pages not mapped"] == "16"
    assert texts["fetches from such pages"] == texts["processes"] == texts["threads"] == "1"
    assert texts["faults"].startswith("17, ")
    assert texts["latency"].startswith("simulated: from the exception")
    about = json.loads(pagelab("trace", "info", "seq.faults", "--json").stdout)
    assert about == package.fault_trace_info(tmp_path / "seq.faults")

    head = pagelab("trace", "head", "-n", "3", "seq.faults").stdout.splitlines()
    assert len(head) == 1 + 3
    assert head[1].split()[1:4] == ["0", "0", "0"], "core, process and thread"
    rows = package.fault_trace_head(tmp_path / "seq.faults", 100)
    assert len(rows) == 17
    assert [row["access"] for row in rows].count("write") == 16
    assert all(later["time_ns"] >= row["time_ns"] + row["latency_ns"] for row, later in pairwise(rows))

    assert_fails(pagelab("trace", "info", "--footprint", "seq.faults"), 2, "is a fault trace")
    with pytest.raises(package.UsageError, match="fault_trace_info"):
        package.trace_info(tmp_path / "seq.faults")
    assert_fails(pagelab("model", "mfoe", "seq.faults", "--json", "seq.faults"), 2, "name it seq.json")
    whole = (tmp_path / "seq.faults").read_bytes()
    (tmp_path / "cut.faults").write_bytes(whole[:-100])
    assert_fails(pagelab("trace", "head", "cut.faults"), 1, "cut.faults", "not a whole Parquet file")


def test_mistakes_say_what_would_be_right(pagelab: Pagelab, tmp_path: Path) -> None:
    process = "poisson:seconds=0.1"
    assert_fails(pagelab("model", "mfeo", process), 2, "No such command 'mfeo'. Did you mean 'mfoe'?")
    assert_fails(pagelab("model", "mfoe", "poison"), 2, "did you mean poisson?")
    assert_fails(pagelab("model", "mfoe", "./none.faults"), 2, "none.faults: there is no such file")
    assert_fails(pagelab("model", "mfoe", process, "--set", "ring_entries=65536"), 2, "must be 1 to")
    assert_fails(
        pagelab("model", "mfoe", process, "--set", "ring=1"), 2, "unknown parameter 'ring'; known are ring_entr"
    )
    assert_fails(pagelab("model", "mfoe", process, "--sweep", "ring_entries"), 2, "give KEY=VALUE,VALUE")
    assert_fails(pagelab("model", "mfoe", process, "--sweep", "ring_entries=1,,2"), 2, "give KEY=VALUE,VALUE")
    two = ("--sweep", "period_us=1", "--sweep", "period_us=2")
    assert_fails(pagelab("model", "mfoe", process, *two), 2, "period_us is swept twice")
    (tmp_path / "bad.txt").write_text(perf_script(3) + "rubbish\n")
    assert_fails(pagelab("model", "mfoe", "bad.txt"), 1, "line 4 of this perf script text: expected")
    several = pagelab("model", "mfoe", process, "--set", "ring_entries=1,2")
    assert_fails(several, 2, "one value; for several, use --sweep ring_entries=1,2")
    assert_fails(pagelab("model", "mfoe", process, "--sweep", "ring_entries=1,2,1"), 2, "1 is given twice")
    assert_fails(pagelab("model", "mfoe", process, "--set", "ring_entry=1"), 2, "did you mean ring_entries?")
    assert_fails(pagelab("model", "mfoe", process, "--set", "seconds=0.05"), 2, "seconds=0.05: the last fault comes at")
    (tmp_path / "a.out").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    assert_fails(pagelab("model", "mfoe", "a.out"), 1, "this is not text; expected is text of perf script")
    assert_fails(pagelab("trace", "info", "bad.txt"), 1, "not a fault trace", "`pagelab model` also reads text of perf")


def test_kinds_are_listed_with_origins(pagelab: Pagelab) -> None:
    assert {"fault-processes", "fault-models", "workloads"} <= {kind["name"] for kind in package.available("kinds")}
    models = {parameter["name"]: parameter for parameter in package.available("fault-models")[0]["parameters"]}
    assert models["hit_cycles"]["default"] == "78"
    assert "table 4" in models["hit_cycles"]["origin"]
    assert all(parameter["origin"] for parameter in models.values())
    listed = pagelab("list", "fault-models")
    assert "ring_entries: pages of a core's ring [count, default 256; paper, section" in listed.stdout
    assert [entry["name"] for entry in package.available("fault-processes")] == ["even", "poisson", "bursts", "phases"]
    assert_fails(pagelab("list", "fault-process"), 2, "did you mean fault-processes?")


def test_from_python() -> None:
    study = package.mfoe("poisson:rate=100K,seconds=0.2", set={"ring_entries": 8}, sweep={"period_us": [500, 4000]})
    assert [estimate.sweep for estimate in study.estimates] == [{"period_us": "500"}, {"period_us": "4000"}]
    short, long = study.estimates
    assert short.hit_rate > long.hit_rate
    assert long.bound == "ring"
    assert 1 < long.speed_up < short.speed_up < 1.1
    with pytest.raises(package.UsageError, match="must be at most a millisecond"):
        package.mfoe("poisson", set=["hit_cycles=1e8"])
