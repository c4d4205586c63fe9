"""A kernel preset with the costs of page faults on this machine.

Models: micro-benchmarks are run on the host's kernel, and the same accesses are simulated with a preset of a kernel of
    that age. A simulated fault costs the cycles of its stages and those of its memory references; the stages are set
    such that the sum is the measured cost.
Source: `crates/pagelab-host` measures. Each group of stages (`GROUPS`) is what one more benchmark has beyond those
    before, after the functions of Linux's mm/memory.c that handle them. The walk is measured by a replica of it.
Parameters: the simulated machine, since the cost of its references is subtracted.
Deviations: the division of a group's cycles among its stages stays that of the preset, an estimate; so do instructions.
    Cycles are those of the host's core, whatever the clock of the simulated machine. In a virtual machine the
    hypervisor's nested walks and exits are in the kernel's stages, where a bare-metal system has none of them.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.catalogue import available
from pagelab.hardware import names, plausible
from pagelab.hardware.clock import Clock, from_measurement
from pagelab.replay.simulation import run
from pagelab.results.results import SystemResult

TRANSLATION_CACHES = {"full-prefix": "walk-look-up", "as-published": "walk-look-up-published"}
"""Forms of translation caches whose costs are measured, and the benchmarks of their look-ups."""
_SYSTEM = "radix"
_CLASSES = ("base", "data_stall", "translation", "fault", "kernel")


@dataclass(frozen=True)
class Cost:
    """Cycles of an operation on the host."""

    median_cycles: float
    lower_quartile_cycles: float
    upper_quartile_cycles: float
    repeats: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a share of the median."""
        return (
            (self.upper_quartile_cycles - self.lower_quartile_cycles) / self.median_cycles
            if self.median_cycles
            else 0.0
        )

    def __str__(self) -> str:
        digits = 0 if self.median_cycles >= 100 else 1
        quartiles = f"{self.lower_quartile_cycles:,.{digits}f} to {self.upper_quartile_cycles:,.{digits}f}"
        return f"{self.median_cycles:,.{digits}f} cycles (quartiles {quartiles}, {self.repeats} repeats)"


@dataclass(frozen=True)
class Share:
    """Per cent of a plain walk that a translation cache saves, over several runs."""

    median_percent: float
    lower_quartile_percent: float
    upper_quartile_percent: float

    def __str__(self) -> str:
        quartiles = f"{self.lower_quartile_percent:.0f} to {self.upper_quartile_percent:.0f}"
        return f"{self.median_percent:.0f} % ({quartiles})"


@dataclass(frozen=True)
class Walk:
    """The walk of a fault's handler, with this much other data touched before each."""

    pattern: str
    between_bytes: int
    zeroing: str
    """How `struct vm_fault` was zeroed: by stores, or by a string instruction."""
    plain: Cost
    full_prefix: Cost
    published: Cost
    full_prefix_saves: Share
    published_saves: Share

    def __str__(self) -> str:
        return (
            f"walks, {self.pattern}, {self.between_bytes >> 10} KiB between, zeroed by {self.zeroing}: "
            f"{self.plain.median_cycles:.1f} cycles; "
            f"whole prefixes save {self.full_prefix_saves}, as published {self.published_saves}"
        )


@dataclass(frozen=True)
class Host:
    """The measurements, by benchmark."""

    kernel: str
    cpu_model: str
    clock: Clock
    costs: Mapping[str, Cost]
    missing: Mapping[str, str]
    """Why the benchmarks without a cost have none."""
    walks: Sequence[Walk] = ()

    def __str__(self) -> str:
        return f"{self.kernel}, {self.cpu_model}, clock at {self.clock}"


@dataclass(frozen=True)
class Group:
    """Stages whose cycles follow from one benchmark, if those of the earlier groups are known."""

    benchmark: str
    stages: tuple[str, ...]


