"""Numbers that the page's words and charts share, derived from the engine's counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagelab.results import table
from pagelab.results.results import SystemResult

CLASSES = {
    "base": "instructions",
    "data_stall": "data",
    "translation": "translation",
    "fetch": "fetched instructions",
    "branch": "mispredicted branches",
    "sibling": "hardware threads",
    "fault": "page faults",
    "io": "devices",
    "lock_wait": "waiting",
    "blocked": "waiting",
    "kernel": "other kernel work",
    "stolen": "other kernel work",
}
"""Classes of cycles in which a CPU is not idle, by their name on the page"""

STAGES = (*table.STAGES, *table.IO_STAGES)
"""Stages of a page fault, in order"""


@dataclass(frozen=True)
class Level:
    """A level of a layer's page table that walks read."""

    layer: str
    level: int

    @property
    def label(self) -> str:
        return f"{self.layer} {self.level}"


def paging_cycles(stats: Mapping[str, int]) -> int:
    """Cycles of waiting for translation and of page faults."""
    return stats.get("cycles.translation", 0) + stats.get("cycles.fault", 0)


def cycles_by_class(stats: Mapping[str, int]) -> dict[str, int]:
    """Busy cycles by the page's name of their class."""
    sums = dict.fromkeys(CLASSES.values(), 0)
    for name, words in CLASSES.items():
        sums[words] += stats.get(f"cycles.{name}", 0)
    return sums


def references(stats: Mapping[str, int]) -> dict[Level, dict[str, int]]:
    """References of completed walks, by level of the table and by place; levels that no walk read are omitted."""
    by_level: dict[Level, dict[str, int]] = {}
    for name, count in stats.items():
        parts = name.split(".")
        if len(parts) == 6 and parts[:2] == ["walk", "layer"] and parts[4] == "refs" and count:
            level = Level(parts[2], int(parts[3].removeprefix("level")))
            by_level.setdefault(level, {})[parts[5]] = count
    return by_level


def stage_cycles(stats: Mapping[str, int]) -> dict[str, int]:
    """Cycles of page faults by stage, of all layers together."""
    cycles = {stage: stats.get(f"fault.stage.{stage}.cycles", 0) for stage in STAGES}
    return {stage: count for stage, count in cycles.items() if count}


def paging_cost(row: Mapping[str, int]) -> int:
    """Cycles of translation and of faults of a row of a profile."""
    return row["translation_cycles"] + row["fault_cycles"]


def whole_profile(profile: Mapping[str, Any], times: float) -> Mapping[str, Any]:
    """A profile of windows as one of the whole program: walks are multiplied, faults of skipped stretches are known."""
    tables = {}
    for name in ("code", "regions"):
        if name in profile:
            table = profile[name]
            rows = sorted((_whole(row, times) for row in table["rows"]), key=paging_cost, reverse=True)
            tables[name] = {**table, "rows": rows, "others_cost": _whole(table["others_cost"], times)}
    return {**profile, **tables}


def _whole(row: Mapping[str, Any], times: float) -> dict[str, Any]:
    scaled = {key: value for key, value in row.items() if key not in ("skipped_faults", "skipped_fault_cycles")}
    for name in ("walks", "translation_cycles"):
        scaled[name] = round(times * row[name])
    for name in ("faults", "fault_cycles"):
        scaled[name] = row[name] + row.get(f"skipped_{name}", 0)
    return scaled


def share(part: float, whole: float) -> float:
    """A quotient; 0 if the divisor is 0."""
    return part / whole if whole else 0.0


def name_of(result: SystemResult) -> str:
    """What was replayed: the names of the main sources."""
    main = [source.name for source in result.sources if source.role == "main"]
    return " and ".join(main or [source.name for source in result.sources])


def percent(value: float) -> str:
    """A share in per cent, to a tenth below ten."""
    if 0 < value < 0.001:
        return "under 0.1 %"
    return f"{100 * value:.1f} %" if value < 0.0995 else f"{100 * value:.0f} %"
