"""`tests/instructions`: what passes, and what is not compared. `make test` runs the script itself."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "instructions"))

import instructions
from instructions import CASES, COUNTS, Bench, Case, RefusalError, document, per_unit, refusal, verdict

BENCH = Bench({}, Path())


def constant(count: int) -> Callable[[Bench, int], int]:
    return lambda _bench, _amount: count


CASE = Case("replay", "access", (100, 300), constant(0))


def test_start_up_does_not_count() -> None:
    assert per_unit(CASE, 5_000 + 100 * 7, 5_000 + 300 * 7) == 7


@pytest.mark.parametrize(
    ("count", "passes", "text"),
    [
        (103.1, False, "+3.10 % of 100.0: SLOWER by more than 3 %"),
        (102.9, True, "+2.90 % of 100.0"),
        (97.1, True, "-2.90 % of 100.0"),
        (96.9, True, "-3.10 % of 100.0: faster; --update keeps it so"),
    ],
)
def test_three_percent_more_fail(count: float, passes: bool, text: str) -> None:
    line, passed = verdict(CASE, count, 100.0)
    assert passed == passes
    assert line.endswith(text)


def test_a_case_without_a_count_fails() -> None:
    line, passed = verdict(CASE, 5.0, None)
    assert not passed
    assert "no committed count" in line


def test_every_case_has_a_committed_count() -> None:
    kept = tomllib.loads(COUNTS.read_text())
    assert list(kept["counts"]) == [case.name for case in CASES]
    assert all(count > 0 for count in kept["counts"].values())
    assert kept["conditions"]["opt_level"] == "2"


def test_counts_are_read_as_they_are_written() -> None:
    held_for = {"rustc": 'rustc 1.95.0 "a"', "rustflags": ""}
    assert tomllib.loads(document(held_for, {"a-b": 12.34})) == {"conditions": held_for, "counts": {"a-b": 12.3}}


def test_counts_of_another_compiler_are_not_compared() -> None:
    held_for = {"rustc": "rustc 1.95.0", "opt_level": "2"}
    assert refusal(held_for, held_for) == ""
    reason = refusal(held_for, {"rustc": "rustc 1.96.0", "opt_level": "2"})
    assert "rustc 'rustc 1.96.0' instead of 'rustc 1.95.0'" in reason
    assert "opt_level" not in reason


def test_incremental_builds_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARGO_INCREMENTAL", raising=False)
    with pytest.raises(RefusalError, match="set CARGO_INCREMENTAL=0"):
        instructions.check([], 1, update=False)
    command = [sys.executable, str(Path(instructions.__file__)), "replay-random"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2
    skipped = subprocess.run([*command, "--if-comparable"], check=True, capture_output=True, text=True)
    assert "the counts are not compared: incremental builds" in skipped.stderr


def test_a_name_that_is_not_a_case_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARGO_INCREMENTAL", "0")
    with pytest.raises(RefusalError, match="no case is named replay-nothing"):
        instructions.check(["replay-nothing"], 1, update=False)
