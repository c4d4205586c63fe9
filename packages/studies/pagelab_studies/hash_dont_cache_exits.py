"""What processes that have ended leave in a hashed table (§5.4): one thing is changed.

A program begins when `_ENDED` processes have ended and a scan of the table has marked their slots as deleted. In the
control the same program begins in an empty table. Nothing else runs beside it. Its searches are of two kinds: for pages
that it touches first, which are not mapped, and for pages that it has mapped.
"""

from collections.abc import Callable, Iterator, Mapping

from pagelab_studies.hash_dont_cache_runs import MIB, PAGE
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurements, Run, Series, mean, per_walk

EXITS = "processes that end"
SYSTEMS = {"open": "hashed-open", "compact": "hashed-compact"}
SEEDS = (1, 2, 3)
AFTER, CONTROL = "after 64 processes", "no processes before"
_ENDED, _OF_EACH, _MEMORY = 64, 16, 512
"""Processes, MiB that each touches, and MiB of the program."""
_ACCESSES = 600_000
_TABLE = "layer.native.page_table"
_RESTS_ON = (
    f"one program that touches {_MEMORY} MiB in random order, in a table sized to it, after {_ENDED} processes of "
    f"{_OF_EACH} MiB; {len(SEEDS)} hash functions and orders; only counts of references"
)
NOTES = (
    "A search for a page that is not mapped ends at the first empty slot, so it passes all deleted ones before. A new "
    "entry takes the first deleted slot that its search has met. So it lies no further from its home than in a table "
    "without deleted slots, and searches for mapped pages do not become longer (§5.4).",
    "In a compact table only the first page of eight needs a new slot: the other first touches find their slot, with "
    "an entry that is not present.",
)


def runs() -> Iterator[Run]:
    """The program after the others and in the control, with a hash function and an order of touches per seed."""
    for design in SYSTEMS:
        for label in (AFTER, CONTROL):
            for seed in SEEDS:
                yield _run(design, label, seed)


def _run(design: str, label: str, seed: int) -> Run:
    ended = (
        f"seq:size={_OF_EACH}MiB,step={PAGE},passes=1,write=1@2-5,per_second=20000,count={_ENDED},spacing=uniform",
    )
    program = f"random:size={_MEMORY}MiB,accesses={_ACCESSES},write=1@0,per_second=1,count=1,spacing=uniform"
    table = "system.layers.native.page_table"
    return Run(
        EXITS,
        "",
        design,
        SYSTEMS[design],
        _ACCESSES,
        _ENDED * _OF_EACH * MIB // PAGE if label == AFTER else 0,
        (f"{table}.table_bytes={_MEMORY // 64}MiB", f"{table}.exits_per_scan={_ENDED}", f"{table}.seed={seed}"),
        label,
        arrivals=(*(ended if label == AFTER else ()), program),
        least_accesses=_ACCESSES,
        seed=seed,
        in_parts=False,
    )


def cost(run: Run) -> Cost:
    """What an access takes: most of them are first touches."""
    return Cost(3500, 9000 if run.warm_up else 0)


Stats = Mapping[str, int]


def _unmapped(stats: Stats) -> float:
    return stats["walk.aborted.refs"] / stats["walk.aborted.count"]


SEARCHES: dict[str, Callable[[Stats], float]] = {"not mapped": _unmapped, "mapped": per_walk("walk.refs")}
"""References of a search, by what it is for."""


def deleted_slots(measured: Measurements, findings: Findings) -> None:
    """§5.4: searches after exits, against the control."""
    cells: dict[tuple[str, str], Interval] = {}
    counts: dict[tuple[str, str], float] = {}
    for design in SYSTEMS:
        after, control = (measured.seeds(EXITS, design, label) for label in (AFTER, CONTROL))
        for kind, references in SEARCHES.items():
            for label, runs_of in ((AFTER, after), (CONTROL, control)):
                cells[f"{design}, {label}", kind] = mean([references(one.stats) for one in runs_of.values()])
            more = mean([references(after[seed].stats) - references(control[seed].stats) for seed in SEEDS])
            text = f"deleted slots lengthen searches for pages that are {kind} ({design})"
            both = [cells[f"{design}, {label}", kind].value for label in (CONTROL, AFTER)]
            detail = f"{both[0]:.4f} and {both[1]:.4f} references: {more.value:.4f} ({more.low:.4f} to {more.high:.4f})"
            findings.claims.append(Claim("§5.4", text, more.above(0), f"{detail} more", _RESTS_ON))
        for label, runs_of in ((AFTER, after), (CONTROL, control)):
            stats = runs_of[SEEDS[0]].stats
            group = f"{design}, {label}"
            counts[group, "searches, not mapped"] = stats["walk.aborted.count"]
            counts[group, "searches, mapped"] = stats["walk.count"]
            counts[group, "slots"] = stats[f"{_TABLE}.slots"]
            counts[group, "slots deleted by the scan"] = stats.get(f"{_TABLE}.scan.deleted", 0)
            counts[group, "deleted slots at the end"] = stats[f"{_TABLE}.slots.deleted"]
            counts[group, "cycles of the scan per process"] = stats.get(f"{_TABLE}.scan.cycles", 0) / _ENDED
    title = "references of a search, for pages that are not mapped and for mapped ones"
    findings.series.append(Series.within("§5.4", title, "lines", cells))
    title = "searches, slots and scans, with one hash function"
    findings.series.append(Series.from_values("§5.4", title, "searches, slots, cycles", counts))
