"""Three verdicts on each figure, why sizes differ, and the page of both: by made-up figures, and by those on file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pagelab_studies import REPRODUCTIONS, claims_page, reasons, report, shipped, verdicts
from pagelab_studies.interval import Interval
from pagelab_studies.study import Claim, Comparison, Findings, Series

RESULTS = Path(__file__).parents[2] / "docs" / "reproductions"
PRESENT = sorted(path.parent.name for path in RESULTS.glob("*/results.json"))
SLOW = {"mfoe", "software-translation-cache-variants"}
"""Studies whose evaluation runs a model for many seconds."""


def _row(paper: float | None, ours: float, margin: float | None = None, **more: Any) -> Comparison:
    interval = None if margin is None else Interval(ours - margin, ours, ours + margin)
    named = {"figure": "Table 1", "item": "a", "quantity": "time saved", "unit": "%", **more}
    return Comparison(paper=paper, ours=ours, interval=interval, **named)


def _verdict(aspect: str, *rows: Comparison) -> bool | str | None:
    """That on the first row; "none" if there is nothing to judge."""
    return verdicts.judge(rows)[0].get(aspect, "none")


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (_row(5.0, 1.0, 0.5, neutral=0.0), True),
        (_row(5.0, 0.3, 0.5, neutral=0.0), None),
        (_row(5.0, -1.0, 0.5, neutral=0.0), False),
        (_row(-5.0, -1.0, 0.5, neutral=0.0), True),
        (_row(-5.0, 1.0, 0.5, neutral=0.0), False),
        (_row(1.1, 1.01, neutral=1.0), True),
        (_row(1.1, 0.99, neutral=1.0), False),
        # Neither a rate nor a figure that rounds to no effect has a sign.
        (_row(5.0, 1.0), "none"),
        (_row(0.2, 1.0, neutral=0.0, printed=(-0.3, 0.7)), "none"),
        (_row(None, 1.0, neutral=0.0), "none"),
    ],
)
def test_the_sign_is_that_of_the_whole_interval(row: Comparison, verdict: bool | str | None) -> None:
    assert _verdict("sign", row) == verdict


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (_row(20.0, 24.9), True),
        (_row(20.0, 25.1), False),
        (_row(20.0, 14.9), False),
        (_row(20.0, 22.0, 2.0), True),
        (_row(20.0, 22.0, 4.0), None),
        (_row(20.0, 40.0, 4.0), False),
        # The effect of a ratio is its distance from 1: a quarter of 0.08 is 0.02.
        (_row(1.08, 1.11, neutral=1.0), False),
        (_row(1.08, 1.09, neutral=1.0), True),
        (_row(1.08, 1.11), True),
        # What the paper prints as 44 to 78, and -1 rounded.
        (_row(78.0, 45.0, printed=(44.0, 78.0)), True),
        (_row(-1.0, -1.45, neutral=0.0, printed=(-1.5, -0.5)), True),
        (_row(-1.0, -1.55, neutral=0.0, printed=(-1.5, -0.5)), False),
        (_row(1.0, 3.0, neutral=1.0), "none"),
        (_row(None, 3.0), "none"),
        # Less than 0.2, and over 63: nothing is added to a bound, and its other side is open.
        (_row(0.2, 0.008, bound="at most"), True),
        (_row(0.2, 0.21, bound="at most"), False),
        (_row(0.2, 0.19, 0.02, bound="at most"), None),
        (_row(63.0, 99.9, bound="at least"), True),
        (_row(63.0, 62.0, bound="at least"), False),
        (_row(0.0, 1.0, bound="at most"), False),
        (_row(None, 1.0, bound="at most"), "none"),
    ],
)
def test_the_size_is_within_a_quarter_of_the_effect_or_what_is_printed(row: Comparison, verdict: bool | None) -> None:
    assert _verdict("size", row) == verdict


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([_row(10.0, 3.9, 0.5, ranked="t")], True),
        ([_row(10.0, 6.0, 0.5, ranked="t")], False),
        ([_row(10.0, 5.5, 0.5, ranked="t")], None),
        ([_row(10.0, 4.0, 0.5, ranked="t"), _row(30.0, 4.0, 0.5, ranked="t")], False),
        ([_row(20.0, 9.0, 0.5, ranked="t")], "none"),
        ([_row(10.0, 6.0, 0.5, ranked="another")], "none"),
        ([_row(10.0, 6.0, 0.5)], "none"),
        ([_row(None, 6.0, 0.5, ranked="t")], "none"),
    ],
)
def test_the_order_is_that_of_each_pair_that_the_paper_prints_apart(
    others: list[Comparison], verdict: bool | str | None
) -> None:
    assert _verdict("order", _row(20.0, 5.0, 0.5, ranked="t"), *others) == verdict


def test_a_bound_is_written_as_one_and_read_again() -> None:
    row = _row(63.0, 99.9, bound="at least")
    assert (verdicts.printed_in_words(row), verdicts.limits_in_words(row)) == ("at least 63 %", "at least 63")
    control = _row(None, 99.9, bound="at least")
    assert (verdicts.printed_in_words(control), verdicts.limits_in_words(control)) == (control.without, "")
    findings = Findings(comparisons=[row, _row(20.0, 21.0)])
    reproduction = REPRODUCTIONS["ptemagnet"]
    document = json.loads(report.document(reproduction, 1.0, findings, []))
    assert [one.get("bound", "") for one in document["comparisons"]] == ["at least", ""]
    assert [one["limits"] for one in document["comparisons"]] == [None, [15.0, 25.0]]
    assert shipped.rows(document) == findings.comparisons
    assert "| at least 63 % | 99.9 % |  |  | yes | at least 63 |" in report.markdown(reproduction, 1.0, findings)


def test_figures_that_rounding_makes_the_same_have_no_order() -> None:
    rows = [
        _row(paper, ours, ranked="t", printed=(paper - 0.6, paper + 0.6)) for paper, ours in ((1.0, 2.0), (2.0, 1.0))
    ]
    assert _verdict("order", *rows) == "none"


def test_a_figure_of_something_else_has_no_verdict() -> None:
    row = _row(20.0, 30.0, 1.0, neutral=0.0, ranked="t", unjudged="another program")
    other = _row(10.0, 40.0, 1.0, neutral=0.0, ranked="t")
    assert verdicts.judge([row, other]) == [{}, {"sign": True, "size": False}]
    assert verdicts.limits(row) is None
    assert reasons.why("hash-dont-cache", row, {}) == ""


def test_a_figure_that_is_not_comparable_in_size_keeps_its_sign_and_order() -> None:
    row = _row(20.0, 30.0, 1.0, neutral=0.0, ranked="t", unsized="another part of a fault")
    other = _row(10.0, 40.0, 1.0, neutral=0.0, ranked="t")
    assert verdicts.judge([row, other]) == [
        {"sign": True, "order": False},
        {"sign": True, "order": False, "size": False},
    ]
    assert (verdicts.limits_in_words(row), reasons.why("hash-dont-cache", row, {})) == ("", "")
    findings = Findings(comparisons=[row])
    reproduction = REPRODUCTIONS["ptemagnet"]
    assert shipped.rows(json.loads(report.document(reproduction, 1.0, findings, []))) == [row]
    why = "no verdict on the size: another part of a fault |"
    assert f"|  |  | {why}" in report.markdown(reproduction, 1.0, findings)
    assert f"| {why}  |" in claims_page.page({"hash-dont-cache": _filed("hash-dont-cache", row)})


def test_verdicts_are_counted_by_aspect() -> None:
    claims = [Claim("§1", "first", True, "", ""), Claim("§1", "second", None, "", "", "order")]
    counts = verdicts.counts(claims, [_row(20.0, 30.0, neutral=0.0)])
    assert counts == {"sign": Counter({True: 2}), "order": Counter({None: 1}), "size": Counter({False: 1})}


def _documents(after: float) -> dict[str, dict[str, Any]]:
    """Results in which pages of 2 MiB in the host move the product's figure from 24 to this."""
    title = "walk time saved, matmul, faults of the product"
    values = [["1000", "as published", 24.0, None], ["1000 host 2 MiB", "as published", after, None]]
    return {"software-translation-cache": {"series": [{"title": title, "values": values}], "comparisons": []}}


