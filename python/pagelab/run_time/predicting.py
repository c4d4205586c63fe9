"""Predicting a program's run time under systems that do not exist in hardware.

Models: a trace of the program is replayed under the layout `4k`'s system and under others. Misses, hits and walk cycles
    of the others are the measured ones of `4k`, in the ratio of the replays. Models of run time predict the time for
    these and for `4k`. The measured run time of `4k` is multiplied by their ratio, since a model may have an error
    there.
Source: I. Yaniv, D. Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 5.1.
Parameters: none.
Deviations: ratios remove differences between the simulated and the measured machine. If the replay of `4k` has a count
    of 0, the other's own count is used. The kernel's time is not predicted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.replay.simulation import Progress, Source, System
from pagelab.run_time.fitting import Assessed, Models, best_of, errors
from pagelab.run_time.models import INPUTS, MODELS, Fitted, Term
from pagelab.run_time.points import HUGE, OF_REPLAYS, SMALL, Point
from pagelab.run_time.replaying import Replay, Replaying, mismatch, replays

_WINDOW = "window"
_MARGIN = 0.05
_SAME = 0.01
"""Misses, or walk cycles per miss, that differ by no more than this share are alike"""


@dataclass(frozen=True)
class Estimate:
    """A model's run time for a system."""

    model: str
    cycles: float | None
    """None if the model gives no prediction; the warnings say why."""
    half_interval: float | None
    """Share of the cycles within which the truth is in 95 of 100 cases, from the errors for layouts left out; none for
    models that were tested on fewer than two layouts."""
    at_4k: float
    """The model's prediction for `4k` itself ÷ the measurement: its error if nothing changes."""
    tested: bool
    """Whether any layout was left out to test it."""
    blind: bool
    """Whether the system's walks have another length than those of `4k`, which the model ignores."""


@dataclass(frozen=True)
class Predicted:
    """A system, and the models' predictions for it."""

    system: str
    inputs: Point
    """The inputs of the models."""
    estimates: Sequence[Estimate]
    beyond: bool
    """Whether its walk cycles are outside the range of the layouts that the models were fitted to."""


@dataclass(frozen=True)
class Prediction:
    """Predictions of one program."""

    base: Point
    """The layout `4k`, as measured."""
    mhz: float | None
    system_seconds: float | None
    machine: str
    systems: Sequence[Predicted]
    best: str | None
    warnings: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """The document for JSON."""
        return {
            "pagelab": _engine.__version__,
            "machine": self.machine,
            "measured": {"layout": self.base.layout, "cycles": self.base.runtime_cycles, "mhz": self.mhz},
            "system_seconds": self.system_seconds,
            "best": self.best,
            "systems": [_entry(predicted, self.base) for predicted in self.systems],
            "warnings": list(self.warnings),
        }


def _entry(predicted: Predicted, base: Point) -> dict[str, Any]:
    estimates = [
        {
            "model": estimate.model,
            "cycles": estimate.cycles,
            "ratio": None if estimate.cycles is None else estimate.cycles / base.runtime_cycles,
            "half_interval": estimate.half_interval,
            "at_4k": estimate.at_4k,
            "tested": estimate.tested,
            "sees_cycles_of_walks": not estimate.blind,
        }
        for estimate in predicted.estimates
    ]
    inputs = {name: getattr(predicted.inputs, name) for name in INPUTS}
    return {
        "system": predicted.system,
        "inputs": inputs,
        "beyond_the_layouts": predicted.beyond,
        "estimates": estimates,
    }


