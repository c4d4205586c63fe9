"""Mistakes end in one line and a status; results are written whole."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
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
        (["run", SMALL, "-s", "cubist"], ["cubist", "radix", "pagelab list systems"]),
        (["run", SMALL, "-m", "pdp-11"], ["pdp-11", "kabylake-7700hq"]),
        (["run", "gups:colour=3"], ["colour", "size"]),
        (["run", "gupsy"], ["gupsy", "gups"]),
        (["run", SMALL, "--set", "machine.tlb.l3=1"], ["machine.tlb.l3", "no key `l3`", "did you mean `l2`?"]),
        (["run", SMALL, "--set", "engine"], ["engine", "key=value"]),
        (["run", SMALL, "--set", "=3"], ["`=3`", "no key stands before `=`", "key=value"]),
        (["run", SMALL, "-s", "raddix"], ["`raddix`", "did you mean radix?", "pagelab list systems"]),
        (["run", SMALL, "-m", "gem5"], ["`gem5`", "kabylake-7700hq"]),
        (["run", SMALL, "-m", "gem5-timings"], ["did you mean gem5-timing?"]),
        (["run", SMALL, "-k", "linux-6.1"], ["did you mean linux-6.12?"]),
        (["run", "pagrank"], ["did you mean pagerank?"]),
        (["list", "system"], ["did you mean systems?"]),
        (["run", SMALL, "--max-accesses", "0"], ["--max-accesses: 0", "allowed is 1 and more"]),
        (["run", SMALL, "--max-accesses", "1ZiB"], ["--max-accesses: ", "1ZiB", "25M"]),
        (["run", SMALL, "--set", "machine.cache.l1.ways=0"], ["machine.cache.l1.ways", "0", "1 to 64"]),
        (["run", SMALL, "--set", "engine.kernel_refs=maybe"], ["engine.kernel_refs", "maybe", "on", "off"]),
        (["run", SMALL, "--max-accesses", "many"], ["--max-accesses: ", "many"]),
        (["run", SMALL, "--warm-up", "long"], ["--warm-up: ", "long"]),
        (["record", "--max-accesses", "many", "--", "true"], ["--max-accesses: ", "many"]),
        (["trace", "import", "x", "--max-accesses", "many"], ["--max-accesses: ", "many"]),
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
    (tmp_path / "file").touch()
    assert_fails(pagelab("run", "gups:size=32GiB,updates=1G", "--json", "file/r.json"), 1, "file", "Not a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("sent", "status", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_a_run_that_leaves_nothing(tmp_path: Path, sent: int, status: int, told: str) -> None:
    outputs = ["--json", "r.json", "--faults", "new/r.faults"]
    command = [*COMMAND, "run", "gups:size=32GiB,updates=1G", "-s", "radix", *outputs]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(sent)
    out, err = process.communicate(timeout=20)
    assert process.returncode == status
    assert (out, err) == ("", f"pagelab: error: {told}\n")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_the_command_is_imported_is_one_line() -> None:
    interrupted = """
import builtins, runpy, sys
real = builtins.__import__
def importing(name, globals=None, locals=None, fromlist=(), level=0):
    if name == "pagelab" and "cli" in (fromlist or ()):
        raise KeyboardInterrupt
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = importing
runpy.run_module("pagelab", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "pagelab: error: interrupted\n")


def test_version(pagelab: Pagelab) -> None:
    process = pagelab("--version")
    assert process.returncode == 0
    assert process.stdout.startswith("pagelab ")


def test_json_holds_the_statistics_and_the_effective_configuration(pagelab: Pagelab, tmp_path: Path) -> None:
    arguments = ("run", SMALL, "-s", "radix", "-s", "nested-radix", "--set", "machine.tlb.l2_latency_cycles=11")
    to_file = pagelab(*arguments, "--json", "r.json", "--threads", "2")
    assert to_file.returncode == 0, to_file.stderr
    assert "nested-radix" in to_file.stdout
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


def test_what_are_no_results_is_not_shown(pagelab: Pagelab, tmp_path: Path) -> None:
    for text, why in [("{}", "'version' is missing"), ("buy milk", "not JSON"), ("[]", "no results of pagelab")]:
        (tmp_path / "r.json").write_text(text)
        assert_fails(pagelab("show", "r.json"), 2, "r.json", why)
    assert_fails(pagelab("show", "missing.json"), 1, "missing.json", "No such file")


