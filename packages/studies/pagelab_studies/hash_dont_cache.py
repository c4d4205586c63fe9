"""Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016.

The paper simulates walks of a Sandy Bridge processor under radix tables with MMU caches and under hashed tables, turns
walk cycles into run time by a linear model whose coefficients it does not print, and compares runs of whole
benchmarks. Here the references and the cycles of the walks are measured on windows of the same kernels (GUPS,
Graph500) or of analogues that stand for a SPEC benchmark's access pattern. What a walk cycle is worth follows from an
in-order core.
"""

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
from pagelab_studies.hash_dont_cache_runs import GRAPHS, HASH_SEEDS, MILC, PLACEMENTS, SUITE, cost, runs
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
    graphs = ", ".join(f"{of.name} {of.footprint / 2**30:.1f} GiB" for of in GRAPHS)
    findings.notes += [
        "A figure's interval is that of its mean with 95 % confidence, by eight parts of its window, compared one by "
        "one. Of what a whole run does outside the window it says nothing. Parts of Graph500's windows are no "
        "independent samples: walks become more frequent through them. There the interval says how far phases differ.",
        f"Where few clusters of pages decide how many collide, {HASH_SEEDS} hash functions are drawn. In a guest, 384 "
        "MiB are 24 clusters of 4,096 pages. The interval is then that of the mean over them, plus that of the window. "
        "GUPS 32GB, and bare metal where clusters are many, have one function.",
        f"cactusADM* in a virtual machine is the mean of {PLACEMENTS} placements of frames, each with a hash function "
        "of its own: 35 pages at a time make one placement decide much.",
        "Which design saves more is decided by the sign of the difference in cycles of walks. The run time shown is "
        "that of an in-order core that waits for each access. The paper's per cent are not comparable with it, since "
        "its A and B are not printed. But they cancel in what hashed tables save by what perfect MMU caches save, so "
        "those shares are.",
        "A of the paper's model by our two points, 4 KiB and 2 MiB pages, is a check of consistency: where the core "
        "waits for each walk it is about 1 by construction.",
        "A reference is a line here. Four slots of the open table lie in one, so a second probe is mostly none. "
        "References in slots are an estimate by that.",
        "Run time here is the program's instructions, data stalls and translation, without page faults.",
        "Hashed tables are sized to the footprint: 64 bytes per page, so that the load factors are the paper's. "
        "Graph500's queues are not full in the window, so its load is a little less than 1/8.",
        f"Graph500's sizes are the paper's names; the arrays take {graphs}.",
        *(f"{w.name}: {w.stands_for}." for w in (*SUITE, MILC)),
        "The windows are short beside whole runs. They begin after caches and TLBs have been warmed up for a million "
        "accesses. A search's window sees its first levels alone, which visit the vertices with the most neighbours; "
        "so that more memory gives more compares early phases.",
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
)
