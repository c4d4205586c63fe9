"""The results in `docs/reproductions`: they are those of this engine, and the page of claims is theirs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pagelab as package
from pagelab_studies import REPRODUCTIONS, claims_page, shipped, study, undecided, verdicts

ROOT = Path(__file__).parents[2]


RESULTS = ROOT / "docs" / "reproductions"
PRESENT = sorted(path.parent.name for path in RESULTS.glob("*/results.json"))


def _results(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / name / "results.json").read_text())
    return document


def test_there_are_results_of_known_reproductions() -> None:
    assert PRESENT
    assert set(PRESENT) <= set(REPRODUCTIONS)


def test_the_page_of_claims_is_that_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "benches" / "reproductions.py"), "--check"]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("name", PRESENT)
def test_results_are_complete(name: str) -> None:
    document = _results(name)
    keys = {(run["workload"], run["system"], run.get("label", ""), run.get("seed", 1)) for run in document["runs"]}
    assert keys == {(*run.key, run.seed) for run in REPRODUCTIONS[name].runs() if not run.beyond}
    assert document["scale"] == 1


def test_every_open_verdict_has_a_cause() -> None:
    for name, filed in claims_page.read(RESULTS).items():
        whys = {
            f"{claim.figure} {claim.text}": undecided.of_claim(name, claim)
            for claim in filed.claims
            if claim.holds is None
        }
        judged = zip(filed.rows, verdicts.judge(filed.rows), strict=True)
        whys |= {
            f"{row.figure} {row.item} {row.quantity}": undecided.of_figure(name, row, of_row)
            for row, of_row in judged
            if None in of_row.values()
        }
        assert all(whys.values()), [words for words, why in whys.items() if not why]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESENT)
def test_a_run_made_again_has_the_same_statistics(name: str) -> None:
    reproduction = REPRODUCTIONS[name]
    # Recordings are not here.
    runs = [run for run in reproduction.runs() if not run.beyond and not run.recording]
    if not runs:
        pytest.skip("all runs are of recordings")
    shortest = min(runs, key=lambda run: run.accesses + run.warm_up)
    again = study.measure(reproduction, 1, lambda run: run == shortest, study.Watch())
    (measurement,) = again.all()
    (kept,) = (
        run
        for run in _results(name)["runs"]
        if (run["workload"], run["system"], run.get("label", "")) == shortest.key
        and run.get("seed", 1) == shortest.seed
    )
    now = {statistic: measurement.stats[statistic] for statistic in kept["stats"]}
    assert now == kept["stats"], "results have changed: make reproductions"


def test_results_without_runs_that_the_study_asks_for_are_not_lost() -> None:
    name, filed = next(iter(claims_page.read(RESULTS).items()))
    runs = filed.document["runs"]
    without = {**filed.document, "runs": runs[: len(runs) // 2]}
    with pytest.raises(
        package.UsageError, match=f"{name}: runs are not on file: .*`pagelab reproduce {name} --scale 1`"
    ):
        shipped.evaluate(filed.reproduction, without, (RESULTS / name / "REPORT.md").read_text())