def predict(
    trace: Source,
    systems: Sequence[System],
    models: Models,
    machine: str | None = None,
    progress: Progress | None = None,
    model: str | None = None,
) -> Prediction:
    """Predicts the run time of the program of `models`, of which `trace` is a recording.

    Args:
        machine: The machine of the replays; that of the models' own replays if none.
        model: The only model to use, even if there is an objection to it.

    Raises:
        UsageError: the models lack the layout 4k, or there is no best model and none is named.
        ConfigError: there is no such system or machine.
        TraceError: the trace cannot be read.
    """
    doubts = _doubts(models, model)
    base, how = _base(models), Replaying(nested=models.points.nested)
    other_program = mismatch(trace, models.points.command) if models.points.command else None
    first, *others = replays(trace, [how.preset, *systems], machine or models.points.machine, progress)
    base = _with_window(base, first)
    assessed = _with_window_model(models, base)
    if model is not None:
        assessed = [candidate for candidate in assessed if candidate.fitted.name == model]
    predicted = [_predicted(system, base, first, assessed, models) for system in others]
    best = best_of(assessed)
    return Prediction(
        base=base,
        mhz=models.points.mhz,
        system_seconds=models.points.system_seconds,
        machine=first.machine,
        systems=predicted,
        best=best.fitted.name if best else None,
        warnings=[*doubts, *([other_program] if other_program else []), *_warnings(models, predicted, first, machine)],
    )


def _doubts(models: Models, model: str | None) -> list[str]:
    """What speaks against predicting by the models, or by the one that is named.

    Raises:
        UsageError: there is no best model and none is named, or the named one is not there.
    """
    if model is None:
        if models.no_best:
            fitted = ", ".join(candidate.fitted.name for candidate in models.models)
            raise UsageError(
                f"there is no best model, so nothing is predicted: {models.no_best}. Measure again, or name a model "
                f"to use anyway: --model {models.models[0].fitted.name} (there are {fitted})"
            )
        return []
    chosen = next((candidate for candidate in models.models if candidate.fitted.name == model), None)
    if chosen is None:
        why = models.refused.get(model, "it was not fitted")
        raise UsageError(f"--model {model}: it is not in the model file: {why}")
    objection = chosen.objection or models.no_best
    return [f"{model} is not reliable: {objection}"] if objection else []


def _base(models: Models) -> Point:
    small = models.points.at(SMALL)
    if small is None:
        raise UsageError(
            f"the models lack the layout {SMALL}, which replays are compared with: measure it, and fit them again"
        )
    return small


def _with_window(base: Point, replayed: Replay) -> Point:
    """The measured point with window cycles, which points of CSV and of counters do not have."""
    return base if base.window_cycles else replace(base, window_cycles=float(replayed.window_cycles))


def _with_window_model(models: Models, base: Point) -> list[Assessed]:
    """The models with the errors of how they are used here, and that of a core that overlaps accesses in any case,
    untested if the layouts were not replayed."""
    assessed = [replace(candidate, errors=candidate.errors_from_4k) for candidate in models.models]
    if base.window_cycles and all(model.fitted.name != _WINDOW for model in assessed):
        form = next(model.form for model in MODELS if model.name == _WINDOW)
        scale = Term(base.runtime_cycles / base.window_cycles, {"window_cycles": 1})
        assessed.append(Assessed(Fitted(_WINDOW, [scale]), form, {}, {}))
    return assessed


def scaled(base: Point, small: Replay, other: Replay) -> Point:
    """The inputs of a system: those of `4k`, in the ratio of the replays."""

    def value(name: str) -> float:
        measured, before, after = (float(getattr(point, name) or 0) for point in (base, small, other))
        return measured * after / before if before else after

    numbers = {name: value(name) for name in INPUTS}
    return Point(layout=other.system, runtime_cycles=0.0, **numbers)


def _predicted(other: Replay, base: Point, small: Replay, assessed: Sequence[Assessed], models: Models) -> Predicted:
    inputs, as_replayed = scaled(base, small, other), scaled(base, small, small)
    estimates = [_estimate(model, base, as_replayed, inputs) for model in assessed]
    # Beside what it is compared with, the same system is numbered.
    alone = small.system.removesuffix(" #1")
    name = alone if other.system == f"{alone} #2" else other.system
    return Predicted(name, inputs, estimates, _beyond(inputs, models.points.points))


