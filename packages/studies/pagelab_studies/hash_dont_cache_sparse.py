"""Bytes of tables for pages that lie apart: §4.2 of "Hash, Don't Cache (the Page Table)" has memory without holes.

One thing is changed: the distance of the pages. A radix table needs more page-table pages for them. A slot of a hashed
table holds one page, or, in clustered and compact tables, the pages of one aligned group of eight.
"""

from collections.abc import Iterator

from pagelab_studies.hash_dont_cache_runs import DESIGNS, PAGE
from pagelab_studies.study import Cost, Findings, Measurements, Run, Series

SPARSE = "sparse memory"
PAGES = 4096
"""That the program touches, each once."""
DISTANCES = {"4 KiB": PAGE, "32 KiB": 8 * PAGE, "2 MiB": 1 << 21, "1 GiB": 1 << 30}
IN_GROUPS = ("clustered", "compact")
_BYTES = 64
"""Of a hashed table, per page of memory without holes, at the loads of the paper: the same for every design."""
_TABLES, _FRAMES = "layer.native.fault.tables", "layer.native.page_table_frames"
_TITLE = "bytes of tables per page of the program, by the distance of its pages: by construction"
NOTES = (
    f"Bytes of tables for {PAGES:,} pages of one mapping: those of hashed tables follow from their layout, since a "
    "table has the share of its slots in use that it has for memory without holes. Those of radix tables are counted, "
    "and follow from the distance. So they have no verdict (§4.2).",
)


def runs() -> Iterator[Run]:
    """A program that touches each of its pages once."""
    for distance, step in DISTANCES.items():
        spec = f"stride:size={PAGES * step},stride={step},write=1,passes=1"
        for system, preset in {"radix": "radix", **DESIGNS}.items():
            table = _BYTES * PAGES * (8 if system in IN_GROUPS and step > PAGE else 1)
            settings = () if system == "radix" else (f"system.layers.native.page_table.table_bytes={table}",)
            yield Run(
                SPARSE,
                spec,
                system,
                preset,
                PAGES,
                settings=settings,
                label=distance,
                least_accesses=PAGES,
                in_parts=False,
            )


def cost(run: Run) -> Cost:
    """What an access takes: a page fault."""
    del run
    return Cost(6000)


def bytes_per_page(measured: Measurements, findings: Findings) -> None:
    """§4.2: tables of pages that lie apart."""
    cells: dict[tuple[str, str], float] = {}
    for distance in DISTANCES:
        for system in ("radix", *DESIGNS):
            made = measured[SPARSE, system, distance].stats[_TABLES if system == "radix" else _FRAMES]
            cells[distance, system] = made * PAGE / PAGES
    findings.series.append(Series.from_values("§4.2", _TITLE, "bytes", cells))
