"""Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet", ASPLOS 2021.

The paper measures programs in a virtual machine of a real Xeon, beside co-runners that also request memory, with the
allocators of Linux 4.19 and of PTEMagnet. Here the same is simulated: kernels of the paper's kinds (PageRank, search
and components of a graph, and a chain of nodes for mcf), two co-runners that restart whenever they end, and walks
through both layers. How scattered memory is follows from the page allocator and the order of requests; it is not a
parameter.

The walks and cycles per access of the measured program are compared, in a window that begins at the same access under
all systems, when the program has touched its last page. There PTEMagnet's reserved pages cost as much as others: so the
co-runners are in the same state, and only the placement of pages differs. First touches are judged over the range from
the preset's cheap reserved pages to equal cost. `ptemagnet_beside` has what the paper makes no statement about.
"""

from collections.abc import Mapping

from pagelab_studies import ptemagnet_beside, ptemagnet_tables
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.ptemagnet_measures import (
    BEYOND_L2,
    LEAST_MISSES,
    LEAST_WALKS,
    MEMORY,
    NO_CHANGE,
    Misses,
    all_seeds,
    band,
    decided,
    gain,
    gain_by_part,
    lines,
    misses,
    not_in_one_block,
    pooled,
    refuted,
    scattered,
    spread,
)
from pagelab_studies.ptemagnet_runs import (
    AGED,
    AGED_ALONE,
    ALONE,
    APART,
    AS_SET,
    EQUAL_COST,
    EQUAL_CYCLES,
    FOR_ALL,
    FRESH,
    JUDGED,
    ORDER_0,
    PAGERANK,
    SEEDS,
    SET_CYCLES,
    SPARSE,
    TOUCHES,
    WHOLE,
    WORKLOADS,
    Workload,
    aged,
    co_runners,
    cost,
    runs,
)
from pagelab_studies.study import (
    Claim,
    Comparison,
    Findings,
    FrameMap,
    Measurement,
    Measurements,
    Reproduction,
    Series,
    by_sections,
)

# Marks numbers that are not from the authors' abstract, but from what others wrote about the full paper.
THIRD_PARTY = "third party"
_ALLOCATION = 0.5
"""Per cent less allocation time that others report from the full paper."""
KINDS = {"beyond L2": BEYOND_L2, "served by memory": MEMORY}

# What verdicts depend on.
_COUNTED = (
    "references counted; sizes of the programs and the state of the guest's memory, which the paper does not give"
)
_ALLOCATOR = (
    "the model of the page allocator; the order of requests and the state of memory, which the paper does not give"
)
IN_ORDER = (
    "only the seeds, not the range of the model's costs; an in-order core that waits for each walk; programs of the "
    "paper's kinds on tens to hundreds of MiB, not the paper's"
)
_KINDS = (
    "programs unlike the paper's, with three seeds each, can refute it and not confirm it; `sparse` touches one page "
    "of each group"
)
_BAND = f"{IN_ORDER}; a look-up of {SET_CYCLES} to {EQUAL_CYCLES} cycles and an allocation of 420: estimates"

_OTHERS = "windows of other, smaller programs; the paper's figure is of the execution time of whole programs"
"""Why the size of a gain has no verdict."""
_FRAGMENTED = (
    "what counts as fragmented is not printed: if a region does that is not one aligned block, nearly all do even when "
    "it runs alone"
)
TOLERATED = f"a loss under {NO_CHANGE:g} % of the time counts as none"

STATES = {
    FRESH: "after first touches",
    AGED: "the same, guest memory aged",
    ALONE: "the same, without co-runners",
    WHOLE: "first touches included",
}


