"""What "Hash, Don't Cache (the Page Table)" compares: windows of the same accesses, over what is left to chance."""

from collections.abc import Callable, Mapping, Sequence

from pagelab_studies.hash_dont_cache_runs import (
    CACTUS,
    FREE_LOOKUP,
    GRAPHS,
    PLACEMENTS,
    drawn,
    hash_functions,
    placement,
)
from pagelab_studies.interval import Interval
from pagelab_studies.study import Measurement, Measurements, figure, mean

KINDS = ("bare", "virtual")
_PREFIXES = {"bare": "", "virtual": "nested "}

Stats = Mapping[str, int]
# A design: its system on bare metal, and the label of its runs.
Design = tuple[str, str]
RADIX, PERFECT, HASHED = ("radix", ""), ("perfect", ""), ("hashed", "")
FREE = ("perfect", FREE_LOOKUP)
LARGE = ("2M", "")
# The load that tables have unless a label says another.
USUAL_LOAD = "1/8"

# What verdicts rest on.
COUNTED = "only counts and places of references"
WALKS = "the latencies of the preset's caches, walks that nothing overlaps"
LOOK_UP = "the latencies of the preset's caches, and the 2 cycles that the paper charges perfect MMU caches per look-up"
CORE = "an in-order core that waits for each access"
OF_MILC = "the window of one analogue; cycles by the latencies of the preset's caches"
OF_CACTUS = "an analogue whose stride was constructed to make entries conflict, not the program: only the order counts"
_ANALOGUES = "SPEC programs are analogues"
_DRIFT = (
    "Graph500: the first levels of a search, in which walks become more frequent, so its parts are not independent "
    "samples"
)


def rests_on(what: str, *workloads: str) -> str:
    """What a verdict rests on, with what must be known of these workloads."""
    names = [graph.name for graph in GRAPHS]
    drifting = [_DRIFT] if any(name in names for name in workloads) else []
    analogues = [_ANALOGUES] if any(name.endswith("*") for name in workloads) else []
    return "; ".join((what, *analogues, *drifting))


def system_of(kind: str, design: Design) -> str:
    """The system of a design on bare metal or in a virtual machine."""
    return f"{_PREFIXES[kind]}{design[0]}"


def at_load(name: str) -> Design:
    return "hashed", "" if name == USUAL_LOAD else f"load {name}"


def of_designs(
    quantity: Callable[..., float],
    measured: Measurements,
    workload: str,
    kind: str,
    *designs: Design,
    most: int = PLACEMENTS,
) -> Interval:
    """A figure of designs on bare metal or in a virtual machine, over hash functions or placements of frames."""
    return over(quantity, samples(measured, workload, kind, *designs, most=most))


def samples(
    measured: Measurements, workload: str, kind: str, *designs: Design, most: int = PLACEMENTS
) -> list[tuple[Measurement, ...]]:
    """The designs' windows, once for each hash function that is drawn, or each placement of frames: `most` of them."""
    systems = [(system_of(kind, design), design[1]) for design in designs]
    if workload == CACTUS.name and kind == "virtual":
        # Frames are given in the order of first touch, which depends on what walks read: a placement is one sample.
        labels = [placement(number) for number in range(min(PLACEMENTS, most))]
        return [tuple(measured[workload, system, label] for system, _ in systems) for label in labels]
    functions = {design: min(hash_functions(workload, *design), most) for design in systems}
    return [
        tuple(measured[workload, system, drawn(number % functions[system, label], label)] for system, label in systems)
        for number in range(max(functions.values()))
    ]


def over(quantity: Callable[..., float], windows: Sequence[tuple[Measurement, ...]]) -> Interval:
    """The mean of a figure over samples: its 95 % interval by their spread, wider by what the windows leave open.

    The two margins are added, so an interval may be wider than need be, never narrower.
    """
    each = [figure(quantity, *sample) for sample in windows]
    if len(each) == 1:
        return each[0]
    across = mean([one.value for one in each])
    within = max(one.high - one.value for one in each)
    return Interval(across.low - within, across.value, across.high + within)


def walk_cycles(stats: Stats) -> float:
    """Cycles of walks per access."""
    return stats["walk.cycles"] / stats["accesses"]


def walk_cycles_saved(before: Stats, after: Stats) -> float:
    """Per cent of the cycles of walks that are saved."""
    return 100 * (1 - walk_cycles(after) / walk_cycles(before))


def walk_cycles_saved_beyond(before: Stats, other: Stats, after: Stats) -> float:
    """How much more is saved, in per cent of the cycles of walks before, than another design does."""
    return 100 * (walk_cycles(other) - walk_cycles(after)) / walk_cycles(before)


def share_of_saving(before: Stats, other: Stats, after: Stats) -> float:
    """What a design saves of the cycles of walks, by what another does."""
    return (walk_cycles(before) - walk_cycles(after)) / (walk_cycles(before) - walk_cycles(other))