@pytest.mark.parametrize(
    ("after", "kind", "words"),
    [
        (31.0, "explained", "pages of 2 MiB in the host: 31 %, which closes 54 % of the difference"),
        (60.0, "explained", "pages of 2 MiB in the host: 60 %, past the paper's"),
        (26.0, "unexplained", "unexplained (pages of 2 MiB in the host: 26 %, which closes 15 % of the difference)"),
        (24.02, "unexplained", "unexplained (pages of 2 MiB in the host: 24 %, which changes nothing)"),
        (20.0, "unexplained", "unexplained (pages of 2 MiB in the host: 20 %, which adds 31 % of the difference)"),
    ],
)
def test_an_experiment_explains_what_it_closes_by_half(after: float, kind: str, words: str) -> None:
    row = _row(37.0, 24.0, item="matmul 1000², product", quantity="walk time saved", neutral=0.0)
    study, documents = "software-translation-cache", _documents(after)
    assert reasons.kind(study, row, documents) == kind
    assert reasons.why(study, row, documents) == words
    assert reasons.why(study, row, {}) == "unexplained"


@pytest.mark.parametrize(
    ("ours", "after", "kind", "words"),
    [
        (100.0, 71.0, "explained", "71 %, within the paper's range"),
        (100.0, 84.0, "explained", "84 %, which closes 73 % of the difference"),
        (100.0, 40.0, "explained", "40 %, past the paper's"),
        (100.0, 90.0, "unexplained", "90 %, which closes 45 % of the difference"),
        (20.0, 60.0, "explained", "60 %, within the paper's range"),
        (20.0, 40.0, "explained", "40 %, which closes 83 % of the difference"),
        (20.0, 30.0, "unexplained", "30 %, which closes 42 % of the difference"),
    ],
)
def test_a_range_of_the_paper_is_no_single_figure(ours: float, after: float, kind: str, words: str) -> None:
    row = _row(78.0, ours, item="YCSB-A", quantity="synchronous refills fewer by", printed=(44.0, 78.0))
    assert verdicts.printed_in_words(row) == "44 to 78 %"
    assert verdicts.printed_in_words(_row(9.0, 9.0, printed=(8.5, 9.5))) == "9 %", "what rounding allows"
    values = [["YCSB-A", "128 free pages", after, None]]
    series = [{"title": "Fewer synchronous refills, by mix", "values": values}]
    study = "hardware-demand-paging"
    documents = {study: {"series": series, "comparisons": []}}
    assert reasons.kind(study, row, documents) == kind
    text = f"128 free pages: {words}"
    assert reasons.why(study, row, documents) == (text if kind == "explained" else f"unexplained ({text})")


