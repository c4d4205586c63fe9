"""What page faults take in a real kernel: `pagelab linux bench`, from `linux/tests/bench.toml`.

Models: nothing; it measures. A workload is passed over twice, and only the first pass faults. The difference of their
    time stamps is what the faults took: instructions under `icount`, cycles under KVM.
Source: linux/tests/touch.c, matrix.c; the workloads are those of the software translation cache's evaluation.
Parameters: workloads and kernels with their settings (`bench.toml`), levels of page tables.
Deviations: emulation delivers an exception without instructions, so the hardware's part of a fault is not counted.
    The timer's interrupts during the passes are, about one per ten million instructions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab.linux import LinuxError
from pagelab.linux.build import Variant, Workshop
from pagelab.linux.guest import Machine, run
from pagelab.linux.initramfs import initramfs
from pagelab.linux.layout import Layout, read_toml


@dataclass(frozen=True)
class Workload:
    """A program of the guest with its arguments."""

    name: str
    step: str
    memory_mib: int


@dataclass(frozen=True)
class Setting:
    """A kernel, and what is written to it before a workload."""

    name: str
    kernel: str
    before: Sequence[str]
    after: Sequence[str]
    parameters: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """What the faults of one workload took under one setting."""

    setting: str
    workload: str
    levels: int
    faults: int
    ticks: int
    loop_ticks: int
    counters: dict[str, str]
    """What the steps after it printed"""

    @property
    def per_fault(self) -> float:
        return self.ticks / self.faults if self.faults else 0.0


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    settings: Sequence[Setting]
    workloads: Sequence[Workload]
    levels: Sequence[int]
    accelerator: str = "icount"
    seconds: float = 600.0


def load(layout: Layout) -> tuple[list[Setting], list[Workload]]:
    """Settings and workloads.

    Raises:
        LinuxError: the file is wrong.
    """
    path = layout.tests / "bench.toml"
    told = read_toml(path)
    try:
        settings = [
            Setting(
                each["name"], each["kernel"], each.get("before", []), each.get("after", []), each.get("parameters", [])
            )
            for each in told["setting"]
        ]
        workloads = [Workload(each["name"], each["step"], each["memory_mib"]) for each in told["workload"]]
    except (KeyError, TypeError) as error:
        raise LinuxError(
            f"{path}: {error}: a [[setting]] has name and kernel, a [[workload]] name, step and memory_mib"
        ) from None
    return settings, workloads


def chosen(known: Sequence[Any], names: Sequence[str], kind: str) -> list[Any]:
    """Those with these names; all if there are none.

    Raises:
        UsageError: nothing has one of the names.
    """
    unknown = [name for name in names if name not in {each.name for each in known}]
    if unknown:
        raise UsageError(f"no {kind} {', '.join(unknown)}; there are {', '.join(each.name for each in known)}")
    return [each for each in known if not names or each.name in names]


def measure(workshop: Workshop, plan: Plan, report: Callable[[Figure], object] = lambda _: None) -> list[Figure]:
    """Boots anew for each figure, so that none depends on another.

    Raises:
        LinuxError: a kernel cannot be built, or a run fails.
    """
    archive = initramfs(workshop.layout, workshop.work)
    figures = []
    for setting in plan.settings:
        for workload in plan.workloads:
            for levels in plan.levels:
                figures.append(_figure(workshop, plan, archive, setting, workload, levels))
                report(figures[-1])
    return figures


def _figure(workshop: Workshop, plan: Plan, archive: Path, setting: Setting, workload: Workload, levels: int) -> Figure:
    image = workshop.image(Variant(plain=setting.kernel == "plain"))
    machine = Machine(
        accelerator=plan.accelerator,
        memory_mib=workload.memory_mib,
        levels=levels,
        seconds=plan.seconds,
        parameters=tuple(setting.parameters),
    )
    console = workshop.work / "consoles" / f"bench-{setting.name}-{workload.name}-{levels}.log"
    steps = [*setting.before, workload.step, *setting.after]
    said = run(machine, image.kernel, archive, steps, console)
    problems = said.problems()
    if problems:
        raise LinuxError(f"{setting.name}, {workload.name}: {'; '.join(problems)}; all is in {console}")
    at = len(setting.before)
    step, later = said.steps[at], said.steps[at + 1 :]
    figures = {key: step.last(key) for key in ("faults", "ticks", "loop_ticks")}
    if not all(value and value.lstrip("-").isdecimal() for value in figures.values()):
        raise LinuxError(f"{workload.step}: printed no faults, ticks and loop_ticks as whole numbers; see {console}")
    whole = {key: int(str(value)) for key, value in figures.items()}
    counters = {key: value for each in later for key, value in each.values}
    return Figure(setting.name, workload.name, levels, whole["faults"], whole["ticks"], whole["loop_ticks"], counters)
