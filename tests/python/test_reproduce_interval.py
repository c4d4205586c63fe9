"""Figures with intervals: what may be said of them, and how a report shows it."""

from dataclasses import replace
from pathlib import Path

import pytest

from pagelab_studies import REPRODUCTIONS, report, study
from pagelab_studies.interval import Interval, all_hold


@pytest.mark.parametrize(
    ("low", "high", "above", "within"),
    [(1, 2, False, False), (2, 4, False, False), (3, 5, None, None), (5, 6, True, True), (7, 9, True, None)],
)
def test_where_the_interval_crosses_the_line_nothing_is_decided(
    low: float, high: float, above: bool | None, within: bool | None
) -> None:
    interval = Interval.from_values([high, low])
    assert interval.value == (low + high) / 2
    assert (interval.above(4), interval.within(5, 8)) == (above, within)
    assert interval.minus(Interval(4, 4, 4)).above(0) == above


def test_a_difference_is_as_uncertain_as_both() -> None:
    difference = Interval(1, 2, 4).minus(Interval(0, 3, 5))
    assert difference == Interval(-4, -1, 4)
    assert Interval.mean([Interval(1, 2, 4), Interval(3, 4, 8)]) == Interval(2, 3, 6)
    assert Interval.around(2, [Interval(1, 2, 4), Interval(0, 3, 3)]) == Interval(0, 2, 4)


def test_one_statement_that_does_not_hold_decides() -> None:
    assert all_hold([True, True]) is True
    assert all_hold([True, None]) is None
    assert all_hold([None, False, True]) is False


def test_a_report_says_what_is_not_decided_and_what_no_paper_prints(tmp_path: Path) -> None:
    figure = study.Comparison("§5", "walks", "saved", "%", None, 3.0, interval=Interval(-1, 3, 7))
    findings = study.Findings(
        comparisons=[figure, replace(figure, paper=20.0)],
        claims=[
            study.Claim("§5", f"statement {verdict}", verdict, "7 %", "a guess")
            for verdict in (True, False, None, None)
        ]
        + [study.Claim("§5", "what nobody said", True, "7 %", "a guess", ours=True)],
        series=[
            study.Series(
                "Fig 1", "t", "%", ("a",), ("b",), {("a", "b"): 3.0}, intervals={("a", "b"): Interval(1, 3, 5)}
            )
        ],
    )
    report.write(tmp_path, REPRODUCTIONS["ptemagnet"], 1.0, study.Measurements([]), findings)
    text = (tmp_path / "REPORT.md").read_text()
    assert "**1 of 4 of the paper's statements hold here, 1 do not, 2 are not decided.**" in text
    assert "| §5 | statement None | sign | not decided | 7 % | a guess |" in text
    statements, _, questions = text.partition("## Questions of our own")
    assert "what nobody said" not in statements
    assert "| §5 | what nobody said | sign | holds | 7 % | a guess |" in questions
    assert "Questions of our own" not in report.markdown(
        REPRODUCTIONS["ptemagnet"], 1.0, study.Findings(claims=findings.claims[:-1])
    )
    assert "| not printed in the paper | 3 (-1 to 7) % |" in text
    assert "| 20 % | 3 (-1 to 7) % |" in text
    assert "| a | 3 (1 to 5) |" in text
    assert '"low":-1' in (tmp_path / "results.json").read_text()
