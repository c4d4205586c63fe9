"""The interval of a median from ranks, for any distribution: the sign test's.

Source: Conover, "Practical Nonparametric Statistics" (1999), 3.2.
"""

import math
from collections.abc import Sequence

CONFIDENCE = 0.95
FEWEST_VALUES = 6
"""With fewer values, no interval contains the median often enough: the range of five does in 93.75 % of cases"""


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the median of all such values; for fewer than six their range, with less certainty."""
    ordered, out, tail = sorted(values), 0, 0.0
    while 2 * out < len(ordered) - 1:
        tail += math.comb(len(ordered), out) / 2 ** len(ordered)
        if 2 * tail > 1 - CONFIDENCE:
            break
        out += 1
    # The innermost pair that contains the median often enough; the outermost if none does.
    first = max(out - 1, 0)
    return ordered[first], ordered[-1 - first]
