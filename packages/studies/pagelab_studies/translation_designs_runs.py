"""The runs of `translation-designs`: programs, designs, and states of memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pagelab_studies.study import Cost, Run

MACHINE = "epyc-9654"
CORE = "zen-4"
"""The core preset of the runs on a core with a window."""
MEMORY = "machine.memory_bytes=16GiB"
"""Of the machine, so that tables of a size that follows memory's are not those of 64 GiB."""
SEEDS = (1, 2)
ACCESSES = 1_000_000
BARE, VIRTUAL = "bare", "virtual"
FRAGMENTED, WINDOW = "memory in pieces", "core with a window"
STATES = {"": "unused memory", FRAGMENTED: FRAGMENTED, WINDOW: f"unused memory, {WINDOW}"}
"""What tables say of a label."""
_AGE = '{{"free_fraction":0.6,"huge_free_fraction":0.5,"unmovable_fraction":0.1,"seed":{seed}}}'
_LAYERS = {BARE: ("native",), VIRTUAL: ("guest", "host")}


@dataclass(frozen=True)
class Workload:
    """A program: its source, and accesses after which it has touched its last page."""

    spec: str
    settled: int


def _array(spec: str, mib: int) -> Workload:
    return Workload(f"{spec.format(mib=mib)},init=pages,accesses={{accesses}}", mib * 256)


_STORE = "records=300000,value=100B,mix=c,distribution=uniform"
WORKLOADS = {
    "GUPS": _array("gups:size={mib}MiB", 256),
    "pointer chase": _array("chase:size={mib}MiB,node=64", 256),
    "popular words": _array("zipf:size={mib}MiB", 256),
    "graph search": Workload("bfs:vertices=524288,degree=8,graph=kronecker,init=pages,accesses={total}", 12_000_000),
    "PageRank": Workload("pagerank:vertices=1048576,degree=2,init=pages,accesses={total}", 6_000_000),
    "B+tree": Workload(f"btree:{_STORE},memory=anonymous,accesses={{total}}", 8_000_000),
    "hash table": Workload(f"hash-table:{_STORE},accesses={{total}}", 2_000_000),
    "word per page": _array("stride:size={mib}MiB,stride=4160", 256),
}
"""A graph's neighbours are skewed as Graph500's. Keys of the stores are equally popular: by Zipf's law, programs touch
new pages for as long as they run, and no window could be without first touches."""


@dataclass(frozen=True)
class Design:
    """A design, and how it is run."""

    name: str
    bare: str = ""
    """Preset on bare metal; none if empty."""
    virtual: str = ""
    """Preset in a virtual machine."""
    settings: tuple[str, ...] = ()
    is_laid_out: bool = False
    """Whether it needs frames or tables that lie together, so that the state of memory matters."""
    is_timed: bool = False
    """Whether a paper's statement about its run time is judged, which needs a core with a window."""

    def preset(self, layer: str) -> str:
        """The preset of a layer."""
        return self.bare if layer == BARE else self.virtual

    def has(self, layer: str, label: str) -> bool:
        """Whether there are runs in a layer and state."""
        wanted = {"": True, FRAGMENTED: self.is_laid_out, WINDOW: self.is_timed}[label]
        return wanted and bool(self.preset(layer))

    def system(self, layer: str) -> str:
        """Its name in a layer, which tells the two apart in reports."""
        return self.name if layer == BARE else f"nested {self.name}"


def _both(name: str, preset: str, *, is_laid_out: bool = False, is_timed: bool = False) -> Design:
    return Design(name, preset, f"nested-{preset}", is_laid_out=is_laid_out, is_timed=is_timed)


def _stage(name: str, kind: str, value: dict[str, object] | str = "on", *, is_timed: bool = False) -> Design:
    text = value if isinstance(value, str) else json.dumps(value)
    return Design(name, "radix", "nested-radix", (f"machine.{kind}={text}",), is_timed=is_timed)


