"""Records the programs of this folder, and four from elsewhere, each into a trace of its own.

python examples/programs/record.py -o FOLDER [--only NAME...] [--accesses]

The traces are FOLDER/NAME.faults: the times of page faults, recorded natively. With --accesses, smaller runs of the
same programs are also recorded into FOLDER/NAME.trace, with all their memory accesses. Traces that are there already
are kept. What is missing on this machine is said at the end, and the exit status is 1 then. The README beside this file
says what each program stands for.
"""

import argparse
import getpass
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

import pagelab

HERE = Path(__file__).resolve().parent
STORES = HERE.parent / "stores"
CC = ("cc", "-std=c11", "-Wall", "-Wextra", "-O2", "-pthread")
DEBIAN = {
    "cc": "gcc",
    "gcc": "gcc",
    "xargs": "findutils",
    "memcached": "memcached",
    "perf": "linux-perf",
    "valgrind": "valgrind",
}
"""The package of each program that is needed"""
ZSTD_SOURCES = ("common/*.c", "decompress/zstd_ddict.c", "decompress/zstd_decompress.c")
SOCKET = "memcached.sock"
CONNECTIONS = 512
"""Of memcached. It sets its limit of open files to this, which Valgrind allows only if the limit is this already"""
POLL_SECONDS = 0.05


class MissingError(Exception):
    """What a recording needs and does not find, or what went wrong with it."""


class Purpose(Enum):
    """What a program is run for, which decides how much it does."""

    FAULTS = "faults"
    ACCESSES = "trace"
    TRIAL = "trial"


Prepare: TypeAlias = Callable[[Path, Purpose], list[str]]
"""Puts what a program needs into a folder. Returns the command to be run there."""


@dataclass(frozen=True)
class Program:
    """A program that can be recorded."""

    title: str
    needs: tuple[str, ...]
    prepare: Prepare
    load: dict[Purpose, list[str]] | None = None
    """Arguments of the Python program that talks to this one from outside, if there is one"""
    accesses_only: bool = False
    """Whether its page faults are not recorded"""


def compiled(source: str, faults: str, accesses: str, trial: str) -> Prepare:
    """A C program of this folder, with its arguments for each purpose."""
    arguments = {Purpose.FAULTS: faults, Purpose.ACCESSES: accesses, Purpose.TRIAL: trial}

    def prepare(work: Path, purpose: Purpose) -> list[str]:
        built = subprocess.run([*CC, "-o", work / source, HERE / f"{source}.c", "-lm"], check=False)
        if built.returncode:
            raise MissingError(f"cc cannot build {source}.c")
        return [f"./{source}", *arguments[purpose].split()]

    return prepare


def gcc(work: Path, purpose: Purpose) -> list[str]:
    """gcc, which compiles sources of zstd: two processes at a time, or one source in all."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    libraries = sorted(cargo.glob("registry/src/*/zstd-sys-*/zstd/lib"))
    if not libraries:
        raise MissingError("zstd's sources are not in cargo's registry; `cargo fetch` in this repository gets them")
    (work / "zstd").symlink_to(libraries[-1])
    if purpose is not Purpose.FAULTS:
        return ["gcc", "-O2", "-c", "zstd/common/zstd_common.c"]
    sources = [path.relative_to(work) for pattern in ZSTD_SOURCES for path in sorted((work / "zstd").glob(pattern))]
    (work / "sources").write_text("".join(f"{path}\n" for path in sources), encoding="utf-8")
    return ["xargs", "-a", "sources", "-n", "1", "-P", "2", "gcc", "-O2", "-c"]


def faas(work: Path, purpose: Purpose) -> list[str]:
    """Python processes of one function, 20 per second, or a single one."""
    # The interpreter itself: a virtual environment's link would have it look for its packages first.
    (work / "python3").symlink_to(Path(sys.executable).resolve())
    (work / "programs").symlink_to(HERE)
    function = ["./python3", "programs/faas.py", "picture.png"]
    subprocess.run([*function, "--make"], cwd=work, check=True)
    if purpose is Purpose.ACCESSES:
        return function
    count = 2 if purpose is Purpose.TRIAL else 13
    return ["./python3", "programs/open_loop.py", "--per-second", "20", "--count", str(count), "--", *function]


def memcached(work: Path, purpose: Purpose) -> list[str]:
    """A memcached server of two threads."""
    del work, purpose
    resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return ["memcached", "-u", getpass.getuser(), "-t", "2", "-m", "512", "-c", str(CONNECTIONS), "-s", SOCKET]


def rocksdb(work: Path, purpose: Purpose) -> list[str]:
    """RocksDB, with a store of its own, under YCSB's mix C (`examples/stores`)."""
    sources = [STORES / name for name in ("ycsb.c", "lmdb.c", "sqlite.c", "rocksdb.c")]
    libraries = ("-lrocksdb", "-llmdb", "-lsqlite3", "-lm")
    built = subprocess.run([*CC, "-DWITH_ROCKSDB", "-o", work / "ycsb", *sources, *libraries], check=False)
    if built.returncode:
        needed = "librocksdb-dev, liblmdb-dev and libsqlite3-dev of Debian"
        raise MissingError(f"cc cannot build the driver in examples/stores; it needs {needed}")
    records, operations = ("1000", "100") if purpose is Purpose.TRIAL else ("65536", "20000")
    sizes = ["--write-buffer", str(1 << 20)]
    run = ["./ycsb", "rocksdb", "run", "store", "--mix", "c", "--operations"]
    # The first process that opens the store after loading writes its last table.
    for command in (["./ycsb", "rocksdb", "load", "store", "--records", records, *sizes], [*run, "0"]):
        subprocess.run(command, cwd=work, check=True)
    return [*run, operations]


