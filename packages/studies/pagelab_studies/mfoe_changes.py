"""What the latencies of the minor-fault offload engine rest on: one change at a time, for faults with nothing between.

The paper prints neither the latency of gem5's memory nor what a locked access takes there. Both are estimates of the
preset `gem5-timing`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pagelab_studies.mfoe import INTERVAL, NEIGHBOURS, cost, hit_rate, latencies, neighbours, rates, starvation
from pagelab_studies.study import Claim, Findings, Measurement, Measurements, Reproduction, Run, Series, by_sections

PRESET = "as the preset"
_DRAM = "machine.cache.dram_latency_cycles=90"
_LOCKED = "machine.cache.locked_extra_cycles=0"
CHANGES: dict[str, tuple[str, ...]] = {
    PRESET: (),
    "DRAM of 90 cycles instead of 160": (_DRAM,),
    "locked accesses as fast as others": (_LOCKED,),
    "zeroing at the caches' latency instead of memory's bandwidth": ("machine.bulk.cost=latency",),
}
"""What the paper does not print. 90 cycles are 30 ns, the default of gem5's `SimpleMemory`. The paper's Table 3a says
DDR4, without a model."""
PRINTED: dict[str, tuple[str, ...]] = {
    "tables of 64 frames instead of 256": ("system.layers.native.fault_engine.entries=64",),
    "an L2 cache of 8 MiB instead of 256 KiB": ("machine.cache.l2.size_bytes=8MiB",),
}
"""What the paper does print: these show what a hit waits for, but are no reason for a difference."""
BOTH = "DRAM of 90 cycles, and locked accesses as fast as others"
"""Two changes: shown, but no reason for a difference either."""
_ALL = {**CHANGES, **PRINTED, BOTH: (_DRAM, _LOCKED)}
SLOW = "background thread as slow as the paper's"
_SLOW = ("kernel.fault.zeroing.cycles=3294",)
"""5171 cycles per page at 3 GHz are the 580,169 pages per second of Table 4; without this, a page takes 1937."""
_THREADS = (1, 4, 8)
TITLE = "faults by one thread, with one change per row"
_LABEL = "0 between"
_SYSTEMS = ("kernel", "engine", "call")
_FILES = "system.layers.native.fault_engine.entries"


def changed_runs() -> list[Run]:
    """The runs."""
    return [*_runs(), *slow_runs()]


def slow_runs() -> list[Run]:
    """Faults of several threads, with a background thread of the paper's throughput; last those beside neighbours."""
    labels = {*(f"{threads} threads, {INTERVAL} instructions" for threads in _THREADS), NEIGHBOURS}
    return [
        replace(run, label=f"{run.label}, {SLOW}", settings=(*run.settings, *_SLOW))
        for run in (*rates(), *neighbours())
        if run.label in labels
    ]


def _runs() -> Iterator[Run]:
    for run in latencies():
        if run.label != _LABEL or run.system not in _SYSTEMS:
            continue
        for change, settings in _ALL.items():
            # The kernel has no tables.
            own = tuple(one for one in settings if run.system != "kernel" or not one.startswith(_FILES))
            yield replace(run, label=change, settings=(*run.settings, *own))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_latencies, _threads))
    findings.notes += [
        f"{BOTH}: two changes at once. A hit then takes about as long as the paper's, in mean, deviation and tail. So "
        "latencies of gem5's machine that the paper does not print can make the difference, without any change of the "
        "engine's steps."
    ]
    return findings


def _latencies(measured: Measurements, findings: Findings) -> None:
    cells = {
        (change, member): value
        for change in _ALL
        for member, value in figures({system: measured["first touches", system, change] for system in _SYSTEMS}).items()
    }
    findings.series.append(Series.from_values("§5.2.1", TITLE, "cycles, times, K pages/s", cells))


def _threads(measured: Measurements, findings: Findings) -> None:
    cells = {}
    *made, beside = (measured[run.key] for run in slow_runs())
    for one, threads in zip(made, _THREADS, strict=True):
        engine = "layer.native.fault_engine"
        busy = one.stats[f"{engine}.replaced.cycles"]
        cells[f"{threads} threads", "hit rate"] = hit_rate(one)
        cells[f"{threads} threads", "throughput"] = 3e6 * one.stats[f"{engine}.replaced"] / busy if busy else 0.0
    findings.series.append(Series.from_values("Fig 9b", f"hit rates with a {SLOW}", "%, K pages/s", cells))
    rests_on = "the throughput alone: the kernel's zeroing takes as much longer as the paper's thread takes per page"
    rate = {threads: cells[f"{threads} threads", "hit rate"] for threads in _THREADS}
    findings.claims.append(
        Claim(
            "Fig 9b",
            f"eight threads hit less often than one, at the same rate per thread ({SLOW})",
            rate[8] < rate[1],
            ", ".join(f"{threads} threads: {value:.1f} %" for threads, value in rate.items()),
            rests_on,
            "order",
        )
    )
    findings.claims.append(starvation(made[0], beside, f" ({SLOW})", rests_on))


def figures(runs: Mapping[str, Measurement]) -> dict[str, float]:
    """The figures of `mfoe` that latencies decide, by their items and quantities."""
    engine = "layer.native.fault_engine"
    kernel, hit, call = (runs[system].stats for system in _SYSTEMS)
    mean = hit[f"{engine}.mapped.cycles"] / hit[f"{engine}.hits"]
    deviation, tail = hit[f"{engine}.mapped.deviation"] / 100, hit[f"{engine}.mapped.p95"]
    handling = kernel["fault.handling.cycles"] / kernel["fault.minor.count"]
    kernels_tail = kernel["fault.minor.latency.p95"]
    by_call = call[f"{engine}.ahead.mapped.cycles"] / call[f"{engine}.ahead.mapped.count"]
    return {
        "micro-benchmark, hit, mean": mean,
        "micro-benchmark, hit, standard deviation": deviation,
        "micro-benchmark, hit, 95th percentile": tail,
        "micro-benchmark, kernel, mean": handling,
        "hit, latency": mean + deviation,
        "hardware, kernel's mean by its own": handling / mean,
        "hardware, kernel's 95th percentile by its own": kernels_tail / tail,
        "hardware, gain of the mean": handling / (mean + deviation),
        "hardware, gain of the tail": kernels_tail / tail,
        "call, kernel's mean by its own": handling / by_call,
        "call, kernel's 95th percentile by its own": kernels_tail / call[f"{engine}.ahead.mapped.p95"],
        "background thread, throughput": 3e6 * hit[f"{engine}.replaced"] / hit[f"{engine}.replaced.cycles"],
        "first filling, throughput": 3e6 * hit[f"{engine}.first_filled"] / hit[f"{engine}.first_filled.cycles"],
    }


REPRODUCTION = Reproduction(
    name="mfoe-changes",
    title="The minor-fault offload engine: one change at a time",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="gem5-timing",
    runs=changed_runs,
    evaluate=evaluate,
    cost=cost,
)
