"""Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet", ASPLOS 2021.

The paper measures programs in a virtual machine of a real Xeon, beside co-runners that ask for memory too, with Linux
as it is and with PTEMagnet's allocator. Here the same is simulated: kernels of the paper's kinds (PageRank, search and
components of a graph) and others that stand for memory-intensive programs, two co-runners that begin anew
whenever they end, and walks through both layers. How strewn memory is follows from the page allocator and from who asks
when; nothing sets it.
"""

from collections.abc import Iterator

from pagelab.reproduce.study import (
    Claim,
    Comparison,
    Findings,
    FrameMap,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
)

MIB = 1 << 20
PAGE = 4096


class _Workload:
    """A workload, its window, and the accesses before it: first touches, and the way to its main loop."""

    def __init__(self, name: str, spec: str, warm_up: int, accesses: int, text: str) -> None:
        self.name, self.spec, self.warm_up, self.accesses, self.text = name, spec, warm_up, accesses, text


def _array(name: str, parameters: str, mib: int, text: str) -> _Workload:
    spec = f"{name}:size={mib}MiB,{parameters}accesses={{accesses}},init=pages"
    return _Workload(name, spec, mib * MIB // PAGE, 3_000_000, text)


def _graph(name: str, text: str) -> _Workload:
    # 2^21 vertices of 16 edges: offsets, neighbours and what the kernel keeps of a vertex. The first pass over the
    # vertices comes before the one over the edges.
    spec = f"{name}:graph=kronecker,vertices=2097152,degree=16,init=pages,accesses={{total}}"
    return _Workload(name, spec, 8_000_000, 4_000_000, text)


WORKLOADS = (
    _graph("pagerank", "the paper's kernel, on a Kronecker graph of 2^21 vertices"),
    _graph("bfs", "the paper's kernel, on the same graph"),
    _graph("cc", "the paper's kernel, on the same graph"),
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
        "stride:size=1GiB,stride=36KiB,accesses={accesses}",
        29_128,
        3_000_000,
        "one word in each 36 KiB of 1 GiB: an eighth of the pages",
    ),
    _Workload("matmul", "matmul:n=1024,accesses={total}", 1_000_000, 4_000_000, "a product of matrices"),
)
NAMES = tuple(workload.name for workload in WORKLOADS)

# Programs that take memory and give it back, all the time.
CO_RUNNERS = ("random:size=384MiB,accesses=200K,init=pages@2", "zipf:size=256MiB,accesses=100K,init=pages@4")
FOLIOS = "folios of 32 KiB"
SYSTEMS = {
    "order-0": "nested-radix",
    "PTEMagnet": "nested-radix-ptemagnet",
    FOLIOS: "nested-radix-mthp32k",
    "large pages": "nested-radix-thp",
    "eager": "nested-radix-eager",
    "CA paging": "nested-radix-ca-paging",
}
# Beside the paper: two virtual machines on one host, the workload in one and a co-runner in the other.
TWO_VMS = {"order-0": (), "PTEMagnet": ('system.layers.first.placement={"kind":"ptemagnet"}',)}
PAIR = ("order-0", "PTEMagnet")
# The guest has been up for a while: its free memory is in pieces.
AGED = 'system.layers.guest.age={"free_fraction":0.6,"huge_free_fraction":0.3,"unmovable_fraction":0.1,"seed":1}'
MEMORY = ("machine.memory_bytes=8GiB",)


def runs() -> list[Run]:
    return list(_runs())


def _run(workload: _Workload, system: str, label: str = "", *, more: tuple[str, ...] = (), alone: bool = False) -> Run:
    return Run(
        workload.name,
        f"{workload.spec}@0",
        system,
        SYSTEMS[system],
        workload.accesses,
        0 if label == "whole" else workload.warm_up,
        (*MEMORY, *more),
        label,
        beside=() if alone else CO_RUNNERS,
        contiguity_map=workload is WORKLOADS[0] and label in ("", "aged"),
    )


def _runs() -> Iterator[Run]:
    for workload in WORKLOADS:
        for system in SYSTEMS:
            yield _run(workload, system)
        for system in PAIR:
            yield _run(workload, system, "aged", more=(AGED,))
            yield _run(workload, system, "alone", alone=True)
        for system in (*PAIR, FOLIOS):
            # First touches too.
            yield _run(workload, system, "whole")
    workload = WORKLOADS[0]
    for system in PAIR:
        yield Run(
            workload.name,
            f"{workload.spec}@0",
            system,
            "nested-radix-two-vms",
            workload.accesses,
            workload.warm_up,
            (*MEMORY, *TWO_VMS[system]),
            "two machines",
            # The next two sources go to the second machine and the first.
            beside=CO_RUNNERS,
        )


def _lines(measurement: Measurement, layer: str = "guest") -> float:
    """Cache lines of the host's PTEs for each of the guest's."""
    groups = measurement.stats[f"layer.{layer}.contiguity.groups"]
    return measurement.stats[f"layer.{layer}.contiguity.pte_lines"] / groups if groups else 0.0