INSERTS = {
    Purpose.FAULTS: ["--records", "170000"],
    Purpose.ACCESSES: ["--records", "20000"],
    Purpose.TRIAL: ["--records", "500"],
}
PROGRAMS = {
    "gcc": Program("gcc compiling zstd", ("gcc", "xargs"), gcc),
    "faas": Program("Python functions", (), faas),
    "dedup": Program("dedup", ("cc",), compiled("dedup", "2 96", "2 8", "2 1")),
    "memcached": Program("memcached", ("memcached",), memcached, INSERTS),
    "radix": Program("radix sort", ("cc",), compiled("radix_sort", "2 10000000", "2 4194304", "2 10000")),
    "fft": Program("fft", ("cc",), compiled("fft", "2 22", "2 20", "2 8")),
    "xsbench": Program("lookups", ("cc",), compiled("lookups", "2 10000 660000", "2 1000 60000", "2 20 1000")),
    "bc": Program("betweenness", ("cc",), compiled("betweenness", "2 18 12", "2 14 3", "2 6 1")),
    "is": Program("integer sort", ("cc",), compiled("integer_sort", "2 24 10", "2 21 3", "2 14 1")),
    "rocksdb": Program("RocksDB under YCSB", ("cc",), rocksdb, accesses_only=True),
}
"""The programs by the names of their traces"""


def record(name: str, purpose: Purpose, output: Path, trial: bool) -> Path:
    """Records a program into a trace of the folder `output`. A trace that is there already is kept."""
    program, target = PROGRAMS[name], output / f"{name}{'.trial' * trial}.{purpose.value}"
    if target.exists():
        print(f"{target} is there already, and is kept", flush=True)
        return target
    for needed in (*program.needs, "perf" if purpose is Purpose.FAULTS else "valgrind"):
        if not shutil.which(needed):
            raise MissingError(f"{needed} is not installed; on Debian it is in the package {DEBIAN[needed]}")
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=output, ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        size = Purpose.TRIAL if trial else purpose
        options = ["--quiet", *(["--faults"] if purpose is Purpose.FAULTS else []), "-o", target.name]
        command = [sys.executable, "-m", "pagelab", "record", *options, "--", *program.prepare(work, size)]
        # A process group of its own, so that the recorder can be ended together with what it records.
        with subprocess.Popen(command, cwd=work, process_group=0) as recorder:
            try:
                if program.load:
                    load = [sys.executable, str(HERE / "insert.py"), SOCKET, *program.load[size]]
                    with subprocess.Popen(load, cwd=work) as loader:
                        _wait_for_load(recorder, loader)
                recorder.wait()
            except BaseException:
                _end(recorder)
                raise
        if recorder.returncode:
            raise MissingError(f"pagelab record, or the program, ended with status {recorder.returncode}")
        (work / target.name).rename(target)
    return target


def _wait_for_load(recorder: subprocess.Popen[bytes], loader: subprocess.Popen[bytes]) -> None:
    """Waits for the program that talks to the recorded one, or for the recorder, which says itself what is wrong."""
    while loader.poll() is None and recorder.poll() is None:
        time.sleep(POLL_SECONDS)
    if loader.poll() is None:
        loader.terminate()
    elif loader.returncode:
        raise MissingError(f"insert.py ended with status {loader.returncode}")


def _end(recorder: subprocess.Popen[bytes]) -> None:
    if recorder.poll() is None:
        os.killpg(recorder.pid, signal.SIGTERM)


def fault_table(traces: Iterable[Path]) -> Table:
    """What was recorded natively."""
    table = Table(title="Page faults")
    for heading in ("program", "faults", "faults per second", "CPU seconds", "bytes"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for path in traces:
        info = pagelab.fault_trace_info(path)
        rate = info["faults"] / (info["duration_ns"] / 1e9)
        cpu_seconds = f"{info['cpu_time_ns'] / 1e9:.2f}"
        table.add_row(path.stem, f"{info['faults']:,}", f"{rate:,.0f}", cpu_seconds, f"{path.stat().st_size:,}")
    return table


def access_table(traces: Iterable[Path]) -> Table:
    """What was recorded with all accesses."""
    table = Table(title="Accesses")
    for heading in ("program", "accesses", "bytes"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for path in traces:
        size = sum(part.stat().st_size for part in path.iterdir())
        table.add_row(path.stem, f"{pagelab.trace_info(path)['accesses']:,}", f"{size:,}")
    return table


def main() -> None:
    """Records what was asked for, and says what was not to be had."""
    parser = argparse.ArgumentParser(description="Records programs of the kinds that fault much.")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the folder of the traces")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--accesses", action="store_true", help="record all accesses of smaller runs, too")
    parser.add_argument("--trial", action="store_true", help="tiny runs into NAME.trial.*, to see whether all is there")
    arguments = parser.parse_args()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    console, refused = Console(), []
    for purpose, table in ((Purpose.FAULTS, fault_table), (Purpose.ACCESSES, access_table)):
        if purpose is Purpose.ACCESSES and not arguments.accesses:
            continue
        traces = []
        for name in arguments.only or PROGRAMS:
            if purpose is Purpose.FAULTS and PROGRAMS[name].accesses_only:
                continue
            console.print(f"[bold]{name}[/bold]: {PROGRAMS[name].title}")
            try:
                traces.append(record(name, purpose, output, arguments.trial))
            except MissingError as error:
                refused.append(f"error: {name}.{purpose.value} is not recorded: {error}")
        if traces:
            console.print(table(traces))
    if refused:
        sys.exit("\n".join(refused))


if __name__ == "__main__":
    main()
