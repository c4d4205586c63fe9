"""What the tables of "Hash, Don't Cache (the Page Table)" say of §1's references, §5.1's samples, and of Fig 11."""

from collections.abc import Callable

from pagelab_studies.hash_dont_cache_runs import CACTUS, HASH_SEEDS
from pagelab_studies.hash_dont_cache_samples import CORE, COUNTED, KINDS, OF_CACTUS, rests_on
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings
from pagelab_studies.tables import cell, table

SPEC_REFERENCES = 1.13
"""Of a walk with MMU caches, the average of SPEC CPU2006 (§1, after Barr et al.)."""
SAMPLED = 5.0
"""Per cent of the full run's cycles within which the paper's samples are, with 95 % confidence (§5.1)."""
WALKS = "cycles of a walk, with one hash function"
SAVED = {
    "Fig 10": ("run time saved by perfect MMU caches", "perfect"),
    "Fig 11": ("run time saved by hashed tables", "hashed"),
}
"""Figures of run time: the title of a table, and the design that saves."""
IN_TOTAL = "references of programs and walks: fewer with a radix than with a chained table (%), and those of a walk"
FEWER = "fewer with a radix table"
MOST_FEWER = 20.0
"""Per cent of all references that radix tables spare, at most (§1, after Barr et al.)."""
SPEED_UP = "speed-up by entries of the host in the page walk cache"
AMD = "15 to 38 %"
"""By which these make guests faster, from the least to the most of AMD's programs (§3.2)."""
CYCLES_BY_CLUSTER = "cycles of a walk by the size of clusters"
HALF_A_LINE, A_LINE = "2 pages per slot", "4 pages per slot"
"""Columns of that table (`hash_dont_cache_clusters`)."""
MISSES = "cactusADM*: references of walks that miss the L1 data cache"
OF_CLUSTERS = f"windows of three analogues, {HASH_SEEDS} hash functions; cycles by the latencies of the preset's caches"
_MEMBER = "radix table: references of a walk"
_WALK_CACHE = (
    "the preset's latencies, an in-order core, a cache of 24 entries that guest and host share; not AMD's programs"
)


def references_of_spec(findings: Findings) -> None:
    """§1, of the analogues: each, and their mean."""
    of_walks = table(findings, IN_TOTAL)
    if of_walks is None:
        return
    rows = {group: cell(of_walks, group, _MEMBER) for group, member in of_walks.values if member == _MEMBER}
    rows = {"four analogues, mean": Interval.mean(rows.values()), **rows}
    for item, ours in rows.items():
        findings.comparisons.append(
            Comparison(
                "§1",
                item,
                "references of a walk with MMU caches",
                "",
                SPEC_REFERENCES,
                ours.value,
                interval=ours,
                unjudged="the paper's is the average of all SPEC programs, most of which hardly miss the TLBs",
            )
        )


def references_in_total(findings: Findings) -> None:
    """§1, by Barr et al.: of each program, without a verdict on the size, and its sign as a question of our own."""
    of_walks = table(findings, IN_TOTAL)
    if of_walks is None:
        return
    fewer = {group: cell(of_walks, group, FEWER) for group, member in of_walks.values if member == FEWER}
    for name, one in fewer.items():
        quantity = "references in total, fewer with a radix than with a chained table"
        why = "the paper quotes Barr et al.'s largest over programs of SPEC; these are four analogues"
        findings.comparisons.append(
            Comparison("§1", name, quantity, "%", MOST_FEWER, one.value, interval=one, bound="at most", unjudged=why)
        )
        text = f"radix tables with MMU caches make fewer references in total than a chained table ({name})"
        rests = rests_on(COUNTED, name)
        findings.claims.append(Claim("§1", text, one.above(0), f"{one} % fewer", rests, ours=True))


def nested_walk_cache(findings: Findings) -> None:
    """§3.2, by AMD: whether guests become faster, under each condition. Their range has no verdict."""
    speed_ups = table(findings, SPEED_UP)
    if speed_ups is None:
        return
    for condition in speed_ups.members:
        gains = {name: cell(speed_ups, name, condition) for name in speed_ups.groups}
        detail = ", ".join(f"{name} {gain} %" for name, gain in gains.items())
        rests = rests_on(_WALK_CACHE, *gains)
        text = f"entries of the host in a page walk cache make guests faster ({condition})"
        faster = all_hold(gain.above(0) for gain in gains.values())
        findings.claims.append(Claim("§3.2", text, faster, detail, rests))
        why = "the paper quotes the range of AMD's programs on AMD's processor; these are three other programs"
        findings.comparisons += [
            Comparison(
                "§3.2", name, f"{SPEED_UP} ({condition})", "%", None, gain.value, "", gain, without=AMD, unjudged=why
            )
            for name, gain in gains.items()
        ]