def evaluate(measured: Measurements) -> Findings:
    sections = (
        _walks,
        _contiguity,
        _reserved,
        _gains,
        _every_program,
        _beside_and_alone,
        _first_touches,
        *ptemagnet_beside.SECTIONS,
    )
    findings = by_sections(measured, sections)
    findings.notes += [
        f"Statements are judged by {', '.join(workload.name for workload in JUDGED)}, with {len(SEEDS)} seeds. "
        "Brackets contain the lowest and the highest. A seed sets the graphs, the random accesses, the state of aged "
        "memory and the co-runners' sizes. Brackets exclude the range of the model's costs, except where a statement "
        f"is judged over it. With fewer seeds, or fewer than {LEAST_WALKS} walks of its program in a window, a "
        "statement is not decided.",
        f"A walk misses when a reference goes beyond L2. With fewer than {LEAST_MISSES} misses in the guest's table "
        "in a window, chance makes the ratio, and nothing is decided. Pooled ratios cover all judged programs, "
        "weighted as if each made the same number of accesses.",
        f"{THIRD_PARTY.capitalize()!r} marks figures that are not in the authors' extended abstract, but in what "
        "others wrote about the full paper.",
        "Time is the main workload's cycles per access: its instructions, data stalls, translation and page faults, on "
        "an in-order core that waits for each access. Windows begin at the same access under all systems, after the "
        "last first touch, and have none inside. Those with first touches included begin with them and are mostly page "
        "faults: real runs are longer, and lie between the two.",
        "At equal cost a group of eight pages costs as much as eight allocations of order 0: a look-up takes "
        f"{EQUAL_CYCLES} cycles. As set it takes {SET_CYCLES}, an estimate for an index and four levels, and an "
        "allocation 420 by the kernel preset, a share of a published mean of whole faults. The one block of eight is "
        "charged as an allocation of order 0 in both. Linux 4.19 keeps lists per CPU for order 0 only, so the real one "
        "takes the zone's lock; what that costs is not measured.",
        "Windows after first touches are judged at equal cost. Cheaper faults before a window, the program's own or "
        "its co-runners', change the state in which it meets the co-runners, and how much of the shared cache they "
        "leave.",
        "Co-runners run on other CPUs and share the last-level cache and the guest's memory. The paper's "
        "artefact reserves for one process, and so does PTEMagnet here, unless it is for all.",
        "How much memory is scattered depends on the order of requests: a CPU takes frames in batches of adjacent "
        "ones, so a program that fills its memory in one go on one CPU gets runs of them, co-runners or not. Aged "
        "memory is already fragmented, and the smallest blocks are handed out first.",
        f"Aged: {aged(1)}, with the seed of the run.",
        f"Co-runners: {', '.join(co_runners(1))}; larger with the other seeds, so that windows meet them in "
        "different states.",
        *(f"{workload.name}: {workload.text}." for workload in WORKLOADS),
    ]
    return findings


def _walks(measured: Measurements, findings: Findings) -> None:
    for kind, places in KINDS.items():
        quantity = f"walk references {kind}, host's to guest's"
        by_program = {workload.name: misses(measured, workload, places, AGED) for workload in JUDGED}
        together = pooled(measured, places, AGED)
        first = [measured.seeds(PAGERANK.name, ORDER_0, AGED)]
        ratios = sorted((one.ratio.value, name) for name, one in by_program.items())
        (least, lowest), (most, highest) = ratios[0], ratios[-1]
        open_size = (
            f"the abstract says neither of which programs nor of which cache: {least:.1f} for {lowest}, {most:.1f} for "
            f"{highest}"
        )
        items = {
            "programs pooled, guest memory aged": together,
            **{f"{name}, guest memory aged": one for name, one in by_program.items()},
            f"{PAGERANK.name} and its co-runners, aged": Misses(first, places, of_all=True),
            f"{PAGERANK.name} without co-runners, aged": misses(measured, PAGERANK, places, AGED_ALONE),
            f"{PAGERANK.name}, unused memory": misses(measured, PAGERANK, places, FRESH),
            f"{PAGERANK.name} in it, without co-runners": misses(measured, PAGERANK, places, ALONE),
        }
        for item, one in items.items():
            paper, unsized = (4.4, open_size) if one is together else (None, "")
            guest, host = (one.per_walk(layer) for layer in ("guest", "host"))
            few = ": too few to tell" if one.too_few else ""
            reason = f"per walk {host.value:.2g} of the host's and {guest.value:.2g} of the guest's{few}"
            findings.comparisons.append(
                Comparison(
                    "§5",
                    item,
                    quantity,
                    "times",
                    paper,
                    one.ratio.value,
                    reason,
                    one.ratio,
                    neutral=1.0,
                    unsized=unsized,
                )
            )
        text = f"walks miss more in the host's table than in the guest's ({kind})"
        verdict = together.host_misses_more
        findings.claims.append(Claim("§5", f"{text}, programs pooled", verdict, str(together), _COUNTED))
        detail = "; ".join(f"{name} {one}" for name, one in by_program.items())
        verdict = all_hold(one.host_misses_more for one in by_program.values())
        findings.claims.append(Claim("§5", f"{text}, each program", verdict, detail, _COUNTED))
        for layer in ("guest", "host"):
            cells = {
                (workload.name, system): misses(measured, workload, places, AGED, system).per_walk(layer)
                for workload in JUDGED
                for system in (ORDER_0, EQUAL_COST)
            }
            title = f"references per walk to the {layer}'s table {kind}, guest memory aged"
            findings.series.append(Series.within("§5", title, "references", cells))


