"""What "Hash, Don't Cache (the Page Table)" says of samples, space, guests and conflicts, with one thing changed."""

from pagelab_studies import hash_dont_cache_conflicts as conflicts
from pagelab_studies import hash_dont_cache_guests as guests
from pagelab_studies import hash_dont_cache_sparse as sparse
from pagelab_studies import hash_dont_cache_whole as whole
from pagelab_studies.hash_dont_cache_runs import cost as of_windows
from pagelab_studies.study import Cost, Findings, Measurements, Reproduction, Run, by_sections


def runs() -> list[Run]:
    """All runs."""
    return [*whole.runs(), *guests.runs(), *sparse.runs(), *conflicts.runs()]


def cost(run: Run) -> Cost:
    """What an access takes."""
    if run.workload == sparse.SPARSE:
        return sparse.cost(run)
    if run.workload == conflicts.DRAWN:
        return conflicts.cost(run)
    return whole.cost(run) if run.label in (whole.WINDOW, whole.WHOLE) else of_windows(run)


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    sections = (
        whole.windows_and_whole_runs,
        guests.lines_of_the_host,
        guests.independent_functions,
        sparse.bytes_per_page,
        conflicts.states_of_memory,
        conflicts.drawn_strides,
        conflicts.one_table,
    )
    findings = by_sections(measured, sections)
    findings.notes += (*whole.NOTES, *sparse.NOTES, *conflicts.NOTES)
    return findings


REPRODUCTION = Reproduction(
    name="hash-dont-cache-changes",
    title="Hash, Don't Cache (the Page Table): whole runs, guests, sparse memory and conflicts",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
