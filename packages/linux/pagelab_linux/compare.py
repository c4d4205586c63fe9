"""The same accesses in a real kernel and in the simulator, side by side: `pagelab linux compare`.

Models: nothing; it compares the counts of `pagelab linux trace` with what the simulator's kernel does for the same
    accesses.
Source: kernel/tests/compare.toml.
Parameters: comparisons, the machine whose caches both go through, levels of page tables.
Deviations: caches begin empty in both. Frames have other addresses in the simulator, so lines conflict in other sets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagelab._engine import UsageError
from pagelab_linux import LinuxError, references, trace
from pagelab_linux.build import Variant, Workshop
from pagelab_linux.layout import Layout, read_toml
from pagelab_linux.references import FOUND, LineSources
from pagelab_linux.simulated import Simulated, Simulator, simulate
from pagelab_linux.stages import STAGES
from pagelab_linux.trace import Measured, Trace, Workload

MOST_FAULTS = 8192
INSTRUCTIONS_BOUND = 0.10
LINES_BOUND = 0.15
COUNTERS_BOUND = 0.05
_LEAST_INSTRUCTIONS = 5.0
_LEAST_LINES = 0.5
_KEYS = {
    "name",
    "step",
    "kernel",
    "before",
    "stats",
    "system",
    "kernel_preset",
    "set",
    "pages",
    "counters",
    "explained",
}


@dataclass(frozen=True)
class Counter:
    """A count of a mechanism, in the guest and in the simulator."""

    what: str
    guest: Sequence[str]
    simulator: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """An entry of compare.toml."""

    name: str
    step: str
    simulator: Simulator
    plain: bool = True
    before: Sequence[str] = ()
    stats: str = ""
    counters: Sequence[Counter] = ()
    explained: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A number from both."""

    what: str
    guest: float
    simulator: float
    bound: float
    """Allowed difference, as a share of the guest's number"""
    least: float = 0.0
    """Difference that is allowed in any case"""
    why: str = ""

    @property
    def apart(self) -> float:
        """Share of the guest's."""
        if self.guest:
            return self.simulator / self.guest - 1
        return 0.0 if not self.simulator else float("inf")

    @property
    def settled(self) -> bool:
        """Whether the numbers agree, or the reason for the difference is known."""
        return self.agrees or bool(self.why)

    @property
    def agrees(self) -> bool:
        return abs(self.simulator - self.guest) <= max(self.bound * abs(self.guest), self.least)


def load(layout: Layout) -> list[Comparison]:
    """What can be compared.

    Raises:
        LinuxError: the file is wrong.
    """
    path = layout.tests / "compare.toml"
    document = read_toml(path)
    try:
        return [_comparison(each) for each in document["comparison"]]
    except (KeyError, TypeError, ValueError) as error:
        raise LinuxError(f"{path}: {error}: its first lines say what a [[comparison]] has") from None


def _comparison(table: Mapping[str, Any]) -> Comparison:
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise ValueError(f"no key {', '.join(unknown)}")
    if table.get("kernel", "plain") not in ("plain", "patched"):
        raise ValueError(f"no kernel {table['kernel']}")
    default = Simulator()
    return Comparison(
        table["name"],
        table["step"],
        Simulator(
            table.get("system", default.system),
            table.get("kernel_preset", default.kernel),
            None,
            table.get("set", ()),
            table.get("pages", default.pages),
        ),
        table.get("kernel", "plain") == "plain",
        table.get("before", ()),
        table.get("stats", ""),
        [Counter(each["what"], each["guest"], each["simulator"]) for each in table.get("counters", ())],
        table.get("explained", {}),
    )


def measure(workshop: Workshop, comparison: Comparison, machine: str | None, levels: int) -> list[Row]:
    """Runs both.

    Raises:
        LinuxError: the kernel cannot be built or run, or the step has too many faults.
    """
    image = workshop.image(Variant(plain=comparison.plain))
    reading = [f"read,{comparison.stats}"] if comparison.stats else []
    wanted = [Workload(comparison.name, comparison.step)]
    before = [*comparison.before, *reading]
    traced = trace.measure(workshop, image, wanted, levels, before, after=reading, most=MOST_FAULTS)
    rows = traced.references[0]
    if traced.checks[0].traced_faults > references.faults(rows):
        raise LinuxError(f"{comparison.step}: has {traced.checks[0].faults:,} faults; at most {MOST_FAULTS:,} will do")
    counted: dict[str, int] = {}
    if reading:
        earlier, later = (dict(traced.steps[at].values) for at in (len(before) - 1, len(before) + 1))
        counted = {key: int(value) - int(earlier.get(key, "0")) for key, value in later.items() if value.isdecimal()}
    simulated = simulate(rows, replace(comparison.simulator, machine=machine))
    lines = references.replay(rows, machine, cold=False)
    return compared(comparison, traced, lines, counted, simulated)


def compared(
    comparison: Comparison,
    traced: Trace,
    lines: Mapping[str, LineSources],
    counted: Mapping[str, int],
    simulated: Simulated,
) -> list[Row]:
    """All rows; those beyond their bounds with an explanation if there is one."""
    rows = [Row("faults", traced.checks[0].faults, simulated.faults, 0.0)]
    rows += _instructions(traced.measured, simulated)
    rows += _lines(lines, simulated)
    for counter in comparison.counters:
        missing = [key for key in counter.guest if key not in counted]
        missing += [key for key in counter.simulator if key not in simulated.values]
        if missing:
            raise UsageError(f"{comparison.name}: {', '.join(missing)}: no such count exists")
        guest = sum(counted[key] for key in counter.guest)
        rows.append(Row(counter.what, guest, sum(simulated.values[key] for key in counter.simulator), COUNTERS_BOUND))
    strange = sorted(comparison.explained.keys() - {row.what for row in rows})
    if strange:
        raise UsageError(f"{comparison.name}: explained: no row is called {', '.join(strange)}")
    return [replace(row, why=comparison.explained.get(row.what, "")) for row in rows]


def _instructions(measured: Sequence[Measured], simulated: Simulated) -> list[Row]:
    faults = sum(each.faults for each in measured) or 1

    def guest(stage: str) -> float:
        cut = [(each.stages[stage], each.faults) for each in measured if stage in each.stages]
        return sum((c["instructions"].mean - c["repetitions"].mean) * number for c, number in cut) / faults

    # The sum includes functions that the table of stages does not name.
    whole = sum(guest(stage) for stage in {stage for each in measured for stage in each.stages})
    rows = [
        Row(f"instructions: {stage}", guest(stage), simulated.instructions(stage), INSTRUCTIONS_BOUND)
        for stage in STAGES
    ]
    rows.append(
        Row("instructions: all", whole, sum(simulated.instructions(stage) for stage in STAGES), INSTRUCTIONS_BOUND)
    )
    return [replace(row, least=_LEAST_INSTRUCTIONS) for row in rows]


def _lines(lines: Mapping[str, LineSources], simulated: Simulated) -> list[Row]:
    nothing = LineSources(0.0, dict.fromkeys(FOUND, 0.0), 0.0, 0.0)
    rows = [
        Row(f"lines: {stage}", lines.get(stage, nothing).all_lines, sum(simulated.lines(stage).values()), LINES_BOUND)
        for stage in STAGES
    ]
    model, guest = simulated.all_lines(), lines.get("all", nothing)
    rows += [Row(f"lines found in {place.upper()}", guest.lines[place], model[place], LINES_BOUND) for place in FOUND]
    rows.append(Row("lines: all", guest.all_lines, sum(model.values()), LINES_BOUND))
    return [replace(row, least=_LEAST_LINES) for row in rows]
