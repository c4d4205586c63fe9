"""Latencies, TLB reach and parallelism of this machine's processor (`native/processor.c`).

Models: a load whose address comes from the previous load takes the latency of the place of its line. The size of the
    memory decides that place. A clock is one addition of registers, timed beside each repetition, if other chains of
    instructions agree with it (`clock.py`).
Source: L. McVoy, C. Staelin, "lmbench: Portable Tools for Performance Analysis", USENIX 1996 (lat_mem_rd).
Deviations: a figure is the lower quartile of the repetitions, since other programs only add to it.
"""

import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pagelab import native
from pagelab._engine import UsageError
from pagelab.hardware import clock
from pagelab.hardware.described import Leaves

REPEATS = 9
BULK = ("zero4K", "zero2M", "stream4K", "stream2M", "copy4K", "copy2M")
"""Operations on whole pages: `rep stosb`, non-temporal stores and `rep movsb`, 4 KiB or 2 MiB at a time."""
_MEBIBYTES = 256
_LARGE_PAGES = 128


@dataclass(frozen=True)
class Figure:
    """A quantity over several repetitions."""

    lower_quartile: float
    median: float
    upper_quartile: float
    repeats: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Figure":
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(lower, median, upper, len(values))

    @property
    def value(self) -> float:
        return self.lower_quartile

    @property
    def spread(self) -> float:
        """The distance of the quartiles of the repetitions, as a share of the figure."""
        return (self.upper_quartile - self.lower_quartile) / self.lower_quartile if self.lower_quartile else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the middle half of the repetitions spreads by more than a quarter of the figure."""
        return self.spread > 1 / 4

    def __str__(self) -> str:
        return (
            f"{self.lower_quartile:.4g} (median {self.median:.4g}, upper quartile {self.upper_quartile:.4g}, "
            f"{self.repeats} repeats)"
        )


@dataclass(frozen=True)
class Processor:
    """The results of the benchmarks; cycles are those of the processor's own clock at that time."""

    leaves: Leaves
    clock: clock.Clock
    clock_ns: Figure
    """Nanoseconds per cycle, beside all repetitions."""
    chase_cycles: Mapping[int, Figure]
    """A dependent load, by bytes of memory."""
    small_page_cycles: Mapping[int, Figure]
    """A dependent load to another page of 4 KiB each time, by pages."""
    large_page_cycles: Mapping[int, Figure]
    """The same with pages of 2 MiB."""
    piece_cycles: Mapping[int, Figure]
    """A dependent load to another 4 KiB of pages of 2 MiB each time, by such pieces."""
    parallel_cycles: Mapping[int, Figure]
    """Cycles per load with this many chases at the same time."""
    read_ns_per_byte: Figure
    huge_share: float
    """Share of the chases' memory that is in huge pages."""
    bulk_cycles: Mapping[str, Mapping[int, Figure]]
    """Cycles per byte of zeroing and copying, by kind (`BULK`) and bytes of memory."""
    transfer_cycles: Mapping[tuple[int, int], Figure]
    """A modified line that moves from one CPU to another, by pairs of CPUs, at several times."""


def measure(
    pairs: Iterable[tuple[int, int]] = (),
    repeats: int = REPEATS,
    mebibytes: int = _MEBIBYTES,
    large_pages: int = _LARGE_PAGES,
) -> Processor:
    """Runs the benchmarks; half a minute on an idle machine.

    Args:
        pairs: CPUs between which a line is moved.

    Raises:
        UsageError: there is no C compiler, not enough memory, or the rate of the core's clock cannot be measured.
    """
    command = [str(native.processor_benchmarks()), str(repeats), str(mebibytes), str(large_pages)]
    command += [f"{first}-{second}" for first, second in pairs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UsageError(f"the processor cannot be measured: {done.stderr.strip() or f'status {done.returncode}'}")
    return parse(done.stdout)


def parse(text: str) -> Processor:
    """Parses the output of the benchmarks.

    Raises:
        UsageError: the chains of instructions do not agree on the rate of the core's clock.
    """
    lines = text.splitlines()
    chains = {name: Figure.from_values([float(word) for word in words]) for name, words in _chains(lines)}
    core_clock = clock.agree({name: 1 / figure.value for name, figure in chains.items()})
    # Cycles per link of the chain beside the repetitions: one, unless the core executes it at rename.
    beside_cycles = next(iter(chains.values())).value * core_clock.cycles_per_nanosecond
    leaves: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    names = ("chase", "pages4K", "pages2M", "pieces", "parallel", *BULK)
    cycles: dict[str, dict[int, Figure]] = {name: {} for name in names}
    transfers: dict[tuple[int, int], list[float]] = {}
    clocks: list[float] = []
    share, read = 0.0, Figure(0, 0, 0, 0)
    for line in lines:
        name, argument, *words = line.split()
        if name == "cpuid":
            leaf, part = argument.split(".")
            a, b, c, d = map(int, words)
            leaves[int(leaf, 16), int(part)] = a, b, c, d
        elif name == "huge":
            share = int(words[0]) / int(argument)
        elif name != "chain":
            pairs = [
                (float(time), float(beside) / beside_cycles) for time, beside in (word.split(":") for word in words)
            ]
            clocks += [cycle_ns for _, cycle_ns in pairs]
            if name == "read":
                read = Figure.from_values([time for time, _ in pairs])
                continue
            taken = [time / cycle_ns for time, cycle_ns in pairs]
            if name == "transfer":
                first, _, second = argument.partition("-")
                transfers.setdefault((int(first), int(second)), []).extend(taken)
            else:
                cycles[name][int(argument)] = Figure.from_values(taken)
    return Processor(
        leaves,
        core_clock,
        Figure.from_values(clocks),
        cycles["chase"],
        cycles["pages4K"],
        cycles["pages2M"],
        cycles["pieces"],
        cycles["parallel"],
        read,
        min(share, 1.0),
        {name: cycles[name] for name in BULK},
        {pair: Figure.from_values(taken) for pair, taken in transfers.items()},
    )


def _chains(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    for line in lines:
        kind, name, *words = line.split()
        if kind == "chain":
            yield name, words


def near(figures: Mapping[int, Figure], wanted: float) -> Figure:
    """The figure whose argument is nearest to the wanted one, as a ratio."""
    return figures[min(figures, key=lambda argument: max(argument / wanted, wanted / argument))]


def reach(figures: Mapping[int, Figure], below_cycles: float) -> int:
    """The largest argument before the first two in a row that take more cycles than given."""
    arguments = sorted(figures)
    for number in range(len(arguments)):
        if all(figures[at].value > below_cycles for at in arguments[number : number + 2]):
            return arguments[number - 1] if number else 0
    return arguments[-1]