# States of pagerank's memory; first the controls without co-runners.
_PLACED = {
    ALONE: "alone",
    FRESH: "beside co-runners",
    AGED_ALONE: "alone, aged",
    AGED: "beside co-runners, aged",
}


def _contiguity(measured: Measurements, findings: Findings) -> None:
    first = PAGERANK.name
    cells = {
        (text, system): spread(map(lines, all_seeds(measured, PAGERANK, system, label)))
        for label, text in _PLACED.items()
        for system in (ORDER_0, EQUAL_COST)
        if (first, system, label) in measured
    }
    title = f"host PTE lines for each PTE line of the guest, {first}"
    findings.series.append(Series.within(f"Fig 5 ({THIRD_PARTY})", title, "lines (1 to 8)", cells))
    for label, text in _PLACED.items():
        is_control = label in (ALONE, AGED_ALONE)
        share = spread(map(scattered, all_seeds(measured, PAGERANK, ORDER_0, label)))
        reason, unjudged = ("no other program requests memory", "") if is_control else ("", _FRAGMENTED)
        paper = None if is_control else 63.0
        quantity = "regions of 32 KiB in more than two lines of host PTEs"
        findings.comparisons.append(
            Comparison(
                "§5",
                f"{first} {text}",
                quantity,
                "%",
                paper,
                share.value,
                reason,
                share,
                bound="at least",
                unjudged=unjudged,
            )
        )
    for label, control, state in ((FRESH, ALONE, "unused memory"), (AGED, AGED_ALONE, "aged memory")):
        beside, alone = (measured.seeds(first, ORDER_0, which) for which in (label, control))
        more = spread(lines(beside[seed]) - lines(alone[seed]) for seed in sorted(beside.keys() & alone.keys()))
        verdict = decided(more.above(0), (*beside.values(), *alone.values()))
        text = f"co-runners scatter the host's PTEs of {first} over more lines than when it runs alone ({state})"
        detail = f"{more.value:+.2f} ({more.low:+.2f} to {more.high:+.2f}) lines per group"
        findings.claims.append(Claim("§5", text, verdict, detail, _ALLOCATOR))
    for label, text in ((FRESH, f"{first} beside co-runners"), (AGED, "the same in aged memory")):
        panels = {system: measured[first, system, label].contiguity_map["guest"] for system in (ORDER_0, EQUAL_COST)}
        findings.maps.append(FrameMap("Map", f"frames of adjacent pages, {text}", panels))
    worst = {
        label: max(not_in_one_block(m) for program in JUDGED for m in all_seeds(measured, program, EQUAL_COST, label))
        for label in (FRESH, AGED)
    }
    findings.notes.append(
        f"Under PTEMagnet, at most {worst[FRESH]:.3g} % of a program's fully mapped regions are not one block, and "
        f"{worst[AGED]:.3g} % in aged memory. While blocks are free, there are none by construction."
    )


def _reserved(measured: Measurements, findings: Findings) -> None:
    def share(m: Measurement) -> float:
        """Per cent of the guest's memory in use that was reserved and not given out."""
        used = m.stats["layer.guest.memory_bytes"] - m.stats["layer.guest.free_bytes"]
        return 100 * m.stats["layer.guest.reservations.peak_unused_bytes"] / used

    reason = "the most at any time, of the guest's memory in use at the end"
    for item, among in (("most of the judged programs", JUDGED), (SPARSE.name, (SPARSE,))):
        most = max(share(m) for workload in among for m in all_seeds(measured, workload, EQUAL_COST))
        paper = 0.2 if among is JUDGED else None
        findings.comparisons.append(
            Comparison(THIRD_PARTY, item, "memory reserved and unused", "%", paper, most, reason, bound="at most")
        )


