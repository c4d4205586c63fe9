"""Models of a program's run time R from its misses M and hits H of the last-level TLB and its walk cycles C.

Models: each is fitted to one program. It is a polynomial of H, M and C; `window` is one of the replayed cycles W of a
    core that overlaps accesses.
Source: I. Yaniv, D. Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 5.1: `yaniv`. O. Agbarya,
    I. Yaniv, J. Gandhi, D. Tsafrir, "Predicting Execution Times With Partial Simulations in Virtual Memory Research:
    Why and How", MICRO 2020: `mosmodel`, and the forms of the others as compared there, with the coefficients of its
    published code (technion-csl/mosmodel). They are after A. Basu et al., ISCA 2013; B. Pham et al., MICRO 2015;
    J. Gandhi et al., MICRO 2014; H. Alam et al., ISCA 2017. The published code makes `yaniv` of misses per
    instruction; here it is as in its paper, of walk cycles.
Parameters: none. 4K and 2M below are the layouts `4k` and `thp`.
Deviations: `least-squares` and `window` are pagelab's own. The first is the line of `yaniv` through all points rather
    than two; the second scales the replayed cycles to the measured time of 4K. `mosmodel` chooses how many terms it has
    by five parts of the points. The published code makes these of neighbouring rows, so its result depends on their
    order; here points are sorted by walk cycles and dealt out in turn. The scikit-learn of 2020 also divided each power
    of the inputs by its spread before LassoLarsCV chose among them (`normalize`), which today's has not.
"""

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pagelab._engine import UsageError
from pagelab.run_time.points import HUGE, SMALL, Point

INPUTS = ("tlb_hits", "tlb_misses", "walk_cycles", "window_cycles")
_SYMBOLS = dict(zip(INPUTS, "HMCW", strict=True))
DEGREE = 3
MOSMODEL_POINTS = 10
"""Fewest points of `mosmodel`: LassoLarsCV leaves out a fifth of them at a time, and each error one more"""
_PARTS = 5
"""Parts in which `mosmodel` leaves out points, the default of LassoLarsCV"""
_STLB_HIT_CYCLES = 7
"""Of `pham`: what the second level of Intel's TLB takes"""


@dataclass(frozen=True)
class Term:
    """A coefficient and the powers of the inputs that it is multiplied by."""

    coefficient: float
    powers: Mapping[str, int]

    def at(self, point: Point) -> float:
        product = self.coefficient
        for name, power in self.powers.items():
            product *= float(getattr(point, name)) ** power
        return product

    def __str__(self) -> str:
        factors = [_SYMBOLS[name] + (f"^{power}" if power > 1 else "") for name, power in self.powers.items() if power]
        return "·".join([f"{self.coefficient:.6g}", *factors])


@dataclass(frozen=True)
class Fitted:
    """A model with its coefficients."""

    name: str
    terms: Sequence[Term]

    @property
    def sees_walk_cycles(self) -> bool:
        """Whether walk cycles change what it predicts, by themselves or in the cycles of a replayed core."""
        return self.uses("walk_cycles") or self.uses("window_cycles")

    def uses(self, name: str) -> bool:
        """Whether an input is in any term."""
        return any(term.powers.get(name) for term in self.terms)

    @property
    def without_walks(self) -> float:
        """The run time that it predicts without misses, hits and walk cycles."""
        return sum(term.coefficient for term in self.terms if not any(term.powers.values()))

    def at(self, point: Point) -> float:
        """The run time that it predicts, in cycles."""
        return sum(term.at(point) for term in self.terms)

    def from_base(self, point: Point, base: Point, as_replayed: Point | None = None) -> float | None:
        """A measured run time multiplied by the ratio of the model's predictions for both points.

        A model may have an error at the measured point itself, which must not count as a gain.

        Args:
            as_replayed: The inputs of `base` for the ratio, if they differ from its own.

        Returns:
            Cycles; None if the model predicts no time for the measured point.
        """
        at_base = self.at(as_replayed or base)
        return base.runtime_cycles * self.at(point) / at_base if at_base > 0 else None

    def __str__(self) -> str:
        return "R = " + " + ".join(map(str, self.terms))


@dataclass(frozen=True)
class Model:
    """A form, and how its coefficients are computed from points."""

    name: str
    form: str
    fit: Callable[[Sequence[Point]], Sequence[Term]]
    """Raises UsageError if the points do not allow it."""
    parameters: int | None
    """Coefficients that layouts determine; None where each term has one."""

    def parameters_of(self, fitted: Fitted) -> int:
        """How many coefficients of the fitted model layouts determined."""
        return len(fitted.terms) if self.parameters is None else self.parameters


def _at(points: Sequence[Point], layout: str) -> Point:
    match = next((point for point in points if point.layout == layout), None)
    if match is None:
        known = ", ".join(point.layout for point in points)
        raise UsageError(f"it needs the layout {layout}, which is not among {known}")
    return match


def _line(slope: float, input_name: str, intercept: float) -> list[Term]:
    return [Term(slope, {input_name: 1}), Term(intercept, {})]


def _cycles_per_miss(point: Point) -> float:
    if not point.tlb_misses:
        raise UsageError(f"{point.layout} has no misses of the TLB, so no cycles per miss")
    return point.walk_cycles / point.tlb_misses


