"""Table 5's geometric mean of the minor-fault offload engine's paper, and verdicts on it."""

import math
import statistics
from collections.abc import Mapping, Sequence

from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import FACTOR, MEAN_SPEED_UP
from pagelab_studies.study import Claim, Comparison, Findings, Measurement, mean

MEAN = "geometric mean"
"""The item of that row."""
WAITING = "replay, engine"
"""Its core waits for each access, so pages that were zeroed elsewhere cost the program misses."""


def elapsed_speed_up(kernel: Measurement, engine: Measurement) -> float:
    """By elapsed time of the same replay."""
    return kernel.stats["elapsed_cycles"] / engine.stats["elapsed_cycles"]


def add_processes(findings: Findings, speed_ups: Sequence[Mapping[str, float]]) -> None:
    """Fault processes at the paper's rates: speed-ups of all programs for each kind of process, the usual first."""
    means = [statistics.geometric_mean(by_program.values()) for by_program in speed_ups]
    remark = "value: by chance; brackets: those and bursts, with either latency of a fault"
    _add(findings, "fault process at the paper's rate", Interval.from_values(means, means[0]), remark)


def add_programs(findings: Findings, ways: Mapping[str, Mapping[str, float]]) -> None:
    """Programs of the same kinds: speed-ups by program, for each way of measuring them."""
    for method, speed_ups in ways.items():
        logarithms = mean([math.log(one) for one in speed_ups.values()])
        interval = Interval(*(math.exp(bound) for bound in (logarithms.low, logarithms.value, logarithms.high)))
        remark = f"{len(speed_ups)} smaller programs of the same kinds; brackets: the 95 % interval of their mean"
        if method == WAITING:
            remark += "; a core that waits for each line of a page that was zeroed elsewhere"
        _add(findings, method, interval, remark)


def _add(findings: Findings, method: str, speed_up: Interval, remark: str) -> None:
    findings.comparisons.append(
        Comparison(
            "Table 5",
            MEAN,
            f"speed-up, {method}",
            "times",
            MEAN_SPEED_UP,
            speed_up.value,
            remark,
            speed_up,
            neutral=1.0,
        )
    )
    gain = Interval(*(100 * (factor - 1) for factor in (speed_up.low, speed_up.value, speed_up.high)))
    paper = 100 * (MEAN_SPEED_UP - 1)
    detail = f"{gain} %"
    for text, holds, aspect in (
        (f"programs are faster on average ({method})", gain.above(0), "sign"),
        (
            f"programs are {paper:.1f} % faster on average, within a factor of {FACTOR} ({method})",
            gain.within(paper / FACTOR, paper * FACTOR),
            "size",
        ),
    ):
        findings.claims.append(Claim("Table 5", text, holds, detail, remark, aspect))