def test_every_output_makes_the_folders_that_are_missing_and_says_so(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("==1== Lackey\n L 04222c4c,8\n")
    outputs = {
        ("run", SMALL, "--json"): "1/new/r.json",
        ("trace", "import", "a.txt", "-f", "lackey", "-o"): "2/new/a.trace",
        ("record", "-o"): "3/new/b.trace",
    }
    for arguments, output in outputs.items():
        process = pagelab(*arguments, output, *(("--", "true") if arguments[0] == "record" else ()))
        assert process.returncode == 0, process.stderr
        assert (tmp_path / output).exists()
    for name in ("run", "record", "trace import", "contiguity", "calibrate", "reproduce"):
        text = " ".join(re.sub(r"[│\s]+", " ", pagelab(*name.split(), "--help").stdout).split())
        assert "Folders that are missing are made." in text, name


def test_results_are_written_into_new_folders_and_shown_again(pagelab: Pagelab) -> None:
    run = pagelab("run", SMALL, "-s", "radix", "-s", "radix-2m", "--json", "new/r.json")
    assert run.returncode == 0, run.stderr
    shown = pagelab("show", "new/r.json")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == run.stdout


def test_a_comparison_of_four_systems_fits_80_columns(pagelab: Pagelab) -> None:
    systems = ("radix", "radix-no-mmu-cache", "nested-radix-shared-page-walk-cache", "radix{machine.memory_bytes=8GiB}")
    table = pagelab("run", SMALL, "--full", *(word for system in systems for word in ("-s", system))).stdout
    lines = table.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]
    assert "  busy cycles/access" in table
    # So does a pipe that is told its width, however many systems there are.
    five = (*systems, "hashed-compact{system.layers.native.page_table.table_bytes=16MiB,engine.seed=3}")
    piped = pagelab("run", SMALL, "--full", *(word for system in five for word in ("-s", system)), COLUMNS="80").stdout
    assert max(map(len, piped.splitlines())) <= 80
    assert piped.count("busy cycles/access") == 2
    assert "(2) hashed-compact: table_bytes=16MiB, seed=3" in piped.splitlines()
    # A narrow terminal gets tables one below the other; no cell is cut.
    shown = on_a_terminal(
        "run", SMALL, "--full", *(word for system in systems for word in ("-s", system)), COLUMNS="60"
    )
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.count("busy cycles/access") == 2
    assert "…" not in shown


def test_the_summary_fits_80_columns_whatever_the_systems(pagelab: Pagelab) -> None:
    names = [line.split()[0] for line in pagelab("list", "systems").stdout.splitlines()]
    systems = [*names[:12], "radix{machine.memory_bytes=8GiB,engine.seed=3}"]
    lines = pagelab("run", SMALL, *(word for system in systems for word in ("-s", system))).stdout.splitlines()
    assert max(map(len, lines[1:])) <= 80
    begins = [line.split()[0] for line in lines if re.match(r"[a-z]", line)]
    assert begins.count("radix") == 2
    assert "(1) radix: memory_bytes=8GiB, seed=3" in lines


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the command writes to a terminal, without its escape sequences."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TERM": "xterm"} | environment,
    )
    os.close(theirs)
    output = bytearray()
    try:
        while part := os.read(ours, 1 << 16):
            output += part
    except OSError:
        # How Linux says that the other end is closed.
        pass
    finally:
        os.close(ours)
    assert command.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m|\r", "", output.decode())


@pytest.mark.parametrize("arguments", [["--version"], ["run", "gupsy"], ["run", "--sed", "1"], ["list", "systems"]])
def test_no_data_frames_are_imported_for_nothing(arguments: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pagelab.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'polars', 'pandas', 'numpy', 'matplotlib'} & sys.modules.keys()))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_lists_and_the_schema(pagelab: Pagelab) -> None:
    kinds = pagelab("list")
    assert kinds.returncode == 0, kinds.stderr
    assert {"workloads", "systems", "mmu-caches"} <= set(kinds.stdout.split())
    for kind in json.loads(pagelab("list", "--json").stdout):
        assert json.loads(pagelab("list", kind["name"], "--json").stdout), kind
    for kind, expected in [
        ("workloads", "gups"),
        ("systems", "nested-radix"),
        ("machines", "kabylake-7700hq"),
        ("kernels", "linux-6.12"),
        ("page-tables", "radix"),
        ("mmu-caches", "paging-structure"),
        ("placements", "ptemagnet"),
        ("cores", "in-order"),
        ("prefetchers", "next_page"),
        ("devices", "fixed-latency"),
        ("kernel-threads", "khugepaged"),
    ]:
        process = pagelab("list", kind)
        assert process.returncode == 0, process.stderr
        assert expected in process.stdout
    schema = json.loads(pagelab("schema").stdout)
    assert {"machine", "system", "kernel", "engine"} <= schema["properties"].keys()
