"""Whether a native measurement confirms the prediction for huge pages, and what that means for the other advice.

Models: the prediction is a range, and the measurement an interval of the median of pairs of runs, by the sign test.
    If the two do not overlap, the prediction missed. If they do, but the median is outside the range, the
    measurement decides nothing. The range counts as a hundredth of the program's time wider at either end, since
    smaller gains cannot be distinguished from errors of the estimate. Fewer than six pairs have no interval of 95 %,
    and so no verdict.
"""

from enum import Enum

from pagelab.advice.amounts import change_text, seconds_text
from pagelab.advice.check import Checked
from pagelab.advice.gains import LEAST_SHARE, Advice, Bar
from pagelab.confidence.sign_test import CONFIDENCE, FEWEST_VALUES
from pagelab.quantities import counted
from pagelab.report.figures import percent
from pagelab.report.parts import Paragraph, Part

_MOSTLY_HUGE = 0.9
"""Share of the memory: with less in huge pages, a run does not test the prediction"""


class Verdict(Enum):
    """How a predicted range and a measurement compare."""

    WITHIN = "within"
    """The measured median is in the range."""
    UNDECIDED = "undecided"
    """The median is outside, but its interval reaches into the range."""
    MISSED = "missed"
    """The interval of the median does not overlap the range."""
    TOO_FEW = "too few pairs"
    """There is no interval."""


def judge(predicted: Bar, checked: Checked) -> Verdict:
    """Compares a predicted range with a measurement."""
    if checked.interval is None:
        return Verdict.TOO_FEW
    low, high = checked.interval
    if low > predicted.high + LEAST_SHARE or high < predicted.low - LEAST_SHARE:
        return Verdict.MISSED
    return Verdict.WITHIN if _is_within(predicted, checked.median) else Verdict.UNDECIDED


def _is_within(predicted: Bar, median: float) -> bool:
    return predicted.low - LEAST_SHARE <= median <= predicted.high + LEAST_SHARE


def first_line(advice: Advice, checked: Checked) -> list[Part]:
    """The warning that comes first if the measurement does not confirm the prediction."""
    predicted = advice.huge.saved
    verdict = judge(predicted, checked)
    both = f"predicted {change_text(predicted)}, measured {change_text(Bar.around([checked.median]))}"
    pairs = counted(len(checked.saved), "pair", "pairs")
    match verdict:
        case Verdict.WITHIN:
            return []
        case Verdict.TOO_FEW:
            if _is_within(predicted, checked.median):
                return []
            text = (
                f"The measurement is outside the prediction for huge pages: {both}. But {pairs} of runs are too few "
                f"to decide: a {percent(CONFIDENCE)} interval takes {FEWEST_VALUES}: --repeat {FEWEST_VALUES} or more."
            )
        case Verdict.UNDECIDED:
            text = (
                f"The measurement does not confirm the prediction for huge pages: {both} ({_interval(checked)}). The "
                "interval reaches into the prediction, so more pairs (--repeat) can decide. Until then, treat the "
                "size of every gain below as uncertain."
            )
        case Verdict.MISSED:
            text = (
                f"The prediction for huge pages missed: {both} ({_interval(checked)}). {_meaning(predicted, checked)} "
                "The other ranges below come from the same replays, and may be as far off."
            )
    return [Paragraph(text + _less_than_predicted(checked))]


def _interval(checked: Checked) -> str:
    low, high = checked.interval or (checked.median, checked.median)
    return (
        f"{percent(CONFIDENCE)} interval {change_text(Bar(low, high))}, {counted(len(checked.saved), 'pair', 'pairs')}"
    )


def _meaning(predicted: Bar, checked: Checked) -> str:
    """What a user should conclude if the prediction missed."""
    if not checked.is_clear:
        return "Huge pages made no clear difference to this program on this machine: do not expect one."
    if checked.median < 0:
        return "Huge pages make this program slower on this machine: do not use them for it."
    less = "less than" if checked.median < predicted.low else "more than"
    return f"Huge pages do help this program on this machine, {less} predicted: rely on the measurement."


def _less_than_predicted(checked: Checked) -> str:
    if checked.huge_share >= _MOSTLY_HUGE:
        return ""
    return (
        f" Only {percent(checked.huge_share)} of the anonymous memory became huge in the measured runs, while the "
        "prediction assumes all that can."
    )


def measured(advice: Advice, checked: Checked) -> Paragraph:
    """The measurement and the prediction."""
    against = "; the runs without huge pages also ignore the program's own requests for them" if advice.asks else ""
    return Paragraph(
        f"Measured on this machine, {counted(len(checked.saved), 'run', 'runs')} without and with huge pages in turn: "
        f"{change_text(Bar.around([checked.median]))} of the CPU time in the median pair; without huge pages it is "
        f"{seconds_text(checked.small_seconds)}. {_certainty(checked)} {percent(checked.huge_share)} of the anonymous "
        f"memory became huge{against}. Predicted: {change_text(advice.huge.saved)}. "
        f"{_judged(advice.huge.saved, checked)}"
    )


def _certainty(checked: Checked) -> str:
    pairs = f"Single pairs range over {change_text(Bar.around(checked.saved))}"
    if checked.interval is None:
        return f"{pairs}; fewer than {FEWEST_VALUES} pairs give no {percent(CONFIDENCE)} interval."
    low, high = checked.interval
    return f"{pairs}; the {percent(CONFIDENCE)} interval of the median is {change_text(Bar(low, high))}."


def _judged(predicted: Bar, checked: Checked) -> str:
    unclear = (
        ""
        if checked.is_clear
        else "This is not a clear change; measure more runs (--repeat) or give the program more work. "
    )
    match judge(predicted, checked):
        case Verdict.WITHIN:
            return f"{unclear}The measured median is within the prediction."
        case Verdict.TOO_FEW:
            return f"{counted(len(checked.saved), 'pair is', 'pairs are')} too few to judge the prediction."
        case Verdict.UNDECIDED:
            return f"{unclear}The median is outside the prediction, and its interval reaches into it."
        case Verdict.MISSED:
            return f"{unclear}The interval is outside the prediction."
