"""Makes a machine preset valid for the simulator, whatever was stated and measured.

Models: latencies grow from level to level. A figure that contradicts that, or an impossible geometry, is replaced by
    that of the base preset. Each change is returned as a sentence.
"""

import itertools
import tempfile
from collections.abc import Iterable, Mapping, MutableMapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w

from pagelab._engine import ConfigError, UsageError
from pagelab.replay.simulation import run

_LEVELS = ("cache.l1.latency_cycles", "cache.l2.latency_cycles", "cache.l3.latency_cycles")
_MEMORY = "cache.dram_latency_cycles"
_OTHER_CORES = "cache.cache_to_cache_latency_cycles"
_STEP = 3
"""How many times longer a level takes than the one before, if nothing is known; an estimate"""
_PARTS = (
    "core",
    "tlb.l1d",
    "tlb.l1i",
    "tlb.l2",
    "tlb",
    "mmu_cache",
    "cache.l1",
    "cache.l2",
    "cache.l3",
    "cache.far_cores",
    "cache.walker_entry",
    "cache.bulk_parallelism",
    "cache",
    "bulk",
    "cores",
    "threads_per_core",
    "frequency_mhz",
    "memory_bytes",
)
"""Parts that are replaced as a whole; the first that contains a key counts"""


def order_latencies(
    preset: MutableMapping[str, Any], origin: MutableMapping[str, str], base: Mapping[str, Any]
) -> list[str]:
    """Gives the latencies of a preset the order that caches have, and returns what was changed.

    A measured latency that is not above that of the level before is left to the base. If the base's is not above it
    either, it is raised: it is then as many times that of the level before as in the base.

    Args:
        preset: The preset; keys that are refused or raised are replaced.
        origin: Its origins, by key; those of replaced keys are changed.
        base: The machine that the preset was started from.
    """
    changes: list[str] = []
    levels = [key for key in _LEVELS if get(preset, key) is not None]
    private = levels[1] if len(levels) > 2 else levels[0]
    for nearer, key in [*zip(levels, [*levels[1:], _MEMORY], strict=True), (private, _OTHER_CORES)]:
        least = get(preset, nearer)
        if get(preset, key) is None or get(preset, key) > least:
            continue
        before = get(preset, key)
        ratio = _ratio(base, key, nearer)
        if get(base, key) is not None and get(base, key) > least:
            value, how = get(base, key), f"as in {base['name']}"
        else:
            value = max(round(least * ratio), least + 1)
            how = f"{ratio:.3g} times {nearer}, as in {base['name']}"
        put(preset, key, value)
        origin[key] = f"estimated: {how}, since {before} is not more than {nearer}, which is {least}"
        changes.append(f"{key}: {before} is not more than {nearer}, which is {least}; it is {value} now, {how}")
    return changes


def estimate_missing(preset: MutableMapping[str, Any], origin: MutableMapping[str, str]) -> list[str]:
    """Gives levels without a latency, which are neither measured nor in the base, one, and returns what was given."""
    changes = []
    for nearer, key in itertools.pairwise(_LEVELS):
        level = key.rpartition(".")[0]
        if get(preset, level) is None or get(preset, key) is not None:
            continue
        value = _STEP * get(preset, nearer)
        put(preset, key, value)
        origin[key] = f"estimated: {_STEP} times {nearer}"
        changes.append(f"{key} is an estimate, {value}: {_STEP} times {nearer}")
    return changes


def _ratio(base: Mapping[str, Any], key: str, nearer: str) -> float:
    far, near = get(base, key), get(base, nearer)
    return far / near if far and near and far > near else float(_STEP)


def leave_impossible(
    preset: MutableMapping[str, Any], origin: MutableMapping[str, str], base: Mapping[str, Any]
) -> list[str]:
    """Leaves to the base what the simulator refuses, part by part, and returns what was left and why.

    Raises:
        UsageError: the simulator refuses even what is the base's.
    """
    changes: list[str] = []
    left: set[str] = set()
    while refused := refusal(preset):
        key = refused.partition(":")[0].removeprefix("machine.")
        part = next((part for part in _PARTS if key == part or key.startswith(f"{part}.")), None)
        if part is None or part in left:
            raise UsageError(f"no preset can be made from the measurements: {refused}")
        left.add(part)
        if get(base, part) is None:
            _remove(preset, part)
        else:
            put(preset, part, deepcopy(get(base, part)))
        _forget(origin, part)
        origin[part] = f"estimated: as in {base['name']}, since this machine's own figure was refused: {refused}"
        changes.append(f"{part} stays as in {base['name']}: {refused}")
    return changes


def refusal(preset: Mapping[str, Any]) -> str | None:
    """Why the simulator refuses a machine; none if it accepts it."""
    with tempfile.TemporaryDirectory(prefix="pagelab-machine-") as folder:
        file = Path(folder) / "machine.toml"
        file.write_text(tomli_w.dumps(preset), encoding="utf-8")
        try:
            run("seq:size=4KiB,passes=1", machine=file)
        except ConfigError as error:
            return str(error)
    return None


def get(preset: Mapping[str, Any], key: str) -> Any:
    """The value of a key such as `cache.l1.ways`; none if there is none."""
    part: Any = preset
    for name in key.split("."):
        part = part.get(name) if isinstance(part, Mapping) else None
    return part


def put(preset: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Sets a key, whose table is there."""
    *tables, last = key.split(".")
    part: Any = preset
    for name in tables:
        part = part[name]
    part[last] = value


def _remove(preset: MutableMapping[str, Any], key: str) -> None:
    *tables, last = key.split(".")
    part: Any = preset
    for name in tables:
        part = part[name]
    part.pop(last, None)


def _forget(origin: MutableMapping[str, str], part: str) -> None:
    for key in _below(origin, part):
        del origin[key]


def _below(keys: Iterable[str], part: str) -> list[str]:
    return [key for key in keys if key == part or key.startswith(f"{part}.")]