def _entries(name: str, model: str, preset: str = "radix") -> Design:
    settings = [f"machine.tlb.{level}.0.organisation.model={model}" for level in ("l1d", "l2")]
    return Design(name, preset, f"nested-{preset}", tuple(settings), is_laid_out=True)


def _guesses(name: str, value: dict[str, object], preset: str) -> Design:
    setting = f"machine.tlb.speculation={json.dumps(value)}"
    return Design(name, preset, f"nested-{preset}", (setting,), is_laid_out=True)


_KEEP_TABLES = tuple(f'machine.cache.{level}.policy={{"keep-tables":{{}}}}' for level in ("l2", "l3"))
RADIX = "radix"
POM, LARGE_TLB, REALISTIC_TLB = "POM-TLB", "TLB of 128K entries", "TLB of 64K entries, 27 cycles more"
VICTIMA = "blocks in the second-level cache (Victima)"
FLATTENED, ELASTIC = "flattened tables", "elastic cuckoo tables"
KEPT, FLATTENED_KEPT = "caches keep page tables", "flattened tables, caches keep them"
NEXT_PAGE, STP, DISTANCE, H2P, ASP, MASP = "next page", "STP", "distance", "H2P", "ASP", "MASP"
PREFETCHERS = (NEXT_PAGE, STP, DISTANCE, H2P, ASP, MASP)
ATP = "ATP"
FREE = {"H2P": "H2P with free translations", "MASP": "MASP with free translations", "STP": "STP with free translations"}
"""The prefetchers that ATP chooses from, with free translations as ATP has them."""
DESIGNS = (
    _both(RADIX, "radix", is_laid_out=True, is_timed=True),
    Design("five levels", "radix-5level"),
    _both("compact radix", "radix-compact"),
    _both(FLATTENED, "flattened", is_laid_out=True, is_timed=True),
    Design("hashed, chains", "hashed-chained"),
    Design("hashed, open", "hashed-open"),
    Design("hashed, clusters", "hashed-clustered"),
    _both("hashed, compact", "hashed-compact"),
    Design("hashed, POWER", "hashed-power"),
    _both(ELASTIC, "elastic-cuckoo", is_laid_out=True, is_timed=True),
    Design("do-it-yourself", "do-it-yourself", "nested-do-it-yourself"),
    Design("direct segment", "direct-segment", "nested-dual-direct"),
    Design("direct segment of the guest", virtual="nested-guest-direct"),
    Design("direct segment of the hypervisor", virtual="nested-vmm-direct"),
    Design("linear host table", virtual="nested-radix-linear-host"),
    Design("shadow tables", virtual="nested-radix-shadow"),
    Design("inverted shadow table", virtual="nested-radix-inverted-shadow"),
    Design("speculative table", virtual="nested-radix-speculative"),
    _both("no MMU cache", "radix-no-mmu-cache"),
    _both("perfect MMU cache", "radix-perfect-mmu-cache"),
    _both("unified translation cache", "radix-unified-translation-cache"),
    _both("split page-table cache", "radix-split-page-table-cache"),
    _both("translation-path cache", "radix-translation-path-cache"),
    Design("page-walk cache", "radix-page-walk-cache", "nested-radix-shared-page-walk-cache"),
    Design("coalesced MMU cache", "radix-coalesced-mmu-cache", is_laid_out=True),
    _entries("coalesced TLB entries (CoLT-SA)", "coalesced"),
    _entries("TLB entries of 16 KiB", "blocks"),
    _entries("coalesced TLB entries, folios of 32 KiB", "coalesced", "radix-mthp32k"),
    _entries("coalesced TLB entries, contiguity-aware paging", "coalesced", "radix-ca-paging"),
    _guesses("SpecTLB, PTEMagnet", {"model": "spec-tlb", "region_pages": 8}, "radix-ptemagnet"),
    _guesses("SpOT, contiguity-aware paging", {"model": "spot"}, "radix-ca-paging"),
    # It refuses guests.
    Design("Revelator", "radix-revelator", is_laid_out=True),
    _stage(LARGE_TLB, "tlb.stages.large", is_timed=True),
    _stage(REALISTIC_TLB, "tlb.stages.large", {"entries": 65536, "latency_cycles": 27}, is_timed=True),
    _stage("victim TLB of 64 entries", "tlb.stages.victim", {"entries": 64}),
    _stage(POM, "tlb.stages.pom", is_timed=True),
    _both(VICTIMA, "radix-victima", is_timed=True),
    Design(KEPT, "radix", "nested-radix", _KEEP_TABLES, is_timed=True),
    Design(FLATTENED_KEPT, "flattened", "nested-flattened", _KEEP_TABLES, is_timed=True),
    _stage("line behind each walk (TEMPO)", "prefetch.l3.replay"),
    _stage(NEXT_PAGE, "prefetch.tlb.next_page", {"entries": 64}),
    _stage(STP, "prefetch.tlb.stp"),
    _stage(DISTANCE, "prefetch.tlb.distance", {"entries": 64}),
    _stage(H2P, "prefetch.tlb.h2p"),
    _stage(ASP, "prefetch.tlb.asp"),
    _stage(MASP, "prefetch.tlb.masp"),
    _stage("recency", "prefetch.tlb.recency", {"entries": 64}),
    _stage("free translations (SBFP)", "prefetch.tlb.sbfp"),
    *(_stage(name, f"prefetch.tlb.{kind.lower()}", {"free": "on"}) for kind, name in FREE.items()),
    _stage(ATP, "prefetch.tlb.atp"),
    _both("PTEMagnet", "radix-ptemagnet", is_laid_out=True),
    _both("folios of 32 KiB", "radix-mthp32k", is_laid_out=True),
    _both("contiguity-aware paging", "radix-ca-paging", is_laid_out=True),
    _both("huge pages", "radix-thp", is_laid_out=True),
    Design(
        "huge pages, sizes predicted",
        "radix-thp",
        "nested-radix-thp",
        ("machine.tlb.size_prediction=on",),
        is_laid_out=True,
    ),
)


