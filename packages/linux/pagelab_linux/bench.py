"""What page faults take in a real kernel: `pagelab linux bench`, from `kernel/tests/bench.toml`.

Models: nothing; it measures. A workload is passed over twice, and only the first pass faults. The difference of their
    time stamps is the cost of the faults: instructions under `icount`, cycles under KVM.
Source: kernel/tests/touch.c, matrix.c; the workloads are those of the software translation cache's evaluation.
Parameters: workloads and kernels with their settings (`bench.toml`), levels of page tables.
Deviations: emulation delivers an exception without instructions, so the hardware's part of a fault is not counted.
    The timer's interrupts during the passes are, about one per ten million instructions. Events of the processor are
    counted for the whole guest, its start included.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.run_time.counters import Counters
from pagelab_linux import LinuxError
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.guest import Machine, run
from pagelab_linux.initramfs import initramfs
from pagelab_linux.layout import Layout, read_toml

KERNELS = ("plain", "patched")
NO_EVENTS = Counters({}, None)


@dataclass(frozen=True)
class Workload:
    """A program of the guest with its arguments."""

    name: str
    step: str
    memory_mib: int = 1536
    """Of the guest"""


@dataclass(frozen=True)
class Setting:
    """A kernel, and the values written to it before a workload."""

    name: str
    kernel: str
    """plain or patched"""
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    parameters: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """The cost of one workload's faults under one setting."""

    setting: str
    workload: str
    levels: int
    faults: int
    ticks: int
    loop_ticks: int
    counters: dict[str, str]
    """What the steps after it printed"""
    round: int = 1
    events: dict[str, int] = field(default_factory=dict)
    """Of the processor, in the whole guest; empty where they cannot be counted"""

    @property
    def per_fault(self) -> float:
        return self.ticks / self.faults if self.faults else 0.0

    @property
    def loop_per_page(self) -> float:
        """Of the second pass, which finds all pages mapped: what is left are accesses, TLB misses and walks."""
        return self.loop_ticks / self.faults if self.faults else 0.0


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    settings: Sequence[Setting]
    workloads: Sequence[Workload]
    levels: Sequence[int]
    accelerator: str = "icount"
    seconds: float = 600.0
    rounds: int = 1
    """How often each figure is measured; the settings take turns"""
    events: Counters = NO_EVENTS


def load(layout: Layout) -> tuple[list[Setting], list[Workload]]:
    """Settings and workloads.

    Raises:
        LinuxError: the file is wrong.
    """
    path = layout.tests / "bench.toml"
    document = read_toml(path)
    try:
        settings = [Setting(**each) for each in document["setting"]]
        workloads = [Workload(**each) for each in document["workload"]]
    except (KeyError, TypeError) as error:
        raise LinuxError(f"{path}: {error}: its first lines say what a [[setting]] and a [[workload]] have") from None
    for each in settings:
        if each.kernel not in KERNELS:
            raise LinuxError(f"{path}: {each.name}: kernel is {' or '.join(KERNELS)}, not {each.kernel}")
    return settings, workloads


def chosen(known: Sequence[Any], names: Sequence[str], kind: str) -> list[Any]:
    """Those with these names, in the order of the names; all if there are none.

    Raises:
        UsageError: nothing has one of the names.
    """
    by_name = {each.name: each for each in known}
    for name in names:
        if name not in by_name:
            raise UsageError(no_such(kind, name, by_name))
    return [by_name[name] for name in dict.fromkeys(names)] if names else list(known)


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown name."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"no {kind} {name}; {meant}there are {', '.join(names)}"


def measure(
    workshop: Workshop, plan: Plan, report: Callable[[Figure], object] = lambda _: None
) -> tuple[list[Figure], list[str]]:
    """Boots anew for each figure, so that none depends on another.

    Returns:
        The figures, and what went wrong in runs that have none.

    Raises:
        LinuxError: a kernel cannot be built.
    """
    archive = initramfs(workshop.layout, workshop.work)
    # All are built before the first run, so later edits do not affect the figures.
    variants = dict.fromkeys(Variant(plain=setting.kernel == "plain") for setting in plan.settings)
    images = {variant.plain: workshop.image(variant) for variant in variants}
    figures, failures = [], []
    order = product(range(1, plan.rounds + 1), plan.workloads, plan.levels, plan.settings)
    for round_, workload, levels, setting in order:
        image = images[setting.kernel == "plain"]
        try:
            figures.append(_figure(workshop, plan, image, archive, setting, workload, levels, round_))
        except LinuxError as error:
            in_round = f", round {round_}" if plan.rounds > 1 else ""
            failures.append(f"{setting.name}, {workload.name}, {levels} levels{in_round}: {error}")
            workshop.say(failures[-1])
        else:
            report(figures[-1])
    places = {setting.name: place for place, setting in enumerate(plan.settings)}
    figures.sort(key=lambda figure: places[figure.setting])
    return figures, failures


def _figure(
    workshop: Workshop,
    plan: Plan,
    image: Image,
    archive: Path,
    setting: Setting,
    workload: Workload,
    levels: int,
    round_: int,
) -> Figure:
    console = workshop.work / "consoles" / f"bench-{setting.name}-{workload.name}-{levels}.log"
    counted = console.with_suffix(".events")
    machine = Machine(
        accelerator=plan.accelerator,
        memory_mib=workload.memory_mib,
        levels=levels,
        seconds=plan.seconds,
        parameters=tuple(setting.parameters),
        before=tuple(plan.events.command(counted)) if plan.events.events else (),
    )
    steps = [*setting.before, workload.step, *setting.after]
    output = run(machine, image.kernel, archive, steps, console)
    problems = output.problems()
    if problems:
        raise LinuxError(f"{'; '.join(problems)}; all is in {console}")
    at = len(setting.before)
    step, later = output.steps[at], output.steps[at + 1 :]
    figures = {key: step.last(key) for key in ("faults", "ticks", "loop_ticks")}
    if not all(value and value.lstrip("-").isdecimal() for value in figures.values()):
        raise LinuxError(f"{workload.step}: printed no faults, ticks and loop_ticks as whole numbers; see {console}")
    whole = {key: int(str(value)) for key, value in figures.items()}
    counters = {key: value for each in later for key, value in each.values}
    events = plan.events.read(counted.read_text(encoding="utf-8")) if counted.exists() else {}
    counted.unlink(missing_ok=True)
    name = (setting.name, workload.name, levels)
    return Figure(*name, whole["faults"], whole["ticks"], whole["loop_ticks"], counters, round_, events)
