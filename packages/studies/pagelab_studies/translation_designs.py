"""Published designs of address translation beside each other: the same programs under each, and what their papers say.

Each design is one line of `translation_designs_runs.DESIGNS`: a preset on bare metal, one in a virtual machine, and
keys of the machine. The baseline has 4-level radix tables with paging-structure caches. Programs touch all their pages
before their windows. Each has several seeds, which also draw hash functions and the state of fragmented memory. In
memory in pieces, half of the free memory is in blocks smaller than 2 MiB; there run the designs whose frames or tables
lie together. On the core with a window run the designs of whose run time a paper says something.
"""

from functools import partial

from pagelab_studies import translation_designs_claims as claims
from pagelab_studies.study import Findings, Measurements, Reproduction, Series, by_sections
from pagelab_studies.translation_designs_measures import FIGURES, over_seeds, storage_kib, table_kib
from pagelab_studies.translation_designs_runs import BARE, DESIGNS, MACHINE, STATES, VIRTUAL, WORKLOADS, cost, runs

_GALLERY = "gallery"
_FIRST = next(iter(WORKLOADS))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    tables = (partial(_tables, label=label, layer=layer) for label in STATES for layer in (BARE, VIRTUAL))
    findings = by_sections(measured, (*tables, _storage, *claims.SECTIONS))
    findings.notes += [
        "Walks and references are those for the program's accesses; walks for the kernel's own are not counted.",
        "Brackets are the range of the seeds; on the core with a window there is one.",
        "Cycles per access include the translation that the core cannot hide, and no page faults.",
        "Systems with huge pages on both layers, or on the guest alone, differ: here the host has pages of 4 KiB.",
    ]
    return findings


def _tables(measured: Measurements, findings: Findings, label: str, layer: str) -> None:
    """A table per figure: designs down, programs across."""
    names = [design.system(layer) for design in DESIGNS if design.has(layer, label)]
    for title, (unit, figure) in FIGURES.items():
        cells = {
            (system, workload): over_seeds(measured, workload, system, label, figure)
            for system in names
            for workload in WORKLOADS
        }
        where = f"{title}, {layer}, {STATES[label]}"
        findings.series.append(Series.within(_GALLERY, where, unit, cells, names, tuple(WORKLOADS)))


def _storage(measured: Measurements, findings: Findings) -> None:
    """What the designs take: memory of tables, and new structures of the processor."""
    cells: dict[tuple[str, str], float] = {}
    for layer in (BARE, VIRTUAL):
        for design in DESIGNS:
            if design.has(layer, ""):
                system = design.system(layer)
                of_first = measured[_FIRST, system]
                cells[system, "page tables"] = table_kib(of_first)
                cells[system, "new structures"] = storage_kib(of_first)
    title = f"storage, for {_FIRST}"
    findings.series.append(Series.from_values(_GALLERY, title, "KiB", cells))


REPRODUCTION = Reproduction(
    name="translation-designs",
    title="Designs of address translation beside each other",
    paper="The papers of the designs, each named beside its statement",
    machine=MACHINE,
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
