"""The runs of `pagelab linux test`: `kernel/tests/suite.toml`, whose first lines say what a run may have."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pagelab._engine import UsageError
from pagelab_linux import LinuxError, others, tools
from pagelab_linux.bench import KERNELS, no_such
from pagelab_linux.build import Image, Variant, Workshop
from pagelab_linux.guest import Machine, run
from pagelab_linux.initramfs import initramfs, programs
from pagelab_linux.layout import Layout, digest, files_below, read_toml
from pagelab_linux.report import FAILED, SKIPPED, Console, GuestStep

BUILTIN = {"write", "refuse", "read", "cgroup"}
"""Steps that the guest's first process carries out itself"""
EXPECTATIONS = ("pass", "fail", "report")
_PATIENT = ("watchdog_thresh=60",)
"""For the debug kernel: an emulated CPU that a busy host does not run for 20 s is not stuck"""
_DEBUG_TIMES = 10
"""How many times longer a run may take with the debug kernel"""


@dataclass(frozen=True)
class Run:
    """A machine, the steps run in it, and how they must end."""

    name: str
    steps: Sequence[str]
    what: str = ""
    kernels: Sequence[str] = ("patched",)
    accelerator: str = "tcg"
    cpus: int = 1
    memory_mib: int = 1024
    levels: Sequence[int] = (4,)
    nodes: int = 1
    seconds: float = 120.0
    parameters: Sequence[str] = ()
    expect: str = "pass"
    """For a deliberate mistake, `fail`: a program must fail or the kernel report; `report`: the kernel must report"""
    allow: Sequence[str] = ()
    """Texts of reports that are allowed"""
    repeat: int = 1
    """How often to run it; each time must print the same"""
    values: Mapping[str, str] = field(default_factory=dict)
    """The required value of each line with one of these keys"""
    debug: bool = True
    """Whether the debug kernel runs it, too"""
    lean: bool = True
    """Whether the lean kernel runs it"""
    quick: bool = True
    """Whether the quick part of the suite has it"""
    others: bool = False
    """Whether the guest has third-party programs"""

    def machine(self, levels: int, *, debug: bool) -> Machine:
        return Machine(
            accelerator=self.accelerator,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            levels=levels,
            nodes=self.nodes,
            seconds=self.seconds * (_DEBUG_TIMES if debug else 1),
            parameters=(*self.parameters, *_PATIENT * debug),
            at_once=debug,
        )


@dataclass(frozen=True)
class Case:
    """A run with one kernel and one depth of page tables."""

    run: Run
    variant: Variant
    levels: int

    @property
    def label(self) -> str:
        return f"{self.run.name} ({self.variant.name}, {self.levels} levels)"


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    case: Case
    problems: Sequence[str]
    skipped: Sequence[str]
    seconds: float
    console: Path


