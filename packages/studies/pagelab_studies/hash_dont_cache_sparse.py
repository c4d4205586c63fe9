"""Bytes of tables for pages that lie apart: §4.2 of "Hash, Don't Cache (the Page Table)" has memory without holes.

One thing is changed: the distance of the pages. A radix table needs more page-table pages for them. A slot of a hashed
table holds one page, or, in clustered and compact tables, the pages of one aligned group of eight.
"""

from collections.abc import Iterator

from pagelab_studies.hash_dont_cache_runs import DESIGNS, PAGE
from pagelab_studies.study import Claim, Cost, Findings, Measurements, Run, Series

SPARSE = "sparse memory"
PAGES = 4096
"""That the program touches, each once."""
DISTANCES = {"4 KiB": PAGE, "32 KiB": 8 * PAGE, "2 MiB": 1 << 21, "1 GiB": 1 << 30}
IN_GROUPS = ("clustered", "compact")
_BYTES = 64
"""Of a hashed table, per page of memory without holes, at the loads of the paper: the same for every design."""
_TABLES, _FRAMES = "layer.native.fault.tables", "layer.native.page_table_frames"
_TITLE = "bytes of tables per page of the program, by the distance of its pages"
_RESTS_ON = (
    f"{PAGES:,} pages of one mapping; hashed tables with the share of their slots in use that they have for memory "
    "without holes"
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
    for distance in DISTANCES:
        radix, most = cells[distance, "radix"], max(cells[distance, design] for design in DESIGNS)
        text = f"radix tables take more memory than hashed ones of every design, for pages {distance} apart"
        detail = f"{radix:,.0f} bytes per page, hashed ones {most:,.0f} at most"
        findings.claims.append(Claim("§4.2", text, radix > most, detail, _RESTS_ON, "order", ours=True))