def test_a_range_that_reaches_the_paper_leaves_a_size_open() -> None:
    assert reasons.why("mfoe", _row(37.0, 24.0, 5.0), {}) == "open: our range reaches the limits"
    assert reasons.why("mfoe", _row(37.0, 35.0, 5.0), {}) == ""


def test_every_experiment_is_on_file() -> None:
    documents = {name: shipped.read(RESULTS / name) for name in PRESENT}
    for experiment in reasons.EXPERIMENTS:
        about = [
            row
            for row in shipped.rows(documents[experiment.study])
            if experiment.is_about(experiment.study, row) and row.paper is not None
        ]
        assert about, experiment.change
        assert any(experiment.figure(row, documents) is not None for row in about), experiment.change


def _filed(name: str, *rows: Comparison) -> claims_page.Filed:
    document = {"runs": [], "scale": 1.0, "machine": "m", "version": "0", "series": [], "comparisons": []}
    return claims_page.Filed(REPRODUCTIONS[name], document, list(rows), [Claim("§1", "faster", True, "5 %", "seeds")])


def test_the_page_has_both_cores_and_the_reason() -> None:
    row = _row(20.0, 30.0, 1.0, neutral=0.0)
    alone = claims_page.page({"hash-dont-cache": _filed("hash-dont-cache", row)})
    line = "| Table 1 | a | time saved | 20 % | 15 to 25 | 30 (29 to 31) % | yes |  | **no** |"
    assert f"{line} not run |  |  |  | unexplained |" in alone
    assert "| §1 | faster | sign | holds | not run | 5 % | seeds |" in alone
    assert "| Hash, Don't Cache (the Page Table) | Table 1 | 1 yes |  | 1 **no** |" in alone
    window = _filed("hash-dont-cache-window", _row(20.0, 21.0, 1.0, neutral=0.0))
    both = claims_page.page({"hash-dont-cache": _filed("hash-dont-cache", row), "hash-dont-cache-window": window})
    assert f"{line} 21 (20 to 22) % | yes |  | yes | unexplained |" in both
    assert "| §1 | faster | sign | holds | holds | 5 % | seeds |" in both
    table = list(claims_page.table_of_counts({"hash-dont-cache": _filed("hash-dont-cache", row)}))
    assert table[-1] == "| all | 2, 0, 0 | 0, 0, 0 | 0, 1, 0 | 0 | 0 | 1 |"


def test_the_page_says_why_a_figure_has_no_verdict() -> None:
    row = _row(20.0, 30.0, 1.0, neutral=0.0, unjudged="another program")
    window = _filed("hash-dont-cache-window", _row(20.0, 21.0, 1.0, neutral=0.0, unjudged="another program"))
    alone = {"hash-dont-cache": _filed("hash-dont-cache", row)}
    line = "| Table 1 | a | time saved | 20 % | 30 (29 to 31) % |"
    assert f"{line} not run | another program |" in claims_page.page(alone)
    page = claims_page.page({**alone, "hash-dont-cache-window": window})
    assert page.count(f"{line} 21 (20 to 22) % | another program |") == page.count("another program") == 1


