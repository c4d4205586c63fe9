"""The summary for readers who read nothing else: what paging costs, and what would change most."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.quantities import size_text
from pagelab.report.figures import name_of, paging_cycles, percent, share
from pagelab.results.headline import busy_cycles, faults
from pagelab.results.results import SystemResult
from pagelab.results.table import short

_MIB = 1 << 20
_SAME = 0.005
"""A change of cycles below this share does not count"""


@dataclass(frozen=True)
class Cost:
    """The cost of paging under a system: per fault, and per MiB that the program touches."""

    label: str
    faults: str
    cycles_per_fault: str
    fault_cycles_per_mib: str
    translation_cycles_per_mib: str
    paging_cycles_per_mib: str
    paging_share: str


def sentences(results: Sequence[SystemResult]) -> list[str]:
    """What paging costs the program under the first system, and which system changes most."""
    first = results[0]
    stats, busy = first.stats, busy_cycles(first.stats)
    translation, handling = stats.get("cycles.translation", 0), stats.get("cycles.fault", 0)
    name = name_of(first)
    if not paging_cycles(stats):
        return [f"Paging costs {name} nothing on {first.machine} under {first.label}."]
    figures = [
        f"Paging costs {name} {percent(share(translation + handling, busy))} of its cycles on {first.machine} under "
        f"{first.label}: {percent(share(handling, busy))} for page faults, and {percent(share(translation, busy))} for "
        "address translation."
    ]
    return [*figures, _lever(results)]


def _lever(results: Sequence[SystemResult]) -> str:
    first, *others = results
    if not others:
        return "No other system was replayed, so this page does not show what would change that; `pagelab advise` does."
    before = busy_cycles(first.stats)
    best = min(others, key=lambda result: busy_cycles(result.stats))
    saved = share(before - busy_cycles(best.stats), before)
    if saved >= _SAME:
        return f"Of the systems compared, {best.label} would save the most: {percent(saved)} of all cycles."
    worst = max(others, key=lambda result: busy_cycles(result.stats))
    more = share(busy_cycles(worst.stats) - before, before)
    most = f" {worst.label} would cost {percent(more)} more." if more >= _SAME else ""
    return f"None of the systems compared would save anything.{most}"


def touched_bytes(results: Sequence[SystemResult]) -> tuple[int, str]:
    """Memory that the program used, and how that is known: from a profile, or else from what was mapped for it.

    A profile has the pages of 4 KiB that had walks or faults. These are all used pages, unless a larger page avoids the
    walks of others.
    """
    profiled = [
        sum(row["touched_bytes"] for row in regions["rows"])
        for result in results
        if result.profile and not (regions := result.profile["regions"])["others"] and not _has_large_pages(result)
    ]
    if profiled and (touched := max(profiled)):
        return touched, "touched memory"
    layers = {source.layer for source in results[0].sources}
    mapped = sum(
        size * results[0].stats.get(f"layer.{layer}.pages.{name}", 0)
        for layer in layers
        for name, size in (("4K", 4 << 10), ("2M", 2 << 20), ("1G", 1 << 30))
    )
    return mapped, f"memory mapped under {results[0].label}"


def _has_large_pages(result: SystemResult) -> bool:
    return any(count for name, count in result.stats.items() if name.endswith((".pages.2M", ".pages.1G")))


def costs(results: Sequence[SystemResult]) -> tuple[list[Cost], str]:
    """The cost of paging under each system, with the memory that a cost per MiB refers to; nothing if unknown."""
    touched, how = touched_bytes(results)
    if not touched:
        return [], ""
    mebibytes = touched / _MIB
    rows = []
    for result in results:
        stats, count = result.stats, faults(result.stats)
        handling, translation = stats.get("cycles.fault", 0), stats.get("cycles.translation", 0)
        rows.append(
            Cost(
                result.label,
                short(count),
                f"{share(handling, count):,.0f}" if count else "–",
                short(round(handling / mebibytes)),
                short(round(translation / mebibytes)),
                short(round((handling + translation) / mebibytes)),
                percent(share(handling + translation, busy_cycles(stats))),
            )
        )
    return rows, f"Per MiB of {size_text(touched)} of {how}, the same for all systems."
