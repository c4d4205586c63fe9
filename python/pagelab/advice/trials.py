"""Replays of a program under each remedy, on two models of a core (`pagelab.replay.cores`).

Models: Linux as most distributions configure it, with huge pages where the program asks for them, and the same with one
    thing changed: huge pages everywhere, folios, memory that is populated when it is mapped, a larger TLB. An in-order
    core waits for every access; one with a window overlaps accesses as far as the program's dependencies allow. A real
    core lies between them for most programs, so the two say how far to trust a gain.
    If glibc's malloc grows the program's heap by brk, huge pages are also tried with a heap that grows by 2 MiB, as
    with `glibc.malloc.hugetlb=1`. With malloc's steps of 132 KiB, the heap hardly ever contains a whole huge page when
    it is first touched.
    In a virtual machine each walk is nested. Its memory has been used before, and its host maps it with pages of 2 MiB.
    Two more trials have a host with pages of 4 KiB, without huge pages in the guest and with them, since a guest cannot
    know. Two have a guest that has just booted: each first touch of 2 MiB faults in the host, too, which zeroes them.
Source: glibc 2.35, malloc/malloc.c (`sysmalloc`).
Parameters: the machine and the kernel; whether the program runs in a virtual machine.
Deviations: the trial of `glibc.malloc.hugetlb=1` gives huge pages to all anonymous memory, whereas glibc only asks for
    them in malloc's memory.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pagelab import _engine
from pagelab.advice.observed import Observed
from pagelab.catalogue import available
from pagelab.hardware import described
from pagelab.replay import cores
from pagelab.replay.simulation import Progress, run
from pagelab.results.request import WINDOWS_OF_PROFILES
from pagelab.results.results import Results

_CPUINFO = Path("/proc/cpuinfo")
TLB_FACTOR = 4
"""How many times larger the last-level TLB of a trial is"""

CORES = {"in-order": "core that waits", "window": "core that overlaps accesses"}
"""Core models that each trial is replayed on, in few words"""

_AS_IT_IS = ("base", "tlb", "small-host", "cold", "elsewhere", "elsewhere-small")
"""Trials with the huge pages that the program has without a remedy"""
_JUST_BOOTED = ("cold", "cold-huge")

_PROFILED = ("base", "huge", "malloc-huge")
"""Trials whose profiles show which mappings pay, and what huge pages save there"""

Tried: TypeAlias = str | tuple[str, dict[str, Any]]
"""A system, with the settings that make it"""


@dataclass(frozen=True)
class Choice:
    """The machine and kernel that the program is replayed on."""

    machine: str
    why_machine: str
    """Why this one, if the user named none; else empty."""
    kernel: str | None
    """None for the first of `available("kernels")`."""
    nested: bool
    """In a virtual machine."""
    why_nested: str = ""
    """Why or why not, if the user did not say; else empty."""
    observed: Observed | None = None
    """The machine that the program was observed on, if replays take its memory and settings."""


def choose(
    machine: str | None,
    kernel: str | None,
    *,
    nested: bool | None = None,
    cpu_model: str | None = None,
    virtualised: bool | None = None,
    observed: Observed | None = None,
) -> Choice:
    """The named machine and kernel; by default, the preset of the processor that the program was recorded on.

    Args:
        machine: A preset or TOML file; None if the user named none.
        kernel: The same.
        nested: Whether the program is to run in a virtual machine; None for a place like that of the recording.
        cpu_model: The processor that the program was recorded on; None of workloads.
        virtualised: Whether it was recorded in a virtual machine; None of workloads and where the trace does not say.
        observed: The machine that it was observed on, which then counts instead of that of the recording.
    """
    in_guest, why_nested = _where(nested, virtualised, observed)
    chosen_machine, why_machine = _machine(machine, observed.machine.cpu_model if observed else cpu_model)
    return Choice(chosen_machine, why_machine, kernel, in_guest, why_nested, observed)


def _where(nested: bool | None, virtualised: bool | None, observed: Observed | None) -> tuple[bool, str]:
    """Whether to replay in a virtual machine, and why."""
    if nested is not None:
        return nested, ""
    if observed is not None:
        return observed.machine.virtualised, f"the program was observed {_in_one(observed.machine.virtualised)}"
    if virtualised is None:
        return False, "it is unknown where the program runs"
    return virtualised, f"the program was recorded {_in_one(virtualised)}"


def _in_one(virtualised: bool) -> str:
    return "in one" if virtualised else "outside one"


def _machine(machine: str | None, cpu_model: str | None) -> tuple[str, str]:
    """The machine, and why that one."""
    if machine is not None:
        return machine, ""
    presets = available("machines")
    if doubt := _doubt(cpu_model):
        return presets[0]["name"], f"{doubt}: -m names a machine"
    named = {word for word in re.findall(r"[\w-]+", cpu_model or "") if len(re.findall(r"\d", word)) >= 4}
    for preset in presets:
        if named & set(re.findall(r"[\w-]+", preset["description"])):
            return preset["name"], f"the preset of the {cpu_model}"
    reason = (
        f"no preset describes the {cpu_model}; -m chooses another machine" if cpu_model else "the first of the presets"
    )
    return presets[0]["name"], reason


def _doubt(cpu_model: str | None) -> str | None:
    """Why this machine's processor cannot be what it claims, if the program was recorded here; else none."""
    text = _CPUINFO.read_text(encoding="utf-8")
    if not cpu_model or cpu_model not in text:
        return None
    return described.contradiction_in_cpuinfo(text)


