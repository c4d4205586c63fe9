"""Fitting models to points, with errors for points that a model has not seen.

Source: the errors of Agbarya et al., MICRO 2020: the largest and the geometric mean of relative errors.
Deviations: errors come from leaving one layout out. A model that is made from certain layouts is tested on the others.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.confidence.students_t import students_t
from pagelab.run_time.document import read
from pagelab.run_time.models import MODELS, Fitted, Model, Term
from pagelab.run_time.plausibility import LEAST_COMPARED, layouts_objection, model_objection, spread_of
from pagelab.run_time.points import SMALL, Point, Points

KIND = "run-time models"
_LEAST_ERROR = 1e-6
"""Smallest error in the geometric mean, which an error of 0 would make 0"""
_LEAST_POINTS = 2
_WORTHLESS = 0.5
"""Largest error as a share of the difference of the layouts' run times; beyond, a model says almost nothing; a
choice"""


@dataclass(frozen=True)
class Assessed:
    """A fitted model and its errors."""

    fitted: Fitted
    form: str
    errors: Mapping[str, float]
    """Predicted ÷ measured − 1, for layouts that it was not fitted to."""
    errors_from_4k: Mapping[str, float]
    """The same if the measured run time of `4k` is known and the model only gives the ratio to it."""
    objection: str | None = None
    """Why it is never the best model; None if there is no objection."""

    @property
    def largest(self) -> float | None:
        """The largest absolute error; none if no layout was left out."""
        return max(map(abs, self.errors.values()), default=None)

    def largest_on(self, layouts: Sequence[str]) -> float | None:
        """The largest absolute error on these layouts; none if it was not tested."""
        return max((abs(self.errors[layout]) for layout in layouts), default=None) if self.errors else None

    @property
    def geometric_mean(self) -> float | None:
        """Geometric mean of the absolute errors."""
        if not self.errors:
            return None
        return math.exp(math.fsum(math.log(max(abs(e), _LEAST_ERROR)) for e in self.errors.values()) / len(self.errors))

    @property
    def half_interval(self) -> float | None:
        """A prediction is within this share of the truth in 95 of 100 cases, if its errors are like those of the
        layouts.

        Student's quantile times the root of their mean square; none for fewer than two.
        """
        if len(self.errors) < 2:
            return None
        mean_square = math.fsum(error**2 for error in self.errors.values()) / len(self.errors)
        return students_t(len(self.errors)) * math.sqrt(mean_square)


@dataclass(frozen=True)
class Models:
    """All models of a program."""

    points: Points
    models: Sequence[Assessed]
    refused: Mapping[str, str]
    """Why the models that are missing could not be fitted."""

    @property
    def best(self) -> Assessed | None:
        """The model with the smallest largest error over `compared_on`, of those without an objection."""
        return None if self.no_best else best_of(self.models)

    @property
    def no_best(self) -> str | None:
        """Why there is no best model; None if there is one."""
        if objection := layouts_objection(self.points):
            return objection
        if all(model.objection for model in self.models):
            reasons = "; ".join(f"{model.fitted.name}: {model.objection}" for model in self.models)
            return f"no model passes the checks ({reasons})"
        if len(self.compared_on) < LEAST_COMPARED:
            return (
                f"models are compared on {LEAST_COMPARED} layouts at least, and all models were tested only on: "
                f"{', '.join(self.compared_on) or 'none'}; also measure mixed layouts, such as -l heap=25% -l heap=50%"
            )
        return None

    @property
    def compared_on(self) -> list[str]:
        """The layouts that all candidates for the best model were tested on."""
        return common_layouts(self.models)

    @property
    def doubt(self) -> str | None:
        """Why the best model is hardly reliable; none if there is no objection."""
        if not self.best:
            return None
        apart, off = spread_of(self.points.points), self.best.largest
        if off is not None and off >= _WORTHLESS * apart:
            return (
                f"the best model is off by up to {off:.1%}, and the layouts' run times differ by {apart:.1%}: "
                "it says almost nothing about this program"
            )
        return None

    def to_json(self) -> str:
        """A model file, in the form that `load` reads."""
        document = {
            "kind": KIND,
            "pagelab": _engine.__version__,
            "best": self.best.fitted.name if self.best else None,
            "no_best": self.no_best,
            "compared_on": self.compared_on,
            "models": [
                {
                    "name": assessed.fitted.name,
                    "form": assessed.form,
                    "formula": str(assessed.fitted),
                    "terms": [asdict(term) for term in assessed.fitted.terms],
                    "objection": assessed.objection,
                    "errors": dict(assessed.errors),
                    "errors_from_4k": dict(assessed.errors_from_4k),
                    "largest_error": assessed.largest,
                    "geometric_mean_error": assessed.geometric_mean,
                }
                for assessed in self.models
            ],
            "refused": dict(self.refused),
            "points": asdict(self.points),
        }
        return json.dumps(document, indent=1) + "\n"


def candidates(models: Sequence[Assessed]) -> list[Assessed]:
    """The candidates for the best model: they were tested, and there is no objection."""
    return [model for model in models if model.errors and not model.objection]


def common_layouts(models: Sequence[Assessed]) -> list[str]:
    """The layouts that every candidate for the best model was tested on, in the first one's order."""
    tested = [model.errors for model in candidates(models)]
    return [layout for layout in (tested[0] if tested else ()) if all(layout in errors for errors in tested)]


