"""Hashed tables beside radix tables without MMU caches (§4), and the bytes of all tables (§4.2).

The paper expects that hashed tables do better than radix tables of four references, if neither has MMU caches. It says
that the chained table's slots take 1.6 % of memory, beside those of its chains, and that radix tables need less.
"""

from collections.abc import Iterator

from pagelab_studies.hash_dont_cache_caches import COUNTED, ENTRIES, TOTAL
from pagelab_studies.hash_dont_cache_caches import PROGRAMS as OF_CACHES
from pagelab_studies.hash_dont_cache_runs import CACTUS, DESIGNS, GUPS, MCF, MILC, PAGE, XALAN, Workload, window_of
from pagelab_studies.hash_dont_cache_samples import WALKS, rests_on, walk_cycles_saved
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, Measurements, Run, Series, figure, per_walk, saved

PROGRAMS = (MCF, XALAN, CACTUS, MILC, GUPS[0])
WITHOUT = "no MMU cache"
SYSTEMS = {"radix": "radix-no-mmu-cache", "chained": "hashed-chained", "compact": "hashed-compact"}
FURTHER = (MCF, XALAN, CACTUS)
"""Programs for which Fig 6 is run, too."""
SPACE = "bytes of tables per page of the program: those of hashed tables follow from their layout and load"
_SLOT_BYTES = 32
"""Of a chained table (§4.1)."""
PAPER_SHARE = 1.6
_TABLES, _FRAMES, _SLOTS = (
    "layer.native.fault.tables",
    "layer.native.page_table_frames",
    "layer.native.page_table.slots",
)
MODELLED = (MCF, XALAN)
"""Programs that are run from their first touches on, too."""
FIRST_TOUCHES = "first touches included"
NOTES = (
    "Bytes of radix tables are those of the tables that page faults make, from the first touch on. Hashed tables are "
    "sized to the program's memory, as the paper's are to the machine's; so 64 bytes per page follow from the layout "
    "and the load, and 32 more are the chain table. Radix tables have 8 bytes per page of memory mapped without "
    "holes. All of that is by construction, so it has no verdict (§4.2).",
)


def _key(workload: Workload, system: str) -> tuple[str, str, str]:
    """The run of a table without MMU caches: often one that answers another question, too."""
    if system == "radix" and workload in OF_CACHES:
        return workload.name, "none", ENTRIES
    if system == "chained" and workload in COUNTED:
        return workload.name, "chained table", TOTAL
    if system == "compact" and workload in FURTHER:
        return workload.name, "compact", ""
    return workload.name, system, WITHOUT


def runs() -> Iterator[Run]:
    """The windows that no other question has."""
    for workload in PROGRAMS:
        for system, preset in SYSTEMS.items():
            if _key(workload, system)[2] == WITHOUT:
                yield window_of(workload, system, preset, WITHOUT)


def without_mmu_caches(measured: Measurements, findings: Findings) -> None:
    """§4: hashed tables against radix tables of four references."""
    cells: dict[tuple[str, str], Interval] = {}
    for workload in PROGRAMS:
        windows = {system: measured[_key(workload, system)] for system in SYSTEMS}
        for system, window in windows.items():
            cells[workload.name, f"{system}: references of a walk"] = figure(per_walk("walk.refs"), window)
        for design in list(SYSTEMS)[1:]:
            fewer = figure(walk_cycles_saved, windows["radix"], windows[design])
            cells[workload.name, f"{design}: run time saved, %"] = figure(saved, windows["radix"], windows[design])
            text = f"hashed tables ({design}) take fewer cycles of walks than radix tables without MMU caches"
            rests = rests_on(WALKS, workload.name)
            # The paper says so of tables without collisions, and calls the chained one flawed (§4.2).
            ours = design == "chained"
            claim = Claim("§4", f"{text} ({workload.name})", fewer.above(0), f"{fewer} % fewer", rests, ours=ours)
            findings.claims.append(claim)
    title = "radix and hashed tables without MMU caches"
    findings.series.append(Series.within("§4", title, "references, %", cells))


def space(measured: Measurements, findings: Findings) -> None:
    """§4.2: what tables take."""
    cells: dict[tuple[str, str], float] = {}
    for workload in MODELLED:
        pages = workload.footprint / PAGE
        # A process frees its radix tables when it ends; hashed ones stay.
        made = measured[workload.name, "radix", FIRST_TOUCHES].stats[_TABLES]
        cells[workload.name, "radix"] = made * PAGE / pages
        for design in DESIGNS:
            cells[workload.name, design] = measured[workload.name, design].stats[_FRAMES] * PAGE / pages
    findings.series.append(Series.from_values("§4.2", SPACE, "bytes", cells))
    for workload in MODELLED:
        slots = measured[workload.name, "chained"].stats[_SLOTS]
        share = 100 * slots * _SLOT_BYTES / workload.footprint
        why = "follows from the size of a slot and the load; without the chain table"
        quantity = "the chained table's slots, of memory"
        findings.comparisons.append(Comparison("§4.2", workload.name, quantity, "%", PAPER_SHARE, share, unjudged=why))
