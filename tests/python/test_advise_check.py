"""`advise --check`: predictions beside measurements, and what the first line says where these do not agree."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pagelab, needs_recorder

from pagelab.advice import Advice, Checked, Choice, advice_of, document_of, replay, words
from pagelab.advice.gains import Bar, Gain
from pagelab.advice.verdict import Verdict, judge
from pagelab.confidence.sign_test import FEWEST_VALUES, median_interval

PREDICTED = Bar(0.61, 0.90)


def checked(*saved: float, huge_share: float = 1.0) -> Checked:
    return Checked(saved, 0.0221, 0.0205, huge_share, ())


@pytest.fixture(scope="module")
def advice() -> Advice:
    source = "gups:size=16MiB,updates=20K"
    advised = advice_of(source, replay(source, Choice("kabylake-7700hq", "", None, nested=False)))
    return replace(advised, remedies=(Gain("huge", PREDICTED, 1.0, 0, 1.0),))


def page(advice: Advice, measured: Checked) -> str:
    return words.page(advice, measured)


def first_line(advice: Advice, measured: Checked) -> str:
    return " ".join(page(advice, measured).split("\n\n")[0].split())


@pytest.mark.parametrize(
    ("saved", "verdict"),
    [
        # The measured interval, from the lowest of six pairs to the highest, is below the range, or above it.
        ((-0.045, 0.1, 0.2, 0.28, 0.3, 0.34), Verdict.MISSED),
        ((0.915, 0.92, 0.92, 0.93, 0.94, 0.95), Verdict.MISSED),
        # It reaches into the range, and the median is outside.
        ((0.3, 0.4, 0.5, 0.5, 0.6, 0.62), Verdict.UNDECIDED),
        ((0.89, 0.91, 0.92, 0.92, 0.93, 0.95), Verdict.UNDECIDED),
        # A hundredth beyond it cannot be distinguished from what is in it.
        ((0.89, 0.9, 0.905, 0.905, 0.93, 0.95), Verdict.WITHIN),
        # Its end is that of the range.
        ((0.3, 0.4, 0.5, 0.5, 0.6, 0.61), Verdict.UNDECIDED),
        ((0.5, 0.6, 0.65, 0.65, 0.7, 0.95), Verdict.WITHIN),
        # Five pairs have no interval, wherever they are.
        ((0.1, 0.1, 0.1, 0.1, 0.1), Verdict.TOO_FEW),
        ((0.7,), Verdict.TOO_FEW),
        # Of nine, the lowest and the highest do not count.
        ((0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.7), Verdict.MISSED),
    ],
)
def test_a_prediction_is_judged_by_the_interval_of_the_measurement(saved: tuple[float, ...], verdict: Verdict) -> None:
    assert judge(PREDICTED, checked(*saved)) is verdict


def test_no_change_is_no_miss() -> None:
    measured = checked(-0.02, -0.01, -0.008, -0.008, 0.01, 0.036)
    assert judge(Bar(0.0, 0.0), measured) is Verdict.WITHIN
    assert judge(Bar(0.0, 0.0), checked(*[0.05] * 6)) is Verdict.MISSED


def test_a_missed_prediction_is_in_the_first_line(advice: Advice) -> None:
    missed = checked(-0.045, 0.1, 0.2, 0.28, 0.3, 0.34)
    line = first_line(advice, missed)
    assert line.startswith("The prediction for huge pages missed: predicted −90 to −61 %, measured −24 %")
    assert "95 % interval −34 to +4.5 %, 6 pairs" in line
    assert "no clear difference" in line
    assert "other ranges below come from the same replays" in line
    document = document_of(advice, missed)["measured"]
    assert document["verdict"] == "missed"
    assert document["predicted"] == {"low": 0.61, "high": 0.9}
    less = first_line(advice, checked(*[0.24] * 6))
    assert "do help this program on this machine, less than predicted" in less
    assert "more than predicted" in first_line(advice, checked(*[0.95] * 6))
    assert "slower on this machine" in first_line(advice, checked(*[-0.1] * 6))
    assert "Only 20 % of the anonymous memory" in first_line(advice, checked(*[0.1] * 6, huge_share=0.2))


def test_a_prediction_that_holds_needs_no_first_line(advice: Advice) -> None:
    within = checked(*[0.7] * 6)
    assert first_line(advice, within).startswith("gups:size=16MiB")
    text = " ".join(page(advice, within).split())
    assert "Predicted: −90 to −61 %. The measured median is within the prediction." in text
    assert "without huge pages it is 22.1 ms" in text
    assert "not a clear change" not in text
    assert "the program's own" not in text
    assert "the runs without huge pages also ignore the program's own requests" in " ".join(
        page(replace(advice, asks=True), within).split()
    )


def test_a_median_outside_of_the_range_is_in_the_first_line_whatever_it_decides(advice: Advice) -> None:
    undecided = first_line(advice, checked(0.3, 0.4, 0.5, 0.5, 0.6, 0.62))
    assert "does not confirm the prediction for huge pages: predicted −90 to −61 %, measured −50 %" in undecided
    few = first_line(advice, checked(*[0.1] * 5))
    assert "5 pairs of runs are too few to decide" in few
    assert "--repeat 6" in few
    inside = checked(*[0.7] * 5)
    assert first_line(advice, inside).startswith("gups:size=16MiB")
    assert "5 pairs are too few to judge the prediction" in " ".join(page(advice, inside).split())


def test_no_clear_change_is_told(advice: Advice) -> None:
    near = replace(advice, remedies=(Gain("huge", Bar(-0.02, 0.03), 1.0, 0, 1.0),))
    assert "This is not a clear change" in page(near, checked(-0.01, 0.01, 0.0, 0.01, 0.01, 0.02))


def test_the_interval_of_the_median_is_the_sign_tests() -> None:
    def interval(number: int) -> tuple[float, float]:
        return median_interval(list(map(float, range(number))))

    # Conover's table: of 5 pairs no interval is certain to 95 %; of 6 it is all, of 9 the second, of 20 the sixth.
    assert [interval(number) for number in (1, 5, 6, 9, 20)] == [(0, 0), (0, 4), (0, 5), (1, 7), (5, 14)]
    # All values of so few hold the median in 1 − 2 / 2 ** number of the cases.
    assert 1 - 2 / 2**FEWEST_VALUES > 0.95 > 1 - 2 / 2 ** (FEWEST_VALUES - 1)
    assert checked(*[0.1] * 5).interval is None
    assert checked(*[0.1] * 6).interval == (0.1, 0.1)


@needs_recorder
def test_what_is_predicted_is_measured_if_asked(tmp_path: Path, pagelab: Pagelab) -> None:
    (tmp_path / "reads.c").write_text(
        """
        #include <stdlib.h>
        int main(void) {
            size_t bytes = 32 << 20;
            volatile char *at = malloc(bytes);
            unsigned long state = 1;
            for (long i = 0; i < 500000; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                at[(state >> 20) % bytes]++;
            }
        }
        """
    )
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "reads", tmp_path / "reads.c"], check=True)
    done = pagelab("advise", "--check", "-n", "2", "--json", "a.json", "--", "./reads")
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "a.json").read_text())["measured"]
    assert len(measured["saved"]) == 2
    assert measured["interval"] is None
    assert measured["verdict"] == "too few pairs"
    assert measured["huge_share"] > 0.9
    assert measured["small_seconds"] > 0.001
    text = " ".join(done.stdout.split())
    assert "Measured on this machine, 2 runs without and with huge pages in turn: " in text
    assert "2 pairs are too few to judge the prediction" in text
    assert "--repeat 2: fewer than 6 pairs" in done.stderr
    assert measured["warnings"]
    for warning in measured["warnings"]:
        assert f"pagelab: warning: {warning}" in done.stderr