def runs() -> list[Run]:
    """All runs."""
    return list(_runs())


def _runs() -> Iterator[Run]:
    for label in STATES:
        for design in DESIGNS:
            for layer in (BARE, VIRTUAL):
                if design.has(layer, label):
                    for name in WORKLOADS:
                        for seed in SEEDS if label != WINDOW else SEEDS[:1]:
                            yield _run(name, design, layer, label, seed)


def _run(name: str, design: Design, layer: str, label: str, seed: int) -> Run:
    settings = [MEMORY, *design.settings]
    if label == FRAGMENTED:
        settings += [f"system.layers.{each}.age={_AGE.format(seed=seed)}" for each in _LAYERS[layer]]
    if label == WINDOW:
        settings += [f"machine.core={CORE}", "machine.core.kernel_overlap=on"]
    workload = WORKLOADS[name]
    return Run(
        name,
        f"{workload.spec}@0",
        design.system(layer),
        design.preset(layer),
        ACCESSES,
        workload.settled,
        tuple(settings),
        label,
        after_touches=True,
        # Some designs leave none.
        needs_walks=False,
        seed=seed,
        in_parts=label == WINDOW,
    )


def cost(run: Run) -> Cost:
    """What an access of a run takes: estimated from the rates in `benches/HISTORY.md`, not measured for each."""
    virtual = run.system.startswith("nested ")
    first_touch = 20_000.0 if virtual else 10_000.0
    window = (300.0 if virtual else 120.0) * (2 if run.label == WINDOW else 1)
    is_array = WORKLOADS[run.workload].settled < 1_000_000
    return Cost(window, first_touch if is_array else 200.0)
