"""What the tables of "Hash, Don't Cache (the Page Table)" say of §1's references, §5.1's samples, and of Fig 11."""

from collections.abc import Callable

from pagelab_studies.hash_dont_cache_runs import CACTUS
from pagelab_studies.hash_dont_cache_samples import CORE, COUNTED, KINDS, OF_CACTUS, rests_on
from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings
from pagelab_studies.tables import cell, table

SPEC_REFERENCES = 1.13
"""Of a walk with MMU caches, the average of SPEC CPU2006 (§1, after Barr et al.)."""
SAMPLED = 5.0
"""Per cent of the full run's cycles within which the paper's samples are, with 95 % confidence (§5.1)."""
WALKS = "cycles of a walk, with one hash function"
SAVED = "run time saved by hashed tables"
IN_TOTAL = "references of programs and walks: fewer with a radix than with a chained table (%), and those of a walk"
FEWER = "fewer with a radix table"
MOST_FEWER = (0, 20)
"""Per cent of all references that radix tables spare, at most (§1, after Barr et al.)."""
SPEED_UP = "speed-up by entries of the host in the page walk cache"
AMD = (15, 38)
"""Per cent by which these make guests faster, from the least to the most of AMD's programs (§3.2)."""
MISSES = "cactusADM*: references of walks that miss the L1 data cache"
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
    """§1, by Barr et al.: their largest saving with the largest here, and as a question of our own each program."""
    of_walks = table(findings, IN_TOTAL)
    if of_walks is None:
        return
    fewer = {group: cell(of_walks, group, FEWER) for group, member in of_walks.values if member == FEWER}
    most = Interval(*(max(getattr(one, bound) for one in fewer.values()) for bound in ("low", "value", "high")))
    low, high = MOST_FEWER
    text = (
        f"radix tables with MMU caches make up to {high} % fewer references in total: the most of {len(fewer)} programs"
    )
    rests = rests_on("only counts; up to 20 % is read as more than none and at most 20 %", *fewer)
    findings.claims.append(Claim("§1", text, most.within(low, high), f"{most} % fewer at most", rests, "size"))
    for name, one in fewer.items():
        text = f"radix tables with MMU caches make fewer references in total than a chained table ({name})"
        rests = rests_on(COUNTED, name)
        findings.claims.append(Claim("§1", text, one.above(0), f"{one} % fewer", rests, ours=True))


def nested_walk_cache(findings: Findings) -> None:
    """§3.2, by AMD: the range of their programs with the range of ours, under each condition."""
    speed_ups = table(findings, SPEED_UP)
    if speed_ups is None:
        return
    for condition in speed_ups.members:
        gains = {name: cell(speed_ups, name, condition) for name in speed_ups.groups}
        detail = ", ".join(f"{name} {gain} %" for name, gain in gains.items())
        rests = rests_on(_WALK_CACHE, *gains)
        text = "entries of the host in a page walk cache make guests"
        faster = all_hold(gain.above(0) for gain in gains.values())
        findings.claims.append(Claim("§3.2", f"{text} faster ({condition})", faster, detail, rests))
        text += f" {AMD[0]} to {AMD[1]} % faster, from the least to the most of {len(gains)} programs"
        inside = all_hold(gain.within(*AMD) for gain in gains.values())
        findings.claims.append(Claim("§3.2", f"{text} ({condition})", inside, detail, rests, "size"))


def of_variants(findings: Findings) -> None:
    """What the tables of the variants say of other papers' averages and maxima."""
    references_of_spec(findings)
    references_in_total(findings)
    nested_walk_cache(findings)


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
    """Fig 11 without the analogue whose stride was constructed so that entries conflict. `core` is what it rests on."""

    def add(findings: Findings) -> None:
        gains = table(findings, SAVED)
        if gains is None:
            return
        members = [f"{kind} hashed" for kind in KINDS]
        names = [
            name
            for name in gains.groups
            if name != CACTUS.name and all((name, member) in gains.values for member in members)
        ]
        more = {name: cell(gains, name, members[1]).minus(cell(gains, name, members[0])) for name in names}
        least = min(more, key=lambda name: more[name].low)
        text = f"{SAVED}: more in a virtual machine than on bare metal, without {CACTUS.name}"
        detail = f"the difference is {more[least]} points at least ({least})"
        holds = all_hold(one.above(0) for one in more.values())
        findings.claims.append(Claim("Fig 11", text, holds, detail, rests_on(core, *names), "order", ours=True))

    return add
