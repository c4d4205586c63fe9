"""What the tables of hardware-based demand paging say of the slides on pollution of the processor's resources.

The slides name branch mispredictions and misses of caches; the text that is left of them has no figures.
"""

from pagelab_studies.study import Claim, Findings
from pagelab_studies.tables import cell, table

EVENTS = "Events per 1000 accesses of YCSB-C"
POLLUTED = ("L1 misses, data", "L2 misses, data", "L3 misses, data", "L1 TLB misses", "L2 TLB misses")
NO_CHANGE = 1.0
"""Per cent by which events of one window may differ without a verdict: there is no interval."""
_RESTS_ON = (
    "one window of a B+tree; the footprint of the kernel, measured on a virtual machine; the program and the kernel "
    "share all levels of caches and the TLBs"
)


def pollution(findings: Findings) -> None:
    """Whether the program meets fewer events if hardware handles its page misses."""
    events = table(findings, EVENTS)
    if events is None:
        return
    for event in POLLUTED:
        kernel, unit = (cell(events, event, system).value for system in ("kernel", "unit"))
        fewer = 100 * (1 - unit / kernel)
        holds = None if abs(fewer) < NO_CHANGE else fewer > 0
        detail = f"{kernel:.4g} by the kernel, {unit:.4g} by the unit, of 1000 accesses: {fewer:.2f} % fewer"
        text = f"the program meets fewer {event} if hardware handles page misses (YCSB-C)"
        findings.claims.append(Claim("Resource pollution", text, holds, detail, _RESTS_ON))
    text = "the program mispredicts fewer branches if hardware handles page misses (YCSB-C)"
    detail = "not measured here: the accesses have no branches; hardware-demand-paging-indirect replays a recording"
    findings.claims.append(Claim("Resource pollution", text, None, detail, "a recording of a store with its branches"))
