"""A kernel preset whose stages have the instructions that a trace counted.

Source: `pagelab linux trace`; everything else is of the preset that it is made from.
Deviations: emulation measures no cycles. Those of the whole fault stay, and so do those of the stages in which a
    processor does more than its instructions say. The others share what is left as they share the instructions.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagelab.linux import LinuxError
from pagelab.linux.references import Lines, Rows, replay, steady_lines
from pagelab.linux.simulated import Simulator, simulate
from pagelab.linux.stages import STAGES
from pagelab.linux.trace import Measured, Trace

KIND = "anonymous, first write"
_KEPT_CYCLES = {
    "entry": "as {base}: delivery of the exception",
    "zeroing": "as {base}: start of the string instruction",
    "return": "as {base}: IRET",
}


def chosen(trace: Trace, names: Sequence[str]) -> tuple[Measured, Rows]:
    """First touches, which presets of the model are anchored at, and references, of the first workload that has some.

    Args:
        names: Of the workloads, in their order.

    Raises:
        LinuxError: there are none.
    """
    found = next((each for each in trace.measured if each.kind == KIND), None)
    if found is None:
        raise LinuxError(f"a preset needs faults of the kind {KIND!r}, and the trace has none: trace sequential")
    return found, trace.references[names.index(found.workload)]


def lines(base: Path, rows: Rows) -> dict[str, Lines]:
    """Lines of each stage that the simulator has to touch beside those that it touches anyway.

    How many: what the stage touches per fault, less what the simulator does for the same accesses. Whose they are: in
    the proportion of the lines that the stage touches in every fault.
    """
    touched, steady = replay(rows, None, cold=False), steady_lines(rows)
    simulated = simulate(rows, Simulator(kernel=str(base)))
    found, cpu = {}, 0
    for stage in STAGES:
        lacking = round(touched[stage].all_lines - sum(simulated.lines(stage).values())) if stage in touched else 0
        found[stage] = _shared(max(lacking, 0), steady[stage], cpu)
        cpu += found[stage].cpu
    return found


def _shared(number: int, steady: Lines, cpu_before: int) -> Lines:
    """So many lines, those touched before first, and the others in the proportions of those that are steady."""
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
    found = {}
    for stage in STAGES:
        counts = measured.stages.get(stage)
        found[stage] = round(counts["instructions"].mean - counts["repetitions"].mean) if counts else 0
    return found


def cycles(counted: Mapping[str, int], base: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Cycles of each stage; they sum to those of the base."""
    kept = {stage: base[stage]["cycles"] for stage in _KEPT_CYCLES}
    shared = {stage: number for stage, number in counted.items() if stage not in kept}
    left = sum(base[stage]["cycles"] for stage in STAGES) - sum(kept.values())
    found, spent, so_far = dict(kept), 0, 0
    for stage, number in shared.items():
        so_far += number
        upto = round(left * so_far / (sum(shared.values()) or 1))
        found[stage], spent = upto - spent, upto
    return {stage: found[stage] for stage in STAGES}


def preset(base: Path, measured: Measured, touched: Mapping[str, Lines], version: str) -> str:
    """The text of the preset.

    Args:
        touched: Lines by stage.

    Raises:
        LinuxError: the base is no preset of a kernel with these ten stages.
    """
    try:
        text = base.read_text(encoding="utf-8")
        told = tomllib.loads(text)
        name, stages = told["name"], told["fault"]
        made = cycles(instructions(measured), stages)
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
    lines = ["[fault]"]
    lines += [_stage(stage, counted[stage], made[stage], touched[stage]) for stage in STAGES]
    lines += ["", "[origin]", *_origins(measured, touched, name, version)]
    kept = [line for line in origins.splitlines() if not re.match(r'"?fault[."\s]', line)]
    return head + "\n".join([*lines, *kept, ""])


def _stage(stage: str, instructions: int, cycles: int, lines: Lines) -> str:
    kinds = ", ".join(f"{kind} = {number}" for kind, number in dataclasses.asdict(lines).items() if number)
    more = f", lines = {{ {kinds} }}" * bool(kinds)
    return f"{stage} = {{ instructions = {instructions}, cycles = {cycles}{more} }}"


def _origins(measured: Measured, touched: Mapping[str, Lines], base: str, version: str) -> list[str]:
    found = []
    for stage in STAGES:
        counts = measured.stages.get(stage)
        spread = f"p10 to p90 {counts['instructions'].p10:,.0f} to {counts['instructions'].p90:,.0f}" if counts else ""
        repeated = counts["repetitions"].mean if counts else 0.0
        less = f", less {repeated:,.0f} repetitions of string instructions" if repeated >= 0.5 else ""
        mean = f"{counts['instructions'].mean:,.1f}" if counts else "none"
        found.append(
            f'"fault.{stage}.instructions" = "measured: pagelab linux trace, Linux {version}, {measured.workload}, '
            f'mean of {measured.faults:,} first touches: {mean}{less} ({spread})"'
        )
        how = _KEPT_CYCLES.get(stage, "the cycles of {base} that entry, zeroing and return leave, by instructions")
        found.append(f'"fault.{stage}.cycles" = "estimated: {how.format(base=base)}"')
        if any(dataclasses.astuple(touched[stage])):
            found.append(
                f'"fault.{stage}.lines" = "measured: pagelab linux trace, Linux {version}, {measured.workload}: lines '
                f'per fault less those that the engine refers to by itself; whose they are by their addresses"'
            )
    return found
