"""Minor faults: the kernel's own count, a plain model of its rules, and the engine.

`pytest -m slow -rPx tests/python/test_minor_faults.py` prints the numbers of docs/minor-faults.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
from conftest import COMMAND, ROOT
from fault_model import PAGE_BYTES, Cause, Model
from linux_faults import Located, Native, locate, measure, transparent_large_pages

PROGRAMS = ROOT / "tests" / "programs"
BFS = ROOT / "crates" / "pagelab-trace" / "tests" / "programs" / "bfs.c"
SQL = """
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
    insert into t select i, hex(i * 7919) from n;
create index x on t(b);
select count(*), max(b) from t where b like '3%';
"""
FORKING = """
import os
numbers = [str(number) for number in range(50000)]
child = os.fork()
if child == 0:
    os._exit(sum(map(len, numbers)) % 2)
os.waitpid(child, 0)
numbers.sort()
"""
FORKS = """
import os
for number in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
"""
EXECS = """
import subprocess
for number in range(10):
    subprocess.run(["/bin/true"])
"""

WRITTEN = """
import mmap
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
{advice}
for at in range(0, len(memory), mmap.PAGESIZE):
    memory[at] = 1
"""
"""Writes each page of a mapping of 64 MiB. The kernel aligns a mapping of whole large pages, so all of them fit."""
NUMPY = """
import numpy
numbers = numpy.empty(8 << 20, dtype=numpy.int64)
numbers[::512] = 1
print(numbers[::512].sum())
"""
"""Touches each page of an array of 64 MiB, for which numpy asks for large pages by madvise."""
LARGE_PAGE_LOST = 511
"""Faults by which a run differs from another whose addresses let one large page more fit into a mapping"""


@dataclass(frozen=True)
class LargePages:
    program: str
    large_pages_that_may_differ: int = 0


LARGE_PAGES = {
    "asked for": LargePages(WRITTEN.format(advice="memory.madvise(mmap.MADV_HUGEPAGE)")),
    "not asked for": LargePages(WRITTEN.format(advice="")),
    # Its mapping is a page longer than the array, so what fits depends on what was mapped before.
    "numpy": LargePages(NUMPY, large_pages_that_may_differ=1),
}
SYSTEM_OF = {"always": "radix-thp", "madvise": "radix-thp-madvise", "never": "radix"}
"""System preset by what /sys/kernel/mm/transparent_hugepage/enabled says"""


@dataclass(frozen=True)
class Case:
    command: list[str]
    images: int = 1
    """Times that the command's processes exec"""


CASES = {
    "xz": Case(["xz", "--keep", "--force", "-6", "--threads=1", "text"]),
    "sort": Case(["sort", "--parallel=1", "--output=sorted", "text"]),
    "awk": Case(["awk", "{ n[$1]++; s += length($0) } END { print length(n), s }", "text"]),
    "grep": Case(["grep", "--count", "-E", "(a|b)+[0-9]+.*line 7", "text"]),
    "sqlite3": Case(["sqlite3", ":memory:", SQL]),
    "python3": Case(["python3", "-I", "-S", "-c", "d = {i: str(i) * 3 for i in range(50000)}"]),
    "python3-fork": Case(["python3", "-I", "-S", "-c", FORKING]),
    "bfs": Case(["bfs", "100000", "8"]),
    "python3-200-forks": Case(["python3", "-I", "-S", "-c", FORKS]),
    "python3-10-execs": Case(["python3", "-I", "-S", "-c", EXECS], images=11),
    "gcc": Case(["gcc", "-O2", "-c", "-o", "bfs.o", "bfs.c"], images=3),
    "gcc-link": Case(["gcc", "-O2", "-o", "bfs-linked", "bfs.c"], images=5),
}

RANDOM_RUNS = 12
RECORDER_PER_IMAGE = 8
"""What Valgrind's way of loading a program may change in a count, faults on its own files apart"""