def test_questions_of_our_own_are_not_counted_as_the_paper_s() -> None:
    filed = _filed("mfoe", _row(20.0, 30.0, neutral=0.0))
    before = verdicts.counts(filed.claims, filed.rows), claims_page.by_figure({"mfoe": filed})
    filed.claims.append(Claim("§1", "what nobody said", False, "1 %", "costs", ours=True))
    assert (verdicts.counts(filed.claims, filed.rows), claims_page.by_figure({"mfoe": filed})) == before
    statements, _, questions = claims_page.page({"mfoe": filed}).partition("Questions of our own")
    assert "1 statements hold, 0 do not" in statements
    assert "| §1 | what nobody said | sign | does not hold |" in questions.replace("**", "")
    assert "what nobody said" not in statements


def test_the_page_says_why_a_verdict_is_open() -> None:
    row = _row(20.0, 20.0, 30.0, neutral=0.0, reason="a control; a gain: yes by the costs of one")
    filed = _filed("ptemagnet", row)
    filed.claims.append(Claim("§5", "slower (first touches included)", None, "1 %", "costs"))
    page = claims_page.page({"ptemagnet": filed})
    why = "some of the five seeds are on each side of the limit: the range is from the lowest to the highest"
    assert f"| {why} (yes by the costs of one) |" in page
    assert "| not decided: what a reserved page costs is not printed: a look-up of 20 to 368 cycles | not run |" in page
    window = _filed("ptemagnet-window", row)
    decided = _row(20.0, 20.0, 1.0, neutral=0.0)
    both = claims_page.page({"ptemagnet": _filed("ptemagnet", decided), "ptemagnet-window": window})
    assert "some of the five seeds" in both, "open on the other core alone"
    assert "some of the five seeds" not in claims_page.page({"ptemagnet": _filed("ptemagnet", decided)})


@pytest.mark.parametrize("name", [name for name in PRESENT if name not in SLOW])
def test_results_on_file_are_what_the_code_says_of_them(name: str) -> None:
    document = shipped.read(RESULTS / name)
    text = (RESULTS / name / "REPORT.md").read_text(encoding="utf-8")
    findings = shipped.evaluate(REPRODUCTIONS[name], document, text)
    assert report.markdown(REPRODUCTIONS[name], document["scale"], findings) == text
    again = report.document(REPRODUCTIONS[name], document["scale"], findings, document["runs"])
    assert again == (RESULTS / name / "results.json").read_text(encoding="utf-8")


def test_notes_are_those_that_the_code_has_with_the_numbers_on_file() -> None:
    name = "hardware-demand-paging-indirect"
    text = (RESULTS / name / "REPORT.md").read_text(encoding="utf-8")
    older = text.replace("65,536 records", "70,000 records") + "- It says nothing of instruction caches.\n"
    notes = shipped.evaluate(REPRODUCTIONS[name], shipped.read(RESULTS / name), older).notes
    assert "70,000 records" in notes[0]
    assert notes[1:] == shipped.evaluate(REPRODUCTIONS[name], shipped.read(RESULTS / name), text).notes[1:]


PUBLISHED = {
    "hash-dont-cache": (
        "Fig 6",
        "Fig 9",
        "Fig 10",
        "Fig 11",
        "Table 4",
        # §1 quotes figures of other programs, and what §6.3 says follows from its designs.
        "§3.2",
        "§4.3",
        "§5.1",
        "§5.4",
        "§6.1",
        "§6.2",
    ),
    # Of the peak in Fig 1 two factors are inputs, and the drop here has another cause.
    "mfoe": ("Fig 9a", "Fig 9b", "Fig 10a", "Fig 10b", "Table 1", "Table 4", "Table 5"),
    "ptemagnet": ("§3", "§5", "Fig 5 (third party)", "Fig 6 (third party)", "third party"),
    "software-translation-cache": ("Fig 2", "Fig 3", "Fig 4", "Fig 6", "Fig 7", "abstract"),
    "hardware-demand-paging": (
        *("Bottleneck shift", "Page miss", "Throughput", "Free pages", "Resource pollution", "Abstract"),
    ),
}
"""The figures and tables of results of each paper, and sections with statements."""


@pytest.mark.parametrize("paper", PUBLISHED)
def test_every_figure_and_table_of_a_paper_is_judged(paper: str) -> None:
    judged = claims_page.by_figure(claims_page.read(RESULTS))[paper]
    assert [figure for figure in PUBLISHED[paper] if not any(judged.get(figure, {}).values())] == []


def test_tables_on_file_are_read_with_their_intervals() -> None:
    values = [["a", "b", 1.0, {"low": 0.0, "value": 1.0, "high": 2.0}], ["c", "b", 3.0, None]]
    (table,) = shipped.series({"series": [{"figure": "Fig 1", "title": "t", "unit": "%", "values": values}]})
    assert table == Series(
        "Fig 1", "t", "%", ("a", "c"), ("b",), {("a", "b"): 1.0, ("c", "b"): 3.0}, {("a", "b"): Interval(0, 1, 2)}
    )
