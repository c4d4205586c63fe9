"""A kernel preset whose stages have the instructions that a trace counted.

Source: `pagelab linux trace`; everything else is from the base preset.
Deviations: emulation measures no cycles. The machine's core decides those of the instructions. What a processor does
    beyond them remains an estimate: the cycles of the base in these stages, minus those of its instructions there.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagelab_linux import LinuxError
from pagelab_linux.kinds import FIRST_TOUCH, KINDS, KindCost, net
from pagelab_linux.references import Lines, Rows, replay, steady_lines
from pagelab_linux.simulated import Simulator, simulate
from pagelab_linux.stages import STAGES
from pagelab_linux.trace import Measured, Trace

_BEYOND_INSTRUCTIONS = {
    "entry": "delivery of the exception",
    "zeroing": "start of the string instruction",
    "return": "IRET",
}
"""Stages in which a processor spends cycles beyond its instructions, and why."""


def chosen(trace: Trace, names: Sequence[str]) -> tuple[Measured, Rows]:
    """First touches, which presets of the model are anchored at, and references, of the first workload that has some.

    Args:
        names: Of the workloads, in their order.

    Raises:
        LinuxError: there are none.
    """
    first_touch = next((each for each in trace.measured if each.kind == FIRST_TOUCH), None)
    if first_touch is None:
        raise LinuxError(f"a preset needs faults of the kind {FIRST_TOUCH!r}, and the trace has none: trace sequential")
    return first_touch, trace.references[names.index(first_touch.workload)]


def lines(base: Path, rows: Rows) -> dict[str, Lines]:
    """Lines of each stage that the simulator must touch in addition to its own.

    Their number is the stage's lines per fault, minus the simulator's lines for the same accesses. Their owners are in
    the proportion of the lines that the stage touches in every fault.
    """
    touched, steady = replay(rows, None, cold=False), steady_lines(rows)
    simulated = simulate(rows, Simulator(kernel=str(base)))
    by_stage, cpu = {}, 0
    for stage in STAGES:
        lacking = round(touched[stage].all_lines - sum(simulated.lines(stage).values())) if stage in touched else 0
        by_stage[stage] = _shared(max(lacking, 0), steady[stage], cpu)
        cpu += by_stage[stage].cpu
    return by_stage


def _shared(number: int, steady: Lines, cpu_before: int) -> Lines:
    """This many lines: first those touched before, then others in the proportions of the steady ones."""
    again = min(number, steady.again, cpu_before)
    left, kinds = number - again, (steady.cpu, steady.space, steady.kernel)
    counts, spent, so_far = [], 0, 0
    for each in kinds:
        so_far += each
        upto = round(left * so_far / (sum(kinds) or 1))
        counts.append(upto - spent)
        spent = upto
    cpu, space, kernel = counts
    return Lines(cpu, space, kernel, again)


def instructions(measured: Measured) -> dict[str, int]:
    """Instructions of each stage. A string instruction is one, as on a processor."""
    return {stage: round(net(measured, stage)) for stage in STAGES}


def hardware_cycles(base: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Cycles of the processor beyond its instructions, for the stages that have some.

    The base's cycles of such a stage include its instructions. These are subtracted at the cycles per instruction of
    the base's other stages.
    """
    rate = _cycles_per_instruction(base)
    return {
        stage: max(round(base[stage]["cycles"] - rate * base[stage]["instructions"]), 0)
        for stage in _BEYOND_INSTRUCTIONS
    }


def _cycles_per_instruction(base: Mapping[str, Mapping[str, int]]) -> float:
    others = [base[stage] for stage in STAGES if stage not in _BEYOND_INSTRUCTIONS]
    return sum(stage["cycles"] for stage in others) / (sum(stage["instructions"] for stage in others) or 1)


