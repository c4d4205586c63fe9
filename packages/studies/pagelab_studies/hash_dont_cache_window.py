"""Table 4 and Figs 10 and 11 of "Hash, Don't Cache (the Page Table)" on a core that overlaps accesses.

The runs are those of `hash_dont_cache` that Table 4 takes, with five hash functions where one has to be drawn. Left
out for their time are hashed tables of the two larger searches in a virtual machine, and of the largest search all but
perfect MMU caches on bare metal.
"""

from pagelab_studies import hash_dont_cache_figures as figures
from pagelab_studies import hash_dont_cache_tables as tables
from pagelab_studies.hash_dont_cache_runs import BARE, GRAPHS, HASH_SEEDS, NESTED, SUITE, cost, is_one_of_few, runs
from pagelab_studies.study import Findings, Measurements, Reproduction, Run, by_sections
from pagelab_studies.window_core import cost as of_window_core
from pagelab_studies.window_core import on_window_core

NAMES = tuple(workload.name for workload in SUITE)
"""The workloads that are run."""
LEFT_OUT = {(GRAPHS[1].name, "nested hashed"), *((GRAPHS[2].name, system) for system in ("hashed", *NESTED))}
"""Workloads and systems that are not."""
CORE = "the core preset `sandy-bridge`, whose window and walkers overlap walks with other accesses"


def _is_wanted(run: Run) -> bool:
    there = run.workload in NAMES and run.system in {**BARE, **NESTED}
    return there and is_one_of_few(run.label) and not run.beyond and (run.workload, run.system) not in LEFT_OUT


def window_runs() -> list[Run]:
    """The runs."""
    return on_window_core("hash-dont-cache", filter(_is_wanted, runs()))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    return by_sections(measured, (_run_times,))


def _run_times(measured: Measurements, findings: Findings) -> None:
    gains = figures.savings(measured, NAMES, most=HASH_SEEDS, left_out=LEFT_OUT)
    figures.add_gains(findings, gains, NAMES, CORE)
    figures.add_table_4(findings, gains)


REPRODUCTION = Reproduction(
    name="hash-dont-cache-window",
    title="Hash, Don't Cache (the Page Table): on a core with a window",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=window_runs,
    evaluate=evaluate,
    cost=of_window_core(cost),
    of_tables=tables.without_conflicts(CORE),
)