def _gains(measured: Measurements, findings: Findings) -> None:
    for system, labels, whose in (
        (EQUAL_COST, (FRESH, AGED, ALONE), ""),
        (FOR_ALL, (FRESH, AGED), ", co-runners reserve too"),
    ):
        for label in labels:
            gains = {workload: gain(measured, workload, system, label) for workload in JUDGED}
            runs = runs_of(measured, label, system)
            judge_gains(findings, f"{STATES[label]}{whose}", gains, runs, IN_ORDER, is_control=label == ALONE)
    gains = {
        workload: band(*(gain(measured, workload, system, WHOLE) for system in (AS_SET, EQUAL_COST)))
        for workload in JUDGED
    }
    judge_gains(findings, STATES[WHOLE], gains, runs_of(measured, WHOLE, AS_SET, EQUAL_COST), _BAND)
    shown = {EQUAL_COST: (FRESH, AGED, ALONE, WHOLE), AS_SET: (FRESH, AGED, WHOLE), FOR_ALL: (FRESH, AGED)}
    for system, states in shown.items():
        cells = {
            (workload.name, STATES[label]): gain(measured, workload, system, label)
            for workload in JUDGED
            for label in states
        }
        title = f"time that {system} saves"
        findings.series.append(Series.within(f"Fig 6 ({THIRD_PARTY})", title, "% of order-0", cells))
    by_part = {
        (f"{workload.name}, {STATES[label]}", name): one
        for workload in JUDGED
        for label in (FRESH, AGED, ALONE)
        for name, one in gain_by_part(measured, workload, EQUAL_COST, label).items()
    }
    title = f"time that {EQUAL_COST} saves, of walks and of data"
    findings.series.append(Series.within("§5", title, "% of order-0", by_part))


def _every_program(measured: Measurements, findings: Findings) -> None:
    """§5: whether applications are slowed down, by programs of all kinds."""
    for label in (FRESH, AGED):
        slower, verdicts = [], []
        for workload in (*JUDGED, *APART):
            one = gain(measured, workload, EQUAL_COST, label)
            of_both = [m for system in (ORDER_0, EQUAL_COST) for m in all_seeds(measured, workload, system, label)]
            verdict = refuted(one.above(-NO_CHANGE), of_both)
            verdicts.append(verdict)
            if verdict is False:
                slower.append(f"{workload.name} {one} %")
        detail = f"{len(verdicts)} programs; slower with every seed: {', '.join(slower) or 'none'}"
        text = f"no program of any kind becomes slower ({STATES[label]})"
        rests_on = f"{_KINDS}; {IN_ORDER}; {TOLERATED}"
        findings.claims.append(Claim("§5", text, all_hold(verdicts), detail, rests_on))


def _beside_and_alone(measured: Measurements, findings: Findings) -> None:
    """§1: whether co-runners amplify what translation takes, and what PTEMagnet saves, with the same accesses."""

    def translation(run: Measurement) -> float:
        return run.main("cycles.translation") / run.window

    cells: dict[tuple[str, str], Interval] = {}
    for workload in JUDGED:
        beside, alone = (measured.seeds(workload.name, ORDER_0, label) for label in (FRESH, ALONE))
        seeds = sorted(beside.keys() & alone.keys())
        ratio = spread(translation(beside[seed]) / translation(alone[seed]) for seed in seeds)
        for where, by_seed in (("alone", alone), ("beside co-runners", beside)):
            cells[workload.name, where] = spread(translation(by_seed[seed]) for seed in seeds)
        gains = []
        for label, without in ((FRESH, beside), (ALONE, alone)):
            with_it = measured.seeds(workload.name, EQUAL_COST, label)
            ratios = {seed: with_it[seed].cycles_per_access / without[seed].cycles_per_access for seed in seeds}
            gains.append({seed: 100 * (1 - one) for seed, one in ratios.items()})
        more = spread(gains[0][seed] - gains[1][seed] for seed in seeds)
        runs = (*beside.values(), *alone.values())
        text = f"co-runners amplify the time of {workload.name}'s translation (unused memory)"
        detail = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) times as many cycles per access"
        findings.claims.append(Claim("§1", text, decided(ratio.above(1), runs), detail, IN_ORDER))
        text = f"PTEMagnet saves {workload.name} more beside co-runners than alone (unused memory)"
        detail = f"{more.value:+.2f} ({more.low:+.2f} to {more.high:+.2f}) points"
        findings.claims.append(Claim("§5", text, decided(more.above(0), runs), detail, IN_ORDER, ours=True))
    title = "cycles of translation per access, order-0 allocation, unused memory"
    findings.series.append(Series.within("§1", title, "cycles", cells))


