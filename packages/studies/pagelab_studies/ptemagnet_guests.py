"""What decides the gains of `ptemagnet` in the guest: how its free memory is divided, who allocates, other guests.

There aged memory is one state, and several policies run in unused memory only. Here the judged programs run in guests
with more and less free memory in small blocks, beside co-runners and alone; the other policies in the main study's aged
state; components of a graph and the same three co-runners in one, two and four virtual machines of the same size. And
page faults of co-runners are counted, while programs touch their pages and afterwards.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pagelab_studies.interval import Interval
from pagelab_studies.ptemagnet_measures import all_seeds, decided, gain, lines, spread
from pagelab_studies.ptemagnet_runs import (
    AGED,
    ALONE,
    BFS,
    CC,
    CHASE,
    EQUAL_COST,
    EQUALLY_DEAR,
    FEW_SEEDS,
    JUDGED,
    KERNEL,
    MIB,
    ORDER_0,
    PAGERANK,
    RIVALS,
    SEEDS,
    WHOLE,
    Workload,
    aged,
    co_runners,
    run_of,
)
from pagelab_studies.ptemagnet_runs import cost as cost_of_window
from pagelab_studies.study import (
    LEAST_ACCESSES,
    Claim,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)


@dataclass(frozen=True)
class State:
    """How the guest's memory is divided when programs begin; unused if no part is given."""

    free: float = 0.0
    """The part that is free."""
    huge: float = 0.0
    """The part of the free memory in whole blocks of 2 MiB."""

    def settings(self, seed: int) -> tuple[str, ...]:
        return (aged(seed, self.free, self.huge),) if self.free else ()

    def __str__(self) -> str:
        return f"{self.free:.0%} free, {self.huge:.0%} of it in blocks of 2 MiB" if self.free else "unused"


MAIN = State(0.6, 0.3)
"""That of the main study."""
STATES = (State(), State(0.6, 0.98), State(0.6, 0.9), State(0.2, 0.3), MAIN)
"""From the least free memory in small blocks to the most."""
SMALL = "in blocks below 32 KiB"
SHORT = 4_000_000
"""Accesses of pagerank's windows, which are shorter than the main study's."""
BESIDE, WITHOUT = "beside co-runners", "alone"
AT_ONCE = Workload("one MiB", "seq:size=1MiB,accesses={accesses}", 0, 10_000, "words of 1 MiB in order", 10_000)
"""It leaves the guest's free memory as it finds it."""
PAGES = {PAGERANK: 12_288, BFS: 12_288, CC: 14_336, CHASE: 131_072}
"""First touches that programs begin with, one per access."""
TOUCHING = "while it touches its pages"
OF_RIVALS = (PAGERANK, CC, CHASE)
PLACES = {
    "one virtual machine": ("nested-radix-cold", ("guest",)),
    "two virtual machines": ("nested-radix-two-vms-cold", ("first", "second")),
    "four virtual machines": ("nested-radix-four-vms-cold", ("first", "second", "third", "fourth")),
}
"""Preset, and layers that programs run on in turn."""
MACHINE, GUEST = "machine.memory_bytes=16GiB", "3584MiB"
"""Memory of the host, and of each virtual machine, however many there are."""
_RESTS_ON = (
    "five seeds, not the range of the model's costs; an in-order core that waits for each walk; one program of tens of "
    "MiB; how the guests' memory has been used"
)


def runs() -> list[Run]:
    """The runs."""
    return [*_machines(), *_states(), *_touching(), *_gains()]


def _in(state: State, workload: Workload, system: str, label: str, seed: int) -> Run:
    """A run of the main study, with a short window at most, in a state of memory, which is its label."""
    run = run_of(workload, system, label, seed)
    settings = (*(one for one in run.settings if one != aged(seed)), *state.settings(seed))
    return replace(
        run,
        settings=settings,
        label=str(state),
        contiguity_map=False,
        accesses=min(run.accesses, SHORT),
        least_accesses=min(run.least_accesses, LEAST_ACCESSES),
    )


def _gains() -> Iterator[Run]:
    for seed in SEEDS[:2]:
        for workload in JUDGED:
            for state in STATES:
                rivals = RIVALS if state == MAIN and workload in OF_RIVALS else ()
                for system in (ORDER_0, EQUAL_COST, *rivals):
                    run = _in(state, workload, system, AGED, seed)
                    yield run
                    if system not in RIVALS:
                        yield replace(run, label=f"{state}, {WITHOUT}", beside=())


