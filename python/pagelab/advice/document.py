"""Advice as nested mappings and lists, for `--json`."""

from dataclasses import asdict
from typing import Any

from pagelab import _engine
from pagelab.advice.check import Checked, Unchecked
from pagelab.advice.gains import Advice, Bar, Gain
from pagelab.advice.verdict import judge


def document_of(advice: Advice, checked: Checked | Unchecked | None = None) -> dict[str, Any]:
    """The advice, with the measurement if there is one. Shares are of the program's time."""
    choice = advice.trials.choice
    return {
        "version": _engine.__version__,
        "program": advice.name,
        "machine": choice.machine,
        "kernel": advice.base.config["kernel"]["name"],
        "virtual_machine": choice.nested,
        "observed": asdict(choice.observed) | {"age": choice.observed.age} if choice.observed else None,
        "sampled": advice.is_sampled,
        "windows": len(advice.base.windows) if advice.is_sampled else 0,
        "seconds": advice.seconds,
        "estimated_seconds": advice.estimated_seconds,
        "program_seconds": advice.program_seconds,
        "paging": _bar(advice.paging),
        "walks": _bar(advice.walks) | {"count": advice.walk_count},
        "faults": _bar(advice.faults) | {"count": advice.fault_count},
        "remedies": [_gain(gain, worth_it=gain in advice.worth_it) for gain in advice.remedies],
        "changes": [_gain(gain, worth_it=gain.is_worth_it) for gain in advice.changes],
        "mappings": [
            {key: value for key, value in mapping.row.items() if key != "walks_by_part"} | {"of_gain": mapping.of_gain}
            for mapping in advice.mappings
        ],
        "measured": _measured(advice, checked) if isinstance(checked, Checked) else None,
        "not_checked": checked.why if isinstance(checked, Unchecked) else None,
        "warnings": advice.trials.window.warnings,
    }


def _bar(bar: Bar) -> dict[str, Any]:
    return {"low": bar.low, "high": bar.high}


def _gain(gain: Gain, *, worth_it: bool) -> dict[str, Any]:
    return {
        "name": gain.key,
        "saved": _bar(gain.saved),
        "added_bytes": gain.added_bytes,
        "helps": gain.helps,
        "worth_it": worth_it,
    }


def _measured(advice: Advice, checked: Checked) -> dict[str, Any]:
    predicted = advice.huge.saved
    return asdict(checked) | {
        "median": checked.median,
        "interval": checked.interval,
        "predicted": _bar(predicted),
        "verdict": judge(predicted, checked).value,
    }
