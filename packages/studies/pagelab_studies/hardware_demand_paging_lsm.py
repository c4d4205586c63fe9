"""Operations per second of a log-structured store like RocksDB, which the slides measure, beside those of a B+tree.

Models: the workload `lsm` with RocksDB's defaults (`hardware_demand_paging_runs.LSM_SIZES`), and with as many
    instructions per access as make an operation as long as RocksDB's was when recorded.
Deviations: the thread whose turn it is flushes and compacts, where RocksDB has threads of its own. All instructions are
    spread evenly over the accesses. YCSB's client, which is written in Java, is not there.
"""

from collections.abc import Mapping

from pagelab_studies.hardware_demand_paging_runs import (
    FACTORS,
    LSM,
    LSM_THREADS,
    NOT_IN_SLIDES,
    READS,
    STORE,
    STORES,
    SYSTEMS,
    gap,
    of_threads,
)
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings, Measurements, Series, figure

PAPER_GAIN = 27.3
STORES_TITLE = "More operations per second by one thread: a log-structured tree and a B+tree"
THROUGHPUT = "throughput"
"""The gains that the abstract has an order of."""
_RESTS_ON = (
    "the kernel's cost of a request, as measured and down to a quarter; instructions per operation as RocksDB 7.8.3 "
    "executes them, at two per cycle; the version and the options of the slides' RocksDB are not known"
)


def gain_at(measured: Measurements, workload: str, label: str, word: str) -> Interval:
    """How much more is done per time with the unit, in per cent, at one factor of the kernel's costs."""

    def gain(kernel: Mapping[str, int], unit: Mapping[str, int]) -> float:
        return 100 * (kernel["elapsed_cycles"] / unit["elapsed_cycles"] - 1)

    return figure(gain, *(measured[workload, system, f"{word}, {label}"] for system in SYSTEMS))


def gains_by_factor(measured: Measurements, workload: str, label: str) -> dict[str, Interval]:
    """The same at each factor."""
    return {word: gain_at(measured, workload, label, word) for word in FACTORS}


def gain(measured: Measurements, workload: str, label: str) -> Interval:
    """The same over all factors: the figure is that of the measured costs."""
    gains = gains_by_factor(measured, workload, label)
    return Interval.around(gains["measured"].value, gains.values())


def section(measured: Measurements, findings: Findings) -> None:
    """Every pattern by one thread, beside the B+tree, and YCSB-C by several."""
    by_threads = {threads: gain(measured, LSM, of_threads("mix c", threads)) for threads in LSM_THREADS}
    most = max(by_threads.values(), key=lambda one: one.value)
    reason = (
        f"a log-structured tree as RocksDB's; the most of {', '.join(map(str, LSM_THREADS))} threads; {gap('c')} "
        "instructions per access, as RocksDB executes per operation"
    )
    findings.comparisons.append(
        Comparison(
            "Abstract",
            "YCSB-C, LSM tree",
            "more operations per second by",
            "%",
            PAPER_GAIN,
            most.value,
            reason,
            most,
            neutral=0.0,
            ranked=THROUGHPUT,
        )
    )
    cells = {(row, "LSM tree"): gain(measured, LSM, f"mix {mix}") for mix, row in STORES.items()}
    cells |= {(row, "B+tree"): gain(measured, STORE, f"mix {mix}") for mix, row in STORES.items()}
    findings.series.append(Series.within("Throughput", STORES_TITLE, "%", cells))
    rows = {f"{threads} threads": one for threads, one in by_threads.items()}
    rows["1 thread, filters of 10 bits per key"] = gain(measured, LSM, "mix c, filters")
    variants = {(row, "gain"): one for row, one in rows.items()}
    findings.series.append(Series.within("Throughput", "More operations per second of YCSB-C, LSM tree", "%", variants))
    by_requests = {f"YCSB-C, {threads} threads": (one, False) for threads, one in by_threads.items()}
    for mix, row in STORES.items():
        if mix != "c":
            by_requests[f"{row.partition(':')[0]}, 1 thread"] = cells[row, "LSM tree"], mix == NOT_IN_SLIDES
    for requests, (one, ours) in by_requests.items():
        text = f"more operations per second of a log-structured store with hardware ({requests})"
        detail = f"{one.value:.1f} % ({one.low:.1f} to {one.high:.1f})"
        findings.claims.append(Claim("Throughput", text, one.above(0), detail, _RESTS_ON, ours=ours))
    _less_than_reads(measured, findings)


def _less_than_reads(measured: Measurements, findings: Findings) -> None:
    reads, store = (gains_by_factor(measured, *of_one) for of_one in ((READS, "1 threads"), (LSM, "mix c")))
    less = {word: reads[word].minus(store[word]) for word in FACTORS}
    detail = ", ".join(f"{word} costs {one} points" for word, one in less.items())
    text = "a log-structured store (YCSB-C) gains less than random reads, as it computes between misses (1 thread)"
    findings.claims.append(
        Claim("Throughput", text, all_hold(one.above(0) for one in less.values()), detail, _RESTS_ON, "order")
    )
