"""Mistakes end in one line and a status; results are written whole."""

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import COMMAND, ROOT, Pagelab, assert_fails, read_terminal
from rich.text import Text
from sweeps import wait_for

from pagelab.cli import application, groups

SMALL = "gups:size=16MiB,updates=100K"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run"], ["name at least one trace or workload", "pagelab list workloads"]),
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
        (["run", SMALL, "--set", "=3"], ["`=3`", "the key before `=` is missing", "key=value"]),
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
    ("sent", "status", "message"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_a_run_that_leaves_nothing(tmp_path: Path, sent: int, status: int, message: str) -> None:
    outputs = ["--json", "r.json", "--faults", "new/r.faults"]
    command = [*COMMAND, "run", "gups:size=32GiB,updates=1G", "-s", "radix", *outputs]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: _catches(process, signal.SIGTERM))
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(sent)
    out, err = process.communicate(timeout=20)
    assert process.returncode == status
    assert (out, err) == ("", f"pagelab: error: {message}\n")
    assert list(tmp_path.iterdir()) == []


def _catches(process: subprocess.Popen[str], number: int) -> bool:
    """Whether a process has begun to handle a signal: on a busy machine that takes seconds."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


_INTERRUPTED_AT = """
import builtins, os, runpy, signal, sys
real = builtins.__import__
def importing(name, globals=None, locals=None, fromlist=(), level=0):
    if name == {name!r}:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = importing
sys.argv = ["pagelab", "list", "systems"]
runpy.run_module("pagelab", run_name="__main__")
"""


@pytest.mark.parametrize(
    "name", ["pagelab.cli", "typer", "pagelab.cli.command", "rich.console", "json", "numpy.random"]
)
def test_ctrl_c_while_modules_load_is_one_line(name: str) -> None:
    """Of whatever module: also where a library imports it in a `try` of its own."""
    program = _INTERRUPTED_AT.format(name=name)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if name == "numpy.random":
        # Nothing needs it to list systems, so the same program runs to its end.
        assert (process.returncode, process.stderr) == (0, "")
        return
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "pagelab: error: interrupted\n")


def test_what_a_library_raises_when_it_is_interrupted_is_an_interrupt() -> None:
    program = """
import os, signal
from pagelab.cli import application
def app(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("a module failed to load") from None
application.application = lambda _: app
application.main()
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (130, "", "pagelab: error: interrupted\n")


@pytest.mark.parametrize(
    "arguments", [["run", SMALL], ["record", "--help"], ["trace", "info", "--help"], ["list", "systems"], ["--version"]]
)
def test_a_command_loads_what_it_needs(tmp_path: Path, arguments: list[str]) -> None:
    """Each of these takes as long as a short run."""
    program = f"""
import atexit, runpy, sys
dear = {{"altair", "email", "numpy", "pagelab.call_stacks", "pagelab.faults.recorder", "polars", "pydantic"}}
atexit.register(lambda: print(sorted(dear & set(sys.modules)), file=sys.stderr))
sys.argv = ["pagelab", *{arguments}]
runpy.run_module("pagelab", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr.splitlines()[-1]) == (0, "[]")


def test_the_package_is_loaded_when_it_is_used() -> None:
    program = "import sys, pagelab; print(sorted(name for name in sys.modules if name.startswith('pagelab')))"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout == "['pagelab']\n", process.stderr
    program = "import pagelab; print([name for name in pagelab.__all__ if getattr(pagelab, name, None) is None])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout == "[]\n", process.stderr


@pytest.mark.parametrize("arguments", [["list", "systems"], ["--help"], ["schema"], ["--version"], ["run", SMALL]])
def test_a_standard_output_that_is_closed_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    command = ["bash", "-c", 'exec "$@" >&-', "bash", *COMMAND, *arguments]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A program that is recorded has no standard output, as natively: not the first file that was opened."""
    command = [
        "bash",
        "-c",
        'exec "$@" <&- >&- 2>&-',
        "bash",
        *COMMAND,
        "record",
        "-o",
        "a.trace",
        "--",
        "echo",
        "text",
    ]
    process = subprocess.run(command, cwd=tmp_path, check=False)
    assert process.returncode == 1
    assert not [file for file in (tmp_path / "a.trace").iterdir() if b"text\n" in file.read_bytes()]
    assert subprocess.run([*COMMAND, "trace", "info", "a.trace"], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["list", "systems"], ["--help"], ["run", SMALL], ["mrc", SMALL]])