def _fragmented(measurement: Measurement) -> float:
    """Per cent of the regions of 32 KiB, all of whose pages are there, that are not in one block."""
    full = measurement.stats["layer.guest.contiguity.full_groups"]
    return 100 * (1 - measurement.stats["layer.guest.contiguity.contiguous_groups"] / full) if full else 0.0


def _misses(measurement: Measurement, layer: str) -> int:
    """References of walks to a layer's table that no private cache served."""
    prefix = f"walk.layer.{layer}.level"
    beyond = (".l3", ".remote", ".dram")
    return sum(n for name, n in measurement.stats.items() if name.startswith(prefix) and name.endswith(beyond))


def _gain(measured: Measurements, workload: str, system: str, label: str = "") -> float:
    """Per cent of the workload's time that a system saves against order-0 allocation."""
    before, after = measured[workload, "order-0", label], measured[workload, system, label]
    return 100 * (1 - after.main_cycles / before.main_cycles)


def evaluate(measured: Measurements) -> Findings:
    findings = Findings()
    _walks(measured, findings)
    _contiguity(measured, findings)
    _gains(measured, findings)
    _rivals(measured, findings)
    findings.notes += [
        "Time is the main workload's: its instructions, data stalls, translation and page faults, on an in-order core "
        "that waits for each access. Windows begin when all memory has been touched, except those called whole, which "
        "begin with the first touches and are mostly page faults: real runs are longer, and lie between the two.",
        "Co-runners run on CPUs of their own and share the last-level cache and the guest's memory.",
        "Where a program is slower beside co-runners but not without them, the co-runners are the reason: presumably "
        "they, too, save walks, get on faster and leave less of the last-level cache.",
        "A program that touches one page of each group is slower under PTEMagnet with or without them: the frames of "
        "pages that it touches one after the other lie eight apart, and their host's PTEs in a line each, where "
        "order-0 allocation packs them.",
        "How far memory is strewn depends on who asks when: a CPU takes frames in batches of adjacent ones, so a "
        "program that fills its memory in one go on one CPU gets runs of them, co-runners or not. Aged memory is in "
        "pieces before.",
        f"Aged: {AGED}.",
        f"Co-runners: {', '.join(CO_RUNNERS)}.",
        *(f"{workload.name}: {workload.text}." for workload in WORKLOADS),
    ]
    return findings


def _walks(measured: Measurements, findings: Findings) -> None:
    ratios = {}
    for name in NAMES:
        before = measured[name, "order-0", "aged"]
        guest, host = _misses(before, "guest"), _misses(before, "host")
        ratios[name] = host / guest if guest else float("nan")
    findings.comparisons.append(
        Comparison(
            "§5",
            "pagerank, guest memory aged",
            "walk references beyond the private caches, host's to guest's",
            "times",
            4.4,
            ratios["pagerank"],
            "the paper counts cache misses of a real machine, over its programs",
        )
    )
    detail = ", ".join(f"{name} {ratio:.3g}" for name, ratio in ratios.items())
    holds = all(not ratio <= 1 for ratio in ratios.values())
    findings.claims.append(Claim("§5", "walks of the host's table miss more than those of the guest's", holds, detail))
    for layer in ("guest", "host"):
        cells = {
            (name, system): _misses(measured[name, system, "aged"], layer) / max(walks, 1)
            for name in NAMES
            for system in PAIR
            for walks in (measured[name, system, "aged"].stats["walk.count"],)
        }
        title = f"references of a walk to the {layer}'s table beyond the private caches, guest memory aged"
        findings.series.append(Series("§5", title, "references", NAMES, PAIR, cells))


def _contiguity(measured: Measurements, findings: Findings) -> None:
    labels = {"alone": "alone", "beside co-runners": "", "beside co-runners, aged": "aged"}
    cells = {
        (text, system): _lines(measured["pagerank", system, label]) for text, label in labels.items() for system in PAIR
    }
    two = "two virtual machines"
    cells |= {(two, system): _lines(measured["pagerank", system, "two machines"], "first") for system in PAIR}
    title = "host PTE lines for each PTE line of the guest, pagerank"
    findings.series.append(Series("Fig 5", title, "lines (1 to 8)", (*labels, two), PAIR, cells))
    reason = "it follows from the allocator's state and from who asks when, which the paper does not give"
    for text, label in labels.items():
        ours = _fragmented(measured["pagerank", "order-0", label])
        paper = None if label == "alone" else 63.0
        item = f"pagerank {text}"
        findings.comparisons.append(
            Comparison("§5", item, "regions of 32 KiB that are fragmented", "%", paper, ours, reason)
        )
    for label, text in (("", "pagerank beside co-runners"), ("aged", "the same in aged memory")):
        panels = {system: measured["pagerank", system, label].contiguity_map["guest"] for system in PAIR}
        findings.maps.append(FrameMap("Map", f"frames of adjacent pages, {text}", panels))
    worst = max(_fragmented(measured[name, "PTEMagnet"]) for name in NAMES)
    text = "under PTEMagnet no region is fragmented while blocks last"
    findings.claims.append(Claim("§4", text, worst < 0.5, f"{worst:.3g} % at most"))
    most = max(_fragmented(measured[name, "PTEMagnet", "aged"]) for name in NAMES)
    findings.notes.append(
        f"In aged memory, where blocks may run out, PTEMagnet leaves {most:.3g} % fragmented at most."
    )
    shares = []
    for name in NAMES:
        stats = measured[name, "PTEMagnet"].stats
        used = stats["layer.guest.memory_bytes"] - stats["layer.guest.free_bytes"]
        shares.append(100 * stats["layer.guest.reservations.peak_unused_bytes"] / used)
    reason = "the most at any time, of the guest's memory in use at the end"
    findings.comparisons.append(
        Comparison("full paper", "most of all workloads", "memory reserved and unused", "%", 0.2, max(shares), reason)
    )


