"""Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet", ASPLOS 2021.

The paper measures programs in a virtual machine of a real Xeon, beside co-runners that ask for memory too, with Linux
as it is and with PTEMagnet's allocator. Here the same is simulated: kernels of the paper's kinds (PageRank, search and
components of a graph) and others that stand for memory-intensive programs, two co-runners that begin anew
whenever they end, and walks through both layers. How strewn memory is follows from the page allocator and from who asks
when; nothing sets it.

What is compared is the measured program's own: its walks, and its cycles per access, in a window that begins at the
same access under all systems, when it has touched its last page. Every such figure is measured with several seeds.
"""

from collections.abc import Callable, Iterable, Iterator

from pagelab.reproduce.interval import Interval, all_hold
from pagelab.reproduce.study import (
    Claim,
    Comparison,
    Cost,
    Findings,
    FrameMap,
    Measurement,
    Measurements,
    MissingRunError,
    Reproduction,
    Run,
    Series,
    by_sections,
)

MIB = 1 << 20
PAGE = 4096


class _Workload:
    """A workload and its window; by `settled` accesses it has touched its last page."""

    def __init__(self, name: str, spec: str, settled: int, accesses: int, text: str, least: int = 1 << 18) -> None:
        self.name, self.spec, self.settled, self.accesses, self.text = name, spec, settled, accesses, text
        self.least = least