def preset(
    base: Path,
    measured: Measured,
    touched: Mapping[str, Lines],
    version: str,
    kinds: Mapping[str, KindCost] | None = None,
) -> str:
    """The text of the preset.

    Args:
        touched: Lines by stage.
        kinds: All measured kinds; only differences from first touches are written.

    Raises:
        LinuxError: the base is no preset of a kernel with these ten stages.
    """
    try:
        text = base.read_text(encoding="utf-8")
        document = tomllib.loads(text)
        name, stages = document["name"], document["fault"]
        beyond = hardware_cycles(stages)
        head, _, rest = text.partition("[fault]\n")
        _, _, origins = rest.partition("[origin]\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LinuxError(f"{base}: {error}: it must be a kernel's preset with the stages {', '.join(STAGES)}") from None
    head = head.replace(f'name = "{name}"', f'name = "{name}-traced"', 1)
    head = re.sub(
        r'^description = "(.*)"$',
        r'description = "\1; instructions of faults as traced in the real kernel"',
        head,
        count=1,
        flags=re.MULTILINE,
    )
    counted = instructions(measured)
    head = head.replace(*_CYCLES_TOLD)
    kinds = kinds or {}
    first = kinds.get(FIRST_TOUCH)
    per_page = first.page_instructions if first else {}
    lines = ["[fault]"]
    lines += [
        _stage(stage, counted[stage], beyond.get(stage, 0), per_page.get(stage, 0), touched[stage]) for stage in STAGES
    ]
    others = [_kind(kinds[kind], counted, touched) for kind in KINDS if kind in kinds]
    lines += [line for table in others for line in table]
    lines += ["", "[origin]", *_origins(measured, touched, (name, stages), version), *_kind_origins(kinds, version)]
    kept = [line for line in origins.splitlines() if not re.match(r'"?fault[."\s]', line)]
    return head + "\n".join([*lines, *kept, ""])


_CYCLES_TOLD = (
    "The cycles of a first touch sum to 2560.",
    "Cycles are those that\n# the machine's core takes for the instructions, and those of the processor beyond them.",
)
"""The base's text about its cycles, and the preset's."""


def _stage(stage: str, instructions: int, hardware_cycles: int, page_instructions: int, lines: Lines) -> str:
    kinds = ", ".join(f"{kind} = {number}" for kind, number in dataclasses.asdict(lines).items() if number)
    more = f", lines = {{ {kinds} }}" * bool(kinds)
    beyond = f", hardware_cycles = {hardware_cycles}" * bool(hardware_cycles)
    beyond += f", page_instructions = {page_instructions}" * bool(page_instructions)
    return f"{stage} = {{ instructions = {instructions}{beyond}{more} }}"


def _kind(cost: KindCost, first_touch: Mapping[str, int], touched: Mapping[str, Lines]) -> list[str]:
    """The table of a kind: stages that differ from those of a first touch, whose lines they have."""
    written = ["", f"[fault_kinds.{KINDS[cost.kind]}]"]
    for stage, instructions in cost.instructions.items():
        per_page = cost.page_instructions.get(stage, 0)
        if instructions != first_touch[stage] or per_page:
            written.append(_stage(stage, instructions, 0, per_page, touched[stage]))
    return written


def _kind_origins(kinds: Mapping[str, KindCost], version: str) -> list[str]:
    by = f"pagelab linux trace, Linux {version}"
    origins = []
    for kind, cost in kinds.items():
        if kind in KINDS:
            how = f"measured: {by}, {cost.measured_on}; lines as of first touches"
            origins.append(f'"fault_kinds.{KINDS[kind]}" = "{how}"')
        else:
            each = cost.page_instructions
            origins += [f'"fault.{stage}.page_instructions" = "measured: {by}, {cost.measured_on}"' for stage in each]
    return origins


def _origins(
    measured: Measured, touched: Mapping[str, Lines], base: tuple[str, Mapping[str, Mapping[str, int]]], version: str
) -> list[str]:
    (name, stages), written = base, []
    for stage in STAGES:
        counts = measured.stages.get(stage)
        spread = f"p10 to p90 {counts['instructions'].p10:,.0f} to {counts['instructions'].p90:,.0f}" if counts else ""
        repeated = counts["repetitions"].mean if counts else 0.0
        less = f", less {repeated:,.0f} repetitions of string instructions" if repeated >= 0.5 else ""
        mean = f"{counts['instructions'].mean:,.1f}" if counts else "none"
        written.append(
            f'"fault.{stage}.instructions" = "measured: pagelab linux trace, Linux {version}, {measured.workload}, '
            f'mean of {measured.faults:,} first touches: {mean}{less} ({spread})"'
        )
        if stage in _BEYOND_INSTRUCTIONS:
            written.append(
                f'"fault.{stage}.hardware_cycles" = "estimated: {_BEYOND_INSTRUCTIONS[stage]}: '
                f"the {stages[stage]['cycles']} cycles of {name} less its {stages[stage]['instructions']} instructions "
                f'there, at the {_cycles_per_instruction(stages):.3f} cycles per instruction of its other stages"'
            )
        if any(dataclasses.astuple(touched[stage])):
            written.append(
                f'"fault.{stage}.lines" = "measured: pagelab linux trace, Linux {version}, {measured.workload}: lines '
                f'per fault less those that the engine refers to by itself; whose they are by their addresses"'
            )
    return written
