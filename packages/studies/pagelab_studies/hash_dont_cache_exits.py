"""What processes that have ended leave in a hashed table (§5.4): one thing is changed.

A program begins when `_ENDED` processes have ended and a scan of the table has marked their slots as deleted. In the
control the same program begins in an empty table. Nothing else runs beside it. Its searches are of two kinds: for pages
that it touches first, which are not mapped, and for pages that it has mapped.

The same program also runs as a *survivor*: it maps its pages when the others have ended, but before the scan. Then the
scan marks their slots, and the program goes on. Its searches are for the entries that it made before the scan.
"""

from collections.abc import Callable, Iterator, Mapping

from pagelab_studies.hash_dont_cache_runs import MIB, PAGE
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurements, Run, Series, mean, per_walk

EXITS = "processes that end"
SYSTEMS = {"open": "hashed-open", "compact": "hashed-compact"}
SEEDS = (1, 2, 3)
AFTER, CONTROL = "after 64 processes", "no processes before"
SURVIVOR, ALONE = "mapped before the scan", "no processes before, later"
_ENDED, _OF_EACH, _MEMORY = 64, 16, 512
"""Processes, MiB that each touches, and MiB of the program."""
_ACCESSES = 600_000
_MAPPING = 1_500_000
"""Accesses after which a survivor has mapped its pages; it then makes as many again, which are counted."""
_TABLE = "layer.native.page_table"
_RESTS_ON = (
    f"one program that touches {_MEMORY} MiB in random order, in a table sized to it, after {_ENDED} processes of "
    f"{_OF_EACH} MiB; {len(SEEDS)} hash functions and orders; only counts of references"
)
NOTES = (
    "A search for a page that is not mapped ends at the first empty slot, so it passes all deleted ones before. A new "
    "entry takes the first deleted slot that its search has met. So it lies no further from its home than in a table "
    "without deleted slots, and searches for pages mapped after the scan do not become longer (§5.4).",
    "A survivor's entries were made while the slots of the ended processes were still in use, and do not move. After "
    "the scan, searches for them pass the deleted slots as they passed the used ones. So they stay as long as in the "
    "fuller table.",
    "In a compact table only the first page of eight needs a new slot: the other first touches find their slot, with "
    "an entry that is not present.",
)


def runs() -> Iterator[Run]:
    """The program after the others, as a survivor, and in both controls: a hash function and an order per seed."""
    for design in SYSTEMS:
        for label in (AFTER, CONTROL, SURVIVOR, ALONE):
            for seed in SEEDS:
                yield _run(design, label, seed)


def _process(mib: float, count: int, when: str) -> str:
    return f"seq:size={int(mib * MIB)},step={PAGE},passes=1,write=1@2-5,{when},count={count},spacing=uniform"


def _run(design: str, label: str, seed: int) -> Run:
    survives = label in (SURVIVOR, ALONE)
    accesses = 2 * _MAPPING if survives else _ACCESSES
    program = f"random:size={_MEMORY}MiB,accesses={accesses},write=1@0,per_second=1,count=1,spacing=uniform"
    early = "per_second=20000"
    # The last exit, of a process of one page, makes the scan due when a survivor has mapped its pages.
    before = {
        AFTER: (_process(_OF_EACH, _ENDED, early),),
        SURVIVOR: (_process(_OF_EACH, _ENDED - 1, early), _process(PAGE / MIB, 1, "per_second=0.675")),
    }.get(label, ())
    pages_before = {AFTER: _ENDED, SURVIVOR: _ENDED - 1}.get(label, 0) * _OF_EACH * MIB // PAGE
    table = "system.layers.native.page_table"
    counted = accesses - (_MAPPING if survives else 0)
    return Run(
        EXITS,
        "",
        design,
        SYSTEMS[design],
        counted,
        pages_before + accesses - counted,
        (f"{table}.table_bytes={_MEMORY // 64}MiB", f"{table}.exits_per_scan={_ENDED}", f"{table}.seed={seed}"),
        label,
        arrivals=(*before, program),
        least_accesses=counted,
        seed=seed,
        in_parts=False,
    )


def cost(run: Run) -> Cost:
    """What an access takes: most of them are first touches, but those that are counted of a survivor."""
    return Cost(400, 2500) if run.label in (SURVIVOR, ALONE) else Cost(3500, 9000 if run.warm_up else 0)


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
        by_label = {label: measured.seeds(EXITS, design, label) for label in (AFTER, CONTROL, SURVIVOR, ALONE)}
        for label, runs_of in by_label.items():
            for kind, references in SEARCHES.items():
                # A survivor has touched all pages before.
                if kind == "mapped" or label in (AFTER, CONTROL):
                    cells[f"{design}, {label}", kind] = mean([references(one.stats) for one in runs_of.values()])
            counts |= {(f"{design}, {label}", name): value for name, value in _counts(runs_of[SEEDS[0]].stats).items()}
        for kind, pages, (after, control) in (
            ("not mapped", "not mapped", (AFTER, CONTROL)),
            ("mapped", "mapped after the scan", (AFTER, CONTROL)),
            ("mapped", "mapped before the scan", (SURVIVOR, ALONE)),
        ):
            refs = SEARCHES[kind]
            more = mean([refs(by_label[after][seed].stats) - refs(by_label[control][seed].stats) for seed in SEEDS])
            both = [cells[f"{design}, {label}", kind].value for label in (control, after)]
            detail = f"{both[0]:.4f} and {both[1]:.4f} references: {more.value:.4f} ({more.low:.4f} to {more.high:.4f})"
            text = f"deleted slots lengthen searches for pages that are {pages} ({design})"
            findings.claims.append(Claim("§5.4", text, more.above(0), f"{detail} more", _RESTS_ON))
    title = "references of a search, for pages that are not mapped and for mapped ones"
    findings.series.append(Series.within("§5.4", title, "lines", cells))
    title = "searches, slots and scans, with one hash function"
    findings.series.append(Series.from_values("§5.4", title, "searches, slots, lines, cycles", counts))


def _counts(stats: Stats) -> dict[str, float]:
    return {
        "searches, not mapped": stats["walk.aborted.count"],
        "searches, mapped": stats["walk.count"],
        "slots": stats[f"{_TABLE}.slots"],
        "slots deleted by the scan": stats.get(f"{_TABLE}.scan.deleted", 0),
        "deleted slots at the end": stats[f"{_TABLE}.slots.deleted"],
        "lines that the scan reads": stats.get(f"{_TABLE}.scan.lines", 0),
        "cycles of the scan per process": stats.get(f"{_TABLE}.scan.cycles", 0) / _ENDED,
    }
