"""Quantiles of Student's distribution, for intervals of means of few samples.

Source: Student, "The probable error of a mean", Biometrika 6 (1908); beyond the table Cornish and Fisher's expansion
    (1938) to the second term, within 0.0001 there.
"""

# 97.5 % quantiles for 1 to 30 degrees of freedom.
_TABLE = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.959964


def students_t(freedom: int) -> float:
    """The quantile that 95 % of the distribution lie within on both sides, for 1 degree of freedom or more."""
    if freedom <= len(_TABLE):
        return _TABLE[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
