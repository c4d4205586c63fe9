"""Replays of a program under each remedy, on two models of a core (`pagelab.cores`).

Models: Linux as most distributions configure it, with huge pages where the program asks for them, and the same with one
    thing changed: huge pages everywhere, folios, memory that is populated when it is mapped, a larger TLB. An in-order
    core waits for every access; one with a window overlaps accesses as far as the program's dependencies allow. A real
    core lies between them for most programs, so the two say how far to trust a gain.
Parameters: the machine and the kernel; whether the program runs in a virtual machine, so that each walk is nested.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pagelab import _engine, cores
from pagelab.calibrate import NAME as CALIBRATED_KERNEL
from pagelab.catalogue import available
from pagelab.request import WINDOWS_OF_PROFILES
from pagelab.results import Results
from pagelab.simulation import Progress, run

CALIBRATED_MACHINE = "this-machine"
"""The machine preset that measurements of a processor make"""
TLB_FACTOR = 4
"""How many times larger the last-level TLB of a trial is"""

CORES = {"in-order": "core that waits", "window": "core that overlaps accesses"}
"""Core models that all is replayed on, in few words"""

Tried: TypeAlias = str | tuple[str, dict[str, Any]]
"""A system, with the settings that make it"""


@dataclass(frozen=True)
class Choice:
    """What the program is replayed on."""

    machine: str
    why_machine: str
    """Why this one, if nobody named it; empty if somebody did."""
    kernel: str | None
    """None for the first of `available("kernels")`."""
    nested: bool
    """In a virtual machine."""


def choose(machine: str | None, kernel: str | None, *, nested: bool, cpu_model: str | None) -> Choice:
    """The machine and kernel that were named, or else those that were measured here, or the nearest preset.

    Args:
        machine: A preset or TOML file; None if nobody named one.
        kernel: The same.
        nested: Whether the program runs in a virtual machine.
        cpu_model: The processor that the program was recorded on; None of workloads.
    """
    if kernel is None and Path(f"{CALIBRATED_KERNEL}.toml").is_file():
        kernel = CALIBRATED_KERNEL
    if machine is not None:
        return Choice(machine, "", kernel, nested)
    if Path(f"{CALIBRATED_MACHINE}.toml").is_file():
        return Choice(CALIBRATED_MACHINE, "measured here", kernel, nested)
    presets = available("machines")
    named = {word for word in re.findall(r"[\w-]+", cpu_model or "") if len(re.findall(r"\d", word)) >= 4}
    for preset in presets:
        if named & set(re.findall(r"[\w-]+", preset["description"])):
            return Choice(preset["name"], f"the preset of the {cpu_model}", kernel, nested)
    reason = f"no preset is of the {cpu_model}: -m names another machine" if cpu_model else "the first of the presets"
    return Choice(presets[0]["name"], reason, kernel, nested)


@dataclass(frozen=True)
class Trials:
    """Results of all systems, by what was tried."""

    choice: Choice
    keys: tuple[str, ...]
    """What was tried, in the order of the systems; first `base`."""
    in_order: Results
    window: Results
    """With profiles."""

    def pair(self, key: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Statistics of a system on both cores, the one with a window first."""
        at = self.keys.index(key)
        return self.window.systems[at].stats, self.in_order.systems[at].stats


def replay(
    source: str | os.PathLike[str], choice: Choice, *, max_accesses: int | None = None, progress: Progress | None = None
) -> Trials:
    """Replays a trace or workload under the base and each remedy, on both cores.

    Raises:
        PagelabError: what `pagelab.run` raises.
    """
    machine = json.loads(_engine.machine_json(choice.machine))
    tried = systems(choice, machine["tlb"])
    both = {"in-order": cores.in_order(machine["core"]), "window": cores.overlapping(machine["core"])}
    shown = labels(choice)

    def on(core: str, *, profile: bool) -> Results:
        def report(label: str, done: int, total: int | None) -> None:
            if progress:
                key = _key_of(label, tried)
                number = list(tried).index(key) + 1 + profile * len(tried)
                name = f"replay {number} of {len(CORES) * len(tried)}: {shown[key]}, {CORES[core]}"
                progress(name, done, total)

        results = run(
            source,
            list(tried.values()),
            machine=choice.machine,
            kernel=choice.kernel,
            set={"machine.core": both[core]},
            max_accesses=max_accesses,
            profile=profile,
            windows=WINDOWS_OF_PROFILES if profile else None,
            progress=report,
        )
        return results.labelled([shown[key] for key in tried])

    return Trials(choice, tuple(tried), on("in-order", profile=False), on("window", profile=True))


def ensure_known(choice: Choice) -> None:
    """Fails if the machine or the kernel cannot be replayed on, before anything long is done for that.

    Raises:
        PagelabError: what `pagelab.run` raises.
    """
    run("seq:size=4KiB,passes=1", machine=choice.machine, kernel=choice.kernel)


def labels(choice: Choice) -> dict[str, str]:
    """What is tried, in a few words for pages and progress."""
    host = {"host": "huge pages in the host"} if choice.nested else {}
    return {
        "base": "as it is",
        "huge": "huge pages",
        "folios": "folios of 32 KiB",
        "populate": "populated when mapped",
        "tlb": f"TLB of {TLB_FACTOR} times the entries",
        **host,
        "elsewhere": "no virtual machine" if choice.nested else "in a virtual machine",
    }


def _key_of(label: str, tried: Mapping[str, Tried]) -> str:
    """What is tried by a system whose label is a run's own: its name, and in braces the ends of its settings' keys."""
    name, _, settings = label.partition("{")
    fitting = {}
    for key, system in tried.items():
        own, overrides = (system, {}) if isinstance(system, str) else system
        ends = [f"{of.rpartition('.')[2]}=" for of in overrides]
        if own == name and all(end in settings for end in ends):
            fitting[key] = len(ends)
    return max(fitting, key=lambda key: fitting[key])


def systems(choice: Choice, tlb: Mapping[str, Any]) -> dict[str, Tried]:
    """The systems by what is tried, each with the settings that make it."""
    native, nested = "radix-thp-madvise", ("nested-radix-thp", {"system.layers.0.large_pages": "madvise"})
    name, asked = nested if choice.nested else (native, {})
    prefix = "nested-" if choice.nested else ""
    tried: dict[str, Tried] = {
        "base": (name, asked),
        "huge": f"{prefix}radix-thp",
        "folios": f"{prefix}radix-mthp32k",
        "populate": f"{prefix}radix-eager",
        "tlb": (name, asked | _larger(tlb)),
    }
    if choice.nested:
        tried["host"] = (name, asked | {"system.layers.1.page_size": "2M"})
    tried["elsewhere"] = native if choice.nested else nested
    return tried


def _larger(tlb: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that makes the last level of a TLB larger, by more sets."""
    level = "l2" if tlb.get("l2") else "l1d"
    arrays: Sequence[Mapping[str, Any]] = tlb[level]
    return {f"machine.tlb.{level}": [{**array, "entries": TLB_FACTOR * array["entries"]} for array in arrays]}
