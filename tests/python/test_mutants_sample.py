"""Samples of changes: each is made once, taken back, and what nobody notices is reported."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

import sample
from run import ROOT
from sample import Change, Outcome

FILE = "crates/pagelab-base/src/a.rs"
SUM = Change("rust", FILE, "replace + with -", "a - b\n")
PRODUCT = Change("rust", FILE, "replace + with *", "a * b\n")
BROKEN = Change("rust", FILE, "replace + with ?", "a ? b\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose only test fails if there is a minus, and which does not compile with a question mark."""
    path = tmp_path / "tree" / FILE
    path.parent.mkdir(parents=True)
    path.write_text("a + b\n")
    monkeypatch.setattr(sample, "SCRATCH", tmp_path)

    def commands(change: Change, jobs: int) -> Iterable[list[str]]:
        assert jobs == 3
        assert path.read_text() == change.text
        yield ["sh", "build"] if "?" in change.text else ["true"]
        yield ["sh", "-c", f"! grep -q -- - {path}"]

    monkeypatch.setitem(sample.COMMANDS, "rust", commands)
    return path


def test_changes_are_made_once_and_taken_back(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tree.parents[4] / "sample-1.jsonl"
    outcomes = sample.run([SUM], log, 3)
    assert outcomes[0].noticed_by.startswith("sh -c ! grep")
    assert not sample.failing_anyway(outcomes)
    assert tree.read_text() == "a + b\n"
    # As if it had been another outcome, which shows that the log is believed.
    log.write_text(json.dumps({**json.loads(log.read_text()), "noticed_by": "an earlier run"}) + "\n")
    outcomes = sample.run([SUM, PRODUCT, BROKEN], log, 3)
    assert [one.noticed_by for one in outcomes] == ["an earlier run", "", "compiler"]
    assert tree.read_text() == "a + b\n"
    assert [Outcome(**json.loads(line)) for line in log.read_text().splitlines()] == outcomes
    assert "2 of 3: crates/pagelab-base/src/a.rs: replace + with *: NOT NOTICED" in capsys.readouterr().out


def test_what_fails_without_a_change_has_noticed_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tree.parents[4] / "sample-1.jsonl"
    outcomes = sample.run([SUM, BROKEN], log, 3)
    assert sample.report(outcomes, log) == 0
    assert "noticed 1 of 1; 1 did not compile" in capsys.readouterr().out
    tree.write_text("a - b\n")
    assert sample.report(outcomes, log) == 1
    assert f"fails without any change, too: {outcomes[0].noticed_by}" in capsys.readouterr().out
    assert list(sample.known_outcomes(log).values()) == [outcomes[1]]


PYTEST_SAYS = """
FAILED tests/python/test_a.py::test_b[x - y] - AssertionError: assert 1 == 2
!!!! stopping after 1 failures !!!!
"""
CARGO_SAYS = """
failures:
    ring::is_empty

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p pagelab-base --lib`
"""


def test_the_test_that_failed_is_found() -> None:
    name, again = sample.failed_test(["pytest"], PYTEST_SAYS)
    assert name == "tests/python/test_a.py::test_b[x - y]"
    assert again[-1] == name
    name, again = sample.failed_test(["cargo"], CARGO_SAYS)
    assert name == "-p pagelab-base --lib ring::is_empty"
    assert again[2:] == ["--quiet", "-p", "pagelab-base", "--lib", "--", "--exact", "ring::is_empty"]
    assert sample.failed_test(["make", "it"], "Killed") == ("make it", ["make", "it"])


def test_the_tests_of_crates_that_depend_on_it_run_as_well() -> None:
    order = sample.dependents("pagelab-hardware")
    assert order[0] == "pagelab-hardware"
    assert order.index("pagelab-translate") < order.index("pagelab-simulation")
    assert "pagelab-py" not in order
    assert "pagelab-trace" not in order


def test_a_change_in_c_is_one_operator_of_its_code() -> None:
    changes = sample.draw_c(7, 20)
    assert changes == sample.draw_c(7, 20) != sample.draw_c(8, 20)
    assert len({(one.file, one.what) for one in changes}) == 20
    for one in changes:
        before, after = (text.splitlines() for text in ((ROOT / one.file).read_text(), one.text))
        ((old, new),) = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert not old.lstrip().startswith(("/*", "*", "//", "#"))
        words = [pair for pair in zip(old.split(), new.split(), strict=True) if pair[0] != pair[1]]
        assert len(words) == 1
        assert sample.OPPOSITES[words[0][0].rstrip(";")] == words[0][1].rstrip(";")


def test_a_change_replaces_just_its_span() -> None:
    place = {"start": {"line": 2, "column": 3}, "end": {"line": 2, "column": 4}}
    mutant = {"file": "rustfmt.toml", "span": place, "replacement": "XYZ"}
    before = (ROOT / "rustfmt.toml").read_text()
    first, second, *rest = before.splitlines(keepends=True)
    assert sample._patched(mutant) == first + second[:2] + "XYZ" + second[3:] + "".join(rest)