def _estimate(model: Assessed, base: Point, as_replayed: Point, inputs: Point) -> Estimate:
    blind = not model.fitted.sees_walk_cycles and not _alike(
        inputs.walk_cycles * as_replayed.tlb_misses, as_replayed.walk_cycles * inputs.tlb_misses
    )
    # If nothing that it sees changes, it would say that nothing does.
    is_applicable = not (blind and _alike(inputs.tlb_misses, as_replayed.tlb_misses))
    return Estimate(
        model.fitted.name,
        model.fitted.from_base(inputs, base, as_replayed) if is_applicable else None,
        model.half_interval,
        model.fitted.at(as_replayed) / base.runtime_cycles,
        bool(model.errors),
        blind,
    )


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(one, other)


def _beyond(inputs: Point, points: Sequence[Point]) -> bool:
    """Whether walk cycles lie outside those of the points by more than a share of their range."""
    walks = [point.walk_cycles for point in points]
    margin = _MARGIN * (max(walks) - min(walks))
    return not min(walks) - margin <= inputs.walk_cycles <= max(walks) + margin


def _warnings(models: Models, predicted: Sequence[Predicted], small: Replay, machine: str | None) -> list[str]:
    of_fit = [f"the models: {note}" for note in models.points.notes if note != OF_REPLAYS]
    warnings = [*small.warnings, *of_fit]
    if machine is None and models.points.machine is None:
        warnings.append(
            f"the replays are of {small.machine}, since neither --machine nor the models name another; "
            "pagelab calibrate --hardware makes a preset of the one that was measured"
        )
    for prediction in predicted:
        if prediction.beyond:
            warnings.append(
                f"{prediction.system}: its walk cycles are outside the range that the models were fitted to"
            )
        if silent := [
            estimate.model for estimate in prediction.estimates if estimate.cycles is None and estimate.blind
        ]:
            warnings.append(
                f"{prediction.system}: {', '.join(silent)} left out: the same number of walks as with {SMALL} takes "
                "other cycles, and models of misses alone ignore that"
            )
        for estimate in prediction.estimates:
            if estimate.at_4k <= 0:
                warnings.append(f"{prediction.system}: {estimate.model} left out: it predicts no time for {SMALL}")
            elif estimate.cycles is not None and estimate.cycles <= 0:
                warnings.append(
                    f"{prediction.system}: {estimate.model} predicts a negative time, so it does not apply there"
                )
    return warnings


@dataclass(frozen=True)
class Validation:
    """Errors of models for layouts that they were fitted without: predicted by measured less 1.

    As in predictions, the measured run time of `4k` is known, and is multiplied by what a model tells of both layouts.
    """

    by_layout: Mapping[str, Mapping[str, float]]
    """By model and layout, from the layout's own walk cycles."""
    by_trace: Mapping[str, float]
    """By model, of `thp`, whose walk cycles a replay of the trace predicted, too."""


def validate(trace: Source, models: Models, machine: str | None = None, progress: Progress | None = None) -> Validation:
    """Predicts layouts that were held out of the fit, and `thp` from a replay of the trace as well.

    Raises:
        UsageError: the models lack the layout 4k.
    """
    base, how, points = _base(models), Replaying(nested=models.points.nested), models.points.points
    by_layout = {model.name: errors(model, points, base) for model in MODELS}
    huge = models.points.at(HUGE)
    if huge is None:
        return Validation(by_layout, {})
    small, replayed = replays(trace, [how.small, how.huge], machine or models.points.machine, progress)
    base = _with_window(base, small)
    inputs, as_replayed = scaled(base, small, replayed), scaled(base, small, small)
    rest = [base if point.layout == SMALL else point for point in points if point is not huge]
    by_trace = {}
    for model in MODELS:
        try:
            fitted = Fitted(model.name, model.fit(rest))
        except UsageError:
            # It is made of the layout that is to be predicted, or of more than are left.
            continue
        cycles = fitted.from_base(inputs, base, as_replayed)
        if cycles is not None:
            by_trace[model.name] = cycles / huge.runtime_cycles - 1
    return Validation(by_layout, by_trace)
