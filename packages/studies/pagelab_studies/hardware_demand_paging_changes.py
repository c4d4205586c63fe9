"""Random reads by many threads with one change: a core more, which the kernel's threads have for themselves.

With 16 threads, and eight cores of two hardware threads, the kernel's threads run on CPUs of readers; with 14 they have
the eighth core. A machine with a ninth core differs in nothing else. With 8 threads it is a control.
"""

from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.hardware_demand_paging_lsm import gain
from pagelab_studies.hardware_demand_paging_runs import BRACKETS, READS, check, cost, runs
from pagelab_studies.study import Claim, Findings, Measurements, Reproduction, Run, Series, by_sections

THREADS = (8, 14, 16)
CORE_MORE = "a core more for the kernel's threads"
_CORES = "machine.cores=9"
_RESTS_ON = (
    "the kernel's cost of a request, as measured and down to a quarter; where the kernel's threads run, which a "
    "kernel's scheduler would decide"
)


def changed_runs() -> list[Run]:
    """The runs."""
    return list(_runs())


def _runs() -> Iterator[Run]:
    for run in runs():
        for threads in THREADS:
            if run.workload == READS and run.label.endswith(f", {threads} threads"):
                yield replace(run, settings=(*run.settings, _CORES))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_reads,))
    findings.notes += [
        BRACKETS,
        "The machine has a ninth core, on which no program runs. All else is as in hardware-demand-paging. There, each "
        "of 8 threads has a core, so 8 threads are a control.",
    ]
    return findings


def _reads(measured: Measurements, findings: Findings) -> None:
    gains = {threads: gain(measured, READS, f"{threads} threads") for threads in THREADS}
    cells = {(f"{threads} threads", "gain"): one for threads, one in gains.items()}
    title = f"More random reads per second, {CORE_MORE}"
    findings.series.append(Series.within("Throughput", title, "%", cells))
    for threads, one in gains.items():
        text = f"more random reads per second of a mapped file with hardware ({threads} threads, {CORE_MORE})"
        detail = f"{one.value:.1f} % ({one.low:.1f} to {one.high:.1f})"
        findings.claims.append(Claim("Throughput", text, one.above(0), detail, _RESTS_ON, ours=True))


REPRODUCTION = Reproduction(
    name="hardware-demand-paging-changes",
    title="Hardware-based demand paging: a core more",
    paper="Gyusun Lee, Wenjing Jin et al., ISCA 2020",
    machine="broadwell-e5-2640v3",
    runs=changed_runs,
    evaluate=evaluate,
    cost=cost,
    check=check,
)
