"""How far sampled replay is off and how much time it saves: `python benches/sampling.py [FOLDER] [--sample WINDOWS]`.

Each workload is replayed whole once, and sampled with several seeds, which place the windows. Of each headline figure
the table says how many samples are within 5 % of the whole run, how many intervals hold it, and the largest error.
CPU seconds are those of this process, the median of three alternating runs: of whole runs, of sampled ones, and of
runs of a saved sample; for the core that waits for each access and for one with a window. Recordings that are missing
are made in FOLDER.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pagelab
from pagelab.results.windows import Figure, figures

LIMIT = 100_000_000
"""Accesses of a workload."""
CLOSE = 0.05
TURNS = 3

# The sources' own seeds stay, so that a run's seed places the windows alone.
SYNTHETIC = (
    "bfs:vertices=2M,seed=1",
    "gups:size=1GiB,updates=50M,seed=1",
    "chase:size=256MiB,seed=1",
    "zipf:size=1GiB,accesses=100M,seed=1",
)
_HASHES = """
import random
random.seed(1)
texts = {random.random(): str(n) for n in range(300000)}
print(sum(len(texts[key]) for key in sorted(texts)))
"""


def _programs(folder: Path) -> dict[str, list[str]]:
    """Programs that are recorded, by name, with what they read."""
    data, words, code = folder / "data.bin", folder / "words.txt", folder / "code.c"
    if not words.exists():
        data.write_bytes(Path(sys.executable).resolve().read_bytes()[:3_000_000])
        words.write_text("".join(f"{n * 2654435761 % 2**32:010d}\n" for n in range(400_000)))
        source = Path(__file__).parent.parent / "examples" / "programs" / "lookups.c"
        code.write_text(source.read_text())
    return {
        "xz": ["xz", "-9", "-k", "-f", str(data)],
        "sort": ["sort", "--parallel=1", "-S", "200M", "-o", str(folder / "sorted.txt"), str(words)],
        "python": ["python3", "-c", _HASHES],
        "gcc": ["gcc", "-O2", "-c", "-o", str(folder / "code.o"), str(code)],
    }


def recordings(folder: Path) -> list[str]:
    """Traces of real programs."""
    traces = []
    for name, command in _programs(folder).items():
        trace = folder / f"{name}.trace"
        if not trace.exists():
            pagelab.record(command, trace, max_accesses=LIMIT)
        traces.append(str(trace))
    return traces


@dataclass(frozen=True)
class Row:
    """A figure of a workload over all samples of it."""

    name: str
    whole: float
    close: int
    """Samples within 5 %."""
    held: int
    """Intervals that hold the whole run's figure."""
    mean_error: float
    """A share of the figure, with its sign."""
    largest_error: float


def row(name: str, whole: float, samples: Sequence[Figure]) -> Row:
    """What the samples' figures are worth."""
    errors = [sample.value / whole - 1 for sample in samples]
    held = sum(abs(sample.value - whole) <= (sample.half_width or 0) for sample in samples)
    close = sum(abs(error) <= CLOSE for error in errors)
    return Row(name, whole, close, held, statistics.mean(errors), max(errors, key=abs))


CORES = {"in-order": (), "window": ("machine.core=skylake",)}


def seconds(source: str, sample: str | bool | None, settings: Sequence[str]) -> float:
    """CPU time of a run."""
    begin = time.process_time()
    pagelab.run(source, max_accesses=LIMIT, sample=sample, set=settings, threads=1)
    return time.process_time() - begin


def print_times(source: str, sample: str | bool) -> None:
    """Prints how long whole, sampled and saved runs take."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "sample.trace"
        begin = time.process_time()
        done = pagelab.save_sample(
            source, saved, sample=None if isinstance(sample, bool) else sample, max_accesses=LIMIT
        )
        print(
            f"sample: {100 * done.accesses / done.read:.1f} % of {done.read / 1e6:.0f} M accesses, "
            f"{time.process_time() - begin:.2f} s to save"
        )
        for core, settings in CORES.items():
            ways = ((source, None), (source, sample), (str(saved), None))
            turns = [[seconds(path, windows, settings) for path, windows in ways] for _ in range(TURNS)]
            whole, sampled, replayed = (statistics.median(turn[column] for turn in turns) for column in range(3))
            print(
                f"{core} core: {whole:.2f} s whole, {sampled:.2f} s sampled ({whole / sampled:.1f} times), "
                f"{replayed:.2f} s saved ({whole / replayed:.1f} times)"
            )


def measure(source: str, sample: str | bool, seeds: int) -> None:
    """Prints what sampling is worth for a workload."""
    print(f"\n{Path(source).name}")
    print_times(source, sample)
    if seeds:
        print_errors(source, sample, seeds)
    sys.stdout.flush()


def print_errors(source: str, sample: str | bool, seeds: int) -> None:
    """Prints how far samples with several seeds are off."""
    whole = pagelab.run(source, max_accesses=LIMIT)["radix"]
    results = [
        pagelab.run(source, max_accesses=LIMIT, sample=sample, seed=seed)["radix"] for seed in range(1, seeds + 1)
    ]
    exact = all(
        result.stats[f"program.fault.{kind}.count"] == whole.stats[f"fault.{kind}.count"]
        for result in results
        for kind in ("minor", "major")
    )
    first = results[0].sample
    assert first is not None
    print(
        f"{whole.stats['accesses'] / 1e6:.0f} M accesses, {len(results[0].windows)} windows, "
        f"every={first.every:,} length={first.length:,} warm={first.warm:,}; faults {'exact' if exact else 'NOT EXACT'}"
    )
    print(f"{'':42}{'whole':>10}{'±5 %':>6}{'held':>6}{'mean error':>12}{'largest':>10}")
    by_seed = [{figure.name: figure for figure in result.figures()} for result in results]
    for figure in figures([whole.stats]):
        each = row(figure.name, figure.value, [by_name[figure.name] for by_name in by_seed])
        print(
            f"{each.name:42}{each.whole:10.4g}{each.close:6}{each.held:6}"
            f"{100 * each.mean_error:+11.1f}%{100 * each.largest_error:+9.1f}%"
        )


def main() -> None:
    """Measures the workloads that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where recordings are kept")
    parser.add_argument("--sample", help="windows; by the workloads' lengths unless given")
    parser.add_argument("--only", nargs="+", help="workloads or traces")
    parser.add_argument("--seeds", type=int, default=20, help="samples of a workload; 0 for how long they take alone")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for source in asked.only or [*recordings(folder), *SYNTHETIC]:
            measure(source, asked.sample or True, asked.seeds)


if __name__ == "__main__":
    main()
