"""Fitting models to points, with errors of points that a model has not seen.

Source: the errors of Agbarya et al., MICRO 2020: the largest and the geometric mean of relative errors.
Deviations: they are of leaving one layout out. A model that is made of certain layouts is tested on the others.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab._engine import UsageError
from pagelab.run_time.document import read
from pagelab.run_time.models import MODELS, Fitted, Model, Term
from pagelab.run_time.points import Point, Points
from pagelab.students_t import students_t

KIND = "run-time models"
_LEAST_ERROR = 1e-6
"""Below it, errors count as so large in the geometric mean, which one of 0 would make 0"""
_LEAST_POINTS = 2


@dataclass(frozen=True)
class Assessed:
    """A fitted model and how far it is off."""

    fitted: Fitted
    form: str
    errors: Mapping[str, float]
    """Predicted by measured less 1, of layouts that it was not fitted to."""

    @property
    def largest(self) -> float | None:
        """The largest error, without its sign; none if nothing was left out."""
        return max(map(abs, self.errors.values()), default=None)

    @property
    def geometric_mean(self) -> float | None:
        """Of the errors without their signs."""
        if not self.errors:
            return None
        return math.exp(math.fsum(math.log(max(abs(e), _LEAST_ERROR)) for e in self.errors.values()) / len(self.errors))

    @property
    def half_interval(self) -> float | None:
        """A prediction is within this share of the truth in 95 of 100 cases, were errors like those of layouts.

        Student's quantile times the root of their mean square; none of fewer than two.
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
        """The one with the smallest largest error; none if no layout was left out of any.

        Models are compared by the layouts that all of them were tested on, if there are any.
        """
        tested = [model for model in self.models if model.errors]
        common = set.intersection(*(set(model.errors) for model in tested)) if tested else set()

        def largest(model: Assessed) -> float:
            return max(abs(error) for layout, error in model.errors.items() if layout in common or not common)

        return min(tested, key=largest, default=None)

    def to_json(self) -> str:
        """A model file, as `load` reads it."""
        document = {
            "kind": KIND,
            "pagelab": _engine.__version__,
            "best": self.best.fitted.name if self.best else None,
            "models": [
                {
                    "name": of.fitted.name,
                    "form": of.form,
                    "formula": str(of.fitted),
                    "terms": [asdict(term) for term in of.fitted.terms],
                    "errors": dict(of.errors),
                    "largest_error": of.largest,
                    "geometric_mean_error": of.geometric_mean,
                }
                for of in self.models
            ],
            "refused": dict(self.refused),
            "points": asdict(self.points),
        }
        return json.dumps(document, indent=1) + "\n"


def fit(points: Points) -> Models:
    """Fits all models that the points make.

    Raises:
        UsageError: there is one point, or the points make no model.
    """
    if len(points.points) < _LEAST_POINTS:
        raise UsageError(
            f"there is one point ({points.points[0].layout}); models need two layouts at least, such as 4k and thp"
        )
    models, refused = [], {}
    for model in MODELS:
        try:
            fitted = Fitted(model.name, model.fit(points.points))
        except UsageError as error:
            refused[model.name] = str(error)
            continue
        models.append(Assessed(fitted, model.form, errors(model, points.points)))
    if not models:
        raise UsageError(f"no model can be fitted: {'; '.join(f'{name}: {why}' for name, why in refused.items())}")
    return Models(points, models, refused)


def errors(model: Model, points: Sequence[Point]) -> dict[str, float]:
    """Relative errors of a model for layouts that it is fitted without, where it can be."""
    found = {}
    for point in points:
        if not point.runtime_cycles:
            continue
        try:
            fitted = Fitted(model.name, model.fit([other for other in points if other is not point]))
        except UsageError:
            # The model is made of this layout, or of more than are left.
            continue
        found[point.layout] = fitted.at(point) / point.runtime_cycles - 1
    return found


def load(path: Path) -> Models:
    """Reads a model file.

    Raises:
        UsageError: it is none.
        OSError: it cannot be read.
    """
    return read(path, KIND, "model file of `pagelab model fit`", _of_document)


def _of_document(document: Mapping[str, Any]) -> Models:
    points = document["points"]
    models = [
        Assessed(Fitted(of["name"], [Term(**term) for term in of["terms"]]), of["form"], of["errors"])
        for of in document["models"]
    ]
    return Models(
        Points(**{**points, "points": [Point(**point) for point in points["points"]]}), models, document["refused"]
    )
