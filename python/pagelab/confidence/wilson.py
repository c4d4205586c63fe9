"""The interval of a share that samples show.

Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
"""

import math

_NORMAL = 1.959964


def share_interval(hits: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share, from independent samples of which some hit; (0, 1) without samples."""
    if not samples:
        return 0.0, 1.0
    share, square = hits / samples, _NORMAL**2
    middle = (share + square / (2 * samples)) / (1 + square / samples)
    half = _NORMAL * math.sqrt(share * (1 - share) / samples + square / (4 * samples**2)) / (1 + square / samples)
    return max(middle - half, 0.0), min(middle + half, 1.0)
