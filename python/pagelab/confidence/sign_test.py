"""The interval of a median that ranks give, whatever the distribution: the sign test's.

Source: Conover, "Practical Nonparametric Statistics" (1999), 3.2.
"""

import math
from collections.abc import Sequence

CONFIDENCE = 0.95
FEWEST_VALUES = 6
"""Of fewer, no interval holds the median so often: all of five do in 93.75 % of cases"""


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Between which of these the median of all such values lies; of fewer than six all of them, less certainly."""
    ordered, out, tail = sorted(values), 0, 0.0
    while 2 * out < len(ordered) - 1:
        tail += math.comb(len(ordered), out) / 2 ** len(ordered)
        if 2 * tail > 1 - CONFIDENCE:
            break
        out += 1
    # The innermost pairs that hold the median often enough; the outermost if none do.
    first = max(out - 1, 0)
    return ordered[first], ordered[-1 - first]