def _gains(measured: Measurements, findings: Findings) -> None:
    states = {
        "": "after first touches",
        "aged": "the same, guest memory aged",
        "alone": "the same, without co-runners",
        "whole": "first touches included",
    }
    cells: dict[tuple[str, str], float] = {}
    for label, text in states.items():
        gains = {name: _gain(measured, name, "PTEMagnet", label) for name in NAMES}
        cells |= {(name, text): gain for name, gain in gains.items()}
        reason = "other programs, and an in-order core that waits for each walk"
        mean, most = sum(gains.values()) / len(gains), max(gains.values())
        findings.comparisons += [
            Comparison("§5", f"mean, {text}", "time saved", "%", 4.0, mean, reason),
            Comparison("§5", f"most, {text}", "time saved", "%", 9.0, most, reason),
        ]
        slower = {name: gain for name, gain in gains.items() if gain < -0.05}
        detail = ", ".join(f"{name} {gain:.2f} %" for name, gain in slower.items())
        detail = detail or f"{min(gains.values()):.2f} % at least"
        findings.claims.append(Claim("§5", f"no program becomes slower ({text})", not slower, detail))
    title = "time that PTEMagnet saves"
    findings.series.append(Series("Fig 6", title, "% of order-0", NAMES, tuple(states.values()), cells))


def _rivals(measured: Measurements, findings: Findings) -> None:
    """What a reader needs to see when PTEMagnet still wins."""
    gains = {(name, system): _gain(measured, name, system) for name in NAMES for system in SYSTEMS}
    findings.series.append(
        Series("Rivals", "time saved, after first touches", "% of order-0", NAMES, tuple(SYSTEMS), gains)
    )

    def used(of: Measurement) -> float:
        return (of.stats["layer.guest.memory_bytes"] - of.stats["layer.guest.free_bytes"]) / MIB

    for title, unit, value in (
        ("host PTE lines for each of the guest's", "lines", _lines),
        ("cycles of a walk", "cycles", lambda of: of.per_walk("walk.cycles")),
        ("guest memory in use at the end", "MiB", used),
    ):
        cells = {(name, system): value(measured[name, system]) for name in NAMES for system in SYSTEMS}
        findings.series.append(Series("Rivals", title, unit, NAMES, tuple(SYSTEMS), cells))
    # From the first touches on, which is where the two differ.
    members = (*PAIR, FOLIOS)
    for title, unit, value in (
        ("page faults from the first touch on", "thousands", lambda of: of.stats["main.fault.minor.count"] / 1e3),
        (
            "zeroed by the guest, co-runners included",
            "MiB",
            lambda of: of.stats["layer.guest.fault.zeroed_bytes"] / MIB,
        ),
        ("guest memory in use at the end, co-runners included", "MiB", used),
        ("cycles of all walks", "millions", lambda of: of.stats["main.walk.cycles"] / 1e6),
        ("cycles of page faults", "millions", lambda of: of.stats["main.cycles.fault"] / 1e6),
    ):
        cells = {(name, system): value(measured[name, system, "whole"]) for name in NAMES for system in members}
        findings.series.append(Series("Folios of 32 KiB", title, unit, NAMES, members, cells))
    sparse = measured["pagerank", "PTEMagnet"].stats
    findings.notes.append(
        "PTEMagnet against folios of 32 KiB: both keep groups together; a folio takes one fault for eight pages, so "
        "dense first touches are cheaper with it, but it zeroes and holds all eight where a program touches one. "
        "Reservations hold "
        f"{sparse['layer.guest.reservations.peak_unused_bytes'] // 1024} KiB at most beside pagerank and go back under "
        "pressure, page by page; folios are split."
    )


REPRODUCTION = Reproduction(
    name="ptemagnet",
    title="PTEMagnet: fine-grained physical memory reservation",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    nominal_minutes=8,
    runs=runs,
    evaluate=evaluate,
)