def best_of(models: Sequence[Assessed]) -> Assessed | None:
    """The model with the smallest largest error over the layouts that all were tested on; none without such ones.

    So a model that was tested on one easy layout is not better than one that was tested on three.
    """
    common = common_layouts(models)
    if not common:
        return None
    return min(candidates(models), key=lambda model: model.largest_on(common) or 0.0)


def fit(points: Points) -> Models:
    """Fits all models that the points allow.

    Raises:
        UsageError: there is one point, or the points allow no model.
    """
    if len(points.points) < _LEAST_POINTS:
        raise UsageError(
            f"there is one point ({points.points[0].layout}); models need at least two layouts, such as 4k and thp"
        )
    models, refused = [], {}
    base, spread, doubtful = points.at(SMALL), spread_of(points.points), layouts_objection(points)
    for model in MODELS:
        try:
            fitted = Fitted(model.name, model.fit(points.points))
        except UsageError as error:
            refused[model.name] = str(error)
            continue
        from_4k = errors(model, points.points, base) if base else {}
        own_errors = errors(model, points.points)
        objection = doubtful or model_objection(fitted, model.parameters_of(fitted), own_errors, points, spread)
        models.append(Assessed(fitted, model.form, own_errors, from_4k, objection))
    if not models:
        raise UsageError(f"no model can be fitted: {'; '.join(f'{name}: {why}' for name, why in refused.items())}")
    return Models(points, models, refused)


def errors(model: Model, points: Sequence[Point], base: Point | None = None) -> dict[str, float]:
    """Relative errors of a model for layouts left out of its fit, where that is possible.

    Args:
        base: One of the points, whose run time is known: models give the ratio to it. None for the run times that
            models predict by themselves.
    """
    relative = {}
    for point in points:
        if not point.runtime_cycles or point is base:
            continue
        try:
            fitted = Fitted(model.name, model.fit([other for other in points if other is not point]))
        except UsageError:
            # The model needs this layout, or more layouts than are left.
            continue
        predicted = fitted.at(point) if base is None else fitted.from_base(point, base)
        if predicted is not None:
            relative[point.layout] = predicted / point.runtime_cycles - 1
    return relative


def load(path: Path) -> Models:
    """Reads a model file.

    Raises:
        UsageError: it is none.
        OSError: it cannot be read.
    """
    return read(path, KIND, "model file of `pagelab model fit`", _of_document)


def _of_document(document: Mapping[str, Any]) -> Models:
    points = document["points"]
    if not document["models"]:
        raise KeyError("models")
    models = [
        Assessed(
            Fitted(entry["name"], [Term(**term) for term in entry["terms"]]),
            entry["form"],
            entry["errors"],
            entry["errors_from_4k"],
            entry["objection"],
        )
        for entry in document["models"]
    ]
    return Models(
        Points(**{**points, "points": [Point(**point) for point in points["points"]]}), models, document["refused"]
    )
