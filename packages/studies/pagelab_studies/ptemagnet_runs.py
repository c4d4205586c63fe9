"""Workloads, systems and runs of "PTEMagnet".

The statements decide which runs are made. Programs of the paper's kinds decide its statements: they have five seeds,
and PTEMagnet both with the preset's cheap reserved pages and at equal cost. Others are only shown, with the seeds and
states that this needs. Windows are short where figures differ more between seeds than within a window.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pagelab_studies.study import Cost, Run

MIB = 1 << 20
PAGE = 4096


@dataclass(frozen=True)
class Workload:
    """A program and its window; by `settled` accesses it has touched its last page."""

    name: str
    spec: str
    settled: int
    accesses: int
    text: str
    least: int = 1 << 18
    """Accesses that the window has at any scale."""


def _array(name: str, parameters: str, mib: int, text: str) -> Workload:
    # Figures of such programs differ more between seeds than within a window of this length.
    spec = f"{parameters.format(mib=mib)},accesses={{accesses}},init=pages"
    return Workload(name, spec, mib * MIB // PAGE, 1_000_000, text)


# Accesses of an iteration of PageRank on 2^21 vertices of degree 2 are below 27 million.
ITERATION = 27_000_000
PAGERANK, BFS, CC, CHASE = JUDGED = (
    Workload(
        "pagerank",
        "pagerank:vertices=2097152,degree=2,init=pages,accesses={total}",
        10_000_000,
        ITERATION,
        "the paper's kernel, on a uniformly random graph of 2^21 vertices of degree 2; a whole iteration at any scale",
        ITERATION,
    ),
    Workload(
        "bfs",
        "bfs:vertices=1048576,degree=8,init=pages,accesses={total}",
        21_500_000,
        4_000_000,
        "the paper's kernel, on a uniformly random graph of 2^20 vertices of degree 8, from the second search on",
    ),
    Workload(
        "cc",
        "cc:vertices=2097152,degree=4,init=pages,accesses={total}",
        2_000_000,
        4_000_000,
        "the paper's kernel, on a uniformly random graph of 2^21 vertices of degree 4",
    ),
    _array("chase", "chase:size={mib}MiB,node=64", 512, "a chain of nodes in 512 MiB, which stands for mcf"),
)
GUPS = _array("gups", "gups:size={mib}MiB", 1024, "random updates of 1 GiB")
# Without a first pass over all pages: the first touches are its own.
SPARSE = Workload(
    "sparse",
    "stride:size=1GiB,stride=36KiB,accesses={total}",
    40_000,
    1_000_000,
    "one word in each 36 KiB of 1 GiB, again and again: an eighth of the pages, and one of each group",
)
# Programs of kinds that the paper does not have: shown, but they decide none of its statements.
APART = (
    GUPS,
    _array("zipf", "zipf:size={mib}MiB", 768, "words of 768 MiB by Zipf's law"),
    _array("semirandom", "semirandom:size={mib}MiB,steps=6", 512, "runs of six pages in 512 MiB"),
    _array("stride", "stride:size={mib}MiB,stride=4160", 512, "one word per page of 512 MiB, in order"),
    _array("seq", "seq:size={mib}MiB", 256, "words of 256 MiB in order"),
    SPARSE,
)
# One program at several sizes, to show how much a figure depends on size.
SWEEP = {
    mib: _array(f"random {mib} MiB", "random:size={mib}MiB", mib, "words at random") for mib in (64, 128, 256, 512)
}
# First touches only, one page after the other.
TOUCHES = Workload(
    "first touches",
    "stride:size=256MiB,stride=4096,accesses={accesses}",
    0,
    256 * MIB // PAGE,
    "each page of 256 MiB once, by a program that runs alone",
    256 * MIB // PAGE,
)
WORKLOADS = (*JUDGED, *APART, *SWEEP.values(), TOUCHES)
SEEDS = (1, 2, 3, 4, 5)
# Seeds of what is shown and not judged.
FEW_SEEDS = SEEDS[:3]

ORDER_0 = "order-0"
AS_SET = "PTEMagnet"
EQUAL_COST = "PTEMagnet at equal cost"
FOR_ALL = "PTEMagnet for all at equal cost"
FOR_ALL_AS_SET = "PTEMagnet for all"
FOLIOS = "folios of 32 KiB"
LARGE, EAGER = "large pages", "eager"
RIVALS = (FOLIOS, LARGE, EAGER, "CA paging")
# The paper's kernel, in the guest and the host.
KERNEL = "linux-4.19"
PRESETS = {
    ORDER_0: "nested-radix-cold",
    AS_SET: "nested-radix-ptemagnet-cold",
    EQUAL_COST: "nested-radix-ptemagnet-cold",
    FOR_ALL: "nested-radix-ptemagnet-cold",
    FOR_ALL_AS_SET: "nested-radix-ptemagnet-cold",
    FOLIOS: "nested-radix-mthp32k-cold",
    LARGE: "nested-radix-thp-cold",
    EAGER: "nested-radix-eager-cold",
    "CA paging": "nested-radix-ca-paging-cold",
}
# As in the paper's artefact, reservations are for the measured program, unless they are for all.
ITS_OWN = 'system.layers.guest.placement_for=["source.0"]'
# Eight look-ups at this cost and the allocation of their block cost as much as eight allocations of order 0.
EQUAL_CYCLES = 368
EQUALLY_DEAR = f'system.layers.guest.placement={{"kind":"ptemagnet","cycles":{EQUAL_CYCLES},"instructions":350}}'
# The preset's cost of a look-up, and of the allocations that it is compared with.
SET_CYCLES = 20
SETTINGS = {AS_SET: (ITS_OWN,), EQUAL_COST: (ITS_OWN, EQUALLY_DEAR), FOR_ALL: (EQUALLY_DEAR,)}
MEMORY = ("machine.memory_bytes=8GiB",)

# States of memory, or what is counted. All but those that are alone have co-runners.
FRESH, AGED, ALONE, AGED_ALONE, WHOLE = "", "aged", "alone", "aged alone", "whole"
# First touches and what follows them.
MOST_OF_WHOLE = 4_000_000


def co_runners(seed: int) -> tuple[str, ...]:
    """Programs that take memory and give it back, all the time.

    They touch new pages for most of their time and use them for the rest. Their sizes differ by seed, so that they are
    in different states in the windows of different seeds.
    """
    sizes = 372 + 12 * seed, 248 + 8 * seed
    return (
        f"random:size={sizes[0]}MiB,accesses=200K,init=pages@2",
        f"zipf:size={sizes[1]}MiB,accesses=100K,init=pages@4",
    )


def aged(seed: int, free: float = 0.6, huge: float = 0.3) -> str:
    """The guest has been up for a while: a part of its memory is free, and a part of that in whole blocks of 2 MiB."""
    state = f'"free_fraction":{free},"huge_free_fraction":{huge},"unmovable_fraction":0.1'
    return f'system.layers.guest.age={{{state},"seed":{seed}}}'


def run_of(workload: Workload, system: str, label: str = FRESH, seed: int = 1) -> Run:
    """The window of a program on a system, in a state of memory."""
    whole = label == WHOLE or workload is TOUCHES
    return Run(
        workload.name,
        f"{workload.spec}@0",
        system,
        f"{PRESETS[system]}@{KERNEL}",
        # Windows that begin with the first touch need not contain a whole iteration.
        min(workload.accesses, MOST_OF_WHOLE) if whole else workload.accesses,
        0 if whole else workload.settled,
        (*MEMORY, *SETTINGS.get(system, ()), *((aged(seed),) if label in (AGED, AGED_ALONE) else ())),
        label,
        beside=() if label in (ALONE, AGED_ALONE) else co_runners(seed),
        contiguity_map=workload is PAGERANK and label != WHOLE and system in (ORDER_0, EQUAL_COST),
        after_touches=not whole,
        least_accesses=1 << 18 if label == WHOLE else workload.least,
        seed=seed,
        in_parts=False,
    )


def runs() -> list[Run]:
    return [*_judged(), *_apart(), *_sweep(), *_touches(), *_rivals()]


def _judged() -> Iterator[Run]:
    for workload in JUDGED:
        for seed in SEEDS:
            for label in (FRESH, AGED, ALONE, WHOLE):
                for system in (ORDER_0, EQUAL_COST):
                    yield run_of(workload, system, label, seed)
            # A cheaper allocation changes the state of the co-runners in a window, and the time of first touches.
            for label in (FRESH, AGED, WHOLE):
                yield run_of(workload, AS_SET, label, seed)
            for label in (FRESH, AGED):
                yield run_of(workload, FOR_ALL, label, seed)
    for seed in SEEDS:
        # The effect of ageing without co-runners, and the gain of co-runners that fault faster.
        yield run_of(PAGERANK, ORDER_0, AGED_ALONE, seed)
        yield run_of(CC, FOR_ALL_AS_SET, FRESH, seed)


def _apart() -> Iterator[Run]:
    for workload in APART:
        for seed in FEW_SEEDS:
            for label in (FRESH, AGED, *((ALONE, WHOLE) if workload is SPARSE else ())):
                for system in (ORDER_0, EQUAL_COST):
                    yield run_of(workload, system, label, seed)


def _sweep() -> Iterator[Run]:
    for workload in SWEEP.values():
        for seed in SEEDS:
            for system in (ORDER_0, EQUAL_COST):
                yield run_of(workload, system, AGED, seed)


def _touches() -> Iterator[Run]:
    for system in (ORDER_0, AS_SET, EQUAL_COST):
        yield run_of(TOUCHES, system, ALONE)


def _rivals() -> Iterator[Run]:
    for workload in (PAGERANK, CC, CHASE, GUPS, SPARSE):
        for system in RIVALS:
            yield run_of(workload, system)
    for workload in (PAGERANK, SPARSE):
        yield run_of(workload, FOLIOS, WHOLE)


# Nanoseconds to simulate an access, co-runners included: in the window, and before it. Measured as `study.Cost` says,
# with a run of order-0 allocation for each, at a tenth of the window or half of a whole one. PTEMagnet,
# large pages and eager paging took 0.7 to 1.3 times as long.
_COSTS = {
    "pagerank": (270, 126),
    "bfs": (820, 560),
    "cc": (200, 450),
    "gups": (1630, 31_800),
    "chase": (3930, 35_600),
    "zipf": (2300, 34_100),
    "semirandom": (2470, 35_800),
    "stride": (1930, 35_300),
    "seq": (130, 36_000),
    "sparse": (1900, 28_000),
    **{workload.name: (3670, 34_000) for workload in SWEEP.values()},
}
# The same for graphs whose window is the whole run: an access, and what is touched before.
_WHOLE = {"pagerank": (75, 460e6), "bfs": (310, 570e6), "cc": (180, 720e6)}
# Cost of a run without co-runners relative to one with them: 0.13 to 0.54 in five programs.
_ALONE = 0.25
# A first touch of a program that runs alone.
_TOUCH = 8_300
# In addition: filling the gaps of the program that touches one page of each group.
_GAPS = 6.2e9


def cost(run: Run) -> Cost:
    """What a run takes to make."""
    if run.workload == TOUCHES.name:
        return Cost(_TOUCH)
    workload = next(workload for workload in WORKLOADS if workload.name == run.workload)
    window, warm_up = _COSTS[run.workload]
    once = _GAPS if workload is SPARSE and run.system in (FOLIOS, LARGE, EAGER) else 0.0
    if not run.beside:
        return Cost(window * _ALONE, warm_up * _ALONE, once)
    if run.label == WHOLE and run.workload in _WHOLE:
        window, once = _WHOLE[run.workload]
        return Cost(window, once=once)
    if not run.warm_up:
        # First touches are included: the window includes what others do before theirs.
        return Cost(window, once=once + warm_up * workload.settled)
    return Cost(window, warm_up, once)