@dataclass(frozen=True)
class Measured:
    native: Native
    randomly: Native | None
    """The same at random addresses, if asked for"""
    located: Located | None
    model: Model
    """Of the trace, each file where the recorder mapped it"""
    at_home: Model
    """The same with each file where the kernel mapped it, if perf can tell"""
    engine: int

    @property
    def of_the_recorder(self) -> int:
        """Faults on the library that Valgrind loads into a program."""
        return sum(_is_the_recorders(fault.file) for fault in self.model.faults)


def _is_the_recorders(file: str | None) -> bool:
    return file is not None and "valgrind" in file


Measure: TypeAlias = Callable[[str], Measured]


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": os.environ["HOME"]}


def _measure(command: list[str], folder: Path, random_runs: int = 0) -> Measured:
    """Runs `command` bare, records it and replays the trace, all in `folder`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        native = measure(command, _environment())
        randomly = measure(command, _environment(), random_runs, random_addresses=True) if random_runs else None
        located = locate(command, _environment(), folder)
        trace = folder / "program.trace"
        shutil.rmtree(trace, ignore_errors=True)
        for arguments in (
            ["record", "-o", str(trace), "--", *command],
            ["run", str(trace), "-s", "radix", "--json", "-"],
        ):
            done = subprocess.run(
                [*COMMAND, *arguments], env=_environment(), capture_output=True, text=True, check=True, timeout=300
            )
    finally:
        os.chdir(before)
    stats = json.loads(done.stdout)["results"][0]["stats"]
    mappings = located.mappings if located else None
    return Measured(
        native=native,
        randomly=randomly,
        located=located,
        model=Model(trace),
        at_home=Model(trace, mappings),
        engine=stats["fault.minor.count"],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs and their input. Files are written page by page, so that the page cache holds no large folios."""
    folder = tmp_path_factory.mktemp("faults")
    for source in (BFS, PROGRAMS / "mappings.c"):
        shutil.copy(source, folder)
        subprocess.run(["gcc", "-O1", "-o", folder / source.stem, source], check=True)
    (folder / "text").write_text("".join(f"{(n * 2654435761) % 1000003:x} line {n % 77}\n" for n in range(20_000)))
    with (folder / "pages").open("wb", buffering=0) as pages:
        for _ in range(256):
            pages.write(os.urandom(PAGE_BYTES))
    return folder


@pytest.fixture(scope="module")
def measured(folder: Path) -> Measure:
    """Measures each of CASES once."""

    @cache
    def result(name: str) -> Measured:
        case = CASES[name]
        program = shutil.which(case.command[0], path=f"{_environment()['PATH']}:{folder}")
        if program is None:
            pytest.fail(f"{case.command[0]} is not installed; these tests need it")
        return _measure([program, *case.command[1:]], folder, random_runs=RANDOM_RUNS)

    return result