def _yaniv(points: Sequence[Point]) -> list[Term]:
    small, huge = _at(points, SMALL), _at(points, HUGE)
    if small.walk_cycles == huge.walk_cycles:
        raise UsageError(f"{SMALL} and {HUGE} have the same walk cycles, so there is no line through them")
    slope = (small.runtime_cycles - huge.runtime_cycles) / (small.walk_cycles - huge.walk_cycles)
    return _line(slope, "walk_cycles", small.runtime_cycles - slope * small.walk_cycles)


def _basu(points: Sequence[Point]) -> list[Term]:
    small = _at(points, SMALL)
    return _line(_cycles_per_miss(small), "tlb_misses", small.runtime_cycles - small.walk_cycles)


def _pham(points: Sequence[Point]) -> list[Term]:
    small = _at(points, SMALL)
    rest = small.runtime_cycles - small.walk_cycles - _STLB_HIT_CYCLES * small.tlb_hits
    return [Term(_STLB_HIT_CYCLES, {"tlb_hits": 1}), *_line(1.0, "walk_cycles", rest)]


def _gandhi(points: Sequence[Point]) -> list[Term]:
    small, huge = _at(points, SMALL), _at(points, HUGE)
    return _line(_cycles_per_miss(small), "tlb_misses", huge.runtime_cycles - huge.walk_cycles)


def _alam(points: Sequence[Point]) -> list[Term]:
    huge = _at(points, HUGE)
    return _line(1.0, "walk_cycles", huge.runtime_cycles - huge.walk_cycles)


def _least_squares(points: Sequence[Point]) -> list[Term]:
    walks = np.array([point.walk_cycles for point in points])
    times = np.array([point.runtime_cycles for point in points])
    if len(points) < 2 or np.ptp(walks) == 0:
        raise UsageError("all points have the same walk cycles, so no line is the nearest to them")
    # Centred: walk cycles are large numbers that differ by little.
    centred = walks - walks.mean()
    slope = float(centred @ (times - times.mean()) / (centred @ centred))
    return _line(slope, "walk_cycles", float(times.mean() - slope * walks.mean()))


def _window(points: Sequence[Point]) -> list[Term]:
    small = _at(points, SMALL)
    if not small.window_cycles or any(point.window_cycles is None for point in points):
        raise UsageError("not all points were replayed on a core that overlaps accesses")
    return [Term(small.runtime_cycles / small.window_cycles, {"window_cycles": 1})]


def _dealt_out(count: int) -> list[tuple[list[int], list[int]]]:
    """For each part of the points, the numbers of the others and its own; neighbours are in different parts."""
    parts = [list(range(part, count, _PARTS)) for part in range(_PARTS)]
    return [(sorted(set(range(count)) - set(part)), part) for part in parts]


def _mosmodel(points: Sequence[Point]) -> list[Term]:
    try:
        from sklearn.linear_model import LassoLarsCV
    except ImportError:
        raise UsageError("it needs scikit-learn: pip install 'pagelab[models]'") from None
    if len(points) < MOSMODEL_POINTS:
        raise UsageError(
            f"it has up to 19 terms, and there are {len(points)} layouts: {MOSMODEL_POINTS} at least are needed"
        )
    # In the order of files, the result would depend on it.
    points = sorted(points, key=lambda point: (point.walk_cycles, point.runtime_cycles, point.layout))
    # Of each input the largest is 1, as in the published code.
    names = INPUTS[:3]
    values = np.array([[float(getattr(point, name)) for name in names] for point in points])
    scales = np.where(values.max(axis=0) > 0, values.max(axis=0), 1.0)
    exponents = [
        np.bincount(chosen, minlength=len(names))
        for degree in range(1, DEGREE + 1)
        for chosen in itertools.combinations_with_replacement(range(len(names)), degree)
    ]
    features = np.array([[np.prod(row**powers) for powers in exponents] for row in values / scales])
    times = np.array([point.runtime_cycles for point in points])
    with warnings.catch_warnings():
        # Of folds in which a regressor repeats another; the path then goes on without it.
        warnings.simplefilter("ignore")
        lasso = LassoLarsCV(cv=_dealt_out(len(points))).fit(features, times / times.max())
    terms = [
        Term(
            float(coefficient * times.max() / np.prod(scales**powers)),
            {name: int(power) for name, power in zip(names, powers, strict=True) if power},
        )
        for coefficient, powers in zip(lasso.coef_, exponents, strict=True)
        if coefficient
    ]
    return [*terms, Term(float(lasso.intercept_ * times.max()), {})]


MODELS: Sequence[Model] = (
    Model("yaniv", "R = A·C + B through 4K and 2M", _yaniv, 2),
    Model("basu", "R = C4K/M4K·M + R4K − C4K", _basu, 2),
    Model("pham", "R = 7·H + C + R4K − C4K − 7·H4K", _pham, 1),
    Model("gandhi", "R = C4K/M4K·M + R2M − C2M", _gandhi, 2),
    Model("alam", "R = C + R2M − C2M", _alam, 1),
    Model("least-squares", "R = A·C + B nearest to all points", _least_squares, 2),
    Model("mosmodel", "polynomial of degree 3 of H, M and C, by LassoLarsCV", _mosmodel, None),
    Model("window", "R = R4K/W4K·W, W of a core that overlaps accesses", _window, 1),
)
