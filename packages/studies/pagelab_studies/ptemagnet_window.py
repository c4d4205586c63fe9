"""The gains of "PTEMagnet" after first touches on a core that overlaps accesses. The runs are those of `ptemagnet`."""

from pagelab_studies.ptemagnet import STATES, judge_gains, runs_of
from pagelab_studies.ptemagnet_measures import gain
from pagelab_studies.ptemagnet_runs import AGED, EQUAL_COST, FRESH, JUDGED, ORDER_0, cost, runs
from pagelab_studies.study import Findings, Measurements, Reproduction, Run, Series, by_sections
from pagelab_studies.window_core import cost as of_window_core
from pagelab_studies.window_core import on_window_core

LABELS = (AGED, FRESH)
CORE = "a core with a window, preset `skylake`"
_RESTS_ON = (
    f"only the seeds, not the range of the model's costs; {CORE}; programs of the paper's kinds on tens to hundreds of "
    "MiB, not the paper's"
)
_NAMES = tuple(workload.name for workload in JUDGED)


def window_runs() -> list[Run]:
    """The runs, those in aged memory first."""
    wanted = [
        run
        for label in LABELS
        for run in runs()
        if run.workload in _NAMES and run.label == label and run.system in (ORDER_0, EQUAL_COST)
    ]
    return on_window_core("ptemagnet", wanted)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_gains,))


def _gains(measured: Measurements, findings: Findings) -> None:
    gains = {(label, at): gain(measured, at, EQUAL_COST, label) for label in LABELS for at in JUDGED}
    for label in LABELS:
        of_label = {at: gains[label, at] for at in JUDGED}
        judge_gains(findings, STATES[label], of_label, runs_of(measured, label, EQUAL_COST), _RESTS_ON, core=CORE)
    cells = {(at.name, STATES[label]): one for (label, at), one in gains.items()}
    title = f"time that {EQUAL_COST} saves"
    findings.series.append(Series.within("Fig 6 (third party)", title, "% of order-0", cells))


REPRODUCTION = Reproduction(
    name="ptemagnet-window",
    title="PTEMagnet: on a core with a window",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=window_runs,
    evaluate=evaluate,
    cost=of_window_core(cost),
)
