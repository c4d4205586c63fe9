"""Three verdicts on each printed figure of a paper: the sign of an effect, its order among others, and its size.

Models: an effect is a figure's distance from the one without any effect (`Comparison.neutral`). Its size agrees if ours
    is within a quarter of the paper's effect, or in the range that the paper gives or rounds to, whichever is wider.
    Where ours has an interval, all of it must lie there; if it overlaps the limits, the size is not decided. A figure
    without a sign, such as a rate, is its own effect. Where the paper gives a bound (`Comparison.bound`), ours must be
    on its side, however far. The order is that among the figures of one group (`Comparison.ranked`): each pair that
    the paper prints apart must be the same way round here.
Deviations: intervals of two figures that depend on the same costs are subtracted as if they were independent, so an
    order may seem less certain than it is, but never more.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison

ASPECTS = ("sign", "order", "size")
TOLERANCE = 0.25
"""The part of the paper's effect by which ours may differ and still be of its size."""

Verdicts = Mapping[str, bool | None]
"""By aspect: holds, does not hold, or not decided. An aspect of which the paper says nothing is not there."""


def judge(rows: Sequence[Comparison]) -> list[Verdicts]:
    """The verdicts on each figure of a study."""
    return [_on(row, rows) for row in rows]


def ours(row: Comparison) -> Interval:
    """Our figure with its interval; without one it is taken as exact."""
    return row.interval or Interval(row.ours, row.ours, row.ours)


def effect(row: Comparison) -> float | None:
    """The paper's effect; none if it prints none."""
    return None if row.paper is None else row.paper - (row.neutral or 0.0)


def limits(row: Comparison) -> tuple[float, float] | None:
    """Between which our figure has the paper's size; none if the paper prints nothing that has one, or if ours is not
    comparable in size.
    """
    of_paper = effect(row)
    if row.unjudged or row.unsized or row.paper is None or of_paper is None:
        return None
    if row.bound:
        return (-math.inf, row.paper) if row.bound == "at most" else (row.paper, math.inf)
    if of_paper == 0 and row.printed is None:
        return None
    margin = TOLERANCE * abs(of_paper)
    low, high = row.paper - margin, row.paper + margin
    return (low, high) if row.printed is None else (min(low, row.printed[0]), max(high, row.printed[1]))


def limits_in_words(row: Comparison) -> str:
    """The limits of the size; empty if there are none."""
    allowed = limits(row)
    if allowed is None:
        return ""
    return f"{row.bound} {row.paper:.4g}" if row.bound else f"{allowed[0]:.4g} to {allowed[1]:.4g}"


def printed_in_words(row: Comparison) -> str:
    """What the paper prints: a figure, or a range if it gives one."""
    if row.paper is None:
        return row.without
    given = row.printed is not None and row.paper in row.printed
    figure = f"{row.printed[0]:g} to {row.printed[1]:g}" if row.printed and given else f"{row.paper:g}"
    return f"{row.bound} {figure} {row.unit}".lstrip()


def differs(row: Comparison) -> bool:
    """Whether our figure, whatever its interval, is beyond the limits of its size."""
    allowed = limits(row)
    return allowed is not None and not allowed[0] <= row.ours <= allowed[1]


def counts(claims: Iterable[Claim], rows: Sequence[Comparison]) -> dict[str, Counter[bool | None]]:
    """How many of the paper's statements and figures hold, do not hold and are not decided in a study, by aspect."""
    counted: dict[str, Counter[bool | None]] = {aspect: Counter() for aspect in ASPECTS}
    for claim in claims:
        if not claim.ours:
            counted[claim.aspect][claim.holds] += 1
    for verdicts in judge(rows):
        for aspect, verdict in verdicts.items():
            counted[aspect][verdict] += 1
    return counted


def _on(row: Comparison, rows: Sequence[Comparison]) -> Verdicts:
    if row.unjudged:
        return {}
    judged = {"sign": _sign(row), "order": _order(row, rows), "size": _size(row)}
    return {aspect: verdict[0] for aspect, verdict in judged.items() if verdict}


# A verdict in a tuple, or an empty one if there is nothing to judge.
_Judged = tuple[bool | None] | tuple[()]


def _sign(row: Comparison) -> _Judged:
    if row.paper is None or row.neutral is None:
        return ()
    low, high = row.printed or (row.paper, row.paper)
    if low <= row.neutral <= high:
        return ()
    return (_on_side(ours(row), row.neutral, above=row.paper > row.neutral),)


def _size(row: Comparison) -> _Judged:
    allowed = limits(row)
    return (ours(row).within(*allowed),) if allowed else ()


def _order(row: Comparison, rows: Sequence[Comparison]) -> _Judged:
    pairs = [
        _on_side(ours(row).minus(ours(other)), 0.0, above=larger)
        for other in rows
        if row.ranked
        and other.ranked == row.ranked
        and not other.unjudged
        and (larger := _larger(row, other)) is not None
    ]
    return (all_hold(pairs),) if pairs else ()


def _larger(row: Comparison, other: Comparison) -> bool | None:
    """Whether the paper's figure is larger than another one; none if they are the same as far as it prints them."""
    if row.paper is None or other.paper is None or row.paper == other.paper:
        return None
    lower, higher = (other, row) if row.paper > other.paper else (row, other)
    if lower.printed and higher.printed and lower.printed[1] > higher.printed[0]:
        return None
    return row is higher


def _on_side(interval: Interval, bound: float, *, above: bool) -> bool | None:
    if above:
        return interval.above(bound)
    return Interval(-interval.high, -interval.value, -interval.low).above(-bound)
