"""Latencies and throughputs of the minor-fault offload engine on a core that overlaps accesses.

The runs are those of `mfoe` by one thread. The paper's simulated core is in order (TimingSimpleCPU), so that study is
nearer to the paper; this one says what a window changes.
"""

from pagelab_studies.mfoe import cost, latencies, rates, section_latency, section_throughput
from pagelab_studies.study import Findings, Measurements, Reproduction, Run, by_sections
from pagelab_studies.window_core import cost as of_window_core
from pagelab_studies.window_core import on_window_core


def window_runs() -> list[Run]:
    """The runs by one thread."""
    return on_window_core("mfoe", [*latencies(), *(run for run in rates() if run.label.startswith("1 threads"))])


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (section_latency, section_throughput))


REPRODUCTION = Reproduction(
    name="mfoe-window",
    title="The minor-fault offload engine: on a core with a window",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="gem5-timing",
    runs=window_runs,
    evaluate=evaluate,
    cost=of_window_core(cost),
)
