"""What the stages of faults execute by kind of fault, per fault and per page that it maps.

Source: `pagelab linux trace`.
Deviations: two workloads whose faults map different numbers of pages give the instructions per page, as if they were
    the same for each page beyond the first. What is executed in a stage that the model's fault of the kind skips counts
    for another stage. Kinds share the stages up to the walk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagelab_linux.stages import STAGES
from pagelab_linux.trace import Measured, Workload

FIRST_TOUCH = "anonymous, first write"
KINDS = {
    "zero page mapped": "zero-page",
    "zero page replaced": "zero-page-replaced",
    "copy of a page": "copy",
    "page reused": "reuse",
    "file, mapped around": "file-around",
    "file, shared write": "file-shared",
    "file, copied": "file-copy",
}
"""Their names in the trace, and in `kernel.fault_kinds`"""
_AFTER_WALK = STAGES[STAGES.index("allocation") :]
_COUNTED_WITH = {("zero page mapped", "allocation"): "install", ("page reused", "rmap"): "install"}


@dataclass(frozen=True)
class KindCost:
    """Instructions of a kind's faults in the stages after the walk, without stages in which they execute none."""

    kind: str
    instructions: Mapping[str, int]
    """Of a fault that maps one page, a string instruction as one"""
    page_instructions: Mapping[str, int]
    """Per page beyond the first"""
    measured_on: str


def net(measured: Measured, stage: str) -> float:
    """Instructions of a stage per fault, without repetitions of string instructions."""
    counts = measured.stages.get(stage)
    return counts["instructions"].mean - counts["repetitions"].mean if counts else 0.0


def costs(measured: Sequence[Measured], workloads: Sequence[Workload]) -> dict[str, KindCost]:
    """For each measured kind, including first touches."""
    pages = {workload.name: workload.pages for workload in workloads}
    by_kind = {}
    for kind in (FIRST_TOUCH, *KINDS):
        points = {pages[each.workload]: each for each in reversed(measured) if each.kind == kind}
        if points:
            by_kind[kind] = _cost(kind, points)
    return by_kind


def _cost(kind: str, points: Mapping[int, Measured]) -> KindCost:
    fewest, most = min(points), max(points)
    instructions, per_page = dict.fromkeys(_AFTER_WALK, 0.0), dict.fromkeys(_AFTER_WALK, 0)
    executed = [stage for stage in _AFTER_WALK if any(stage in each.stages for each in points.values())]
    for stage in executed:
        counted_as = _COUNTED_WITH.get((kind, stage), stage)
        low, high = (net(points[number], stage) for number in (fewest, most))
        if most > fewest:
            per_page[counted_as] += max(round((high - low) / (most - fewest)), 0)
        instructions[counted_as] += high
    beyond = most - 1 if most > fewest else 0
    counted = [stage for stage in _AFTER_WALK if (kind, stage) not in _COUNTED_WITH and stage in executed]
    return KindCost(
        kind,
        {stage: max(round(instructions[stage] - beyond * per_page[stage]), 0) for stage in counted},
        {stage: per_page[stage] for stage in counted if per_page[stage]},
        " and ".join(_told(points[number], number) for number in sorted(points)),
    )


def _told(each: Measured, pages: int) -> str:
    several = f" of {pages} pages" * (pages > 1)
    return f"{each.workload}, mean of {each.faults:,} faults{several}"