GROUPS = (
    Group("zero-page-read", ("entry", "lookup", "walk", "install", "return")),
    Group("file-read", ("rmap", "lru")),
    Group("first-write", ("allocation", "zeroing", "charge")),
)
"""A read of untouched memory installs the zero page and does no more; one of a file also enters the page into the
reverse map and the lists; a first write needs a frame as well."""

_PASSES = {
    "zero-page-read": GROUPS[:1],
    "file-read": GROUPS[:2],
    "first-write": GROUPS,
}
"""The groups whose stages a benchmark's faults pass."""

_SCALARS = {
    "context_switch_cycles": ("context-switch", "a byte to a process on the same CPU, less writing and reading it"),
    "invalidate_page_cycles": (
        "invalidate-page",
        "mprotect of a mapped page less that of one that is not: PTE and flush",
    ),
    "shootdown_ipi_cycles": (
        "shootdown",
        "mprotect of a mapped page while a thread runs on another CPU, less without it",
    ),
    "fork_page_cycles": ("fork-page", "fork with 8,192 pages more, divided by them"),
}
"""Keys of the preset that a benchmark gives directly."""


_CALL_COSTS = {
    "call": ("mapping-call", 1500, "a mean of mmap, madvise and munmap of a page without a touch"),
    "unmap_page": ("unmap-page", 250, "munmap of 1,024 written pages less that of untouched ones, per page"),
    "change_page": ("change-page", 60, "mprotect of 1,024 written pages less the same call again, per page"),
}
"""Keys of `kernel.mapping_calls`, with their benchmarks, guesses of their instructions, and how they were measured."""
_FREE_CALLS = {
    f"kernel.mapping_calls.{key}.{unit}": 0 for key in _CALL_COSTS for unit in ("instructions", "cycles")
} | {"kernel.mapping_calls.downgrade": "on"}
_DOWNGRADE = (4, 20)
"""The first version whose munmap lets faults go on (`mmap_write_downgrade`)."""

WALK_REFERENCES = 4
"""What a walk reads one after the other before the PTE: the root pointer, entries of pgd, pud and pmd."""


@dataclass(frozen=True)
class Solution:
    """Cycles of a group's stages."""

    group: Group
    cycles: Mapping[str, int]
    references: float
    """Cycles of the benchmark's references, which the engine adds"""
    above: float
    """Cycles by which the simulation remains above the measurement, since no stage can cost less than nothing"""
    measured: bool


@dataclass(frozen=True)
class Comparison:
    """A benchmark on the host and simulated."""

    benchmark: str
    measured: Cost | None
    preset_cycles: float
    """With the base preset"""
    calibrated_cycles: float
    fitted: bool


@dataclass(frozen=True)
class Calibration:
    """A kernel preset, and how well it fits."""

    preset: dict[str, Any]
    base: str
    machine: str
    comparisons: Sequence[Comparison]
    solutions: Sequence[Solution]

    def to_toml(self, host: Host) -> str:
        """The preset as a file; comments have the other measurements."""
        lines = [f"{names.FIRST_LINE}, version {_engine.__version__}: {host}."]
        lines += [f"# {name}: {cost}" for name, cost in sorted(host.costs.items())]
        lines += [f"# {walk}" for walk in host.walks]
        return "\n".join([*lines, "", tomli_w.dumps(self.preset)])


def measure() -> Host:
    """Runs the benchmarks on this machine; takes a few seconds. Needs no privileges.

    Raises:
        UsageError: the rate of the core's clock cannot be measured.
    """
    report = json.loads(_engine.measure_host_json())
    costs, missing = _plausible({name: Cost(**cost) for name, cost in report["costs"].items()})
    return Host(
        kernel=report["host"]["kernel"],
        cpu_model=report["host"]["cpu_model"],
        clock=from_measurement(report["clock"], report["stated_rates"]),
        costs=costs,
        missing={**report["missing"], **missing},
        walks=[_walk(walk) for walk in report["walks"]],
    )


