"""The commands and programs of README and docs work as written.

`run`, `mrc`, `advise` and `compare` of traces, `list`, `schema`, `show`, `stacks`, `trace`, `model` and `predict`
really run, on small stand-ins for the traces that they name, and for few accesses. Of commands that record, measure
this machine or take minutes, only the command line is checked.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import typer
from call_stack_documents import recursive_sort, save
from conftest import COMMAND, ROOT
from fault_text import perf_script
from test_model import mixed_measurement

from pagelab import _engine
from pagelab.catalogue import available
from pagelab.cli import application
from pagelab.observe.difference import FORMAT
from pagelab.observe.machine_state import MachineState

FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCKS = [block for path in FILES for block in re.findall(r"```(\w*)\n(.*?)```", path.read_text(), re.DOTALL)]
SAMPLES = ROOT / "crates" / "pagelab-trace" / "tests" / "import_samples"
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
# Continued lines are one command, and `&&` joins two.
LINES = "\n".join(text for language, text in BLOCKS if language in ("", "console", "text")).replace("\\\n", " ")
# What several pages print runs once.
COMMANDS = list(
    dict.fromkeys(
        command
        for line in LINES.splitlines()
        for command in re.split(r" && | \| ", line.removeprefix("$ ").removeprefix("sudo "))
        if command.startswith("pagelab ")
    )
)
EXECUTED = [
    command
    for command in COMMANDS
    if command.split()[1] in ("run", "mrc", "list", "schema", "show", "stacks", "trace", "model", "predict")
    or (command.startswith(("pagelab advise ", "pagelab compare ")) and " -- " not in command)
]
PARSED = [command for command in COMMANDS if command not in EXECUTED]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the documentation takes for granted: traces, files of other tools, a calibrated kernel."""
    folder = tmp_path_factory.mktemp("stand-ins")
    shutil.copy(SAMPLES / "lackey.txt.gz", folder / "lackey.txt.gz")
    shutil.copy(SAMPLES / "champsim.bin.xz", folder / "champsim.xz")
    for seed, name in (
        ("import_champsim_cloudsuite/plain.bz2", "web.champsim.bz2"),
        ("import_gem5/plain.trc.gz", "monitor.trc.gz"),
        ("import_ramulator/loads.txt", "ramulator.txt"),
        ("import_perf/mem.txt", "samples.txt"),
        ("import_perf_data/memory.data", "perf.data"),
        ("import_pinatrace/plain.txt", "pinatrace.out"),
    ):
        shutil.copy(ROOT / "fuzz" / "seeds" / seed, folder / name)
    (folder / "weighted.txt").write_text("sort 8/8 5.1: cpu/mem-loads/P: 7f0d3c2b1a40 233 55e0c0001100\n")
    with tarfile.open(folder / "threads.tar.xz", "w:xz") as archive:
        archive.add(ROOT / "fuzz" / "seeds" / "import_drmemtrace" / "plain.trace", "threads/app.1.trace")
    threads = folder / "drmemtrace.sort.4711.dir"
    threads.mkdir()
    shutil.copy(ROOT / "fuzz" / "seeds" / "import_drmemtrace" / "chunks.trace.zip", threads / "sort.4711.trace.zip")
    shutil.copy(ROOT / "presets" / "kernels" / "linux-6.12.toml", folder / "this-host.toml")
    shutil.copy(ROOT / "presets" / "machines" / "xeon-e-2136.toml", folder / "this-machine.toml")
    for name in (
        "a",
        "baseline",
        "build",
        "chase",
        "count",
        "count-padded",
        "service",
        "shuf",
        "sort",
        "sorter",
        "store",
        "xz",
    ):
        _run(["trace", "import", str(SAMPLES / "lackey.txt"), "-o", f"{name}.trace"], folder)
    _run(["run", "seq:size=64KiB", "--json", "results.json"], folder)
    (folder / "traces").mkdir()
    _run(["trace", "import", str(SAMPLES / "lackey.txt"), "-o", "traces/4k.trace"], folder)
    for name in ("chase", "shuf", "sort"):
        (folder / f"{name}.json").write_text(mixed_measurement().to_json())
        _run(["model", "fit", f"{name}.json", "-o", f"{name}-models.json"], folder)
    (folder / "faults.txt").write_text(perf_script())
    machine = MachineState("A processor", True, "madvise", 16 << 30, 8 << 30, 4 << 30, 1 << 30, 1 << 30)
    observation = {"format": FORMAT, "machine": asdict(machine), "memory": []}
    (folder / "seen.json").write_text(json.dumps(observation))
    facts = {"latency": {"origin": "constant", "ns": 1000, "how": "a test"}}
    _engine.import_faults_json(folder / "faults.txt", folder / "build.faults", json.dumps(facts))
    save(folder / "sorter-stacks.json", recursive_sort())
    windows = ["--sample", "every=100,length=10,warm=10"]
    _run(["trace", "sample", "sort.trace", "-o", "sort-sample.trace", *windows], folder)
    return folder


