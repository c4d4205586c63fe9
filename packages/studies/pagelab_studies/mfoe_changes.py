"""What the latencies of the minor-fault offload engine rest on: one change at a time, for faults with nothing between.

The paper prints neither the latency of gem5's memory nor what a locked access takes there. Both are estimates of the
preset `gem5-timing`. And the estimates of the event model for fault processes, with tables that are full at the start
as in `mfoe` and `mfoe_programs`, and with tables that are filled while the program begins, as in the paper.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pagelab_studies import mfoe
from pagelab_studies.estimates import Estimate
from pagelab_studies.mfoe import BURSTS, HANDLER_NS, PROGRAMS, latencies
from pagelab_studies.study import Cost, Findings, Measurement, Measurements, Reproduction, Run, Series, by_sections

PRESET = "as the preset"
OPEN_ROW_CYCLES = 112
"""An access to an open row of gem5's model of DDR4-2400 (`DDR4_2400_8x8` and `MemCtrl`, whose class of 16 GB is the one
of the paper's Table 3a): tCL of 14.16 ns, a burst of 3.33 ns, 10 ns each before and behind, at 3 GHz. The preset's 160
cycles are near its access to a closed row, which takes tRCD of 14.16 ns more: 155 cycles."""
_DRAM = f"machine.cache.dram_latency_cycles={OPEN_ROW_CYCLES}"
_LOCKED = "machine.cache.locked_extra_cycles=0"
CHANGES: dict[str, tuple[str, ...]] = {
    PRESET: (),
    f"DRAM of {OPEN_ROW_CYCLES} cycles, its rows always open, instead of 160": (_DRAM,),
    "locked accesses as fast as others": (_LOCKED,),
    "zeroing at the caches' latency instead of memory's bandwidth": ("machine.bulk.cost=latency",),
}
"""What the paper does not print. Its Table 3a says DDR4, without a latency."""
PRINTED: dict[str, tuple[str, ...]] = {
    "tables of 64 frames instead of 256": ("system.layers.native.fault_engine.entries=64",),
    "an L2 cache of 8 MiB instead of 256 KiB": ("machine.cache.l2.size_bytes=8MiB",),
}
"""What the paper does print: these show what a hit waits for, but are no reason for a difference."""
BOTH = f"DRAM of {OPEN_ROW_CYCLES} cycles, and locked accesses as fast as others"
"""Two changes: shown, but no reason for a difference either."""
_ALL = {**CHANGES, **PRINTED, BOTH: (_DRAM, _LOCKED)}
TITLE = "faults by one thread, with one change per row"
OF_HITS = {
    "micro-benchmark, hit, mean": 36.0,
    "micro-benchmark, hit, standard deviation": 42.0,
    "micro-benchmark, hit, 95th percentile": 125.0,
}
"""Cycles of the paper's hits (5.2.1), by the names of these figures in the table."""
_LABEL = "0 between"
_SYSTEMS = ("kernel", "engine", "call")
_FILES = "system.layers.native.fault_engine.entries"
FILLINGS = {"full at the start": ("initial_fill=done",), "filled from the start": ("initial_fill=running",)}
"""Of the tables: as in the other studies, and as in the paper."""
PROCESSES = (*((row, BURSTS[0]) for row in PROGRAMS), ("GCC compiler", BURSTS[-1]))
"""Rows of Table 1 and lengths of their bursts: all by chance, and the most frequent faults in the longest bursts."""
FILLED = "fault processes, by when the tables are first filled"
_ESTIMATE_NS = 1.5e9
"""Measured as `study.Cost` says, of an estimate."""


def changed_runs() -> list[Run]:
    """The runs."""
    return [*_runs(), *filling_runs()]


def cost(run: Run) -> Cost:
    """What an access takes, or an estimate all in all."""
    return mfoe.cost(run) if run.preset else Cost(window=_ESTIMATE_NS)


def filling_label(burst: int, filling: str) -> str:
    """Of an estimate."""
    return f"bursts of {burst}, tables {filling}"


def filling_runs() -> list[Run]:
    """Estimates for faults at the rates of Table 1."""
    return [
        Run(
            row,
            mfoe.process(PROGRAMS[row], burst, HANDLER_NS),
            filling_label(burst, filling),
            "",
            1,
            estimate=settings,
            least_accesses=1,
            in_parts=False,
        )
        for row, burst in PROCESSES
        for filling, settings in FILLINGS.items()
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
    return by_sections(measured, (_latencies, _filling))


def _latencies(measured: Measurements, findings: Findings) -> None:
    cells = {
        (change, member): value
        for change in _ALL
        for member, value in figures({system: measured["first touches", system, change] for system in _SYSTEMS}).items()
    }
    findings.series.append(Series.from_values("§5.2.1", TITLE, "cycles, times, K pages/s", cells))
    closed = [
        100 * (cells[PRESET, member] - cells[BOTH, member]) / (cells[PRESET, member] - paper)
        for member, paper in OF_HITS.items()
    ]
    findings.notes.append(
        f"{BOTH}: two changes at once. Together they close {min(closed):.0f} to {max(closed):.0f} % of the differences "
        "between a hit's mean, deviation and tail here and in the paper. So latencies of gem5's machine that the paper "
        "does not print can make more than half of them, without any change of the engine's steps."
    )


def _filling(measured: Measurements, findings: Findings) -> None:
    """§5.1: what full tables at the start change."""
    cells: dict[tuple[str, str], float] = {}
    less: list[float] = []
    gains: list[float] = []
    for row, burst in PROCESSES:
        full, running = (Estimate(measured[row, filling_label(burst, filling)].stats) for filling in FILLINGS)
        for filling, one in zip(FILLINGS, (full, running), strict=True):
            cells[f"{row}, bursts of {burst}", f"hit rate, {filling}"] = one.hit_rate
            cells[f"{row}, bursts of {burst}", f"speed-up, {filling}"] = one.speed_up
        less.append(full.hit_rate - running.hit_rate)
        gains.append(100 * (full.speed_up - running.speed_up))
    findings.series.append(Series.from_values("§5.1", FILLED, "%, times", cells))
    findings.notes.append(
        f"Filling the tables while the program begins, as in the paper, instead of before: over {len(less)} fault "
        f"processes of 2 s the hit rate is {min(less):.2f} to {max(less):.2f} points lower, and the gain "
        f"{min(gains):.2f} to {max(gains):.2f} points."
    )


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