def _array(name: str, parameters: str, mib: int, text: str) -> _Workload:
    spec = f"{name}:size={mib}MiB,{parameters}accesses={{accesses}},init=pages"
    return _Workload(name, spec, mib * MIB // PAGE, 3_000_000, text)


# Accesses of an iteration of PageRank on 2^21 vertices of degree 2 are below 27 million.
ITERATION = 27_000_000
WORKLOADS = (
    _Workload(
        "pagerank",
        "pagerank:vertices=2097152,degree=2,init=pages,accesses={total}",
        10_000_000,
        ITERATION,
        "the paper's kernel, on a uniformly random graph of 2^21 vertices of degree 2; a whole iteration at any scale",
        ITERATION,
    ),
    _Workload(
        "bfs",
        "bfs:vertices=1048576,degree=8,init=pages,accesses={total}",
        21_500_000,
        4_000_000,
        "the paper's kernel, on a uniformly random graph of 2^20 vertices of degree 8, from the second search on",
    ),
    _Workload(
        "cc",
        "cc:vertices=2097152,degree=4,init=pages,accesses={total}",
        2_000_000,
        4_000_000,
        "the paper's kernel, on a uniformly random graph of 2^21 vertices of degree 4",
    ),
    _array("gups", "", 1024, "random updates of 1 GiB"),
    _array("chase", "node=64,", 512, "a chain of nodes, as in mcf"),
    _array("zipf", "", 768, "words by Zipf's law"),
    _array("random", "", 512, "words at random"),
    _array("semirandom", "steps=6,", 512, "runs of six pages"),
    _array("stride", "stride=4160,", 512, "one word per page, in order"),
    _array("seq", "", 256, "words in order"),
    # Without a first pass over all pages: the first touches are its own.
    _Workload(
        "sparse",
        "stride:size=1GiB,stride=36KiB,accesses={total}",
        40_000,
        3_000_000,
        "one word in each 36 KiB of 1 GiB: an eighth of the pages",
    ),
)
NAMES = tuple(workload.name for workload in WORKLOADS)
# The paper has no such program: its statements are judged without it, and it is shown apart.
ODD = "sparse"
SEEDS = (1, 2, 3, 4, 5)

FOLIOS = "folios of 32 KiB"
FOR_ALL = "PTEMagnet for all"
EQUAL_COST = "PTEMagnet at equal cost"
SYSTEMS = {
    "order-0": "nested-radix",
    "PTEMagnet": "nested-radix-ptemagnet",
    FOR_ALL: "nested-radix-ptemagnet",
    EQUAL_COST: "nested-radix-ptemagnet",
    FOLIOS: "nested-radix-mthp32k",
    "large pages": "nested-radix-thp",
    "eager": "nested-radix-eager",
    "CA paging": "nested-radix-ca-paging",
}
RIVALS = tuple(SYSTEMS)[4:]
# As the artefact of the paper, reservations are for the measured program, unless they are for all.
ITS_OWN = 'system.layers.guest.placement_for=["source.0"]'
# Eight look-ups at this cost and the allocation of their block are as dear as eight allocations of order 0.
EQUALLY_DEAR = 'system.layers.guest.placement={"kind":"ptemagnet","cycles":368,"instructions":350}'
SETTINGS = {"PTEMagnet": (ITS_OWN,), EQUAL_COST: (ITS_OWN, EQUALLY_DEAR)}
# Beside the paper: two virtual machines on one host, the workload in one and a co-runner in the other.
TWO_VMS = {"order-0": (), "PTEMagnet": ('system.layers.first.placement={"kind":"ptemagnet"}',)}
PAIR = ("order-0", "PTEMagnet")
MEMORY = ("machine.memory_bytes=8GiB",)
# A window with fewer walks of its program decides nothing.
LEAST_WALKS = 1000
# Per cent of a program's time that count as no change: less than the spread of measured runs.
NO_CHANGE = 0.05
BEYOND_L2 = ("l3", "remote", "dram")

# What verdicts rest on.
_COUNTED = "counts and places of references alone; the state of the guest's memory, which the paper does not give"
_ALLOCATOR = "the model of the page allocator; no timing"
_TIME = "an in-order core that waits for each walk; programs of the same kinds, not the paper's"
_ALLOCATION = f"{_TIME}; 20 and 420 cycles per allocation, which are estimates"


# What an access takes to simulate, co-runners included, in nanoseconds: in the window, and before it. Measured as
# `study.Cost` says, a run of order-0 allocation for each, at a tenth of the window or a half of a whole one. PTEMagnet,
# large pages and eager paging took 0.7 to 1.3 times as long.
COSTS = {
    "pagerank": (270, 126),
    "bfs": (820, 560),
    "cc": (200, 450),
    "gups": (1630, 31_800),
    "chase": (3930, 35_600),
    "zipf": (2300, 34_100),
    "random": (3670, 34_000),
    "semirandom": (2470, 35_800),
    "stride": (1930, 35_300),
    "seq": (130, 36_000),
    "sparse": (1900, 28_000),
}
# The same of graphs whose window is the whole run: an access, and what is touched before them.
WHOLE = {"pagerank": (75, 460e6), "bfs": (310, 570e6), "cc": (180, 720e6)}
# The same of a run without co-runners, beside one with them: 0.13 to 0.54 in five programs.
ALONE = 0.25


def cost(run: Run) -> Cost:
    """What a run takes to make."""
    workload = next(workload for workload in WORKLOADS if workload.name == run.workload)
    window, warm_up = COSTS[run.workload]
    if run.label == "alone":
        return Cost(window * ALONE, warm_up * ALONE)
    if run.label == "whole" and run.workload in WHOLE:
        window, once = WHOLE[run.workload]
        return Cost(window, once=once)
    if run.label == "whole":
        # What the others have before their window is inside.
        return Cost(window, once=warm_up * workload.settled)
    return Cost(window, warm_up)


def co_runners(seed: int) -> tuple[str, ...]:
    """Programs that take memory and give it back, all the time.

    They touch new pages for most of their time and use them for the rest. Their sizes differ by seed, so that a window
    does not meet them in the same state with all seeds.
    """
    sizes = 372 + 12 * seed, 248 + 8 * seed
    return (
        f"random:size={sizes[0]}MiB,accesses=200K,init=pages@2",
        f"zipf:size={sizes[1]}MiB,accesses=100K,init=pages@4",
    )


def _aged(seed: int) -> str:
    """The guest has been up for a while: its free memory is in pieces."""
    state = '"free_fraction":0.6,"huge_free_fraction":0.3,"unmovable_fraction":0.1'
    return f'system.layers.guest.age={{{state},"seed":{seed}}}'


def runs() -> list[Run]:
    return list(_runs())


def _run(workload: _Workload, system: str, label: str = "", seed: int = 1) -> Run:
    return Run(
        workload.name,
        f"{workload.spec}@0",
        system,
        SYSTEMS[system],
        # Those that are counted from the first touch on need not hold a whole iteration.
        min(workload.accesses, 4_000_000) if label == "whole" else workload.accesses,
        0 if label == "whole" else workload.settled,
        (*MEMORY, *SETTINGS.get(system, ()), *((_aged(seed),) if label == "aged" else ())),
        label,
        beside=() if label == "alone" else co_runners(seed),
        contiguity_map=workload is WORKLOADS[0] and label in ("", "aged") and seed == 1,
        after_touches=label != "whole",
        least_accesses=1 << 18 if label == "whole" else workload.least,
        seed=seed,
        in_parts=False,
    )


def _runs() -> Iterator[Run]:
    for workload in WORKLOADS:
        for seed in SEEDS:
            for system in PAIR:
                for label in ("", "aged", "alone", "whole"):
                    yield _run(workload, system, label, seed)
            for label in ("", "aged"):
                yield _run(workload, FOR_ALL, label, seed)
            # What a page costs to allocate matters where pages are touched first.
            yield _run(workload, EQUAL_COST, "whole", seed)
        for system in RIVALS:
            yield _run(workload, system)
        yield _run(workload, FOLIOS, "whole")
    workload = WORKLOADS[0]
    for system in PAIR:
        yield Run(
            workload.name,
            f"{workload.spec}@0",
            system,
            "nested-radix-two-vms",
            workload.accesses,
            workload.settled,
            (*MEMORY, *TWO_VMS[system]),
            "two machines",
            # The next two sources go to the second machine and the first.
            beside=co_runners(1),
            after_touches=True,
            least_accesses=workload.least,
            in_parts=False,
        )


def _names(measured: Measurements) -> tuple[str, ...]:
    """The programs that have been measured, one at least."""
    names = tuple(name for name in NAMES if (name, "order-0", "aged") in measured)
    if not set(names) - {ODD}:
        raise MissingRunError((NAMES[0], "order-0", "aged"))
    return names


def _judged(measured: Measurements) -> tuple[str, ...]:
    """The programs that the paper's statements are judged by."""
    return tuple(name for name in _names(measured) if name != ODD)


def _spread(values: Iterable[float]) -> Interval:
    """The mean over seeds, and from the lowest to the highest."""
    known = list(values)
    return Interval.of(known, sum(known) / len(known))


def _decided(verdict: bool | None, of: Iterable[Measurement]) -> bool | None:
    """A verdict, unless there are too few seeds, or walks in a window, to give one."""
    known = list(of)
    enough = len({m.run.seed for m in known}) >= len(SEEDS)
    return verdict if enough and all(m.main("walk.count") >= LEAST_WALKS for m in known) else None


def _lines(measurement: Measurement, layer: str = "guest") -> float:
    """Cache lines of the host's PTEs for each of the guest's."""
    groups = measurement.stats[f"layer.{layer}.contiguity.groups"]
    return measurement.stats[f"layer.{layer}.contiguity.pte_lines"] / groups if groups else 0.0


def _fragmented(measurement: Measurement) -> float:
    """Per cent of the regions of 32 KiB, all of whose pages are there, that are not in one block."""
    full = measurement.stats["layer.guest.contiguity.full_groups"]
    return 100 * (1 - measurement.stats["layer.guest.contiguity.contiguous_groups"] / full) if full else 0.0


def _ratio(measurement: Measurement, places: tuple[str, ...], *, of_all: bool = False) -> float:
    """References to the host's table that these places served, for each such reference to the guest's."""
    guest, host = (measurement.walk_refs(layer, places, of_all=of_all) for layer in ("guest", "host"))
    return host / max(guest, 1)


def _gain(measured: Measurements, workload: str, system: str, label: str = "") -> Interval:
    """Per cent of the workload's cycles per access that a system saves against order-0 allocation, over the seeds."""
    before, after = (measured.seeds(workload, of, label) for of in ("order-0", system))
    both = sorted(before.keys() & after.keys())
    if not both:
        raise MissingRunError((workload, system, label))
    return _spread(100 * (1 - after[seed].cycles_per_access / before[seed].cycles_per_access) for seed in both)


def evaluate(measured: Measurements) -> Findings:
    findings = by_sections(measured, (_walks, _contiguity, _gains, _allocation, _rivals))
    findings.notes += [
        f"Brackets hold the lowest and the highest of {len(SEEDS)} seeds: of the graphs, the random accesses and the "
        "state of aged memory. A statement with fewer seeds, or from a window with fewer than "
        f"{LEAST_WALKS} walks of its program, is not decided.",
        "Time is the main workload's cycles per access: its instructions, data stalls, translation and page faults, on "
        "an in-order core that waits for each access. Windows begin at the same access under all systems, after the "
        "last first touch, and have none inside. Those called whole begin with the first touches and are mostly page "
        "faults: real runs are longer, and lie between the two.",
        f"Co-runners run on CPUs of their own and share the last-level cache and the guest's memory. {FOR_ALL!r} "
        "reserves for them too; the paper's artefact reserves for one process, and so does 'PTEMagnet' here.",
        "The cost of an allocation is not measured. Order 0 takes 420 cycles by the kernel preset, a share of a "
        "published mean of whole faults; a look-up of the reservation takes 20, an estimate for an index and four "
        "levels. At equal cost a group of eight pages costs as much as eight allocations of order 0.",
        "A program that touches one page of each group is slower under PTEMagnet with or without co-runners: the "
        "frames of pages that it touches one after the other lie eight apart, and their host's PTEs in a line each; "
        "order-0 allocation packs them.",
        "How far memory is strewn depends on who asks when: a CPU takes frames in batches of adjacent ones, so a "
        "program that fills its memory in one go on one CPU gets runs of them, co-runners or not. Aged memory is in "
        "pieces before.",
        f"Aged: {_aged(1)}, with the seed of the run.",
        f"Co-runners: {', '.join(co_runners(1))}; larger with the other seeds, so that windows meet "
        "them in other states.",
        *(f"{workload.name}: {workload.text}." for workload in WORKLOADS),
    ]
    return findings


def _walks(measured: Measurements, findings: Findings) -> None:
    names = _judged(measured)
    kinds = {"beyond L2": BEYOND_L2, "served by memory": ("dram",)}
    for kind, places in kinds.items():
        ratios = {name: _spread(_ratio(m, places) for m in _all(measured, name, "aged")) for name in names}
        quantity = f"walk references {kind}, host's to guest's"
        reason = "the paper counts cache misses of a real machine, over its programs"
        mixed = [_ratio(m, places, of_all=True) for m in _all(measured, names[0], "aged")]
        alone, fresh = ([_ratio(m, places) for m in _all(measured, names[0], label)] for label in ("alone", ""))
        items = [
            (f"{names[0]}, guest memory aged", ratios[names[0]], reason),
            (f"mean of all but {ODD}, guest memory aged", Interval.mean(ratios.values()), reason),
            (f"{names[0]} and its co-runners, aged", _spread(mixed), "shows what co-runners' walks do to the ratio"),
            (f"{names[0]}, memory that nobody has used", _spread(fresh), "shows what ageing does"),
            (f"{names[0]} in it, without co-runners", _spread(alone), "shows what co-runners do"),
        ]
        findings.comparisons += [
            Comparison("§5", item, quantity, "times", 4.4, ratio.value, why, interval=ratio)
            for item, ratio, why in items
        ]
        verdicts = [_decided(ratio.above(1), _all(measured, name, "aged")) for name, ratio in ratios.items()]
        detail = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
        text = f"walks miss more in the host's table than in the guest's ({kind})"
        findings.claims.append(Claim("§5", text, all_hold(verdicts), detail, _COUNTED))
    for layer in ("guest", "host"):
        for kind, places in kinds.items():
            title = f"references per walk to the {layer}'s table {kind}, guest memory aged"

            def per_walk(m: Measurement, layer: str = layer, places: tuple[str, ...] = places) -> float:
                return m.walk_refs(layer, places) / max(m.main("walk.count"), 1)

            findings.series.append(_bars(measured, "§5", title, "references", per_walk, "aged"))


def _all(measured: Measurements, name: str, label: str, system: str = "order-0") -> list[Measurement]:
    return list(measured.seeds(name, system, label).values())


def _bars(
    measured: Measurements,
    figure: str,
    title: str,
    unit: str,
    value: Callable[[Measurement], float],
    label: str,
) -> Series:
    """A value with its spread for each program, with order-0 allocation and with PTEMagnet."""
    names = _names(measured)
    cells = {
        (name, system): _spread(map(value, _all(measured, name, label, system))) for name in names for system in PAIR
    }
    return Series.within(figure, title, unit, cells, names, PAIR)


def _contiguity(measured: Measurements, findings: Findings) -> None:
    names = _names(measured)
    first = names[0]
    labels = {"alone": "alone", "beside co-runners": "", "beside co-runners, aged": "aged"}
    cells = {
        (text, system): _spread(map(_lines, _all(measured, first, label, system)))
        for text, label in labels.items()
        for system in PAIR
    }
    groups = [*labels]
    if (first, "order-0", "two machines") in measured:
        groups.append("two virtual machines")
        for system in PAIR:
            cells[groups[-1], system] = _spread([_lines(measured[first, system, "two machines"], "first")])
    title = f"host PTE lines for each PTE line of the guest, {first}"
    findings.series.append(Series.within("Fig 5", title, "lines (1 to 8)", cells, groups, PAIR))
    reason = "it follows from the allocator's state and from who asks when, which the paper does not give"
    strewn = {text: _spread(map(_fragmented, _all(measured, first, label))) for text, label in labels.items()}
    findings.comparisons += [
        Comparison(
            "§5", f"{first} {text}", "regions of 32 KiB that are fragmented", "%", 63.0, of.value, reason, None, of
        )
        for text, of in strewn.items()
        if text != "alone"
    ]
    for label, text in (("", f"{first} beside co-runners"), ("aged", "the same in aged memory")):
        maps = {system: measured[first, system, label].contiguity_map for system in PAIR}
        if all("guest" in of for of in maps.values()):
            panels = {system: of["guest"] for system, of in maps.items()}
            findings.maps.append(FrameMap("Map", f"frames of adjacent pages, {text}", panels))
    for label, state in (("", ""), ("aged", " in aged memory, where they may run out")):
        of = [m for name in names for m in _all(measured, name, label, "PTEMagnet")]
        worst = _spread(map(_fragmented, of))
        text = f"under PTEMagnet no region is fragmented while blocks last{state}"
        if label:
            findings.notes.append(f"PTEMagnet leaves {worst.high:.3g} % of the regions fragmented at most{state}.")
        else:
            detail = f"{worst.high:.3g} % at most"
            findings.claims.append(Claim("§4", text, _decided(worst.high < 0.5, of), detail, _ALLOCATOR))
    reason = "the most at any time, of the guest's memory in use at the end"
    for item, among in ((f"most of all but {ODD}", _judged(measured)), (ODD, set(names) & {ODD})):
        if shares := [_reserved(m) for name in among for m in _all(measured, name, "", "PTEMagnet")]:
            most = max(shares)
            findings.comparisons.append(
                Comparison("full paper", item, "memory reserved and unused", "%", 0.2, most, reason)
            )


def _reserved(measurement: Measurement) -> float:
    """Per cent of the guest's memory in use that was reserved and not given out."""
    stats = measurement.stats
    used = stats["layer.guest.memory_bytes"] - stats["layer.guest.free_bytes"]
    return 100 * stats["layer.guest.reservations.peak_unused_bytes"] / used


STATES = {
    "": "after first touches",
    "aged": "the same, guest memory aged",
    "alone": "the same, without co-runners",
    "whole": "first touches included",
}


def _gains(measured: Measurements, findings: Findings) -> None:
    names, judged = _names(measured), _judged(measured)
    reason = "other programs, and an in-order core that waits for each walk"
    for system, labels in (("PTEMagnet", tuple(STATES)), (FOR_ALL, ("", "aged"))):
        cells: dict[tuple[str, str], Interval] = {}
        whose = "" if system == "PTEMagnet" else ", co-runners reserve too"
        for label in labels:
            state = f"{STATES[label]}{whose}"
            rests_on = _ALLOCATION if label == "whole" else _TIME
            gains = {name: _gain(measured, name, system, label) for name in names}
            cells |= {(name, STATES[label]): gain for name, gain in gains.items()}
            mean = Interval.mean(gains[name] for name in judged)
            most = max((gains[name] for name in judged), key=lambda gain: gain.value)
            findings.comparisons += [
                Comparison("§5", f"mean, {state}", "time saved", "%", 4.0, mean.value, reason, interval=mean),
                Comparison("§5", f"most, {state}", "time saved", "%", 9.0, most.value, reason, interval=most),
            ]
            both = {name: [m for of in ("order-0", system) for m in _all(measured, name, label, of)] for name in names}
            text = f"programs become faster on average ({state})"
            verdict = _decided(mean.above(0), (m for name in judged for m in both[name]))
            findings.claims.append(Claim("§5", text, verdict, f"{mean} %", rests_on))
            verdicts = {name: _decided(gain.above(-NO_CHANGE), both[name]) for name, gain in gains.items()}
            doubted = [f"{name} {gains[name]} %" for name in judged if verdicts[name] is not True]
            detail = ", ".join(doubted) or f"{min(gains[name].low for name in judged):.2f} % at least"
            text = f"no program becomes slower ({state})"
            none = all_hold(verdicts[name] for name in judged)
            findings.claims.append(Claim("§5", text, none, detail, rests_on))
            if ODD in gains and system == "PTEMagnet":
                text = f"nor does one that touches a page per group ({state})"
                findings.claims.append(Claim("§5", text, verdicts[ODD], f"{ODD} {gains[ODD]} %", rests_on))
        title = f"time that {system} saves"
        states = tuple(STATES[label] for label in labels)
        findings.series.append(Series.within("Fig 6", title, "% of order-0", cells, names, states))


def _allocation(measured: Measurements, findings: Findings) -> None:
    """How much of the gain with first touches comes from the cheaper allocation alone."""
    names = _names(measured)
    members = ("as set", "at equal cost")
    cells = {
        (name, member): _gain(measured, name, system, "whole")
        for name in names
        for member, system in zip(members, ("PTEMagnet", EQUAL_COST), strict=True)
    }
    title = "time that PTEMagnet saves, first touches included, by the cost of a reserved page"
    findings.series.append(Series.within("Allocation", title, "% of order-0", cells, names, members))
    as_set, equal = (Interval.mean(cells[name, member] for name in _judged(measured)) for member in members)
    findings.notes.append(
        f"First touches included, PTEMagnet saves {as_set} % on average with reserved pages at 20 cycles and {equal} % "
        "at equal cost; the difference is the cheaper allocation alone."
    )


def _cost(measured: Measurements, name: str, system: str = "order-0") -> float:
    return measured[name, system].cycles_per_access


def _rivals(measured: Measurements, findings: Findings) -> None:
    """What a reader needs to see when PTEMagnet still wins."""
    names = _names(measured)
    systems = tuple(of for of in SYSTEMS if all((name, of) in measured for name in names))
    gains = {
        (name, of): 100 * (1 - _cost(measured, name, of) / _cost(measured, name)) for name in names for of in systems
    }
    title = "time saved, after first touches, first seed"
    findings.series.append(Series("Rivals", title, "% of order-0", names, systems, gains))

    def used(of: Measurement) -> float:
        return (of.stats["layer.guest.memory_bytes"] - of.stats["layer.guest.free_bytes"]) / MIB

    for title, unit, value in (
        ("host PTE lines for each of the guest's", "lines", _lines),
        ("cycles of a walk", "cycles", lambda of: of.main("walk.cycles") / max(of.main("walk.count"), 1)),
        ("guest memory in use at the end", "MiB", used),
    ):
        cells = {(name, of): value(measured[name, of]) for name in names for of in systems}
        findings.series.append(Series("Rivals", title, unit, names, systems, cells))
    # From the first touches on, which is where the two differ.
    members = tuple(of for of in (*PAIR, FOLIOS) if all((name, of, "whole") in measured for name in names))
    for title, unit, value in (
        ("page faults from the first touch on", "thousands", lambda of: of.main("fault.minor.count") / 1e3),
        (
            "zeroed by the guest, co-runners included",
            "MiB",
            lambda of: of.stats["layer.guest.fault.zeroed_bytes"] / MIB,
        ),
        ("guest memory in use at the end, co-runners included", "MiB", used),
        ("cycles of all walks", "millions", lambda of: of.main("walk.cycles") / 1e6),
        ("cycles of page faults", "millions", lambda of: of.main("cycles.fault") / 1e6),
    ):
        cells = {(name, of): value(measured[name, of, "whole"]) for name in names for of in members}
        findings.series.append(Series("Folios of 32 KiB", title, unit, names, members, cells))
    held = measured[names[0], "PTEMagnet"].stats["layer.guest.reservations.peak_unused_bytes"]
    findings.notes.append(
        "PTEMagnet against folios of 32 KiB: both keep groups together; a folio takes one fault for eight pages, so "
        "dense first touches are cheaper with it, but it zeroes and holds all eight where a program touches one. "
        "Reservations hold "
        f"{held // 1024} KiB at most in {names[0]} and go back under "
        "pressure, page by page; folios are split."
    )


REPRODUCTION = Reproduction(
    name="ptemagnet",
    title="PTEMagnet: fine-grained physical memory reservation",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
