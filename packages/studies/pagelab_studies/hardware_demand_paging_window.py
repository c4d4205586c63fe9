"""Single page misses and random reads of hardware-based demand paging on a core that overlaps accesses.

The runs are those of `hardware_demand_paging` with the slides' drive and a core for each thread. The stores do not
define which access depends on which, so a window would be a guess there.
"""

from functools import partial

from pagelab_studies.hardware_demand_paging import section_miss, section_reads
from pagelab_studies.hardware_demand_paging_runs import BRACKETS, FACTORS, MISSES, READS, check, cost, runs
from pagelab_studies.study import Findings, Measurements, Reproduction, Run, by_sections
from pagelab_studies.window_core import cost as of_window_core
from pagelab_studies.window_core import on_window_core

MOST_THREADS = 8
_LABELS = {MISSES: ("one thread",), READS: ("1 threads", "4 threads", "8 threads")}


def window_runs() -> list[Run]:
    """The runs."""
    wanted = [run for run in runs() if _is_wanted(run)]
    return on_window_core("hardware-demand-paging", wanted)


def _is_wanted(run: Run) -> bool:
    word, _, label = run.label.partition(", ")
    return word in FACTORS and label in _LABELS.get(run.workload, ())


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (section_miss, partial(section_reads, most_threads=MOST_THREADS)))
    findings.notes += [
        BRACKETS,
        "The runs are those of hardware-demand-paging, on a core that overlaps accesses. The kernel's own accesses "
        "overlap, too. Stores are not run: their workloads do not define which access depends on which.",
    ]
    return findings


REPRODUCTION = Reproduction(
    name="hardware-demand-paging-window",
    title="Hardware-based demand paging: on a core with a window",
    paper="Gyusun Lee, Wenjing Jin et al., ISCA 2020",
    machine="broadwell-e5-2640v3",
    runs=window_runs,
    evaluate=evaluate,
    cost=of_window_core(cost),
    check=check,
)