def _states() -> Iterator[Run]:
    for seed in FEW_SEEDS:
        for state in STATES:
            run = _in(state, AT_ONCE, ORDER_0, ALONE, seed)
            yield replace(run, after_touches=False, warm_up=0)


def _touching() -> Iterator[Run]:
    for seed in FEW_SEEDS:
        for workload, pages in PAGES.items():
            for state in (State(), MAIN):
                run = _in(state, workload, ORDER_0, WHOLE, seed)
                label = f"{TOUCHING}, {state}"
                yield replace(run, accesses=pages, least_accesses=pages, label=label)


def _machines() -> Iterator[Run]:
    for seed in SEEDS:
        for place, (preset, guests) in PLACES.items():
            settings = [MACHINE]
            for guest in guests:
                settings += [f"system.layers.{guest}.memory_bytes={GUEST}", aged(seed).replace("guest", guest, 1)]
            own = f"system.layers.{guests[0]}"
            reserved = (EQUALLY_DEAR.replace("guest", guests[0], 1), f'{own}.placement_for=["source.0"]')
            first, second = co_runners(seed)
            for system, more in ((ORDER_0, ()), (EQUAL_COST, reserved)):
                yield replace(
                    run_of(CC, ORDER_0, AGED, seed),
                    system=system,
                    preset=f"{preset}@{KERNEL}",
                    settings=(*settings, *more),
                    label=place,
                    beside=(first, second, first.replace("@2", "@6")),
                )


def cost(run: Run) -> Cost:
    """As the windows of `ptemagnet`."""
    if run.workload == AT_ONCE.name:
        return Cost(50, once=1e8)
    if run.label.startswith(TOUCHING):
        return Cost(36_000)
    return cost_of_window(replace(run, label=""))


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_by_state, _allocating, _policies, _several))
    findings.notes += [
        "How much free memory of the paper's guests was in small blocks is not known.",
        "States of memory and other policies have two seeds, virtual machines five; brackets are from the lowest to "
        f"the highest. Windows are the main study's, but pagerank's have {SHORT:,} accesses.",
        "Co-runners restart whenever they end, and a window of these lengths holds about one of their runs or a part "
        "of it. If reservations change how fast a program is, its windows meet them in another phase: their page "
        "faults are in a table above. Programs that run alone have no such difference.",
    ]
    return findings


def _small(measured: Measurements, state: State) -> Interval:
    """MiB of free memory in blocks of fewer than eight pages, when programs begin."""

    def mib(run: Measurement) -> float:
        share = run.stats["layer.guest.frames.unusable_permille.order3"] / 1000
        return share * run.stats["layer.guest.free_bytes"] / MIB

    return spread(map(mib, all_seeds(measured, AT_ONCE, ORDER_0, str(state))))


def _by_state(measured: Measurements, findings: Findings) -> None:
    """Gains and scattering by how much free memory is in small blocks."""
    sizes = {(str(state), SMALL): _small(measured, state) for state in STATES}
    findings.series.append(Series.within("§5", "free memory of the guest by its state", "MiB", sizes))
    for where, suffix in ((BESIDE, ""), (WITHOUT, f", {WITHOUT}")):
        saved: dict[tuple[str, str], Interval] = {}
        scatter: dict[tuple[str, str], Interval] = {}
        for state in STATES:
            label = f"{state}{suffix}"
            gains = {workload.name: gain(measured, workload, EQUAL_COST, label) for workload in JUDGED}
            most = max(gains.values(), key=lambda one: one.value)
            rows = {"mean": Interval.mean(gains.values()), "most": most, **gains}
            saved |= {(str(state), row): one for row, one in rows.items()}
            for workload in JUDGED:
                scatter[str(state), workload.name] = spread(map(lines, all_seeds(measured, workload, ORDER_0, label)))
        title = f"time that {EQUAL_COST} saves, by the guest's memory, {where}"
        findings.series += [
            Series.within("§5", title, "% of order-0", saved),
            Series.within("§5", f"host PTE lines for each of the guest's, by its memory, {where}", "lines", scatter),
        ]
        for row, paper in (("mean", 4.0), ("most", 9.0)):
            reached = {state: saved[str(state), row].above(paper) for state in STATES}
            findings.notes.append(f"{_reached(row, paper, where)}: {_listed(sizes, reached)}.")


