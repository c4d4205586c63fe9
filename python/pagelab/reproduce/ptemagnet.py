"""Margaritov, Ustiugov, Shahab, Grot, "PTEMagnet", ASPLOS 2021.

The paper measures programs in a virtual machine of a real Xeon, beside co-runners that ask for memory too, with Linux as it
is and with PTEMagnet's allocator. Here the same is simulated: kernels of the paper's kinds (PageRank, search and
components of a graph) and others that stand for memory-intensive programs, two co-runners that begin anew
whenever they end, and walks through both layers. How strewn memory is follows from the page allocator and from who asks
when; nothing sets it.
"""

from collections.abc import Iterator

from pagelab.reproduce.study import Claim, Comparison, Findings, Measurement, Measurements, Reproduction, Run, Series

# Name, spec, accesses counted, accesses before (first touches of all arrays), what it stands for.
_GRAPH = "graph=kronecker,vertices=1048576,degree=16,init=pages,accesses={total}"
WORKLOADS = (
    ("pagerank", f"pagerank:{_GRAPH}", 4_000_000, "the paper's kernel, on a Kronecker graph of 2^20 vertices"),
    ("bfs", f"bfs:{_GRAPH}", 4_000_000, "the paper's kernel, on the same graph"),
    ("cc", f"cc:{_GRAPH}", 4_000_000, "the paper's kernel, on the same graph"),
    ("gups", "gups:size=768MiB,accesses={total},init=pages", 3_000_000, "random updates of 768 MiB"),
    ("chase", "chase:size=512MiB,node=64,accesses={total},init=pages", 3_000_000, "a chain of nodes, as in mcf"),
    ("zipf", "zipf:size=768MiB,accesses={total},init=pages", 3_000_000, "words by Zipf's law"),
    ("random", "random:size=512MiB,accesses={total},init=pages", 3_000_000, "words at random"),
    ("semirandom", "semirandom:size=512MiB,steps=6,accesses={total},init=pages", 3_000_000, "runs of six pages"),
    ("stride", "stride:size=512MiB,stride=4160,accesses={total},init=pages", 3_000_000, "one word a page, in order"),
    ("seq", "seq:size=256MiB,accesses={total},init=pages", 6_000_000, "words in order"),
    ("matmul", "matmul:n=1024,accesses={total}", 6_000_000, "a product of matrices"),
)
NAMES = tuple(name for name, *_ in WORKLOADS)
# The first touches of the largest.
FIRST_TOUCHES = 262_144

# Programs that take memory and give it back, all the time.
CO_RUNNERS = ("random:size=384MiB,accesses=200K,init=pages@2", "zipf:size=256MiB,accesses=100K,init=pages@4")
SYSTEMS = {
    "order-0": "nested-radix",
    "PTEMagnet": "nested-radix-ptemagnet",
    "folios of 32 KiB": "nested-radix-mthp32k",
    "large pages": "nested-radix-thp",
}
SEED_OF_AGE = 1
# The guest has been up for a while: its free memory is in pieces.
AGED = (
    'system.layers.guest.age={"free_fraction":0.6,"huge_free_fraction":0.3,"unmovable_fraction":0.1,'
    f'"seed":{SEED_OF_AGE}}}'
)
MEMORY = ("machine.memory_bytes=8GiB",)


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    for name, spec, accesses, _ in WORKLOADS:
        for system, preset in SYSTEMS.items():
            yield Run(name, f"{spec}@0", system, preset, accesses, 0, MEMORY, "", CO_RUNNERS)
    name, spec, accesses, _ = WORKLOADS[0]
    for system in ("order-0", "PTEMagnet"):
        # The window after all first touches, for the walks alone; and the same by itself.
        yield Run(name, f"{spec}@0", system, SYSTEMS[system], accesses, FIRST_TOUCHES, MEMORY, "window", CO_RUNNERS)
        yield Run(name, f"{spec}@0", system, SYSTEMS[system], accesses, 0, MEMORY, "alone")
        yield Run(name, f"{spec}@0", system, SYSTEMS[system], accesses, 0, (*MEMORY, AGED), "aged", CO_RUNNERS)


def _lines(measurement: Measurement) -> float:
    """Cache lines of the host's PTEs for each of the guest's."""
    groups = measurement.stats["layer.guest.contiguity.groups"]
    return measurement.stats["layer.guest.contiguity.pte_lines"] / groups if groups else 0.0


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
        "Time is the main workload's: its instructions, data stalls, translation and page faults. Co-runners run on CPUs of "
        "their own and share the last-level cache and the guest's memory.",
        "How far memory is strewn depends on who asks when: a CPU takes frames in batches of adjacent ones, so a program "
        "that fills its memory in one go on one CPU gets runs of them, co-runners or not.",
        f"Aged: {AGED}.",
        f"Co-runners: {', '.join(CO_RUNNERS)}.",
        *(f"{name}: {text}." for name, _, _, text in WORKLOADS),
    ]
    return findings


