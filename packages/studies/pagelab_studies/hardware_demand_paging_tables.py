"""What the tables of hardware-based demand paging say: of pollution of the processor's resources, of equal misses.

The slides name branch mispredictions and misses of caches; the text that is left of them has no figures. TLBs they do
not name, so those statements are questions of our own. The study
`hardware-demand-paging-indirect` has the branches.
"""

from pagelab_studies import hardware_demand_paging_misses as misses
from pagelab_studies.hardware_demand_paging_events import FEWER, events_title, fewer_title
from pagelab_studies.hardware_demand_paging_runs import LSM, STORE
from pagelab_studies.study import Claim, Findings
from pagelab_studies.tables import cell, table

POLLUTED = ("L1 misses, data", "L2 misses, data", "L3 misses, data", "L1 TLB misses", "L2 TLB misses")
NO_CHANGE = 1.0
"""Per cent that count as no change."""
_RESTS_ON = (
    "one window, and the 95 % interval of its eight parts; the kernel's cost of a request and its footprint, measured "
    "on a virtual machine, and down to a quarter; the program and the kernel share all levels of caches and the TLBs; "
    f"under {NO_CHANGE:g} % counts as no change"
)


def add(findings: Findings) -> None:
    """What the tables say."""
    pollution(findings)
    misses.at_equal_misses(findings)


def pollution(findings: Findings) -> None:
    """Whether the program meets fewer events if hardware handles its page misses. The slides' store is the LSM tree."""
    for store in (LSM, STORE):
        events, changes = table(findings, events_title(store)), table(findings, fewer_title(store))
        if events is None or changes is None:
            return
        for event in POLLUTED:
            kernel, unit = (cell(events, event, system).value for system in ("kernel", "unit"))
            fewer = cell(changes, event, FEWER)
            detail = f"{kernel:.4g} by the kernel, {unit:.4g} by the unit, of 1000 accesses: {fewer} % fewer"
            text = f"the program meets fewer {event} if hardware handles page misses (YCSB-C, {store})"
            ours = "TLB" in event or store != LSM
            findings.claims.append(
                Claim("Resource pollution", text, fewer.above(NO_CHANGE), detail, _RESTS_ON, ours=ours)
            )