def _plausible(costs: Mapping[str, Cost]) -> tuple[dict[str, Cost], dict[str, str]]:
    """The plausible costs, and why the others are implausible."""
    ranges = plausible.KERNEL
    refusals = {name: ranges[name].refusal(cost.median_cycles) for name, cost in costs.items() if name in ranges}
    missing = {name: why for name, why in refusals.items() if why}
    return {name: cost for name, cost in costs.items() if name not in missing}, missing


def _walk(walk: Mapping[str, Any]) -> Walk:
    plain, full_prefix, published = (Cost(**walk[name]) for name in ("plain", "full_prefix", "published"))
    full_prefix_saves, published_saves = (Share(**walk[name]) for name in ("full_prefix_saves", "published_saves"))
    pattern, between, zeroing = walk["pattern"], walk["between_bytes"], walk["zeroing"]
    return Walk(pattern, between, zeroing, plain, full_prefix, published, full_prefix_saves, published_saves)


def calibrate(
    host: Host, machine: str | None = None, translation_cache: str | None = None, *, name: str = names.KERNEL
) -> Calibration:
    """The preset with which the simulated benchmarks on `machine` cost as much as on the host.

    Args:
        translation_cache: The preset's form of `TRANSLATION_CACHES`; none for a kernel without one.
        name: The preset's name in results.

    Raises:
        ConfigError: there is no such machine.
        UsageError: the costs of a translation cache were requested, and cannot be measured on this host.
    """
    if translation_cache and "walk" not in host.costs:
        raise UsageError(f"the costs of a translation cache cannot be measured here: {_why(host, 'walk')}")
    base = nearest_preset(host.kernel)
    with tempfile.TemporaryDirectory(prefix="pagelab-calibrate-") as folder:
        traces = json.loads(_engine.host_traces_json(Path(folder)))
        free = {f"kernel.fault.{stage}.cycles": 0 for group in GROUPS for stage in group.stages}
        references, result = _simulate(traces, machine, base, free | _FREE_CALLS)
        before, plain = _simulate(traces, machine, base, {})
        kernel = plain.config["kernel"]
        measured = {name: cost.median_cycles for name, cost in host.costs.items()}
        stages = {stage: costs["cycles"] for stage, costs in kernel["fault"].items()}
        solutions = solve(stages, references, measured)
        preset = _preset(name, kernel, host, solutions, base, result.machine)
        latency = plain.config["machine"]["cache"]["l1"]["latency_cycles"]
        _set_walk(preset, host, latency, result.machine)
        _add_mapping_calls(preset, host, references, result.machine)
        if translation_cache:
            _add_translation_cache(preset, host, latency, result.machine, translation_cache)
        file = Path(folder) / f"{names.KERNEL}.toml"
        file.write_text(tomli_w.dumps(preset), encoding="utf-8")
        after, _ = _simulate(traces, machine, str(file), {})
    fitted = {*_PASSES, *(benchmark for benchmark, _, _ in _CALL_COSTS.values())}
    comparisons = [
        Comparison(name, host.costs.get(name), before[name], after[name], fitted=name in fitted) for name in after
    ]
    return Calibration(preset, base, result.machine, comparisons, solutions)


def solve(stages: Mapping[str, int], references: Mapping[str, float], measured: Mapping[str, float]) -> list[Solution]:
    """Cycles of every group of `GROUPS`, in this order.

    Args:
        stages: The preset's cycles, which a group without a measurement keeps, and in whose ratio others divide theirs.
        references: Cycles of each benchmark's references, with stages that cost nothing.
        measured: Cycles of each benchmark, as far as there are any.
    """
    solutions: list[Solution] = []
    for group in GROUPS:
        weights = {stage: stages[stage] for stage in group.stages}
        known = references[group.benchmark] + sum(sum(solution.cycles.values()) for solution in solutions)
        if group.benchmark in measured:
            missing = round(measured[group.benchmark] - known)
            cycles = divide(max(missing, 0), weights)
            above = max(-missing, 0)
        else:
            cycles, above = weights, 0
        solutions.append(Solution(group, cycles, references[group.benchmark], above, group.benchmark in measured))
    return solutions


