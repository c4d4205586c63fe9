"""Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016.

The paper simulates walks of a Sandy Bridge processor under radix tables with MMU caches and under hashed tables, turns
walk cycles into run time by a linear model whose coefficients it does not print, and compares runs of whole
benchmarks. Here the references and the cycles of the walks are measured on windows of the same kernels (GUPS,
Graph500) or of analogues that stand for a SPEC benchmark's access pattern. What a walk cycle is worth follows from an
in-order core.
"""

from pagelab_studies import hash_dont_cache_tables as tables
from pagelab_studies.hash_dont_cache_figures import (
    cycles_of_walks,
    figure_6,
    figure_9,
    perfect_or_hashed,
    run_times,
)
from pagelab_studies.hash_dont_cache_reasons import (
    beyond,
    conflicts,
    loads,
    look_ups,
    model,
    order_of_insertion,
    references,
)
from pagelab_studies.hash_dont_cache_runs import GRAPHS, HASH_SEEDS, MILC, MORE_SEEDS, PLACEMENTS, SUITE, cost, runs
from pagelab_studies.study import Findings, Measurements, Reproduction, by_sections


def evaluate(measured: Measurements) -> Findings:
    findings = by_sections(
        measured,
        (
            figure_6,
            figure_9,
            cycles_of_walks,
            run_times,
            perfect_or_hashed,
            look_ups,
            loads,
            conflicts,
            references,
            order_of_insertion,
            model,
            beyond,
        ),
    )
    graphs = ", ".join(f"{graph.name} {graph.footprint / 2**30:.1f} GiB" for graph in GRAPHS)
    findings.notes += [
        "A figure's interval is the 95 % confidence interval of its mean, over eight parts of its window, compared "
        "one by one. It says nothing about a run outside the window. Parts of Graph500's windows are not "
        "independent samples, since walks become more frequent in them. There the interval says how much the phases "
        "differ.",
        f"Where few clusters of pages decide how many collide, {HASH_SEEDS} hash functions are drawn, or {MORE_SEEDS} "
        "where those leave an order open. In a guest, 384 MiB are 24 clusters of 4,096 pages. The interval is then "
        "that of the mean over the functions, plus that of the window. GUPS 32GB, and bare metal with many clusters, "
        "have one function.",
        f"cactusADM* in a virtual machine is the mean of {PLACEMENTS} placements of frames, each with its own hash "
        "function: with 35 pages at a time, a single placement matters much.",
        "The sign of the difference in walk cycles decides which design saves more. The run time shown is "
        "that of an in-order core that waits for each access. The paper's percentages are not comparable with it, "
        "since its A and B are not printed: they have no verdict. But A and B cancel in the ratio of the two savings. "
        "These ratios are judged for GUPS. The searches' windows are their first levels, and analogues are not the "
        "programs.",
        "A of the paper's model, computed from our two points, 4 KiB and 2 MiB pages, is a consistency check: where "
        "the core waits for each walk it is about 1 by construction.",
        "By construction, a walk with perfect MMU caches makes 1 reference on bare metal and 3 in a virtual machine.",
        "A reference is a line here. Four slots of the open table share a line, so a second probe is mostly no "
        "further reference. References in slots are estimated from that.",
        "Run time here is the program's instructions, data stalls and translation, without page faults.",
        "Hashed tables are sized to the footprint: 64 bytes per page, so that the load factors are the paper's. "
        "Graph500's queues are not full in the window, so its load is a little less than 1/8.",
        f"Graph500's sizes are the paper's names; the arrays take {graphs}.",
        *(f"{w.name}: {w.stands_for}." for w in (*SUITE, MILC)),
        "The windows are short compared with whole runs. They begin after caches and TLBs have been warmed up for a "
        "million accesses. A search's window covers only its first levels, which visit the vertices with the most "
        "neighbours. So 'more with more memory' compares early phases.",
    ]
    return findings


REPRODUCTION = Reproduction(
    name="hash-dont-cache",
    title="Hash, Don't Cache (the Page Table)",
    paper="Idan Yaniv and Dan Tsafrir, SIGMETRICS 2016",
    machine="sandybridge-e5-2420",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
    of_tables=tables.of_main_study,
)