def _reached(row: str, paper: float, where: str) -> str:
    return f"The paper's {paper:g} % ({row} of the programs; here {where}), by free memory {SMALL} when programs begin"


def _listed(sizes: Mapping[tuple[str, str], Interval], reached: Mapping[State, bool | None]) -> str:
    """The sizes with which a figure is below the paper's, around it, and above it."""
    parts = []
    for verdict, word in ((False, "below"), (None, "around"), (True, "above")):
        which = [f"{sizes[str(state), SMALL].value:.0f}" for state, above in reached.items() if above is verdict]
        if which:
            parts.append(f"{word} it with {', '.join(which)} MiB")
    return "; ".join(parts)


def _allocating(measured: Measurements, findings: Findings) -> None:
    """Page faults of co-runners while programs touch their pages, and in the windows after that."""
    during: dict[tuple[str, str], Interval] = {}
    after: dict[tuple[str, str], Interval] = {}

    def faults(run: Measurement) -> int:
        return run.stats["co_runner.fault.minor.count"]

    for workload in JUDGED:
        for state in (State(), MAIN):
            touching = all_seeds(measured, workload, ORDER_0, f"{TOUCHING}, {state}")
            each = (faults(run) / run.main("fault.minor.count") for run in touching)
            during[workload.name, str(state)] = spread(each)
            for system in (ORDER_0, EQUAL_COST):
                windows = all_seeds(measured, workload, system, str(state))
                after[workload.name, f"{system}, {state}"] = spread(1000 * faults(run) / run.window for run in windows)
    findings.series += [
        Series.within("§3", f"page faults of co-runners for each of the program's, {TOUCHING}", "faults", during),
        Series.within("§3", "page faults of co-runners in windows after first touches", "per 1000 accesses", after),
    ]


def _policies(measured: Measurements, findings: Findings) -> None:
    """What other policies save in aged memory."""
    state = str(MAIN)
    saved: dict[tuple[str, str], Interval] = {}
    scatter: dict[tuple[str, str], Interval] = {}
    for workload in OF_RIVALS:
        for system in (ORDER_0, EQUAL_COST, *RIVALS):
            scatter[workload.name, system] = spread(map(lines, all_seeds(measured, workload, system, state)))
            if system != ORDER_0:
                saved[workload.name, system] = gain(measured, workload, system, state)
    findings.series += [
        Series.within("Rivals", "time saved, after first touches, guest memory aged", "% of order-0", saved),
        Series.within("Rivals", "host PTE lines for each of the guest's, guest memory aged", "lines", scatter),
    ]


def _several(measured: Measurements, findings: Findings) -> None:
    """The same programs in one and in several virtual machines."""
    cells: dict[tuple[str, str], Interval] = {}
    one, *several = PLACES
    gains = {place: _gains_by_seed(measured, place) for place in PLACES}
    for place, (_, guests) in PLACES.items():
        cells[place, "time"] = spread(gains[place].values())
        cells[place, "lines"] = spread(lines(run, guests[0]) for run in all_seeds(measured, CC, ORDER_0, place))
    title = "saved by reservations, and host PTE lines for each of the guest's without them, by virtual machines"
    findings.series.append(Series.within("§4", title, "% and lines", cells))
    for place in several:
        more = spread(gains[place][seed] - gains[one][seed] for seed in gains[place])
        text = f"reservations save more time if the same programs are divided among {place}"
        detail = f"{cells[place, 'time']} %, in {one} {cells[one, 'time']} %; {more} points more"
        every = [
            run
            for which in (one, place)
            for system in (ORDER_0, EQUAL_COST)
            for run in all_seeds(measured, CC, system, which)
        ]
        findings.claims.append(Claim("§4", text, decided(more.above(0), every), detail, _RESTS_ON, ours=True))


def _gains_by_seed(measured: Measurements, place: str) -> dict[int, float]:
    before, after = (measured.seeds(CC.name, system, place) for system in (ORDER_0, EQUAL_COST))
    return {seed: 100 * (1 - after[seed].cycles_per_access / before[seed].cycles_per_access) for seed in before}


REPRODUCTION = Reproduction(
    name="ptemagnet-guests",
    title="PTEMagnet: the guest's memory, and several guests",
    paper="Artemiy Margaritov, Dmitrii Ustiugov, Amna Shahab and Boris Grot, ASPLOS 2021",
    machine="xeon-silver-4114",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