@pytest.fixture
def folder(stand_ins: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with the stand-ins."""
    for stand_in in stand_ins.iterdir():
        if stand_in.suffix == ".json":
            # What is written follows links.
            shutil.copy(stand_in, tmp_path / stand_in.name)
        else:
            (tmp_path / stand_in.name).symlink_to(stand_in)
    return tmp_path


@pytest.mark.parametrize("command", EXECUTED)
def test_commands_run(command: str, folder: Path) -> None:
    arguments = shlex.split(command, comments=True)[1:]
    if arguments[0] in ("run", "mrc", "advise", "compare") and "--max-accesses" not in arguments:
        arguments[1:1] = ["--max-accesses", "20K"]
    if "--warm-up" in arguments:
        arguments[arguments.index("--warm-up") + 1] = "100"
    if arguments[0] == "run" and "--sample" in arguments:
        arguments[arguments.index("--sample") + 1] = "every=100,length=10,warm=10"
    if arguments[:2] == ["trace", "sample"]:
        # The stand-ins are too short for windows by their lengths.
        arguments += ["--sample", "every=100,length=10,warm=10"]
        (folder / arguments[arguments.index("-o") + 1]).unlink()
    _run(arguments, folder)


@pytest.mark.parametrize("command", PARSED)
def test_command_lines_are_understood(command: str) -> None:
    _, name, *arguments = shlex.split(command, comments=True)
    group = typer.main.get_command(application.application(name))
    assert isinstance(group, typer.core.TyperGroup)
    if name.startswith("--"):
        assert name in [option for parameter in group.params for option in parameter.opts]
        return
    subcommand = group.commands[name]
    subcommand.make_context(name, arguments, **subcommand.context_settings)


@pytest.mark.parametrize("program", PROGRAMS)
def test_python(program: str, folder: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_tables_are_whole(path: Path) -> None:
    """A table begins with its headings and the line below them, so a blank line within one breaks it."""
    lines = ["", *path.read_text().splitlines(), ""]
    begins = [at for at in range(1, len(lines)) if lines[at].startswith("|") and not lines[at - 1].startswith("|")]
    assert not [lines[at] for at in begins if not re.match(r"\|[-:| ]+\|$", lines[at + 1])]


def test_guides_for_contributors_fit_their_width() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


@pytest.mark.parametrize(
    "kind",
    [
        "workloads",
        "systems",
        "machines",
        "kernels",
        "page-tables",
        "mmu-caches",
        "placements",
        "cores",
        "prefetchers",
        "tlb-organisations",
        "speculations",
        "translation-units",
        "devices",
    ],
)
def test_lists_say_per_where_a_rate_is_meant(kind: str) -> None:
    listed = subprocess.run([*COMMAND, "list", kind], capture_output=True, text=True, check=True).stdout
    # "24 references a walk", "a lock a VMA"; but not "on a walk", "of a page", "then a store" or "a walk reads".
    things = r"an? (?:VMA|walk|page|level|core|process|layer|CPU|slot|line|store)\b(?! (?:reads|that|with))"
    assert not re.findall(rf"\b(?!(?:in|of|on|if|to|as|by|with|then)\b)\w+ {things}", listed)


def test_every_command_is_documented() -> None:
    text = "\n".join(path.read_text() for path in FILES)
    names = list(_commands("pagelab", typer.main.get_command(application.application())))
    assert "pagelab trace import" in names
    missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert missing == [], "README and docs do not mention these"


@pytest.mark.parametrize(
    "kind",
    [
        "page-tables",
        "mmu-caches",
        "tlb-organisations",
        "speculations",
        "translation-units",
        "placements",
        "fault-engines",
        "kernel-threads",
        "cores",
        "prefetchers",
        "devices",
    ],
)
def test_every_design_is_in_the_configuration_guide(kind: str) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    names = [design["name"] for design in available(kind)]
    assert names
    assert [name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", text)] == []


def test_there_is_something_to_test() -> None:
    assert len(EXECUTED) > 25
    assert len(PARSED) > 5
    assert PROGRAMS


def _commands(name: str, command: object) -> Iterator[str]:
    if not isinstance(command, typer.core.TyperGroup):
        yield name
        return
    for word, inner in command.commands.items():
        yield from _commands(f"{name} {word}".strip(), inner)


def _run(arguments: list[str], folder: Path) -> None:
    process = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
