"""Fig 9a of the minor-fault offload engine's paper, bar by bar, and what the paper computes of its bars."""

from collections.abc import Mapping, Sequence

from pagelab_studies.interval import Interval
from pagelab_studies.study import Comparison, Findings

FIGURE = "Fig 9a"
PAPER_GHZ = 2552 / 1270
"""Which the paper's 2,552 cycles in 1.27 µs imply, for its software; its machine has up to 3.3 GHz (Table 3b)."""
MEANS = {"kernel": 1270.0, "call": 795.0, "engine": 36 / 3.0}
TAILS = {"kernel": 3200.0, "call": 1757.0, "engine": 125 / 3.0}
"""Nanoseconds of a fault, and the 95th percentile. Those of the engine are cycles of gem5's 3 GHz."""
MEAN_GAIN, TAIL_GAIN = 33.0, 51.0
"""Times by which the paper's engine is faster: 2,552 cycles by 36 and a deviation of 42, and 6,432 cycles by 125."""

OTHER_PART = "the paper times `do_anonymous_page`, ours is from exception to return"
OTHER_CLOCK = "the paper's is of a real processor at 2.0 GHz"
"""Why figures of the kernel's tail, and of software in nanoseconds, are not comparable in size."""
_UNSIZED = {
    ("kernel", "mean"): OTHER_CLOCK,
    ("call", "mean"): OTHER_CLOCK,
    ("kernel", "95th percentile"): OTHER_PART,
    ("call", "95th percentile"): OTHER_CLOCK,
}
_REASONS = {
    "kernel": "the paper's is `do_anonymous_page` of a real processor at 2.0 GHz",
    "call": "between a system call's entry and its return; the paper's on a real processor at 2.0 GHz",
    "engine": "both on the simulated machine",
}

ByRun = Mapping[str, Sequence[float]]
"""By form, in cycles: a figure of each run, the usual one first. Runs with the same other data are paired."""


def add(findings: Findings, means: ByRun, tails: ByRun, deviations: Sequence[float], ghz: float) -> None:
    """The six bars, and the two ratios that the paper prints of them."""
    for word, paper, ours in (("mean", MEANS, means), ("95th percentile", TAILS, tails)):
        for form, printed in paper.items():
            value = _spread([cycles / ghz for cycles in ours[form]])
            findings.comparisons.append(
                Comparison(
                    FIGURE,
                    form,
                    f"latency of a fault, {word}",
                    "ns",
                    printed,
                    value.value,
                    f"{ours[form][0]:,.0f} cycles at {ghz:g} GHz; {_REASONS[form]}",
                    value,
                    ranked=f"Fig 9a, {word}",
                    unsized=_UNSIZED.get((form, word), ""),
                )
            )
    hits = [mean + deviation for mean, deviation in zip(means["engine"], deviations, strict=True)]
    by_mean = "as the paper computes it: the kernel's mean by the engine's mean and deviation"
    by_tail = "95th percentiles; the paper's kernel is a real processor's, its engine gem5's"
    for which, paper_s_gain, slow, fast, reason, unsized in (
        ("mean", MEAN_GAIN, means["kernel"], hits, by_mean, ""),
        ("tail", TAIL_GAIN, tails["kernel"], tails["engine"], by_tail, OTHER_PART),
    ):
        gain = _spread([kernel / engine for kernel, engine in zip(slow, fast, strict=True)])
        quantity = f"gain of the {which}"
        findings.comparisons.append(
            Comparison(
                FIGURE,
                "hardware",
                quantity,
                "times",
                paper_s_gain,
                gain.value,
                reason,
                gain,
                neutral=1.0,
                unsized=unsized,
            )
        )
    hit = _spread(hits)
    findings.comparisons.append(
        Comparison("Table 4", "hit", "latency", "cycles", 78, hit.value, "mean and deviation, as in the paper", hit)
    )


def _spread(values: Sequence[float]) -> Interval:
    return Interval.from_values(values, values[0])
