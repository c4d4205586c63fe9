"""What the tables of "PTEMagnet" say of Figs 5 and 6, which are only known by what others write of the full paper."""

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.ptemagnet_measures import NO_CHANGE
from pagelab_studies.ptemagnet_runs import EQUAL_COST, JUDGED, ORDER_0
from pagelab_studies.study import Claim, Findings
from pagelab_studies.tables import cell, table

FIG_5, FIG_6 = "Fig 5 (third party)", "Fig 6 (third party)"
LINES = "host PTE lines for each PTE line of the guest, pagerank"
SAVED = f"time that {EQUAL_COST} saves"
IDEAL = 0.005
"""By which lines may differ from one: as exact as they are printed."""
STATES = ("after first touches", "the same, guest memory aged")
_SEEDS = "five seeds; the model of the page allocator; the state of memory, which the paper does not give"


def add(findings: Findings) -> None:
    """Fig 5 by state of pagerank's memory, and Fig 6 by program."""
    lines = table(findings, LINES)
    if lines is not None:
        with_it = {group: cell(lines, group, EQUAL_COST) for group, member in lines.values if member == EQUAL_COST}
        for state, one in with_it.items():
            before = cell(lines, state, ORDER_0)
            text = f"PTEMagnet packs pagerank's host PTEs into fewer lines ({state})"
            detail = f"{before.value:.2f} lines for each of the guest's before, {one.value:.2f} with it"
            findings.claims.append(Claim(FIG_5, text, before.minus(one).above(0), detail, _SEEDS))
        ideal = all_hold(one.within(1 - IDEAL, 1 + IDEAL) for one in with_it.values())
        detail = ", ".join(f"{one.value:.3f} ({state})" for state, one in with_it.items())
        text = "with PTEMagnet a line of the guest's PTEs has one line of the host's, the ideal"
        rests_on = f"{_SEEDS}; lines within {IDEAL:.1%} of one count as one"
        findings.claims.append(Claim(FIG_5, text, ideal, detail, rests_on, "size"))
    saved = table(findings, SAVED)
    if saved is not None:
        for program in JUDGED:
            for state in STATES:
                _program(findings, program.name, state, cell(saved, program.name, state))


def _program(findings: Findings, name: str, state: str, saved: Interval) -> None:
    text = f"{name} becomes faster ({state})"
    holds = saved.above(NO_CHANGE)
    detail = f"{saved.value:.2f} ({saved.low:.2f} to {saved.high:.2f}) %"
    rests_on = f"{_SEEDS}; an in-order core that waits for each walk; a gain of {NO_CHANGE:g} % or less counts as none"
    findings.claims.append(Claim(FIG_6, text, holds, detail, rests_on))