def runs_of(measured: Measurements, label: str, *systems: str) -> dict[Workload, list[Measurement]]:
    """What gains of systems against order-0 allocation are made of."""
    return {
        workload: [m for system in (ORDER_0, *systems) for m in all_seeds(measured, workload, system, label)]
        for workload in JUDGED
    }


def judge_gains(
    findings: Findings,
    state: str,
    gains: Mapping[Workload, Interval],
    measured: Mapping[Workload, list[Measurement]],
    rests_on: str,
    *,
    is_control: bool = False,
    core: str = "an in-order core that waits for each walk",
) -> None:
    """What the paper says of the time saved, by gains in a state of memory."""
    reason = f"other programs, and {core}"
    mean = Interval.mean(gains.values())
    most = max(gains.values(), key=lambda one: one.value)
    findings.comparisons += [
        Comparison(
            "§5",
            f"{which}, {state}",
            "time saved",
            "%",
            None if is_control else paper,
            ours.value,
            reason,
            ours,
            "a control",
            neutral=0.0,
            unsized="" if is_control else _OTHERS,
        )
        for which, paper, ours in (("mean", 4.0, mean), ("most", 9.0, most))
    ]
    verdict = decided(mean.above(0), (m for known in measured.values() for m in known))
    text = f"programs become faster on average ({state})"
    findings.claims.append(Claim("§5", text, verdict, f"{mean} %", rests_on, ours=is_control))
    verdicts = {workload: decided(one.above(-NO_CHANGE), measured[workload]) for workload, one in gains.items()}
    doubted = [f"{workload.name} {gains[workload]} %" for workload in gains if verdicts[workload] is not True]
    detail = ", ".join(doubted) or f"{min(one.low for one in gains.values()):.2f} % at least"
    text = f"no program becomes slower ({state})"
    rests_on = f"{rests_on}; {TOLERATED}"
    findings.claims.append(Claim("§5", text, all_hold(verdicts.values()), detail, rests_on, ours=is_control))


def _first_touches(measured: Measurements, findings: Findings) -> None:
    """How much of the gain with first touches comes from the cheaper allocation alone."""
    members = {AS_SET: "as set", EQUAL_COST: "at equal cost"}
    cells = {
        (workload.name, member): gain(measured, workload, system, WHOLE)
        for workload in JUDGED
        for system, member in members.items()
    }
    title = "time that PTEMagnet saves, first touches included, by the cost of a reserved page"
    findings.series.append(Series.within("Allocation", title, "% of order-0", cells))
    as_set, equal = (gain(measured, TOUCHES, system, ALONE) for system in members)
    reason = "the cost of a look-up, an estimate, decides whether there is a gain"
    # Time is linear in the cost of a look-up.
    slope = (as_set.value - equal.value) / (EQUAL_CYCLES - SET_CYCLES)
    if slope > 0:
        reason += f": {SET_CYCLES + (as_set.value - _ALLOCATION) / slope:.0f} cycles give {_ALLOCATION:g} %"
    both = band(as_set, equal)
    findings.comparisons.append(
        Comparison(THIRD_PARTY, TOUCHES.text, "time saved", "%", _ALLOCATION, both.value, reason, both, neutral=0.0)
    )


REPRODUCTION = Reproduction(
    name="ptemagnet",
    title="PTEMagnet: fine-grained physical memory reservation",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
    of_tables=ptemagnet_tables.add,
)
