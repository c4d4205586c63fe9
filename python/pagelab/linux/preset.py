"""A kernel preset whose stages have the instructions that a trace counted.

Source: `pagelab linux trace`; everything else is of the preset that it is made from.
Deviations: emulation measures no cycles. Those of the whole fault stay, and so do those of the stages in which a
    processor does more than its instructions say. The others share what is left as they share the instructions.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pagelab.linux import LinuxError
from pagelab.linux.stages import STAGES
from pagelab.linux.trace import Measured, Trace

KIND = "anonymous, first write"
_KEPT_CYCLES = {
    "entry": "as {base}: delivery of the exception",
    "zeroing": "as {base}: start of the string instruction",
    "return": "as {base}: IRET",
}


def chosen(trace: Trace) -> Measured:
    """First touches, which presets of the model are anchored at: those of the first workload that has some.

    Raises:
        LinuxError: there are none.
    """
    found = next((each for each in trace.measured if each.kind == KIND), None)
    if found is None:
        raise LinuxError(f"a preset needs faults of the kind {KIND!r}, and the trace has none: trace sequential")
    return found


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


def preset(base: Path, measured: Measured, version: str) -> str:
    """The text of the preset.

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
    lines += [f"{stage} = {{ instructions = {counted[stage]}, cycles = {made[stage]} }}" for stage in STAGES]
    lines += ["", "[origin]", *_origins(measured, name, version)]
    kept = [line for line in origins.splitlines() if not re.match(r'"?fault[."\s]', line)]
    return head + "\n".join([*lines, *kept, ""])


def _origins(measured: Measured, base: str, version: str) -> list[str]:
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
    return found
