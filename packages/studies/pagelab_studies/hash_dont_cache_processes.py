"""Processes that start and end (§5.4): one table for all spares page tables of their own, and takes scans.

Short processes run one after the other, each alone. With radix tables, each allocates and zeroes page-table pages. With
hashed tables they share one table, sized by the machine's 96 GB. One thing is changed: the kind of table. Processes of
three sizes each touch all of their pages once. A scan of that table is in runs of its own, since it also empties the
caches.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pagelab_studies.hash_dont_cache_runs import MIB, PAGE
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurement, Measurements, Run, Series, mean

PROCESSES = "processes that start and end"
KIB = 1 << 10
SIZES = {"64 KiB": 64 * KIB, "1 MiB": MIB, "16 MiB": 16 * MIB}
RADIX = "radix"
SHARED = {"open": "hashed-open", "compact": "hashed-compact"}
SEEDS = (1, 2, 3)
COUNT = 64
"""Processes of a run."""
SCAN = "with a scan"
"""Runs of the smallest processes: the scan is due when all but the last have ended, which comes later."""
_LEAF_REACH = 2 * MIB
"""Of a page-table page of level 1."""
_SCANS = "layer.native.page_table.scan"
_RESTS_ON = (
    f"{COUNT} processes of one size, each alone; {len(SEEDS)} hash functions; the latencies of the preset's caches; "
    "freeing a page-table page costs nothing in the model"
)
NOTES = (
    "A process that ends frees its radix tables, which costs nothing in the model. So what one table for all processes "
    "spares is understated by that (§5.4).",
    "By construction, a process with hashed tables allocates no page-table page, which is what the paper says (§5.4). "
    "By construction, too, a scan reads every line of the "
    "table: its size by 64 bytes. One table for 96 GB has 1.5 GiB.",
)


def tables_of(size: int) -> int:
    """Page-table pages that the faults of a process make: one per 2 MiB of data, two above, and three for its code."""
    return -(-size // _LEAF_REACH) + 2 + 3


def runs() -> Iterator[Run]:
    """The processes of each size on each kind of table, with a hash function per seed."""
    for size, footprint in SIZES.items():
        for system, preset in {RADIX: RADIX, **SHARED}.items():
            for seed in SEEDS:
                yield _run(size, footprint, system, preset, seed)
    size, footprint = next(iter(SIZES.items()))
    for system, preset in SHARED.items():
        process = _process(footprint)
        # The last one comes when the others have ended, and the run ends after the scan.
        arrivals = (f"{process},per_second=50,count={COUNT - 1}", f"{process},per_second=0.5,count=1")
        run = _run(size, footprint, system, preset, SEEDS[0])
        yield replace(run, label=SCAN, arrivals=arrivals, settings=(*run.settings[:1], _exits_per_scan(COUNT - 1)))


def _process(footprint: int) -> str:
    return f"seq:size={footprint},step={PAGE},passes=1,write=1@2,spacing=uniform"


def _exits_per_scan(exits: int) -> str:
    return f"system.layers.native.page_table.exits_per_scan={exits}"


def _run(size: str, footprint: int, system: str, preset: str, seed: int) -> Run:
    arrivals = (f"{_process(footprint)},per_second=50,count={COUNT}",)
    accesses = COUNT * footprint // PAGE
    of_table = (f"system.layers.native.page_table.seed={seed}", _exits_per_scan(COUNT + 1))
    settings = () if system == RADIX else of_table
    return Run(
        PROCESSES,
        "",
        system,
        preset,
        accesses,
        settings=settings,
        label=size,
        arrivals=arrivals,
        least_accesses=accesses,
        seed=seed,
        in_parts=False,
    )


def cost(run: Run) -> Cost:
    """What an access takes, a page fault, and a scan of the table."""
    return Cost(3000) if run.system == RADIX else Cost(15_000, once=1e9 if run.label == SCAN else 0)


Stats = Mapping[str, int]
PER_PROCESS: dict[str, Callable[[Stats], float]] = {
    "page-table pages": lambda stats: stats["layer.native.fault.tables"] / COUNT,
    "cycles of faults": lambda stats: stats["fault.cycles"] / COUNT,
    "walk and missing tables": lambda stats: stats["fault.stage.walk.cycles"] / COUNT,
    "installing entries": lambda stats: stats["fault.stage.install.cycles"] / COUNT,
}
_FAULTS = PER_PROCESS["cycles of faults"]


def one_table_for_all(measured: Measurements, findings: Findings) -> None:
    """§5.4: what faults of a process take with tables of its own, and with one table for all."""
    cells: dict[tuple[str, str], Interval] = {}
    worth: dict[tuple[str, str], float] = {}
    for size in SIZES:
        by_system = {system: measured.seeds(PROCESSES, system, size) for system in (RADIX, *SHARED)}
        for system, of_system in by_system.items():
            for name, quantity in PER_PROCESS.items():
                cells[f"{size}, {system}", name] = mean([quantity(one.stats) for one in of_system.values()])
        for design in SHARED:
            findings.claims.append(_spared(size, design, by_system[RADIX], by_system[design]))
            spared = cells[f"{size}, {RADIX}", "cycles of faults"].minus(cells[f"{size}, {design}", "cycles of faults"])
            if spared.value > 0:
                scan = measured[PROCESSES, design, SCAN].stats[f"{_SCANS}.cycles"]
                worth[size, design] = scan / spared.value
    title = "page-table pages and cycles of faults of a process"
    findings.series.append(Series.within("§5.4", title, "pages, cycles", cells))
    title = "exits per scan at which one table for 96 GB takes as many cycles as radix tables do"
    findings.series.append(Series.from_values("§5.4", title, "processes", worth))
    scans = {
        (design, what): measured[PROCESSES, design, SCAN].stats[f"{_SCANS}.{what}"]
        for design in SHARED
        for what in ("lines", "deleted", "cycles")
    }
    findings.series.append(Series.from_values("§5.4", "one scan of the table for 96 GB", "lines, slots, cycles", scans))


def _spared(size: str, design: str, radix: Mapping[int, Measurement], shared: Mapping[int, Measurement]) -> Claim:
    fewer = mean([100 * (1 - _FAULTS(shared[seed].stats) / _FAULTS(radix[seed].stats)) for seed in SEEDS])
    text = (
        "faults of a process take fewer cycles with one table, which spares allocations but makes insertions dearer "
        f"({size}, {design})"
    )
    detail = f"{fewer.value:.2f} ({fewer.low:.2f} to {fewer.high:.2f}) % fewer"
    return Claim("§5.4", text, fewer.above(0), detail, _RESTS_ON, ours=True)
