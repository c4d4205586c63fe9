"""The spread of figures between legal orders of a program's threads.

Models: a run of several threads has many legal orders, and a figure of one order is one sample. Replays of other orders
    show how much the figure depends on the order.
Source: A. R. Alameldeen, D. A. Wood, "Variability in Architectural Simulations of Multi-threaded Workloads", HPCA 2003:
    small random delays and the interval of Student's t.
Deviations: the orders are drawn at random, except the recorded one, which counts as one of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from pagelab.confidence.students_t import students_t
from pagelab.results.headline import busy_cycles, faults
from pagelab.results.table import short


@dataclass(frozen=True)
class Spread:
    """A figure in several orders, in the figure's unit."""

    mean: float
    least: float
    most: float
    interval: tuple[float, float]
    """The 95 % confidence interval of the mean of all orders"""

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread":
        """Of two values at least."""
        count = len(values)
        mean = math.fsum(values) / count
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        half = students_t(count - 1) * deviation / math.sqrt(count)
        return cls(mean, min(values), max(values), (mean - half, mean + half))


FIGURES: dict[str, Callable[[Mapping[str, int]], int]] = {
    "elapsed cycles": lambda stats: stats.get("elapsed_cycles", 0),
    "busy cycles": busy_cycles,
    "translation": lambda stats: stats.get("cycles.translation", 0),
    "page faults, cycles": lambda stats: stats.get("cycles.fault", 0),
    "page walks": lambda stats: stats.get("walk.count", 0),
    "page faults": faults,
}
"""Headline figures by their name in tables"""


def spreads(orders: Sequence[Mapping[str, int]]) -> dict[str, Spread]:
    """The headline figures in several orders."""
    return {name: Spread.from_values([value(stats) for stats in orders]) for name, value in FIGURES.items()}


def spread_table(systems: Sequence[tuple[str, Sequence[Mapping[str, int]]]]) -> Table:
    """The headline figures of each system in its orders, as a `rich` table in 80 columns."""
    count = len(systems[0][1])
    table = Table(
        title=f"{count} orders of the threads, including the recorded one",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    table.add_column("")
    for heading in ("mean", "least", "most", "95 % of the mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, orders in systems:
        table.add_row(label)
        for name, spread in spreads(orders).items():
            low, high = spread.interval
            share = f" (±{100 * (high - spread.mean) / spread.mean:.1f} %)" if spread.mean else ""
            interval = f"{short(max(low, 0.0))} to {short(high)}{share}"
            table.add_row(f"  {name}", short(spread.mean), short(spread.least), short(spread.most), interval)
    return table
