"""What the tables of "Hash, Don't Cache (the Page Table)" say of §1's references, §5.1's samples, and of Fig 11."""

from collections.abc import Callable

from pagelab_studies.hash_dont_cache_runs import CACTUS
from pagelab_studies.hash_dont_cache_samples import CORE, KINDS, rests_on
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
_MEMBER = "radix table: references of a walk"


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
                "the paper's is the average of all SPEC programs, most of which hardly miss the TLBs",
                ours,
                neutral=1.0,
                printed=(SPEC_REFERENCES - 0.005, SPEC_REFERENCES + 0.005),
            )
        )


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
    text = f"samples give the cycles of a walk within ±{SAMPLED:g} % with 95 % confidence, every workload and system"
    detail = f"±{most:.1f} % at most ({workload}, {system}), of the mean over eight parts of a window"
    rests = "the part of a run that the window covers: no whole run was simulated beside it"
    findings.claims.append(Claim("§5.1", text, exact, detail, rests, "size"))


def of_main_study(findings: Findings) -> None:
    """What the tables of the main study say."""
    precision(findings)
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