def _line(name: str, measured: Measured) -> str:
    counts = measured.model.counts()
    randomly = f"{measured.randomly.least} to {measured.randomly.most}" if measured.randomly else "not run"
    causes = ", ".join(f"{counts[cause]} {cause}" for cause in Cause if counts[cause])
    return (
        f"{name}: native {measured.native.minor}, "
        f"at random addresses {randomly}, "
        f"model {len(measured.model.faults)} ({len(measured.at_home.faults)} at native addresses) "
        f"with {measured.of_the_recorder} of the recorder, "
        f"engine {measured.engine}; {causes}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_model_predicts_the_kernels_count(name: str, measured: Measure) -> None:
    """Within 2 %, or for small programs within what the recorder is known to change."""
    result = measured(name)
    print(_line(name, result))
    assert result.native.major == 0
    assert len(result.model.faults) - result.of_the_recorder == pytest.approx(
        result.native.minor, rel=0.02, abs=RECORDER_PER_IMAGE * CASES[name].images
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_model_faults_on_the_pages_on_which_the_kernel_did(name: str, measured: Measure) -> None:
    """Pages of files. Those that differ are code of the C library that is chosen by the processor's features."""
    result = measured(name)
    if result.located is None:
        pytest.skip("perf is missing or may not sample page faults")
    pages = Counter(
        (fault.file, fault.file_page)
        for fault in result.at_home.faults
        if fault.file is not None and fault.file_page is not None and not _is_the_recorders(fault.file)
    )
    native = result.located.file_pages
    missing, extra = native - pages, pages - native
    print(name, "only natively:", sorted(missing), "only in the model:", sorted(extra))
    assert missing.total() + extra.total() <= max(0.05 * native.total(), RECORDER_PER_IMAGE)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_engine_counts_what_the_kernel_counts(name: str, measured: Measure) -> None:
    result = measured(name)
    print(_line(name, result))
    assert result.engine - result.of_the_recorder == pytest.approx(
        result.native.minor, rel=0.02, abs=RECORDER_PER_IMAGE * CASES[name].images
    )


@pytest.mark.slow
def test_each_way_of_using_memory_faults_as_in_the_kernel(folder: Path) -> None:
    """Counts less those of the same program that does nothing: exact, but for stacks and forks.

    After a fork, parent and child may each copy two pages more natively: one where the thread control block crosses a
    page boundary, and one where the stack does.
    """
    source = (PROGRAMS / "mappings.c").read_text()
    names = re.findall(r"CASE\((\w+)\)", source.partition("cases[]")[2])
    assert names[0] == "none"
    program = str(folder / "mappings")
    counts = {}
    for name in names:
        result = _measure([program, name, str(folder / "pages")], folder)
        counts[name] = (result.native.minor, len(result.model.faults), result.engine)
    apart = {}
    for name in names:
        native, model, engine = (count - none for count, none in zip(counts[name], counts["none"], strict=True))
        print(f"{name}: native {native}, model {model}, engine {engine}")
        if abs(native - model) > (2 if name == "stack" else 4 if name.startswith("fork") else 0):
            apart[name] = (native, model)
    assert not apart


def _engine_count(trace: Path, system: str) -> int:
    done = subprocess.run(
        [*COMMAND, "run", str(trace), "-s", system, "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    (result,) = json.loads(done.stdout)["results"]
    return int(result["stats"]["fault.minor.count"])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_PAGES)
@pytest.mark.parametrize("setting", SYSTEM_OF)
def test_large_pages_are_counted_as_by_a_kernel_that_is_set_alike(name: str, setting: str, tmp_path: Path) -> None:
    """Any kernel can go without large pages; `madvise` and `always` need one that is set so."""
    if setting not in ("never", transparent_large_pages()):
        pytest.skip(
            f"this kernel's large pages are at {transparent_large_pages()}; to run this test, as root: "
            f"echo {setting} > /sys/kernel/mm/transparent_hugepage/enabled"
        )
    case = LARGE_PAGES[name]
    command = [str(Path(sys.executable).parent / "python"), "-I", "-c", case.program]
    environment = _environment() | {"OPENBLAS_NUM_THREADS": "1"}
    native = measure(command, environment, large_pages=setting != "never").minor
    randomly = measure(command, environment, RANDOM_RUNS, large_pages=setting != "never", random_addresses=True)
    trace = tmp_path / "program.trace"
    subprocess.run(
        [*COMMAND, "record", "-o", str(trace), "--", *command],
        env=environment,
        capture_output=True,
        check=True,
        timeout=300,
    )
    engine = _engine_count(trace, SYSTEM_OF[setting])
    print(
        f"{name}, {setting}: native {native}, at random addresses {randomly.least} to {randomly.most}; "
        f"{SYSTEM_OF[setting]} {engine}"
    )
    may_differ = LARGE_PAGE_LOST * case.large_pages_that_may_differ if setting != "never" else 0
    assert engine == pytest.approx(native, abs=0.01 * native + may_differ)
