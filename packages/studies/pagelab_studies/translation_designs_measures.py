"""What `translation-designs` counts of a window."""

from collections.abc import Callable

from pagelab_studies.interval import Interval
from pagelab_studies.study import BUSY, Measurement, Measurements

Figure = Callable[[Measurement], float]
_FRAME_KIB = 4


def per_thousand(measurement: Measurement, *names: str) -> float:
    """Statistics per 1,000 accesses."""
    stats = measurement.stats
    return 1000 * sum(stats.get(name, 0) for name in names) / stats["accesses"]


def walks(measurement: Measurement) -> float:
    """Walks that the program waits for, per 1,000 accesses."""
    return per_thousand(measurement, "walk.count")


def _ahead(measurement: Measurement, end: str) -> list[str]:
    beside = ("prefetch.tlb.", "tlb.stages.")
    return [name for name in measurement.stats if name.startswith(beside) and name.endswith(end)]


def references(measurement: Measurement) -> float:
    """References of walks, those made ahead included, and of stages in memory, per 1,000 accesses."""
    return per_thousand(measurement, "walk.refs", *_ahead(measurement, ".refs"))


def memory_references(measurement: Measurement) -> float:
    """The part of the references that memory serves, per 1,000 accesses."""
    return per_thousand(measurement, "walk.refs.dram", *_ahead(measurement, ".refs.dram"))


def references_per_walk(measurement: Measurement) -> float:
    """References of a walk that the program waits for."""
    return measurement.stats["walk.refs"] / measurement.stats["walk.count"]


def translation_cycles(measurement: Measurement) -> float:
    """Cycles of translation per access, beyond those of TLB hits."""
    return per_thousand(measurement, "cycles.translation") / 1000


def cycles(measurement: Measurement) -> float:
    """The program's cycles per access, without page faults."""
    own = (f"cycles.{name}" for name in BUSY if name not in ("fault", "kernel"))
    return per_thousand(measurement, *own) / 1000


def table_kib(measurement: Measurement) -> float:
    """KiB of the page tables of all layers at the end, and of stages and prefetchers in memory."""
    frames = sum(count for name, count in measurement.stats.items() if name.endswith(".page_table_frames"))
    in_units = sum(measurement.stats[name] for name in _ahead(measurement, ".memory_bytes"))
    return frames * _FRAME_KIB + in_units / 1024


def storage_kib(measurement: Measurement) -> float:
    """KiB of the new structures in the processor, of the cores in use."""
    return sum(count for name, count in measurement.stats.items() if name.endswith(".storage_bits")) / 8 / 1024


FIGURES: dict[str, tuple[str, Figure]] = {
    "walks": ("per 1,000 accesses", walks),
    "references for translation": ("per 1,000 accesses", references),
    "references for translation from memory": ("per 1,000 accesses", memory_references),
    "translation": ("cycles per access", translation_cycles),
    "all but page faults": ("cycles per access", cycles),
}
"""What tables show: by their titles, the unit and the figure."""


def over_seeds(measured: Measurements, workload: str, system: str, label: str, figure: Figure) -> Interval:
    """A figure's mean over the seeds, and their range."""
    values = [figure(one) for one in measured.seeds(workload, system, label).values()]
    return Interval.from_values(values, sum(values) / len(values))


def saved(measured: Measurements, workload: str, systems: tuple[str, str], label: str, figure: Figure) -> Interval:
    """Per cent of a figure that the second system saves, with the same seeds, and the range of the seeds."""
    before, after = (measured.seeds(workload, system, label) for system in systems)
    values = [100 * (1 - figure(after[seed]) / figure(before[seed])) for seed in before]
    return Interval.from_values(values, sum(values) / len(values))
