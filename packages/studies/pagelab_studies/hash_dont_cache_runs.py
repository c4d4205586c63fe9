"""Workloads, systems and runs of "Hash, Don't Cache (the Page Table)"."""

from collections.abc import Iterator

from pagelab_studies.study import Cost, Run

GIB = 1 << 30
MIB = 1 << 20
PAGE = 4096
# Accesses that caches and TLBs get after all pages have been touched: a cold start fades within half of them.
SETTLE = 1_000_000


class Workload:
    """A workload with what its window needs: the sizes of tables, and the stores that bring its memory in."""

    def __init__(self, name: str, spec: str, footprint: int, accesses: int, touches: int, stands_for: str) -> None:
        self.name, self.spec, self.footprint = name, spec, footprint
        self.accesses, self.touches, self.stands_for = accesses, touches, stands_for


def _gups(gib: int) -> Workload:
    return Workload(
        f"GUPS {gib}GB",
        f"gups:size={gib}GiB,accesses={{accesses}},init=pages",
        gib * GIB,
        3_000_000,
        gib * GIB // PAGE,
        "the paper's own kernel; a window of it after all pages have been touched",
    )


def search(name: str, scale: int) -> Workload:
    """A search over a Kronecker graph of 2^scale vertices."""
    vertices = 1 << scale
    # Offsets, 34 neighbours of 8 bytes, a parent, and eight queues of which the search fills one's worth.
    neighbours = (vertices * 32 // 16 * 17 + 1024) * 8
    pages = (neighbours + vertices * 8) // PAGE
    footprint = neighbours + 24 * vertices
    spec = f"bfs:graph=kronecker,vertices={vertices},degree=32,index=8,threads=8,init=pages,accesses={{total}}"
    return Workload(
        name,
        spec,
        footprint,
        5_000_000,
        pages + vertices,
        f"breadth-first search by eight threads over a Kronecker graph of {footprint / GIB:.1f} GiB, its neighbours "
        "generated when they are read",
    )


def _analogue(name: str, spec: str, mib: int, stands_for: str) -> Workload:
    size = mib * MIB
    kind, parameters = spec.split(":")
    full = f"{kind}:size={mib}MiB,{parameters}accesses={{accesses}},init=pages"
    return Workload(name, full, size, 2_000_000, size // PAGE, f"analogue: {stands_for}")


GUPS = (_gups(2), _gups(8), _gups(32))
GRAPHS = tuple(search(f"Graph500 {gb}GB", scale) for gb, scale in ((4, 24), (8, 25), (16, 26)))
MCF = _analogue("mcf*", "chase:node=64,", 1024, "a pointer chain of 64-byte nodes in random order over 1 GiB")
CACTUS = _analogue(
    "cactusADM*",
    f"stride:stride={18 * MIB + 64},advance=8,",
    640,
    "one element of each of 35 arrays of 18 MiB in turn, a line more than that apart, then the next element of "
    "each. The paper says that a constant stride makes entries conflict, but not which stride. This one was "
    "constructed so that they conflict: the pages fall into one set of each TLB and the radix entries into two sets "
    "of the L1 data cache, but data and page-directory entries into many",
)
XALAN = _analogue("xalancbmk*", "zipf:", 384, "words of 384 MiB by Zipf's law")
MILC = _analogue("milc*", "semirandom:steps=6,", 640, "a random page of 640 MiB and the six that follow it")
SUITE = (MCF, CACTUS, XALAN, *GRAPHS, *GUPS)
# The paper's reason for mcf and xalancbmk: a look-up of MMU caches costs 2 cycles, of perfect ones too, which a hashed
# table has no use for.
FREE_LOOKUP = "free look-up"
# A workload's other point of the paper's run-time model: the same accesses with 2 MiB pages. Of some: it is a check.
LARGE_PAGES = {"2M": "radix-2m", "nested 2M": "nested-radix-2m-cold"}
MODELLED = (MCF, XALAN, GRAPHS[0], GUPS[0])
# Hash functions that are drawn where few clusters decide how many collide: a guest's of 4096 pages always, but for the
# largest table; smaller ones where few are walked for, or little is between two designs. More where five leave an order
# open.
HASH_SEEDS, MORE_SEEDS = 5, 16
DRAWN = {
    "hashed": {CACTUS.name: HASH_SEEDS, XALAN.name: HASH_SEEDS, GUPS[0].name: MORE_SEEDS},
    "nested hashed": {
        MCF.name: HASH_SEEDS,
        XALAN.name: HASH_SEEDS,
        GRAPHS[0].name: HASH_SEEDS,
        # A run of these takes a minute and more.
        GRAPHS[1].name: HASH_SEEDS,
        GRAPHS[2].name: HASH_SEEDS,
        GUPS[0].name: MORE_SEEDS,
        GUPS[1].name: HASH_SEEDS,
    },
}
# Guests and hosts whose memory has been in use, each in a state of its own: each is a sample of what lies where.
PLACEMENTS = MORE_SEEDS
# Loads that a table of GUPS 2GB is given beside 1/8. At 0.138 linear probing takes the paper's 1.08 references.
LOADS = {"1/32": 1 / 32, "1/16": 1 / 16, "0.118": 0.118, "0.138": 0.138}
SWEPT = GUPS[0]
# The same for the smallest search, whose walks go to the pages that were touched last.
GRAPH_LOADS = {"1/16": 1 / 16, "1/4": 1 / 4}
# What fits the segments of the presets.
BEYOND_SUITE = (MCF, CACTUS, XALAN, GUPS[0])

BARE = {"radix": "radix", "perfect": "radix-perfect-mmu-cache", "hashed": "hashed-compact"}
NESTED = {
    "nested radix": "nested-radix-cold",
    "nested perfect": "nested-radix-perfect-mmu-cache-cold",
    "nested hashed": "nested-hashed-compact-cold",
}
DESIGNS = {
    "chained": "hashed-chained",
    "open": "hashed-open",
    "clustered": "hashed-clustered",
    "compact": "hashed-compact",
}
CLUSTERS = (8, 512, 4096)
# What the paper discusses as related work (sections 6.2, 6.3), beside its own designs, and what each is set against.
BEYOND = {
    "hashed": ("hashed-compact", "radix"),
    "direct segment": ("direct-segment", "radix"),
    "nested hashed": ("nested-hashed-compact-cold", "nested radix"),
    "nested VMM direct": ("nested-vmm-direct-cold", "nested radix"),
    "nested guest direct": ("nested-guest-direct-cold", "nested radix"),
    "nested dual direct": ("nested-dual-direct-cold", "nested radix"),
    "nested speculative": ("nested-radix-speculative-cold", "nested radix"),
}

# The experiment of section 5.3: the paper's is of the data cache. That of the TLB tells the conflicts of pages from
# those of their entries.
DATA_CACHE, TLB = "64-way L1 data cache", "fully associative L1 TLB"
ASSOCIATIVE = {
    # The most ways that a cache may have here: 16 sets instead of 128.
    DATA_CACHE: ("machine.cache.l1.ways=64",),
    TLB: (
        'machine.tlb.l1d=[{"pages":["4K"],"entries":64,"ways":64},{"pages":["2M"],"entries":32,"ways":4},'
        '{"pages":["1G"],"entries":4,"ways":4}]',
    ),
}


# What an access takes to simulate, in nanoseconds: in the window, and before it, of each kind of system. Measured as
# `study.Cost` says, a run for each, at a quarter of the window. Estimated are Graph500 8GB, as 16GB; 16GB under nested
# 2 MiB pages, in the ratio that 4GB has; and milc in virtual machines, as xalancbmk. cactusADM's window is what a whole
# one takes beyond an eighth, by three runs each on another machine, and by that one's speed (`budget.PILOT`).
_KINDS = ("bare", "hashed", "nested", "nested hashed", "2M", "nested 2M")
_GRAPH = ((940, 1890, 1010, 1510, 400, 350), (520, 645, 820, 830, 300, 550))
COSTS = {
    "GUPS 2GB": ((100, 320, 330, 470, 100, 150), (2700, 2750, 4900, 5400, 1260, 2190)),
    "GUPS 8GB": ((400, 820, 670, 810, 120, 210), (2710, 2890, 5000, 5630, 1050, 1960)),
    "GUPS 32GB": ((1280, 2930, 1600, 2600, 190, 350), (2800, 3060, 5050, 5970, 1150, 2190)),
    "Graph500 4GB": ((390, 730, 560, 700, 350, 310), (600, 580, 870, 870, 300, 550)),
    "Graph500 8GB": _GRAPH,
    "Graph500 16GB": _GRAPH,
    "mcf*": ((350, 290, 870, 550, 170, 310), (2790, 2860, 5230, 5260, 1070, 2060)),
    "cactusADM*": ((150, 190, 320, 260, 30, 40), (3360, 2990, 4820, 5370, 1160, 1890)),
    "xalancbmk*": ((240, 200, 560, 370, 120, 210), (2850, 2950, 5090, 5700, 1320, 2240)),
    "milc*": ((200, 240, 560, 370, 120, 210), (2690, 3270, 5090, 5700, 1320, 2240)),
}


def cost(run: Run) -> Cost:
    """What a run takes to make; a system that was not measured takes what others of its kind do."""
    kind = run.system if run.system in _KINDS else "nested" if run.system.startswith("nested") else "bare"
    if run.system in DESIGNS:
        kind = "hashed"
    window, warm_up = (pair[_KINDS.index(kind)] for pair in COSTS[run.workload])
    # What settles caches costs what the window does.
    return Cost(window, warm_up, run.settling_accesses * (window - warm_up))


def drawn(number: int, label: str = "") -> str:
    """Label of a run with a hash function of its own; number 0 is what runs have that say nothing of it."""
    return ", ".join(part for part in (label, f"hash seed {number}" if number else "") if part)


def hash_functions(workload: str, system: str, label: str) -> int:
    """How many hash functions are drawn for a workload on a system, with that label."""
    if workload == MILC.name and system != "radix":
        return MORE_SEEDS if system in DESIGNS else HASH_SEEDS
    if label.startswith("load") and workload == SWEPT.name:
        return HASH_SEEDS
    return 1 if label else DRAWN.get(system, {}).get(workload, 1)


def is_one_of_few(label: str) -> bool:
    """Whether a run with that label is among the first hash functions or placements: `HASH_SEEDS` of each."""
    few = {*(drawn(number) for number in range(HASH_SEEDS)), *(placement(number) for number in range(HASH_SEEDS))}
    return label in few


def _table_settings(preset: str, footprint: int, load: float, scattered: bool = False) -> tuple[str, ...]:
    """Tables sized to the footprint: the paper's load factors are those of memory that is full.

    Where the guest's frames are scattered, most of its pages take a slot of the host's table each.
    """
    # At a compact load of 1/8 every design takes 64 bytes per page.
    table = int(footprint // 64 / 8 / load)
    if preset == "nested-hashed-compact-cold":
        # The guest's memory holds its own table too.
        host = int((footprint + table) // 64 / 8 / load) * (8 if scattered else 1)
        return (
            f"system.layers.guest.page_table.table_bytes={table}",
            f"system.layers.host.page_table.table_bytes={host}",
        )
    if preset.startswith("hashed"):
        return (f"system.layers.native.page_table.table_bytes={table}",)
    return ()


def _of_layers(system: str, setting: str) -> tuple[str, ...]:
    """A setting of each layer of a system."""
    layers = ("guest", "host") if system.startswith("nested") else ("native",)
    return tuple(f"system.layers.{layer}.{setting}" for layer in layers)


def seed_settings(system: str, number: int) -> tuple[str, ...]:
    """The hash function of each layer."""
    return _of_layers(system, f"page_table.seed={number}")


def aged(system: str, number: int) -> tuple[str, ...]:
    """Free memory of each layer in pieces, in the state that a seed gives."""
    age = f'{{"free_fraction":0.5,"huge_free_fraction":0.0,"unmovable_fraction":0.3,"seed":{number}}}'
    return _of_layers(system, f"age={age}")


def window_of(
    workload: Workload,
    system: str,
    preset: str,
    label: str = "",
    more: tuple[str, ...] = (),
    beyond: bool = False,
    load: float = 1 / 8,
    scattered: bool = False,
) -> Run:
    """A window of a workload after its pages have been touched, on tables sized to it."""
    # Neither files nor processes beside it: the machine's 96 GiB are there for the largest.
    return Run(
        workload.name,
        workload.spec,
        system,
        preset,
        workload.accesses,
        workload.touches + SETTLE,
        (*_table_settings(preset, workload.footprint, load, scattered), *more),
        label,
        beyond,
        settling_accesses=SETTLE,
    )


def placement(number: int) -> str:
    """Label of a run with a placement of frames of its own."""
    return f"placement {number + 1}"


def _placement(system: str, number: int) -> tuple[str, tuple[str, ...]]:
    """Label and settings of a guest and a host whose free memory lies scattered, in the state that a seed gives."""
    return placement(number), (*aged(system, number), *(seed_settings(system, number) if "hashed" in system else ()))


def runs() -> list[Run]:
    return list(_runs())


def _runs() -> Iterator[Run]:
    # The longest first, so that none is left alone at the end.
    for workload in reversed(SUITE):
        for system, preset in {**BARE, **NESTED}.items():
            yield window_of(workload, system, preset)
            for number in range(1, hash_functions(workload.name, system, "")):
                yield window_of(workload, system, preset, drawn(number), seed_settings(system, number))
        if workload in MODELLED:
            for system, preset in LARGE_PAGES.items():
                yield window_of(workload, system, preset)
    yield from _loads()
    yield from _look_ups()
    for number in range(PLACEMENTS):
        for system, preset in NESTED.items():
            yield window_of(CACTUS, system, preset, *_placement(system, number), scattered=True)
    yield from _of_milc()
    for workload in BEYOND_SUITE:
        for system, (preset, _) in BEYOND.items():
            if system not in {**BARE, **NESTED}:
                yield window_of(workload, system, preset, beyond=True)
    for label, more in ASSOCIATIVE.items():
        for system, preset in BARE.items():
            yield window_of(CACTUS, system, preset, label, more)


def _loads() -> Iterator[Run]:
    for name, load in GRAPH_LOADS.items():
        yield window_of(GRAPHS[0], "hashed", BARE["hashed"], f"load {name}", load=load)
    for system, preset in (("nested hashed", NESTED["nested hashed"]), ("hashed", BARE["hashed"])):
        for name, load in LOADS.items():
            for number in range(hash_functions(SWEPT.name, system, f"load {name}")):
                more = seed_settings(system, number)
                yield window_of(SWEPT, system, preset, drawn(number, f"load {name}"), more, load=load)


def _look_ups() -> Iterator[Run]:
    more = ("machine.mmu_cache.paging_structure.latency_cycles=0",)
    for workload in (MCF, XALAN, CACTUS):
        yield window_of(workload, "perfect", BARE["perfect"], FREE_LOOKUP, more)
        if workload != CACTUS:
            yield window_of(workload, "nested perfect", NESTED["nested perfect"], FREE_LOOKUP, more)


def _of_milc() -> Iterator[Run]:
    yield window_of(MILC, "radix", "radix")
    for system, preset in DESIGNS.items():
        for number in range(hash_functions(MILC.name, system, "")):
            yield window_of(MILC, system, preset, drawn(number), seed_settings(system, number))
    for cluster in CLUSTERS:
        for number in range(HASH_SEEDS):
            size = f"system.layers.guest.page_table.cluster={cluster}"
            more = (size, *seed_settings("nested hashed", number))
            yield window_of(MILC, "nested hashed", NESTED["nested hashed"], drawn(number, f"cluster {cluster}"), more)