def slots_of_half_a_line(findings: Findings) -> None:
    """§4.3: the optimal cluster fills a line. Those of two lines are judged where windows are compared in pairs."""
    of_walks = table(findings, CYCLES_BY_CLUSTER)
    if of_walks is None:
        return
    for name in of_walks.groups:
        more = cell(of_walks, name, HALF_A_LINE).minus(cell(of_walks, name, A_LINE))
        text = f"slots of half a line cost more cycles of a walk than slots of a line ({name})"
        detail = f"{more.value:.3g} ({more.low:.3g} to {more.high:.3g}) more"
        findings.claims.append(Claim("§4.3", text, more.above(0), detail, rests_on(OF_CLUSTERS, name)))


def of_variants(findings: Findings) -> None:
    """What the tables of the variants say of other papers' averages and maxima."""
    references_of_spec(findings)
    references_in_total(findings)
    nested_walk_cache(findings)
    slots_of_half_a_line(findings)


def precision(findings: Findings) -> None:
    """§5.1: how exactly windows give the cycles of a walk."""
    of_walks = table(findings, WALKS)
    if of_walks is None:
        return
    margins = {}
    for group, member in of_walks.values:
        ours = cell(of_walks, group, member)
        if ours.value:
            margins[group, member] = 100 * (ours.high - ours.low) / 2 / ours.value
    # An unbounded interval is not on file; it says that a window is too small.
    known = [margin for key, margin in margins.items() if key in of_walks.intervals]
    exact = all_hold(margin <= SAMPLED for margin in known) if len(known) == len(margins) else None
    (workload, system), most = max(margins.items(), key=lambda one: one[1])
    text = f"parts of a window give its cycles of a walk within ±{SAMPLED:g} % with 95 % confidence, for every system"
    detail = f"±{most:.1f} % at most ({workload}, {system}), of the mean over eight parts of a window"
    rests = "the part of a run that the window covers: no whole run was simulated beside it"
    # The paper's ±5 % are of samples against whole runs (`hash_dont_cache_spread`).
    findings.claims.append(Claim("§5.1", text, exact, detail, rests, "size", ours=True))


def fully_associative(findings: Findings) -> None:
    """§5.3: what a fully associative L1 data cache does to the walks of cactusADM's analogue."""
    misses = table(findings, MISSES)
    if misses is None:
        return
    usual, associative = (cell(misses, group, "radix") for group in misses.groups[:2])
    text = "cactusADM: with a fully associative L1 data cache, fewer references of radix walks miss it"
    detail = f"misses of walks in 100 accesses: {usual} with 8 ways, {associative} with 64"
    findings.claims.append(Claim("§5.3", text, usual.minus(associative).above(0), detail, OF_CACTUS))


def of_main_study(findings: Findings) -> None:
    """What the tables of the main study say."""
    precision(findings)
    fully_associative(findings)
    without_conflicts(CORE)(findings)


def without_conflicts(core: str) -> Callable[[Findings], None]:
    """Figs 10 and 11 without the analogue whose stride makes entries conflict. `core` is what they rest on."""

    def add(findings: Findings) -> None:
        for number, (title, design) in SAVED.items():
            gains = table(findings, title)
            if gains is None:
                continue
            members = [f"{kind} {design}" for kind in KINDS]
            names = [
                name
                for name in gains.groups
                if name != CACTUS.name and all((name, member) in gains.values for member in members)
            ]
            more = {name: cell(gains, name, members[1]).minus(cell(gains, name, members[0])) for name in names}
            least = min(more, key=lambda name: more[name].low)
            text = f"{title}: more in a virtual machine than on bare metal, without {CACTUS.name}"
            detail = f"the difference is {more[least]} points at least ({least})"
            holds = all_hold(one.above(0) for one in more.values())
            findings.claims.append(Claim(number, text, holds, detail, rests_on(core, *names), "order"))

    return add
