"""Table 5's geometric mean of the minor-fault offload engine's paper, and verdicts on it."""

import math
import statistics
from collections.abc import Mapping, Sequence

from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import FACTOR, HANDLER_NS, MEAN_SPEED_UP
from pagelab_studies.study import Claim, Comparison, Findings, Measurement, mean

MEAN = "geometric mean"
"""The item of that row."""
AT_HANDLER = f"fault process at the paper's rate, {HANDLER_NS} ns per fault"
REPEATED = "fault process with Table 1's time per fault"
NO_PREDICTION = (
    "not compared: with that time per fault, the share of time before is Table 1's by construction, and so is the gain "
    "where all faults hit"
)


def elapsed_speed_up(kernel: Measurement, engine: Measurement) -> float:
    """By elapsed time of the same replay."""
    return kernel.stats["elapsed_cycles"] / engine.stats["elapsed_cycles"]


def add_processes(findings: Findings, handler: Sequence[Sequence[float]], repeated: Sequence[Sequence[float]]) -> None:
    """Fault processes at the paper's rates: speed-ups of all programs for each kind of process, the usual first. With
    the handler's mean per fault, and with the time that repeats Table 1.
    """
    known, again = (_means(speed_ups) for speed_ups in (handler, repeated))
    remark = "value: by chance on all hardware threads; brackets: those, bursts, and chance on one and on two cores"
    _add(findings, AT_HANDLER, known, remark)
    quantity = f"speed-up, {REPEATED}"
    remark = "by chance, and in bursts"
    findings.comparisons.append(
        Comparison("Table 5", MEAN, quantity, "times", None, again.value, remark, again, NO_PREDICTION)
    )


def _means(speed_ups: Sequence[Sequence[float]]) -> Interval:
    means = [statistics.geometric_mean(of_all) for of_all in speed_ups]
    return Interval.from_values(means, means[0])


def add_programs(findings: Findings, ways: Mapping[str, Mapping[str, float]], core: str = "") -> None:
    """Programs of the same kinds: speed-ups by program, for each way of measuring them. `core` is that of replays."""
    for method, speed_ups in ways.items():
        logarithms = mean([math.log(one) for one in speed_ups.values()])
        interval = Interval(*(math.exp(bound) for bound in (logarithms.low, logarithms.value, logarithms.high)))
        remark = f"{len(speed_ups)} smaller programs of the same kinds; brackets: the 95 % interval of their mean"
        if core:
            remark += f"; {core}"
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