def test_a_reader_that_ends_early_is_no_error_of_ours(arguments: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (process.returncode, process.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["record", "-o", "--", "true"], "--output NAME.trace"),
        (["run", SMALL, "--json", "--quiet"], "--json FILE"),
        (["run", SMALL, "-s", "-q"], "--system SYSTEM"),
        (["report", "r.json", "-o", "-"], "name of a file"),
        (["advise", "--keep", "--", "true"], "--keep NAME.trace"),
        (["trace", "sample", SMALL, "-o", "--seed"], "--output NAME.trace"),
    ],
)
def test_an_option_takes_no_other_for_its_value(
    pagelab: Pagelab, arguments: list[str], message: str, tmp_path: Path
) -> None:
    assert_fails(pagelab(*arguments), 2, message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["run", SMALL, "--report", "x.pdf"], "x.html"),
        (["run", SMALL, "--json", "x.html"], "x.json"),
        (["run", SMALL, "--faults", "x.json"], "x.faults"),
        (["report", "r.json", "-o", "x.pdf"], "x.html"),
        (["advise", SMALL, "-o", "x.PDF"], "x.html"),
        (["advise", SMALL, "--json", "x.csv"], "x.json"),
        (["advise", "--keep", "x.json", "--", "true"], "x.trace"),
        (["mrc", SMALL, "--json", "x.svg"], "x.json"),
        (["measure", "-o", "x.html", "--", "true"], "x.json"),
        (["model", "fit", "m.json", "-o", "x.html"], "x.json"),
        (["predict", "a.trace", "--model", "m.json", "--json", "x.html"], "x.json"),
        (["contiguity", "--json", "x.csv", "--", "true"], "x.json"),
        (["major-faults", "--json", "x.csv", "--", "true"], "x.json"),
        (["record", "-o", "x.html", "--", "true"], "x.trace"),
        (["trace", "import", "a", "-o", "x.json"], "x.trace"),
        (["trace", "sample", SMALL, "-o", "x.pdf"], "x.trace"),
        (["sweep", "a.toml", "-o", "x.json"], "name it x"),
        (["reproduce", "mfoe", "-o", "x.html"], "name it x"),
        (["linux", "bench", "--json", "x.html"], "x.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_name_that_promises_other_content_is_refused(
    pagelab: Pagelab, arguments: list[str], right: str, tmp_path: Path
) -> None:
    assert_fails(pagelab(*arguments), 2, right)
    assert list(tmp_path.iterdir()) == []


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
    for text, why in [("{}", "'version' is missing"), ("buy milk", "not JSON"), ("[]", "not a pagelab result file")]:
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
        assert "Missing folders are created." in text, name


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
    output = read_terminal(ours)
    assert command.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m|\r", "", output)


@pytest.mark.parametrize("arguments", [["--version"], ["run", "gupsy"], ["run", "--sed", "1"], ["list", "systems"]])
def test_no_data_frames_are_imported_for_nothing(arguments: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pagelab.cli.application import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'polars', 'pandas', 'numpy', 'matplotlib'} & sys.modules.keys()))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.stdout.splitlines()[-1] == "[]"


