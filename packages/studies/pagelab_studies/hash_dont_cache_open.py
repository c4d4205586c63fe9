"""What "Hash, Don't Cache (the Page Table)" argues or leaves for future work, without a figure.

Radix tables with ten entries in a line (§4.3), how it samples (§5.1), and what one table means for processes that start
and end (§5.4).
"""

from pagelab_studies import hash_dont_cache_exits as exits
from pagelab_studies import hash_dont_cache_packed as packed
from pagelab_studies import hash_dont_cache_processes as processes
from pagelab_studies import hash_dont_cache_spread as spread
from pagelab_studies.hash_dont_cache_runs import cost as of_windows
from pagelab_studies.study import Cost, Findings, Measurements, Reproduction, Run, by_sections


def runs() -> list[Run]:
    """All runs, the longest first."""
    return [*spread.runs(), *exits.runs(), *processes.runs(), *packed.runs()]


def cost(run: Run) -> Cost:
    """What an access takes."""
    if run.workload == exits.EXITS:
        return exits.cost(run)
    if run.workload == processes.PROCESSES:
        return processes.cost(run)
    return spread.cost(run) if run.label == spread.LABEL else of_windows(run)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    sections = (
        packed.ten_entries_per_line,
        spread.samples_of_a_run,
        processes.one_table_for_all,
        exits.deleted_slots,
    )
    findings = by_sections(measured, sections)
    findings.notes += (*packed.NOTES, *spread.NOTES, *processes.NOTES, *exits.NOTES)
    return findings


REPRODUCTION = Reproduction(
    name="hash-dont-cache-open",
    title="Hash, Don't Cache (the Page Table): what has no figure",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