@dataclass(frozen=True)
class Trials:
    """Results of all systems, by trial."""

    choice: Choice
    keys: tuple[str, ...]
    """The trials, in the order of the systems; `base` is the first."""
    in_order: Results
    window: Results
    """With profiles, for the trials that have them."""

    def pair(self, key: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Statistics of a system on both cores, the one with a window first."""
        at = self.keys.index(key)
        return self.window.systems[at].stats, self.in_order.systems[at].stats


def replay(
    source: str | os.PathLike[str],
    choice: Choice,
    *,
    max_accesses: int | None = None,
    profile_all: bool = False,
    malloc_heap: bool = False,
    progress: Progress | None = None,
) -> Trials:
    """Replays a trace or workload under the base and each remedy, on both cores.

    Args:
        source: A trace or a workload's spec.
        choice: The machine and the kernel.
        max_accesses: Replay at most this many accesses.
        profile_all: Profile all trials on the core with a window, for reports; else only those that advice needs, as
            profiles make replays slower.
        malloc_heap: Whether glibc's malloc grows the program's heap by brk, far enough for huge pages.
        progress: Told of each replay.

    Raises:
        PagelabError: what `pagelab.run` raises.
    """
    machine = json.loads(_engine.machine_json(choice.machine))
    tried = systems(choice, machine["tlb"], malloc_heap=malloc_heap)
    both = {"in-order": cores.in_order(machine["core"]), "window": cores.overlapping(machine["core"])}
    shown = {key: label for key, label in labels(choice).items() if key in tried}

    def on(core: str, keys: Sequence[str], *, profile: bool) -> Results:
        def report(label: str, done: int, total: int | None) -> None:
            if progress:
                key = _key_of(label, tried)
                number = list(tried).index(key) + 1 + list(CORES).index(core) * len(tried)
                name = f"replay {number} of {len(CORES) * len(tried)}: {shown[key]}, {CORES[core]}"
                progress(name, done, total)

        results = run(
            source,
            [tried[key] for key in keys],
            machine=choice.machine,
            kernel=choice.kernel,
            set={"machine.core": both[core]},
            max_accesses=max_accesses,
            profile=profile,
            windows=WINDOWS_OF_PROFILES if profile else None,
            progress=report,
        )
        return results.labelled([shown[key] for key in keys])

    in_order = on("in-order", list(tried), profile=False)
    profiled = [key for key in tried if profile_all or key in _PROFILED]
    window = on("window", profiled, profile=True)
    if rest := [key for key in tried if key not in profiled]:
        window = window.joined(on("window", rest, profile=False), [shown[key] for key in tried])
    return Trials(choice, tuple(tried), in_order, window)


def ensure_known(choice: Choice) -> None:
    """Fails if the machine or the kernel cannot be used, before anything takes long.

    Raises:
        PagelabError: what `pagelab.run` raises.
    """
    machine = json.loads(_engine.machine_json(choice.machine))
    tried = systems(choice, machine["tlb"], malloc_heap=False)
    run("seq:size=4KiB,passes=1", [tried["base"]], machine=choice.machine, kernel=choice.kernel)


def labels(choice: Choice) -> dict[str, str]:
    """A trial in a few words, for pages and progress."""
    guests = (
        {
            "small-host": "host with pages of 4 KiB",
            "small-host-huge": "huge pages, host with pages of 4 KiB",
            "small-host-malloc-huge": "huge pages, heap in steps of 2 MiB, host with pages of 4 KiB",
            "cold": "guest just booted",
            "cold-huge": "huge pages, guest just booted",
        }
        if choice.nested
        else {}
    )
    elsewhere = (
        {"elsewhere": "no virtual machine"}
        if choice.nested
        else {
            "elsewhere": "in a virtual machine",
            "elsewhere-small": "in a virtual machine, host with pages of 4 KiB",
        }
    )
    return {
        "base": "as it is",
        "huge": "huge pages",
        "malloc-huge": "huge pages, heap in steps of 2 MiB",
        "folios": "folios of 32 KiB",
        "populate": "populated when mapped",
        "tlb": f"TLB of {TLB_FACTOR} times the entries",
        **guests,
        **elsewhere,
    }


def _key_of(label: str, tried: Mapping[str, Tried]) -> str:
    """The trial of a system whose label was made by a run: its name, and in braces the ends of its settings' keys."""
    name, _, settings = label.partition("{")
    fitting = {}
    for key, system in tried.items():
        own, overrides = (system, {}) if isinstance(system, str) else system
        ends = [
            f"{path.rpartition('.')[2]}={value if isinstance(value, str) else ''}" for path, value in overrides.items()
        ]
        if own == name and all(end in settings for end in ends):
            fitting[key] = len(ends)
    return max(fitting, key=lambda key: fitting[key])


def systems(choice: Choice, tlb: Mapping[str, Any], *, malloc_heap: bool) -> dict[str, Tried]:
    """The systems by trial, each with its settings."""
    tried = _systems(choice, tlb, malloc_heap=malloc_heap)
    if choice.observed is None:
        return tried
    return {key: _as_observed(key, system, choice.observed) for key, system in tried.items()}


def _as_observed(key: str, system: Tried, observed: Observed) -> Tried:
    """The same with the memory, and if it has no remedy the huge pages, of an observed machine."""
    name, settings = (system, {}) if isinstance(system, str) else system
    as_it_is = observed.as_it_is if key in _AS_IT_IS else {}
    return name, {**settings, **as_it_is, **({} if key in _JUST_BOOTED else observed.settings)}


def _systems(choice: Choice, tlb: Mapping[str, Any], *, malloc_heap: bool) -> dict[str, Tried]:
    large = {"system.layers.1.page_size": "2M"}
    asked: dict[str, Any] = {"system.layers.0.large_pages": "madvise"}
    steps: dict[str, Any] = {"system.layers.0.brk_alignment_bytes": "2MiB"}
    native, guest, cold_guest = "radix-thp-madvise", "nested-radix-thp", "nested-radix-thp-cold"
    if not choice.nested:
        return {
            "base": native,
            "huge": "radix-thp",
            **({"malloc-huge": ("radix-thp", steps)} if malloc_heap else {}),
            "folios": "radix-mthp32k",
            "populate": "radix-eager",
            "tlb": (native, _larger(tlb)),
            "elsewhere": (guest, asked | large),
            "elsewhere-small": (guest, asked),
        }
    return {
        "base": (guest, asked | large),
        "huge": (guest, large),
        **({"malloc-huge": (guest, large | steps)} if malloc_heap else {}),
        "folios": ("nested-radix-mthp32k", large),
        "populate": ("nested-radix-eager", large),
        "tlb": (guest, asked | large | _larger(tlb)),
        "small-host": (guest, asked),
        "small-host-huge": guest,
        **({"small-host-malloc-huge": (guest, steps)} if malloc_heap else {}),
        "cold": (cold_guest, asked | large),
        "cold-huge": (cold_guest, large | steps if malloc_heap else large),
        "elsewhere": native,
    }


def _larger(tlb: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that makes the last level of a TLB larger, by more sets."""
    level = "l2" if tlb.get("l2") else "l1d"
    arrays: Sequence[Mapping[str, Any]] = tlb[level]
    return {f"machine.tlb.{level}": [{**array, "entries": TLB_FACTOR * array["entries"]} for array in arrays]}
