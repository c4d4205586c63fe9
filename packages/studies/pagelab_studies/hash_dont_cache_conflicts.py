"""Conflicts of entries (§5.3), and one table for the whole machine (§4.1): one thing is changed.

The study's analogue of cactusADM runs in memory without fragments on bare metal, and in a virtual machine in fragmented
memory with a larger table of the host. Here both run in both states of memory, with tables of one size. The study also
has one stride, that was constructed to make entries conflict; here strides are drawn.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from pagelab_studies.hash_dont_cache_runs import BARE, CACTUS, GIB, GRAPHS, GUPS, NESTED, aged, seed_settings, window_of
from pagelab_studies.hash_dont_cache_samples import OF_CACTUS, walk_cycles
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Cost, Findings, Measurements, Run, Series, figure, mean, per_walk

SYSTEMS = {**BARE, **NESTED}
SEEDS = range(1, 9)
UNUSED, AGED = "unused memory", "memory in pieces"
STRIDES = 40
"""How many are drawn, from 64 KiB to 32 MiB in steps of a word"""
DRAWN = "strides"
_ACCESSES = 500_000
WHOLE_TABLE = "one table for 96 GB"
_MACHINE = 96 * GIB
SIZES = (*GUPS, GRAPHS[0])
NOTES = (
    "In unused memory the frames of cactusADM*'s tables follow from the order of first touches. So a virtual machine "
    "has a single placement per design, and no verdict. In memory in pieces each seed is another placement.",
)
KINDS = {"bare": ("radix", "perfect", "hashed"), "virtual": ("nested radix", "nested perfect", "nested hashed")}


def _label(memory: str, seed: int) -> str:
    return f"{memory}, seed {seed}"


def runs() -> Iterator[Run]:
    """All runs."""
    for system, preset in SYSTEMS.items():
        for seed in SEEDS:
            drawn = seed_settings(system, seed) if "hashed" in system else ()
            for memory, more in ((UNUSED, ()), (AGED, aged(system, seed))):
                label = _label(memory, seed)
                # In both states the host's table has the size that memory in pieces needs.
                window = window_of(CACTUS, system, preset, label, (*drawn, *more), scattered=True)
                yield replace(window, seed=seed)
    for stride in strides():
        spec = f"stride:size=640MiB,stride={stride},advance=8,accesses={{accesses}},init=pages"
        for system, preset in BARE.items():
            window = window_of(CACTUS, system, preset, f"stride {stride}")
            yield replace(window, workload=DRAWN, spec=spec, accesses=_ACCESSES, least_accesses=_ACCESSES)
    for workload in SIZES:
        # At the paper's load of the machine's memory, not of the program's.
        load = workload.footprint / _MACHINE / 8
        yield window_of(workload, "hashed", BARE["hashed"], WHOLE_TABLE, load=load)


def strides() -> list[int]:
    """Bytes, evenly drawn by a seed."""
    drawn = random.Random(1)
    return sorted(8 * drawn.randrange(8 << 10, 4 << 20) for _ in range(STRIDES))


def cost(run: Run) -> Cost:
    """What an access of the strides takes: as of cactusADM's analogue."""
    del run
    return Cost(200, 3400)


def states_of_memory(measured: Measurements, findings: Findings) -> None:
    """§5.2, §5.3: what designs save of cactusADM's walks in each state, with tables of one size."""
    cells: dict[tuple[str, str], Interval] = {}
    for memory in (UNUSED, AGED):
        for kind, (radix, *designs) in KINDS.items():
            for design in designs:
                saved = mean([_saved(measured, radix, design, _label(memory, seed)) for seed in SEEDS])
                name = f"{kind} {design.removeprefix('nested ')}"
                cells[memory, name] = saved
                if memory == UNUSED and kind == "virtual":
                    # Frames follow from the order of first touches there: a single placement per design.
                    continue
                text = f"{name}: fewer cycles of walks than radix tables with MMU caches, cactusADM* in {memory}"
                detail = f"{saved.value:.1f} ({saved.low:.1f} to {saved.high:.1f}) % fewer"
                findings.claims.append(Claim("§5.3", text, saved.above(0), detail, OF_CACTUS))
    title = "cycles of cactusADM*'s walks that designs save, by the state of memory"
    findings.series.append(Series.within("§5.3", title, "%", cells))


def _saved(measured: Measurements, radix: str, design: str, label: str) -> float:
    before, after = (walk_cycles(measured[CACTUS.name, system, label].stats) for system in (radix, design))
    return 100 * (1 - after / before)


def drawn_strides(measured: Measurements, findings: Findings) -> None:
    """§5.3: a random placement of entries makes worst cases unlikely."""
    by_system = {
        system: sorted(walk_cycles(measured[DRAWN, system, f"stride {stride}"].stats) for stride in strides())
        for system in BARE
    }
    cells = {
        (system, name): values[at]
        for system, values in by_system.items()
        for name, at in (("least", 0), ("median", STRIDES // 2), ("second most", -2), ("most", -1))
    }
    title = f"cycles of walks per access, over {STRIDES} strides"
    findings.series.append(Series.from_values("§5.3", title, "cycles", cells))


def one_table(measured: Measurements, findings: Findings) -> None:
    """§4.1: the paper sizes one table by the machine's memory. Then the load is that of the program's share of it."""
    references = per_walk("walk.refs")
    cells = {
        (workload.name, "references"): figure(references, measured[workload.name, "hashed", WHOLE_TABLE])
        for workload in SIZES
    }
    title = f"references of a walk with {WHOLE_TABLE}, as §4.1 sizes it"
    findings.series.append(Series.within("§4.1", title, "references", cells))