def _walks(measured: Measurements, findings: Findings) -> None:
    before = measured["pagerank", "order-0", "window"]
    guest, host = _misses(before, "guest"), _misses(before, "host")
    ratio = host / guest if guest else float("inf")
    findings.comparisons.append(
        Comparison(
            "§5", "pagerank", "walk references beyond the private caches, host's to guest's", "times", 4.4, ratio,
            "the paper counts misses of the last-level cache on a real machine, over its programs",
        )
    )
    findings.claims.append(
        Claim("§5", "walks of the host's table miss more than those of the guest's", ratio > 1, f"{ratio:.3g} times")
    )
    after = measured["pagerank", "PTEMagnet", "window"]
    cells = {
        (layer, system): _misses(measurement, layer) / measurement.stats["walk.count"]
        for layer in ("guest", "host")
        for system, measurement in (("order-0", before), ("PTEMagnet", after))
    }
    findings.series.append(
        Series("§5", "walk references beyond the private caches", "references a walk", ("guest", "host"),
               ("order-0", "PTEMagnet"), cells)
    )


def _contiguity(measured: Measurements, findings: Findings) -> None:
    labels = {"alone": "alone", "beside co-runners": "", "aged, beside co-runners": "aged"}
    cells = {
        (text, system): _lines(measured["pagerank", system, label])
        for text, label in labels.items()
        for system in ("order-0", "PTEMagnet")
    }
    findings.series.append(
        Series("Fig 5", "host PTE lines for each PTE line of the guest, pagerank", "lines (1 to 8)", tuple(labels),
               ("order-0", "PTEMagnet"), cells)
    )
    for label, text in (("", "beside co-runners"), ("aged", "beside co-runners, guest memory aged")):
        ours = _fragmented(measured["pagerank", "order-0", label])
        findings.comparisons.append(
            Comparison("§5", f"pagerank {text}", "regions of 32 KiB that are fragmented", "%", 63.0, ours,
                       "it follows from the allocator's state and from who asks when, which the paper does not give")
        )
    worst = max(_fragmented(measured[name, "PTEMagnet"]) for name in NAMES)
    findings.claims.append(
        Claim("§4", "under PTEMagnet no region is fragmented while blocks last", worst < 0.5, f"{worst:.3g} % at most")
    )
    shares = []
    for name in NAMES:
        stats = measured[name, "PTEMagnet"].stats
        given = stats["layer.guest.reservations.given"] * 4096
        shares.append(100 * stats["layer.guest.reservations.unused_bytes"] / given if given else 0.0)
    findings.comparisons.append(
        Comparison("full paper", "most of all workloads", "memory reserved and unused", "%", 0.2, max(shares),
                   "at the end of the window, of what was given out by then, co-runners' included")
    )


def _gains(measured: Measurements, findings: Findings) -> None:
    gains = {name: _gain(measured, name, "PTEMagnet") for name in NAMES}
    mean, most = sum(gains.values()) / len(gains), max(gains.values())
    reason = "other programs, and an in-order core that waits for each walk"
    findings.comparisons += [
        Comparison("§5", "mean", "time saved", "%", 4.0, mean, reason),
        Comparison("§5", "most", "time saved", "%", 9.0, most, reason),
    ]
    slower = {name: gain for name, gain in gains.items() if gain < -0.05}
    detail = ", ".join(f"{name} {gain:.2f} %" for name, gain in slower.items()) or f"{min(gains.values()):.2f} % at least"
    findings.claims.append(Claim("§5", "no program becomes slower", not slower, detail))
    members = tuple(system for system in SYSTEMS if system != "order-0")
    cells = {(name, system): _gain(measured, name, system) for name in NAMES for system in members}
    findings.series.append(Series("Fig 6", "time saved", "% of order-0 allocation", NAMES, members, cells))


def _rivals(measured: Measurements, findings: Findings) -> None:
    """What a reader needs to see when PTEMagnet still wins."""
    stats = {
        "faults": ("thousands", lambda m: m.stats["main.fault.minor.count"] / 1e3),
        "zeroed": ("MiB", lambda m: m.stats["layer.guest.fault.zeroed_bytes"] / (1 << 20)),
        "memory in use at the end": (
            "MiB",
            lambda m: (m.stats["layer.guest.memory_bytes"] - m.stats["layer.guest.free_bytes"]) / (1 << 20),
        ),
        "walk cycles": ("millions", lambda m: m.stats["main.walk.cycles"] / 1e6),
        "host PTE lines for each of the guest's": ("lines", _lines),
    }
    for title, (unit, value) in stats.items():
        cells = {(name, system): value(measured[name, system]) for name in NAMES for system in SYSTEMS}
        findings.series.append(Series("Rivals", title, unit, NAMES, tuple(SYSTEMS), cells))


REPRODUCTION = Reproduction(
    name="ptemagnet",
    title="PTEMagnet: fine-grained physical memory reservation",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    nominal_minutes=10,
    runs=runs,
    evaluate=evaluate,
)
