"""What larger pages could change for each part of the memory: bounds, and whether a recording is worth the work.

Models: larger pages can save at most what faults cost, without clearing and copying, and at most what walks cost. If
    the memory that was used in an interval fits into the last-level TLB, walks cost hardly anything.
Parameters: the reach of that TLB; the share of the CPU time that is worth work.
Deviations: faults of all memory are taken to cost the same. Which walks a memory larger than the TLB causes depends on
    the order of accesses; without counters, this page does not bound them from above.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pagelab.observe.mappings import HUGE_BYTES
from pagelab.observe.observation import Observation
from pagelab.observe.regions import Region
from pagelab.observe.time_shares import Share, TimeShares

WORTH = 0.01
"""Share of the CPU time from which a change is worth work, as in `pagelab advise`"""
_FEWEST_SAMPLES = 300
_DENSE = 0.5
_PAGE_BYTES = 4096
_USUAL_ENTRIES = 2048
_AMD_DATA = {2048: ("Zen", 1536), 2560: ("Zen 2 and 3", 2048), 3584: ("Zen 4", 3072), 192: ("Zen 5", 4096)}
"""The core and the entries for data, by "TLB size" of /proc/cpuinfo: Linux adds up the second levels for data and for
instructions, and takes those of Zen 5 for entries, although they are in units of 32"""


class Kind(Enum):
    """What a recording could show about a part of the memory."""

    WORTH_A_RECORDING = "worth a recording"
    NOTHING = "nothing to gain"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judgement:
    """The judgement of a region."""

    region: Region
    kind: Kind
    reasons: tuple[str, ...]
    fault_share: Share | None
    """Of the CPU time, in faults of this region"""
    saving: Share | None
    """What larger pages could save of the CPU time by fewer faults; the bounds are 0 and `high`"""
    traits: tuple[str, ...]
    """`dense and hot`, `sparse`, `cold huge pages`"""
    cold_huge: int
    """Bytes of huge pages that were not used in the median interval, at least"""
    growth: int
    """Bytes by which memory grows at most if all of it becomes huge"""


@dataclass(frozen=True)
class Reach:
    """What the last-level TLB covers with small pages."""

    size: int
    origin: str


def tlb_reach(cpuinfo: Path = Path("/proc/cpuinfo")) -> Reach:
    """The reach of this machine's last-level TLB."""
    match = re.search(r"^TLB size\s*: (\d+) 4K pages", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
    if match:
        total = int(match.group(1))
        core, entries = _AMD_DATA.get(total, ("data and instructions", total))
        return Reach(entries * _PAGE_BYTES, f"/proc/cpuinfo: {entries:,} entries, {core}")
    return Reach(_USUAL_ENTRIES * _PAGE_BYTES, f"an estimate: {_USUAL_ENTRIES:,} entries, as of Intel's Golden Cove")


def judge(observation: Observation, times: TimeShares, reach: Reach) -> list[Judgement]:
    """The judgements of all regions that have 2 MiB, or 1 % of the faults; those with the most memory first."""
    faults = max(sum(region.faults for region in observation.looks.all_regions()) + observation.elsewhere, 1.0)
    used = {pid: _used_in_small_pages(observation, pid) for pid in (None, *observation.looks.regions)}
    judged = [
        _judge(region, observation, times, reach, faults, used[None], used[region.pid])
        for region in observation.looks.all_regions()
        if region.largest.resident >= HUGE_BYTES or region.faults >= WORTH * faults
    ]
    return sorted(judged, key=lambda one: (-one.region.largest.resident, one.region.begin))


def _used_in_small_pages(observation: Observation, pid: int | None) -> int | None:
    """The memory in small pages that a process used in the median interval, or all processes together."""
    totals = observation.looks.totals(pid)
    used = [max(amounts.used - amounts.huge, 0) for _, amounts in totals if amounts.used is not None]
    return statistics.median_low(used) if used else None


def _most_in_small_pages(observation: Observation) -> int:
    """The most memory in small pages that all processes had at a look."""
    return max((amounts.resident - amounts.huge for _, amounts in observation.looks.totals()), default=0)


def _judge(
    region: Region,
    observation: Observation,
    times: TimeShares,
    reach: Reach,
    faults: float,
    used: int | None,
    by_process: int | None,
) -> Judgement:
    part = region.faults / faults
    fault_share = _scaled(times.faults, part)
    saving = _scaled(times.avoidable, part) if region.may_be_huge else None
    traits = _traits(region)
    kind, reasons = _decide(region, observation, times, reach, saving, used, by_process)
    cold = max(region.largest.huge - region.usually_used, 0) if region.usually_used is not None else 0
    growth = region.layout.growth if region.layout else 0
    return Judgement(region, kind, reasons, fault_share, saving, traits, cold, growth)


def _scaled(share: Share | None, part: float) -> Share | None:
    return None if share is None else Share(share.share * part, share.low * part, share.high * part)


def _small(region: Region) -> int:
    return region.largest.resident - region.largest.huge


def _traits(region: Region) -> tuple[str, ...]:
    traits = []
    layout, used = region.layout, region.usually_used
    if layout and layout.extents and _small(region) >= HUGE_BYTES:
        dense = layout.dense_extents >= _DENSE * layout.extents
        if not dense:
            traits.append("sparse")
        elif used is not None and used >= _DENSE * region.largest.resident:
            traits.append("dense and hot")
    if used is not None and region.largest.huge - used >= HUGE_BYTES:
        traits.append("cold huge pages")
    return tuple(traits)


def _decide(
    region: Region,
    observation: Observation,
    times: TimeShares,
    reach: Reach,
    saving: Share | None,
    used: int | None,
    by_process: int | None,
) -> tuple[Kind, tuple[str, ...]]:
    if not region.may_be_huge:
        return Kind.NOTHING, ("no whole 2 MiB of anonymous memory",)
    reasons = []
    if saving is not None and saving.low >= WORTH:
        reasons.append(f"faults that larger pages avoid take up to {saving.high:.1%} of the CPU time")
    walks = _walk_reason(region, observation, reach, by_process)
    if walks is not None:
        reasons.append(walks)
    if reasons:
        return Kind.WORTH_A_RECORDING, tuple(reasons)
    if saving is None:
        return Kind.UNDECIDED, (f"what faults cost is not known: {times.missing}",)
    if saving.high >= WORTH:
        few = times.samples < _FEWEST_SAMPLES
        why = "there are few samples: observe it for longer" if few else "the interval includes 1 %"
        return Kind.UNDECIDED, (f"faults take {saving.low:.1%} to {saving.high:.1%} of the CPU time: {why}",)
    if (region.usually_used is None or used is None) and _most_in_small_pages(observation) > reach.size:
        return Kind.UNDECIDED, ("its used memory is not known, and all memory is larger than the TLB's reach",)
    if _walk_reason(region, observation, reach, used):
        why = "the processes together use more small pages than the TLB covers, but none does alone"
        return Kind.UNDECIDED, (f"{why}: it depends on how they share CPUs",)
    return Kind.NOTHING, ("faults take less than 1 %, and the used small pages fit into the TLB",)


def _walk_reason(region: Region, observation: Observation, reach: Reach, used: int | None) -> str | None:
    """Why walks for its small pages may cost something; none if they hardly can.

    Args:
        region: The memory.
        observation: The observation.
        reach: That of the last-level TLB.
        used: The memory in small pages that compete for the TLB's entries, in bytes.
    """
    share = observation.hardware.walk_share
    if share is not None and share < WORTH:
        return None
    own = region.usually_used
    if own is None or used is None or used <= reach.size or own - region.largest.huge < HUGE_BYTES:
        return None
    measured = "" if share is None else f", and walks take {share:.1%} of the cycles"
    return f"more small pages are used than the TLB covers, so walks may cost time{measured}"


def overall(judgements: Sequence[Judgement], observation: Observation, times: TimeShares) -> tuple[Kind, str]:
    """The verdict on the whole program, with its reason."""
    worth = [one for one in judgements if one.kind is Kind.WORTH_A_RECORDING]
    if worth:
        named = max(worth, key=lambda one: (one.saving.high if one.saving else 0.0, one.region.largest.resident))
        return Kind.WORTH_A_RECORDING, f"{name(named.region)}: {'; '.join(named.reasons)}"
    if not observation.looks.looks:
        return Kind.UNDECIDED, "the program ended before its memory was looked at"
    if times.missing or times.samples < _FEWEST_SAMPLES:
        return Kind.UNDECIDED, times.missing or f"{times.samples} samples are few: observe it for longer"
    transient = observation.elsewhere / max(observation.totals.faults, 1)
    avoidable = times.avoidable
    if avoidable and avoidable.low * transient >= WORTH:
        return (
            Kind.WORTH_A_RECORDING,
            f"{transient:.0%} of the faults are in memory that no look has shown: it comes and goes",
        )
    undecided = next((one for one in judgements if one.kind is Kind.UNDECIDED), None)
    if undecided:
        return Kind.UNDECIDED, f"{name(undecided.region)}: {'; '.join(undecided.reasons)}"
    return Kind.NOTHING, "larger pages could save less than 1 % of the CPU time"


def name(region: Region) -> str:
    """What the region is, and where."""
    where = f"at {region.begin:#x}" if not region.small else f"in {region.mappings} mappings"
    return f"{region.label} {where}"