def load(layout: Layout) -> list[Run]:
    """The runs of the suite.

    Raises:
        LinuxError: the file is wrong, naming what is and what would be right.
    """
    path = layout.tests / "suite.toml"
    document = read_toml(path)
    unknown = sorted(set(document) - {"run", "programs"})
    if unknown or not isinstance(document.get("run"), list):
        raise LinuxError(
            f"{path}: may only have the tables [[run]] and [programs]" + f", not {', '.join(unknown)}" * bool(unknown)
        )
    runs = [_run(path, entry, programs(layout)) for entry in document["run"]]
    names = [each.name for each in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LinuxError(f"{path}: {', '.join(twice)}: each run must have a name of its own")
    return runs


def _run(path: Path, entry: dict[str, Any], known: set[str]) -> Run:
    name = entry.get("name", "a run without a name")
    kinds = {each.name: each for each in fields(Run)}
    unknown = sorted(set(entry) - set(kinds))
    if unknown:
        raise LinuxError(f"{path}: {name}: nothing is called {', '.join(unknown)}; a run has {', '.join(kinds)}")
    if not isinstance(entry.get("name"), str) or not _texts(entry.get("steps")):
        raise LinuxError(f"{path}: {name}: a run has a name, and steps as a list of texts")
    run = Run(**entry)
    if not set(run.kernels) <= set(KERNELS):
        raise LinuxError(f"{path}: {name}: kernels are {' and '.join(KERNELS)}, not {', '.join(run.kernels)}")
    if run.expect not in EXPECTATIONS:
        raise LinuxError(f"{path}: {name}: expect is {', '.join(EXPECTATIONS)}, not {run.expect}")
    try:
        check_steps(run.steps, known)
    except UsageError as error:
        raise LinuxError(f"{path}: {name}: {error}") from None
    for levels in run.levels:
        try:
            run.machine(levels, debug=False).check()
        except UsageError as error:
            raise LinuxError(f"{path}: {name}: {error}") from None
    return run


def check_steps(steps: Sequence[str], known: set[str]) -> None:
    """Refuses steps that neither one of these programs nor the first process executes.

    Raises:
        UsageError: naming the known ones.
    """
    for step in steps:
        program = step.partition(",")[0]
        if program not in known | BUILTIN:
            raise UsageError(no_such("program", program, sorted(known | BUILTIN)))


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def cases(runs: Sequence[Run], names: Sequence[str], *, has_changes: bool, debug: bool, quick: bool) -> list[Case]:
    """The runs by kernel, so that each kernel is built once.

    Raises:
        UsageError: no run has one of the names.
    """
    known = [run.name for run in runs]
    for name in names:
        if name not in known:
            raise UsageError(no_such("run", name, known))
    selected = []
    for plain in (True, False):
        # A kernel takes minutes to build: one is enough for what is quick, and where it checks itself.
        if (debug or quick) and plain and has_changes:
            continue
        for each in runs:
            fits = (each.debug if debug else each.lean) and (each.quick or not quick)
            wanted = each.name in names if names else fits
            kernel = "plain" if plain else "patched"
            if wanted and kernel in each.kernels and (plain or has_changes):
                selected += [Case(each, Variant(plain, debug), levels) for levels in each.levels]
    if not selected:
        raise UsageError("nothing to run: the remaining runs are for the other kernel, plain or patched")
    return selected


def nothing_to_do(workshop: Workshop, *, quick: bool) -> str:
    """Why the suite, or its quick part, need not run again; empty if it must run."""
    now = state(workshop.layout)
    stamps = [_stamp(workshop, quick=part) for part in ((False, True) if quick else (False,))]
    if any(stamp.is_file() and stamp.read_text(encoding="ascii") == now for stamp in stamps):
        return "nothing has changed since these runs passed here"
    return ""


def passed(workshop: Workshop, tested: str, *, quick: bool) -> None:
    """Notes that all runs, or the quick ones, passed with the state in which they began (`state`)."""
    _stamp(workshop, quick=quick).write_text(tested, encoding="ascii")


def _stamp(workshop: Workshop, *, quick: bool) -> Path:
    return workshop.work / ("passed-quick" if quick else "passed")


def state(layout: Layout) -> str:
    """The identity of a state: of the kernel's parts, and of the code that builds and runs them."""
    files = dict.fromkeys(path for folder in (layout.folder, Path(__file__).parent) for path in files_below(folder))
    return digest([path for path in files if path.suffix != ".pyc"])


def carry_out(
    workshop: Workshop, wanted: Sequence[Case], report: Callable[[Verdict], object] = lambda _: None
) -> list[Verdict]:
    """Builds the kernels that the cases need, and runs the cases. Later edits do not affect them.

    Raises:
        LinuxError: a kernel cannot be built.
    """
    archive = initramfs(workshop.layout, workshop.work)
    larger = _with_others(workshop) if any(case.run.others for case in wanted) else archive
    images = {variant: workshop.image(variant) for variant in dict.fromkeys(case.variant for case in wanted)}
    verdicts = []
    for case in wanted:
        verdict = _carry_out(workshop, images[case.variant], larger if case.run.others else archive, case)
        report(verdict)
        verdicts.append(verdict)
    return verdicts


def _with_others(workshop: Workshop) -> Path:
    """The guest's files with third-party programs."""
    wanted = others.load(workshop.layout)
    tools.require(wanted.packages, "the runs with programs of others")
    made_of: list[str | Path] = [
        workshop.layout.series().sha256,
        *(Path(str(shutil.which(tool.name))) for tool in wanted.packages),
    ]
    return initramfs(workshop.layout, workshop.work, lambda: others.entries(wanted, workshop.source()), made_of)


def _carry_out(workshop: Workshop, image: Image, archive: Path, case: Case) -> Verdict:
    name = f"{case.run.name}-{case.variant.name}-{case.levels}"
    console = workshop.work / "consoles" / f"{name}.log"
    machine = case.run.machine(case.levels, debug=case.variant.debug)
    began, outputs = time.monotonic(), []
    problems: list[str] = []
    try:
        for _ in range(case.run.repeat):
            outputs.append(run(machine, image.kernel, archive, case.run.steps, console, case.run.allow))
            problems = list(judge(case.run, outputs))
            if problems:
                break
    except LinuxError as error:
        problems = [str(error)]
    skipped = [step.command for each in outputs[:1] for step in each.steps if step.status == SKIPPED]
    return Verdict(case, problems, skipped, time.monotonic() - began, console)


def judge(run: Run, outputs: Sequence[Console]) -> Iterator[str]:
    """Problems in the consoles of repetitions of a run."""
    last = outputs[-1]
    problems = last.problems()
    if run.expect != "pass":
        if not last.reports and not (run.expect == "fail" and any(map(_failed, last.steps))):
            yield "; ".join(["a deliberate mistake was not detected", *problems])
        return
    yield from problems
    if len(last.steps) != len(run.steps) and not problems:
        yield f"{len(last.steps)} of {len(run.steps)} steps were run"
    for step in last.steps:
        for key, value in run.values.items():
            yield from (
                f"{step.command}: {key}={printed} and not {value}" for printed in step.all(key) if printed != value
            )
    for one, other in zip(outputs[0].steps, last.steps, strict=False):
        for (key, value), (_, again) in zip(one.values, other.values, strict=False):
            if value != again:
                yield f"{one.command}: {key}={value} the first time and {again} afterwards"


def _failed(step: GuestStep) -> bool:
    """Whether a program failed. Steps of the first process only prepare: if they fail, nothing was tested."""
    return step.status == FAILED and step.command.partition(",")[0] not in BUILTIN
