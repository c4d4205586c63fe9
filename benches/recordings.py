"""What a recording and its replay take, beside the program itself, Valgrind alone, and cachegrind.

    python benches/recordings.py [--quick]

Four programs: GUPS, strides, a search of a graph, and a compiler. CPU seconds of all processes, user and system,
alternately; a ratio is of one round, and the table has the median of the rounds and the range. Columns:

- Valgrind: `--tool=none`, which only translates;
- cachegrind: `--cache-sim=yes`, which simulates two caches;
- record: `pagelab record`, its encoder included;
- record + replay: the same and a replay under `radix`;
- live: `pagelab run --live -s radix`.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import throughput
from rich.table import Table

from pagelab.cli.terminal import print_table

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3
PAGELAB = (sys.executable, "-m", "pagelab")
VALGRIND = ("valgrind", "--trace-children=yes", "-q")


def programs(folder: Path, quick: bool) -> dict[str, list[str]]:
    """The commands by name. The programs are built in the folder."""
    for source in (ROOT / "benches/recorded.c", ROOT / "crates/pagelab-trace/tests/programs/bfs.c"):
        subprocess.run(["cc", "-O2", "-o", folder / source.stem, source], check=True)
    millions, vertices = ("2", "20000") if quick else ("20", "600000")
    return {
        "GUPS": [str(folder / "recorded"), "gups", millions],
        "strides": [str(folder / "recorded"), "stride", millions],
        "search of a graph": [str(folder / "bfs"), vertices],
        "compiler": ["gcc", "-O2", "-c", str(ROOT / "examples/programs/lookups.c"), "-o", str(folder / "lookups.o")],
    }


def cpu_seconds(command: Sequence[str | Path]) -> float:
    """CPU time of a command and all of its children. Errors: it fails, with what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ways(folder: Path, program: Sequence[str]) -> dict[str, Callable[[], float]]:
    """CPU seconds of one run, by column."""
    trace = folder / "recorded.trace"
    cachegrind = ("--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null")

    def record() -> float:
        shutil.rmtree(trace, ignore_errors=True)
        return cpu_seconds([*PAGELAB, "record", "-o", trace, "--", *program])

    return {
        "native": lambda: cpu_seconds(program),
        "Valgrind": lambda: cpu_seconds([*VALGRIND, "--tool=none", *program]),
        "cachegrind": lambda: cpu_seconds([*VALGRIND, *cachegrind, *program]),
        "record": record,
        "record + replay": lambda: record() + cpu_seconds([*PAGELAB, "run", trace, "-s", "radix"]),
        "live": lambda: cpu_seconds([*PAGELAB, "run", "--live", "-s", "radix", "--", *program]),
    }


def measure(measured: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each round, by column."""
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(rounds):
        for name, run in list(measured.items())[:: -1 if number % 2 else 1]:
            seconds[name].append(run())
    return seconds


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the accesses, one round")
    quick = parser.parse_args().quick
    if not shutil.which("valgrind"):
        raise SystemExit("recordings need valgrind")
    columns = ("native", "Valgrind", "cachegrind", "record", "record + replay", "live")
    times = Table("", *columns, title="CPU seconds, medians", title_justify="left")
    beside = Table("", *columns[3:], title="Times cachegrind's CPU time", title_justify="left")
    with tempfile.TemporaryDirectory(prefix="pagelab-recordings-") as name:
        folder = Path(name)
        # The first recording after an installation compiles the tool.
        cpu_seconds([*PAGELAB, "record", "-o", folder / "first.trace", "--", "true"])
        for title, program in programs(folder, quick).items():
            seconds = measure(ways(folder, program), 1 if quick else ROUNDS)
            times.add_row(title, *(f"{statistics.median(seconds[column]):.2f}" for column in columns))
            beside.add_row(
                title, *(throughput.ratios_text(seconds[column], seconds["cachegrind"]) for column in columns[3:])
            )
    print_table(times)
    print_table(beside)


if __name__ == "__main__":
    main()