def divide(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divides a total in the ratio of the weights, into whole numbers that sum to it."""
    whole = sum(weights.values())
    if whole == 0:
        return divide(total, dict.fromkeys(weights, 1))
    parts = {}
    done = weight = 0
    for name in weights:
        weight += weights[name]
        parts[name] = total * weight // whole - done
        done += parts[name]
    return parts


def nearest_preset(kernel: str) -> str:
    """The kernel preset of the latest version that is not newer than `kernel` (`Linux 6.18.2`), or the oldest."""
    presets: list[tuple[tuple[int, int], str]] = sorted(
        (_version(entry["name"]), entry["name"])
        for entry in available("kernels")
        if re.fullmatch(r"linux-\d+\.\d+", entry["name"])
    )
    older = [name for version, name in presets if version <= _version(kernel)]
    return older[-1] if older else presets[0][1]


def _simulate(
    traces: Sequence[Mapping[str, Any]], machine: str | None, kernel: str, settings: Mapping[str, int | str]
) -> tuple[dict[str, float], SystemResult]:
    """Cycles of a fault or page of each benchmark, as the host measures them: what is done, minus the same again."""
    costs = {}
    for trace in traces:
        results = [
            run(trace[part], _SYSTEM, machine=machine, kernel=kernel, set=settings).systems[0]
            for part in ("before", "once", "twice")
        ]
        before, once, twice = (sum(result.stats[f"cycles.{name}"] for name in _CLASSES) for result in results)
        costs[trace["name"]] = ((once - before) - (twice - once)) / trace["count"]
    return costs, results[0]


def _preset(
    name: str, kernel: Mapping[str, Any], host: Host, solutions: Sequence[Solution], base: str, machine: str
) -> dict[str, Any]:
    preset = {key: value for key, value in kernel.items() if value is not None}
    preset["name"] = name
    preset["description"] = f"{host.kernel} on {host.cpu_model}, as measured there; decides as {base} does"
    fault = {stage: dict(costs) for stage, costs in kernel["fault"].items()}
    origin = {key: text for key, text in kernel["origin"].items() if key.split(".")[0] != "fault"}
    origin["fault"] = f"estimated: instructions as in {base}"
    for solution in solutions:
        for stage, cycles in solution.cycles.items():
            fault[stage]["cycles"] = cycles
            origin[f"fault.{stage}.cycles"] = _stage_origin(solution, host, base, machine)
    for key, (benchmark, how) in _SCALARS.items():
        if benchmark in host.costs:
            preset[key] = max(round(host.costs[benchmark].median_cycles), 0)
            origin[key] = f"measured: {how}: {host.costs[benchmark]}; {host}"
        else:
            origin[key] = f"estimated: as in {base}, since it could not be measured: {_why(host, benchmark)}"
    # A mapping's place in the file is that of its last assignment.
    del preset["fault"], preset["origin"]
    return {**preset, "fault": fault, "origin": origin}


def _set_walk(preset: dict[str, Any], host: Host, latency: int, machine: str) -> None:
    """Gives the stage `walk` its measured cycles, and the rest to the other stages of its group."""
    if "walk" not in host.costs:
        return
    fault, origin, stages = preset["fault"], preset["origin"], GROUPS[0].stages
    total = sum(fault[stage]["cycles"] for stage in stages)
    others = {stage: fault[stage]["cycles"] for stage in stages if stage != "walk"}
    walk = min(_beyond(host, "walk", WALK_REFERENCES, latency), total)
    divided = divide(total - walk, others) | {"walk": walk}
    for stage, cycles in divided.items():
        fault[stage]["cycles"] = cycles
    origin["fault.walk.cycles"] = _walk_origin(host, "walk", WALK_REFERENCES, latency, machine)


def _add_mapping_calls(preset: dict[str, Any], host: Host, references: Mapping[str, float], machine: str) -> None:
    """Gives mapping calls their measured costs, if all were measured."""
    missing = [benchmark for benchmark, _, _ in _CALL_COSTS.values() if benchmark not in host.costs]
    origin = preset.pop("origin")
    if not missing:
        costs: dict[str, Any] = {}
        origin["mapping_calls"] = "estimated: instructions"
        for key, (benchmark, instructions, how) in _CALL_COSTS.items():
            simulated = references.get(benchmark, 0)
            cycles = max(round(host.costs[benchmark].median_cycles - simulated), 0)
            costs[key] = {"instructions": instructions, "cycles": cycles}
            origin[f"mapping_calls.{key}.cycles"] = (
                f"measured: {how}: {host.costs[benchmark]} on {host}; less {simulated:,.0f} cycles for its references "
                f"on {machine}, and no less than 0"
            )
        costs["downgrade"] = "on" if _version(host.kernel) >= _DOWNGRADE else "off"
        preset["mapping_calls"] = costs
    preset["origin"] = origin


def _add_translation_cache(preset: dict[str, Any], host: Host, latency: int, machine: str, form: str) -> None:
    """Adds a translation cache with the costs that were measured."""
    measured = {
        "cycles": (TRANSLATION_CACHES[form], 1),
        "level_cycles": ("walk-level", 1),
        "root_cycles": ("walk-root", 1),
        "fill_cycles": ("walk-fill", 1),
    }
    origin = preset.pop("origin")
    cache: dict[str, Any] = {"form": form, "entries": 16, "ways": 1, "per": "vma"}
    cache |= {"instructions": 24, "level_instructions": 12, "root_instructions": 4, "fill_instructions": 6}
    origin["translation_cache"] = "estimated: as in linux-4.19-stc"
    for key, (benchmark, references) in measured.items():
        cache[key] = _beyond(host, benchmark, references, latency)
        origin[f"translation_cache.{key}"] = _walk_origin(host, benchmark, references, latency, machine)
    # What hits skip cannot cost more than the whole walk.
    walk = preset["fault"]["walk"]["cycles"]
    cache["level_cycles"] = min(cache["level_cycles"], walk // 3)
    cache["root_cycles"] = min(cache["root_cycles"], walk - 3 * cache["level_cycles"])
    preset |= {"translation_cache": cache, "origin": origin}


def _beyond(host: Host, benchmark: str, references: int, latency: int) -> int:
    """Cycles of a benchmark of walks beyond references that hit the simulated first-level cache."""
    return max(round(host.costs[benchmark].median_cycles - references * latency), 0)


def _walk_origin(host: Host, benchmark: str, references: int, latency: int, machine: str) -> str:
    return (
        f"measured: {benchmark} of a replica of Linux 4.19's walk takes {host.costs[benchmark]} on {host}; less "
        f"{references} of {latency} cycles each for its references on {machine}, and no less than 0"
    )


def _stage_origin(solution: Solution, host: Host, base: str, machine: str) -> str:
    benchmark = solution.group.benchmark
    if not solution.measured:
        return f"estimated: as in {base}, since {benchmark} could not be measured: {_why(host, benchmark)}"
    total = (
        f"measured: {benchmark} takes {host.costs[benchmark]} on {host}; less its references "
        f"({solution.references:,.0f} cycles on {machine}) and the stages of the benchmarks before, "
        f"{sum(solution.cycles.values()):,} are left for {', '.join(solution.group.stages)}"
    )
    if solution.above:
        return f"{total}; the simulation stays {solution.above:,} above what was measured"
    return f"{total}; how they divide is estimated, as in {base}"


def _why(host: Host, benchmark: str) -> str:
    return host.missing.get(benchmark, "no reason given")


def _version(text: str) -> tuple[int, int]:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)
