"""How many misses both ways have in the same window, what the unit gains at equal misses, and which part it serves.

Models: both ways replay the same accesses, but drop other pages, so the numbers of misses differ. The estimate at equal
    misses takes the time of the unit's additional misses off its window, or adds that of those which it has less: so
    many times its mean latency, by the number of threads.
Deviations: additional misses also cost the program time in caches, which is not taken off.
"""

from collections.abc import Iterable, Mapping

from pagelab_studies.hardware_demand_paging_lsm import STORES_TITLE
from pagelab_studies.hardware_demand_paging_runs import (
    CPUS,
    DRIVES,
    FACTORS,
    LSM,
    LSM_THREADS,
    NOT_IN_SLIDES,
    READS,
    STORE,
    STORES,
    of_drive,
    of_threads,
)
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Findings, Measurements, Series
from pagelab_studies.tables import cell, table

READ = "layer.native.storage.reads.blocks"
_UNIT = "layer.native.fault_engine."
READS_TITLE = "More random reads per second, by threads"
COUNTS = "Pages read in the window, and what the unit gains at equal misses"
CHANGE = "What equal misses change of the gain"
SERVED = "Page misses that the unit serves, of all"
MOST = 50.0
"""Per cent. The slides have page misses "(mostly) handled in hardware", which is read as more than half."""
_COSTS = "the kernel's cost of a request, as measured and down to a quarter"
_ESTIMATE = "an estimate: the difference of misses at the unit's mean latency"
JUDGED = (
    (READS, "1 threads", READS_TITLE, ("1 threads", "gain"), "random reads per second of a mapped file", "fio"),
    (STORE, "mix c", STORES_TITLE, (STORES["c"], "B+tree"), "operations per second of a B+tree", "YCSB-C"),
    (
        LSM,
        "mix c",
        STORES_TITLE,
        (STORES["c"], "LSM tree"),
        "operations per second of an LSM tree",
        "YCSB-C",
    ),
)
"""Gains by one thread whose windows differ in misses by more than 1 %: their runs, the table and the cell with their
gain, what there is more of, and under which requests."""


def _windows() -> Iterable[tuple[str, str, int]]:
    """Workload, label and threads of each window that a gain is computed from."""
    for threads in CPUS:
        yield READS, f"{threads} threads", threads
    for store in (STORE, LSM):
        for mix in STORES:
            yield store, f"mix {mix}", 1
    for threads in LSM_THREADS[1:]:
        yield LSM, of_threads("mix c", threads), threads
    for drive in DRIVES[1:]:
        yield STORE, of_drive("mix c", drive), 1


def section(measured: Measurements, findings: Findings) -> None:
    """The numbers of misses, by window."""
    counts: dict[tuple[str, str], float] = {}
    changes: dict[tuple[str, str], float] = {}
    for workload, label, threads in _windows():
        row = f"{workload}, {label}"
        for word in FACTORS:
            kernel, unit = (measured[workload, system, f"{word}, {label}"].stats for system in ("kernel", "unit"))
            more = unit[READ] - kernel[READ]
            time = more * unit[f"{_UNIT}latency.cycles"] / unit[f"{_UNIT}mapped"] / threads
            gain = 100 * (kernel["elapsed_cycles"] / unit["elapsed_cycles"] - 1)
            equal = 100 * (kernel["elapsed_cycles"] / (unit["elapsed_cycles"] - time) - 1)
            changes[row, word] = equal - gain
            if word == "measured":
                counts |= {
                    (row, "kernel, pages"): kernel[READ],
                    (row, "unit, pages"): unit[READ],
                    (row, "unit more by, %"): 100 * more / kernel[READ],
                    (row, "gain, %"): gain,
                    (row, "gain at equal misses, %"): equal,
                }
    findings.series.append(Series.from_values("Misses", COUNTS, "pages, %", counts))
    findings.series.append(Series.from_values("Misses", CHANGE, "points", changes))
    more_by = [value for (_, column), value in counts.items() if column == "unit more by, %"]
    findings.notes.append(
        f"Misses with the unit differ by {min(more_by):+.1f} to {max(more_by):+.1f} % from those with the kernel. A "
        "table has them by window; gains are also given at equal misses."
    )


def served(measured: Measurements, findings: Findings) -> None:
    """What part of the page misses the unit serves, by window; the kernel's faults serve the rest."""
    shares: dict[tuple[str, str], Interval] = {}
    judged: dict[str, Interval] = {}
    for workload, label, threads in _windows():
        row = f"{workload}, {label}"
        by_factor = {word: _served(measured[workload, "unit", f"{word}, {label}"].stats) for word in FACTORS}
        shares[row, "served"] = Interval.from_values(list(by_factor.values()), by_factor["measured"])
        if workload != STORE and label != f"mix {NOT_IN_SLIDES}" and threads in LSM_THREADS:
            judged[row] = shares[row, "served"]
    findings.series.append(Series.within("Conclusion", SERVED, "%", shares))
    least = min(judged, key=lambda row: judged[row].value)
    findings.claims.append(
        Claim(
            "Conclusion",
            "hardware handles most page misses (random reads and a log-structured store, up to 8 threads)",
            all_hold(share.above(MOST) for share in judged.values()),
            f"{judged[least]} % with {least}, {max(share.value for share in judged.values()):.1f} % at most",
            f'"mostly" is read as more than half; {_COSTS}; what the slides do not say about the unit',
            "size",
        )
    )


def _served(stats: Mapping[str, int]) -> float:
    mapped = stats[f"{_UNIT}mapped"]
    return 100 * mapped / (mapped + stats["fault.major.count"])


def at_equal_misses(findings: Findings) -> None:
    """Statements of gains, once more at equal misses."""
    changes = table(findings, CHANGE)
    for workload, label, title, place, more_of, requests in JUDGED:
        gains = table(findings, title)
        if changes is None or gains is None:
            return
        row = f"{workload}, {label}"
        by_factor = [changes.values[row, word] for word in FACTORS]
        before = cell(gains, *place)
        # Each end of the range is that of one factor; the table does not say which.
        gain = Interval(
            before.low + min(by_factor), before.value + changes.values[row, "measured"], before.high + max(by_factor)
        )
        text = f"more {more_of} with hardware, at equal misses ({requests}, 1 thread)"
        detail = f"{gain.value:.1f} % ({gain.low:.1f} to {gain.high:.1f}), {before.value:.1f} % at the counted misses"
        findings.claims.append(Claim("Throughput", text, gain.above(0), detail, f"{_ESTIMATE}; {_COSTS}", ours=True))