def test_a_command_is_imported_without_the_others(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pagelab.cli.application import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'pagelab.cli.run', 'pagelab.cli.advise', 'pagelab_linux'} & sys.modules.keys()))\n"
    )
    for command, imported in {"run": ["pagelab.cli.run"], "advise": ["pagelab.cli.advise", "pagelab.cli.run"]}.items():
        process = subprocess.run(
            [sys.executable, "-c", program, command, "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.stdout.splitlines()[-1] == str(imported)


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
        ("tlb-organisations", "coalesced"),
        ("speculations", "spec-tlb"),
        ("translation-units", "victim"),
        ("devices", "fixed-latency"),
        ("kernel-threads", "khugepaged"),
    ]:
        process = pagelab("list", kind)
        assert process.returncode == 0, process.stderr
        assert expected in process.stdout
    text = " ".join(pagelab("list", "machines").stdout.split())
    assert "kabylake-7700hq 2017, mobile: Intel Core i7-7700HQ" in text
    assert "gem5-timing simulated: " in text
    schema = json.loads(pagelab("schema").stdout)
    assert {"machine", "system", "kernel", "engine"} <= schema["properties"].keys()


def test_a_preset_is_printed_as_its_file_and_extended(pagelab: Pagelab, tmp_path: Path) -> None:
    folders = {
        "machines": "machines",
        "systems": "systems",
        "kernels": "kernels",
        "drives": "drives",
        "windows": "windows",
    }
    for kind, folder in folders.items():
        name = json.loads(pagelab("list", kind, "--json").stdout)[0]["name"]
        assert pagelab("list", kind, name, "--toml").stdout == (ROOT / "presets" / folder / f"{name}.toml").read_text()
    (tmp_path / "mine.toml").write_text('base = "kabylake-7700hq"\nfrequency_mhz = 3600\n')
    process = pagelab("run", SMALL, "-m", "mine", "--json", "r.json")
    assert process.returncode == 0, process.stderr
    assert " on mine, seed 1" in process.stdout
    machine = json.loads((tmp_path / "r.json").read_text())["results"][0]["config"]["machine"]
    assert (machine["frequency_mhz"], machine["cores"]) == (3600, 4)
    assert machine["origin"]["frequency_mhz"] == "mine, which gives no origin"
    assert machine["origin"]["cores"] == "Intel ARK: i7-7700HQ"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["machines", "kabylake", "--toml"], ["`kabylake`", "kabylake-7700hq"]),
        (["machines", "--toml"], ["pagelab list machines NAME --toml"]),
        (["cores", "in-order", "--toml"], ["cores are no presets", "machines, systems"]),
        (["systems", "raddix"], ["did you mean radix"]),
        (["systems", "radix", "--toml", "--json"], ["leave one out"]),
    ],
)
def test_what_has_no_file_is_named(pagelab: Pagelab, arguments: list[str], parts: list[str]) -> None:
    assert_fails(pagelab("list", *arguments), 2, *parts)


def test_one_of_a_kind_is_listed_alone(pagelab: Pagelab) -> None:
    assert [line.split()[0] for line in pagelab("list", "systems", "radix").stdout.splitlines()] == ["radix"]
    assert [entry["name"] for entry in json.loads(pagelab("list", "cores", "window", "--json").stdout)] == ["window"]


def test_another_model_takes_its_defaults(pagelab: Pagelab, tmp_path: Path) -> None:
    process = pagelab("run", SMALL, "-s", "radix{machine.core.model=window}", "--json", "r.json")
    assert process.returncode == 0, process.stderr
    core = json.loads((tmp_path / "r.json").read_text())["results"][0]["config"]["machine"]["core"]
    assert (core["model"], core["window"]) == ("window", 224)
    assert "l1_hit_hidden" not in core
    settings = ("--set", "machine.core.l1_hit_hidden=true", "--set", "machine.core.model=window")
    assert_fails(pagelab("run", SMALL, *settings), 2, "machine.core.l1_hit_hidden", "no key")


def _commands() -> dict[str, Any]:
    """All commands that do something, by what one types."""
    commands: dict[str, Any] = {}

    def collect(name: str, command: Any) -> None:
        for word, inner in getattr(command, "commands", {}).items():
            collect(f"{name} {word}".strip(), inner)
        if not hasattr(command, "commands"):
            commands[name] = command

    collect("", typer.main.get_command(application.application()))
    return commands


def test_an_output_has_one_name_in_all_commands() -> None:
    for name, command in _commands().items():
        short = [option.opts for option in command.params if "-o" in option.opts or "--output" in option.opts]
        assert all(set(names) == {"--output", "-o"} for names in short), name


def test_help_texts_lose_no_brackets() -> None:
    """`[heap]` would be markup, of which nothing is shown."""
    commands = _commands().items()
    texts = [(name, text.help or "") for name, command in commands for text in (command, *command.params)]
    assert any("[" in text for _, text in texts)
    for name, text in texts:
        assert Text.from_markup(text).plain == text.replace("\\[", "["), name


def test_options_that_need_another_are_in_a_group_of_it() -> None:
    for name, command in _commands().items():
        main = [option for option in command.params if getattr(option, "rich_help_panel", "argument") is None]
        for option in main:
            assert not re.match(r"With --|Where --|Whether --|.* of --", option.help or ""), (name, option.name)
    # No entry of a group is of an option that there is no more.
    by_word = {name.split()[-1]: command for name, command in _commands().items()}
    for word, options in groups._BY_COMMAND.items():
        assert options.keys() <= {option.name for option in by_word[word].params}, word


def test_a_workload_without_memory_for_its_arrays_says_so(pagelab: Pagelab) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limits[1]))
    try:
        done = pagelab("run", "-s", "radix", "hash-table:records=1000,buckets=4G,operations=10")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert_fails(done, 2, "no memory for the buckets of 15625000KiB", "take fewer records or buckets")
