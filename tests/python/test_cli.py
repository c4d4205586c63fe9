"""Mistakes end in one line and a status; results are written whole."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, assert_fails

SMALL = "gups:size=16MiB,updates=100K"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run"], ["name a trace or a workload", "pagelab list workloads"]),
        (["run", SMALL, "--with", "seq@64"], ["with", "@64", "0 to 7"]),
        (["run", SMALL, "--arrivals", "seq,per_second=0"], ["arrivals", "per_second=0", "from 0.000001"]),
        (["run", "--arrivals", "seq,per_second=5"], ["without a main source", "count=N"]),
        (["run", SMALL, "--sed", "1"], ["--sed", "--seed"]),
        (["walk"], ["walk"]),
        (["list", "ghosts"], ["ghosts", "workloads", "systems", "machines"]),
        (["run", SMALL, "-s", "cubist"], ["cubist", "radix", "nested-radix"]),
        (["run", SMALL, "-m", "pdp-11"], ["pdp-11", "kabylake-7700hq"]),
        (["run", "gups:colour=3"], ["colour", "size"]),
        (["run", "gupsy"], ["gupsy", "gups"]),
        (["run", SMALL, "--set", "machine.tlb.l3=1"], ["machine.tlb", "l3", "l2"]),
        (["run", SMALL, "--set", "engine"], ["engine", "key=value"]),
        (["run", SMALL, "--set", "machine.cache.l1.ways=0"], ["machine.cache.l1.ways", "0", "1 to 64"]),
        (["run", SMALL, "--set", "engine.kernel_refs=maybe"], ["engine.kernel_refs", "maybe", "on", "off"]),
        (["run", SMALL, "--max-accesses", "many"], ["many"]),
        (["run", f"{SMALL}@64"], ["@64", "0 to 7"]),
        (["record", "--", "no-such-program"], ["no-such-program"]),
        (["record"], ["Missing argument"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_usage_errors_name_what_is_wrong_and_what_is_right(
    pagelab: Pagelab, arguments: list[str], parts: list[str]
) -> None:
    assert_fails(pagelab(*arguments), 2, *parts)


def test_an_unknown_folder_is_no_trace(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("run", "missing.trace"), 1, "missing.trace")
    (tmp_path / "empty.trace").mkdir()
    assert_fails(pagelab("run", "empty.trace"), 1, "empty.trace", "trace.json")
    assert_fails(pagelab("trace", "info", "empty.trace"), 1, "empty.trace", "trace.json")


def test_missing_valgrind_is_named(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("record", "-o", "x.trace", "--", "/bin/true", PATH=str(tmp_path)), 2, "valgrind", "install")
    assert not (tmp_path / "x.trace").exists()


def test_a_full_disk_is_one_line(pagelab: Pagelab) -> None:
    assert_fails(pagelab("run", SMALL, "--json", "/dev/full"), 1, "/dev/full", "No space left")


def test_a_result_that_cannot_be_written_is_refused_before_the_run(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("run", "gups:size=32GiB", "--json", "missing/r.json"), 1, "missing", "No such file")
    assert list(tmp_path.iterdir()) == []


def test_interrupt_ends_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    command = [*COMMAND, "run", "gups:size=32GiB", "-s", "radix", "-s", "nested-radix", "--json", "r.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (out, err) == ("", "pagelab: error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_version(pagelab: Pagelab) -> None:
    process = pagelab("--version")
    assert process.returncode == 0
    assert process.stdout.startswith("pagelab ")


def test_json_holds_the_statistics_and_the_effective_configuration(pagelab: Pagelab, tmp_path: Path) -> None:
    arguments = ("run", SMALL, "-s", "radix", "-s", "nested-radix", "--set", "machine.tlb.l2_latency_cycles=11")
    to_file = pagelab(*arguments, "--json", "r.json", "--threads", "2")
    assert to_file.returncode == 0, to_file.stderr
    assert "references per walk" in to_file.stdout
    text = (tmp_path / "r.json").read_text()
    assert pagelab(*arguments, "--json", "-", "--threads", "1").stdout == text
    results = json.loads(text)["results"]
    assert [result["system"] for result in results] == ["radix", "nested-radix"]
    names = "accesses instructions cycles dtlb.l1.misses dtlb.l2.misses walk.count walk.refs walk.cycles walk.refs.l1"
    names += " walk.refs.l2 walk.refs.l3 walk.refs.dram l1d.misses l2.misses l3.misses fault.minor.count"
    names += " fault.major.count fault.cycles"
    for result in results:
        assert result["config"]["machine"]["tlb"]["l2_latency_cycles"] == 11
        assert set(names.split()) <= result["stats"].keys()
        classes = [value for name, value in result["stats"].items() if name.startswith("cycles.")]
        assert sum(classes) == result["stats"]["cycles"]


def test_lists_and_the_schema(pagelab: Pagelab) -> None:
    for kind, expected in [
        ("workloads", "gups"),
        ("systems", "nested-radix"),
        ("machines", "kabylake-7700hq"),
        ("kernels", "linux-6.12"),
        ("page-tables", "radix"),
        ("mmu-caches", "paging-structure"),
        ("placements", "ptemagnet"),
    ]:
        process = pagelab("list", kind)
        assert process.returncode == 0, process.stderr
        assert expected in process.stdout
    schema = json.loads(pagelab("schema").stdout)
    assert {"machine", "system", "kernel", "engine"} <= schema["properties"].keys()
