"""`pagelab reproduce`: what is measured, what is made of it, and what is written."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pagelab

from pagelab.cli.application import main
from pagelab_studies import (
    REPRODUCTIONS,
    hash_dont_cache,
    hash_dont_cache_figures,
    hash_dont_cache_reasons,
    hash_dont_cache_runs,
    hash_dont_cache_samples,
    report,
    study,
)
from pagelab_studies.interval import Interval

_COST = {"chained": 9.0, "open": 8.0, "clustered": 6.0, "compact": 5.0, "radix": 7.0, "perfect": 4.0, "2M": 1.0}
_COST |= {"direct segment": 0.0, "VMM direct": 4.0, "guest direct": 4.0, "dual direct": 0.0, "speculative": 6.0}
_LINES = {"chained": 1.25, "open": 1.06, "clustered": 1.05, "compact": 1.02}
_MEMORY = {"Graph500 8GB": 1.1, "Graph500 16GB": 1.2, "GUPS 2GB": 1.5, "GUPS 8GB": 2.0, "GUPS 32GB": 3.0}


def _load(run: study.Run) -> float:
    """That of a table by its label."""
    named = re.search(r"load ([^,]*)", run.label)
    return {**hash_dont_cache_runs.LOADS, **hash_dont_cache_runs.GRAPH_LOADS}[named[1]] if named else 1 / 8


def _cost(run: study.Run, system: str) -> float:
    if run.label == hash_dont_cache_runs.DATA_CACHE:
        return 4.0
    if run.label == hash_dont_cache_runs.FREE_LOOKUP:
        return 3.0
    if system == "hashed":
        usual = {"mcf*": 3.5, "xalancbmk*": 3.5, "cactusADM*": 2.0}.get(run.workload, 4.0 + 4 * _load(run))
        clusters = re.search(r"cluster (\d+)", run.label)
        return usual + (100 / int(clusters[1]) if clusters else 0.0)
    return _COST[system] * (_MEMORY.get(run.workload, 1.0) if system == "radix" else 1.0)


def _lines(run: study.Run, system: str) -> float:
    """References of a walk."""
    nested = run.system.startswith("nested")
    if _COST.get(system) == 0:
        return 0.0
    if system in ("perfect", "radix"):
        return 3.0 if nested else {"perfect": 1.0, "radix": 2.0}[system]
    if run.workload.startswith("Graph500"):
        return hash_dont_cache_reasons.last_pages(_load(run))
    return _LINES.get(system, 3.3 if nested else 1.071)


def _made_up(run: study.Run) -> study.Measurement:
    """Walks of which all holds that the paper says."""
    system = run.system.removeprefix("nested ")
    cost = _cost(run, system) * (4 if run.system.startswith("nested") else 1)
    misses = 0.9 if system in ("radix", "perfect") else 0.1
    if run.label == hash_dont_cache_runs.DATA_CACHE:
        misses = 0.05
    walks = 1000
    refs = round(walks * _lines(run, system))
    stats = {
        "walk.count": walks,
        "walk.cycles": round(walks * cost * 10),
        "walk.refs": refs,
        "walk.refs.l1": refs - round(walks * misses),
        "walk.refs.dram": round(walks * cost / 10) * (5 if system == "chained" else 1),
        "accesses": walks,
        "cycles.base": 100_000,
        "cycles.data_stall": 100_000,
        "cycles.translation": round(walks * cost * 10),
        "layer.native.page_table.slots": 1_000_000,
        "layer.native.page_table.slots.used": round(1_000_000 * _load(run)),
    }
    return _with_parts(run, stats)


def _with_parts(run: study.Run, stats: dict[str, int]) -> study.Measurement:
    # Half of the parts cost a tenth more than the others.
    parts = tuple({**stats, "walk.cycles": stats["walk.cycles"] * (10 + n % 2)} for n in range(study.PARTS))
    return study.Measurement(run, run.accesses, stats, parts)


def _changed(change: Callable[[study.Run], dict[str, float]]) -> study.Findings:
    """What is found if statistics of some runs are multiplied."""

    def made(run: study.Run) -> study.Measurement:
        factors = change(run)
        stats = _made_up(run).stats
        return _with_parts(run, {name: round(value * factors.get(name, 1.0)) for name, value in stats.items()})

    return hash_dont_cache.evaluate(study.Measurements(made(run) for run in hash_dont_cache_runs.runs()))


@pytest.fixture(scope="module")
def findings() -> study.Findings:
    measured = study.Measurements(_made_up(run) for run in hash_dont_cache_runs.runs())
    return hash_dont_cache.evaluate(measured)


def test_every_run_has_a_name_of_its_own() -> None:
    for reproduction in REPRODUCTIONS.values():
        keys = [(run.key, run.seed) for run in reproduction.runs()]
        assert len(set(keys)) == len(keys) > 10


def test_what_the_paper_says_holds_of_walks_that_are_as_it_says(findings: study.Findings) -> None:
    assert len(findings.claims) > 40
    assert [claim.text for claim in findings.claims if claim.holds is not True] == []


_Change = Callable[[study.Run], dict[str, float]]


def _cycles(factor: float, workload: str, system: str, label: str = "") -> _Change:
    def change(run: study.Run) -> dict[str, float]:
        mine = run.workload == workload and run.system == system and run.label.startswith(label)
        return {"walk.cycles": factor} if mine else {}

    return change


def _refs(factor: float, workload: str, system: str) -> _Change:
    return lambda run: {"walk.refs": factor} if (run.workload, run.system) == (workload, system) else {}


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (_cycles(9, "milc*", "compact"), "each optimisation lowers the cycles of a walk"),
        # 1.06 lines are 1.24 slots, 1.14 are 1.56; chains take 1.25 of both.
        (
            _refs(1.075, "milc*", "open"),
            "open addressing at half the load: fewer references of a walk than chains, in slots",
        ),
        (_refs(1.1, "milc*", "compact"), "compaction: fewer references of a walk than clustering"),
        # The sign decides: 4.52 for perfect MMU caches against 4.5 for hashed tables.
        (
            _cycles(1.13, "GUPS 2GB", "nested perfect"),
            "GUPS 2GB, virtual: perfect MMU caches save more than hashed tables",
        ),
        (_cycles(1.15, "mcf*", "nested hashed"), "mcf*, virtual: hashed tables save more than perfect MMU caches"),
        (
            _cycles(1.2, "xalancbmk*", "perfect", "free"),
            "xalancbmk*, bare: hashed tables save more because of the MMU caches' look-up; with a free look-up they "
            "do not",
        ),
        (
            _cycles(0.6, "cactusADM*", "perfect", "free"),
            "cactusADM*, bare: the MMU caches' look-up does not fully explain why hashed tables save more",
        ),
        (
            _cycles(1.1, "GUPS 2GB", "hashed", "load 1/32"),
            "GUPS 2GB, bare: a lower load of the tables closes the gap to perfect MMU caches",
        ),
        (
            lambda run: {"cycles.translation": 20.0} if run.key == ("Graph500 8GB", "radix", "") else {},
            "perfect MMU caches save more run time where locality is lower: GUPS compared with Graph500 of similar "
            "or smaller size (bare)",
        ),
        (
            lambda run: {"walk.refs.l1": 0.3} if run.label == hash_dont_cache_runs.DATA_CACHE else {},
            "cactusADM: with a fully associative L1 data cache at least 90 % of the L1 misses of radix walks "
            "disappear, a bound of ours",
        ),
    ],
)
def test_a_statement_that_walks_contradict_does_not_hold(change: _Change, broken: str) -> None:
    assert broken in [claim.text for claim in _changed(change).claims if claim.holds is False]


def test_sizes_of_gups_are_compared_by_their_references_without_a_verdict() -> None:
    rows = [row for row in _changed(_refs(1.01, "GUPS 32GB", "hashed")).comparisons if row.without == "the same"]
    assert [row.ours for row in rows] == [pytest.approx(1.082 - 1.071)]
    assert rows[0].unjudged


def test_an_order_that_table_4_rounds_away_is_that_of_the_text(findings: study.Findings) -> None:
    orders = [
        claim for claim in findings.claims if claim.text.endswith(("than hashed tables", "than perfect MMU caches"))
    ]
    assert [claim.text.partition(":")[0] for claim in orders if claim.figure == "§5.3"] == [
        "Graph500 4GB, bare",
        "Graph500 4GB, virtual",
        "Graph500 16GB, bare",
    ]
    assert [claim.figure for claim in orders].count("Table 4") == 15


def test_hash_functions_that_differ_leave_an_order_undecided() -> None:
    def change(run: study.Run) -> dict[str, float]:
        number = int(run.label.split()[-1]) % 5 if "hash seed" in run.label else 0
        mine = (run.workload, run.system) == ("GUPS 2GB", "nested hashed") and "load" not in run.label
        return {"walk.cycles": 0.6 + 0.2 * number} if mine else {}

    verdicts = {claim.text: claim.holds for claim in _changed(change).claims}
    assert verdicts["GUPS 2GB, virtual: perfect MMU caches save more than hashed tables"] is None
    assert verdicts["GUPS 2GB, bare: perfect MMU caches save more than hashed tables"] is True


def test_every_hash_function_is_waited_for() -> None:
    measured = study.Measurements(
        _made_up(run) for run in hash_dont_cache_runs.runs() if run.label != "load 1/16, hash seed 3"
    )
    findings = hash_dont_cache.evaluate(measured)
    assert "1 of 12 sections" in findings.incomplete[0]
    assert "load 1/16, hash seed 3" in findings.incomplete[0]


def test_the_interval_over_samples_has_their_spread_and_that_of_the_window() -> None:
    runs = [replace(run, label=str(n)) for n, run in enumerate(hash_dont_cache_runs.runs()[:2])]
    # Two parts that differ by 2 around each mean: a standard error of 1, and Student's t of 12.706 for two samples.
    windows = [
        (study.Measurement(run, 1, {"walk.count": 1, "x": x}, tuple({"walk.count": 1, "x": x + d} for d in (-1, 1))),)
        for run, x in zip(runs, (10, 14), strict=True)
    ]
    interval = hash_dont_cache_samples.over(lambda stats: stats["x"], windows)
    # The two means differ by 4: a standard error of 2.
    assert (interval.low, interval.value, interval.high) == pytest.approx((12 - 3 * 12.706, 12, 12 + 3 * 12.706))


def test_shares_of_savings_are_held_to_what_rounding_allows(findings: study.Findings) -> None:
    assert hash_dont_cache_figures.rounded_share(4, 6) == pytest.approx((5.5 / 4.5, 6.5 / 3.5))
    rows = {(row.item, row.quantity): row for row in findings.comparisons if "÷ saved by perfect" in row.quantity}
    assert len(rows) == 18
    bare = rows["mcf*", "saved by hashed tables ÷ saved by perfect MMU caches, bare"]
    assert bare.paper == 1.5
    assert bare.ours == pytest.approx((7 - 3.5) / (7 - 4))
    assert all(bool(row.unjudged) is not name.startswith("GUPS") for (name, _), row in rows.items())
    gups = rows["GUPS 2GB", "saved by hashed tables ÷ saved by perfect MMU caches, bare"]
    assert gups.reason.startswith("within 0.692 to 1")


def test_an_explanation_by_the_order_of_insertion_is_given_only_if_references_follow_it(
    findings: study.Findings,
) -> None:
    def as_on_average(run: study.Run) -> dict[str, float]:
        load = _load(run)
        factor = hash_dont_cache_reasons.all_pages(load) / hash_dont_cache_reasons.last_pages(load)
        return {"walk.refs": factor} if run.workload == "Graph500 4GB" and run.system == "hashed" else {}

    def note(findings_here: study.Findings) -> str:
        return next(note for note in findings_here.notes if "inserted last" in note and "walks mostly" in note)

    assert "That is why" in note(findings)
    assert "it is open why" in note(_changed(as_on_average))


def test_claims_say_what_their_verdict_rests_on(findings: study.Findings) -> None:
    rests = {claim.text: claim.rests_on for claim in findings.claims}
    assert "constructed" in rests["cactusADM*, bare: hashed tables save more than perfect MMU caches"]
    graphs = "run time saved by hashed tables: more with more memory (Graph500, bare)"
    assert "not independent samples" in rests[graphs]
    assert "analogue" not in rests[graphs]
    assert "analogue" in rests["mcf*, bare: hashed tables save more than perfect MMU caches"]


def test_a_window_with_a_part_without_walks_decides_nothing(tmp_path: Path) -> None:
    def empty(m: study.Measurement) -> study.Measurement:
        return replace(m, parts=({**m.parts[0], "walk.count": 0}, *m.parts[1:]))

    runs = [_made_up(run) for run in hash_dont_cache_runs.runs()]
    findings = hash_dont_cache.evaluate(study.Measurements(empty(m) if m.run.system == "hashed" else m for m in runs))
    verdicts = {claim.text: claim.holds for claim in findings.claims}
    assert verdicts["mcf*, bare: hashed tables save more than perfect MMU caches"] is None
    assert verdicts["each optimisation lowers the cycles of a walk"] is True
    saved = next(series for series in findings.series if series.title == "run time saved by hashed tables")
    assert not saved.intervals["mcf*", "bare hashed"].is_known
    assert "too small" in str(saved.intervals["mcf*", "bare hashed"])
    # What is written is JSON all the same, which has no infinity, and says where the others lie.
    report.write(tmp_path, REPRODUCTIONS["hash-dont-cache"], 0.5, study.Measurements(runs), findings, pictures=False)
    text = (tmp_path / "results.json").read_text()
    assert "Infinity" not in text
    values = {series["title"]: series["values"] for series in json.loads(text)["series"]}
    cells = values[saved.title] + values["run time saved by perfect MMU caches"]
    bounds = {tuple(cell[:2]): cell[3] for cell in cells}
    assert bounds["mcf*", "bare hashed"] is None
    assert bounds["xalancbmk*", "virtual perfect"]


def test_an_incomplete_study_reports_the_sections_that_it_can() -> None:
    some = [_made_up(run) for run in hash_dont_cache_runs.runs() if run.workload == "milc*"]
    findings = hash_dont_cache.evaluate(study.Measurements(some))
    assert {claim.figure for claim in findings.claims} == {"Fig 6", "Fig 9", "§4", "§4.3"}
    assert "Not complete" in findings.incomplete[0]
    assert "mcf* on radix" in findings.incomplete[0]


def test_a_report_without_notes_has_no_heading_for_them() -> None:
    reproduction = REPRODUCTIONS["hash-dont-cache"]
    with_notes, without = (report.markdown(reproduction, 1, study.Findings(notes=notes)) for notes in (["a note"], []))
    assert with_notes.endswith("\n\n## What to know\n\n- a note\n")
    assert with_notes.startswith(without)
    assert "What to know" not in without


def test_figures_carry_the_error_of_their_window(findings: study.Findings) -> None:
    cycles = next(series for series in findings.series if series.title == "cycles of a 2D walk by guest cluster")
    (group, member), value = next(iter(cycles.values.items()))
    # Eight parts of 10 and 11 times the cycles: a standard deviation of sqrt(2/7), over sqrt(8); Student's t is 2.365.
    margin = value * (2 / 7 / 8) ** 0.5 * 2.365
    interval = cycles.intervals[group, member]
    assert (interval.low, interval.high) == pytest.approx((value - margin, value + margin))
    assert study.standard_error([1.0]) is None
    mean = hash_dont_cache_reasons.mean_of([Interval(7.0, 10.0, 13.0), Interval(16.0, 20.0, 24.0)])
    assert (mean.low, mean.value, mean.high) == pytest.approx((12.5, 15.0, 17.5)), (
        "margins of 3 and 4: 5, over two figures"
    )
    rows = [row for row in findings.comparisons if row.quantity == "references of a hashed walk, bare"]
    assert [row.item for row in rows][:2] == ["Graph500 and GUPS, mean", "Graph500 4GB"]
    assert all(row.unjudged for row in rows), "the paper's is an average of whole runs"
    assert rows[0].interval is not None
    # All parts make the same references.
    assert (rows[0].interval.low, rows[0].interval.high) == pytest.approx((rows[0].ours, rows[0].ours))


def test_designs_beyond_the_paper_are_reported_if_they_are_run(findings: study.Findings) -> None:
    runs = hash_dont_cache_runs.runs()
    assert {run.system for run in runs if run.beyond} == {
        "direct segment",
        *(f"nested {name}" for name in ("VMM direct", "guest direct", "dual direct", "speculative")),
    }
    waited, saved = (series for series in findings.series if series.figure == "Beyond the paper")
    assert waited.values["mcf*", "direct segment"] == 0
    assert 0 < saved.values["mcf*", "hashed"] < saved.values["mcf*", "direct segment"]
    without = hash_dont_cache.evaluate(study.Measurements(_made_up(run) for run in runs if not run.beyond))
    assert len(without.series) == len(findings.series) - 2
    assert [claim.text for claim in without.claims] == [claim.text for claim in findings.claims]


def test_table_4_compares_what_the_paper_prints(findings: study.Findings) -> None:
    rows = [row for row in findings.comparisons if row.quantity.startswith("change of run time")]
    assert len(rows) == 36
    assert all(row.paper is not None and row.ours < 0 for row in rows)
    # A and B of the paper's model are not printed, and its runs are whole ones.
    assert all(row.unjudged for row in rows)


def test_the_report_holds_every_claim_and_picture(tmp_path: Path) -> None:
    reproduction = REPRODUCTIONS["hash-dont-cache"]
    measured = study.Measurements(_made_up(run) for run in reproduction.runs())
    findings = reproduction.evaluate(measured)
    files = report.write(tmp_path, reproduction, 0.5, measured, findings)
    text = (tmp_path / "REPORT.md").read_text()
    claims = sum(not claim.ours for claim in findings.claims)
    assert 0 < claims < len(findings.claims)
    assert f"**{claims} of {claims} of the paper's statements hold here, 0 do not, 0 are not decided.**" in text
    assert all(claim.text in text for claim in findings.claims)
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["runs"]) == len(reproduction.runs())
    assert document["scale"] == 0.5
    row, interval = next((row, row.interval) for row in findings.comparisons if row.interval is not None)
    where = f"({interval.low:.3g} to {interval.high:.3g})"
    assert f"| {row.figure} | {row.item} | {row.quantity} | {row.paper:g} {row.unit} | {row.ours:.3g} {where}" in text
    # Of the statistics those that a figure was made of, and of what was asked for what is not as by default.
    first = document["runs"][0]
    assert first["stats"]["walk.cycles"] == measured.all()[0].stats["walk.cycles"]
    assert "walk.refs.dram" not in first["stats"]
    assert first["workload"] == "GUPS 32GB"
    assert "seed" not in first
    pictures = [path for path in files if path.suffix == ".svg"]
    assert len(pictures) == len(findings.series)
    assert all(b"<svg" in path.read_bytes() for path in pictures)
    again = report.write(tmp_path, reproduction, 0.5, measured, findings)
    assert [path.name for path in again] == [path.name for path in files]
    assert not list(tmp_path.glob("*.part"))


def test_real_runs_of_the_smallest_kind() -> None:
    """Two real runs: the table's size, the warm-up and the window are what the study asks for."""
    reproduction = REPRODUCTIONS["hash-dont-cache"]
    heard: list[str] = []
    last: dict[str, int] = {}

    class Heard(study.Watch):
        def planned(self, runs: Sequence[study.Run]) -> None:
            heard.append(f"{len(runs)} planned")

        def begins(self, run: study.Run) -> None:
            heard.append(f"{run.system} begins")

        def goes_on(self, run: study.Run, accesses: int) -> None:
            last[run.system] = accesses

        def ended(self, run: study.Run, so_far: int, total: int) -> None:
            heard.append(f"{run.system} {so_far}/{total}")

    measured = study.measure(
        reproduction,
        0.05,
        lambda run: run.workload == "xalancbmk*" and run.system in ("radix", "hashed") and not run.label,
        Heard(),
    )
    assert heard[0] == "2 planned"
    assert {"radix begins", "hashed begins"} < set(heard)
    assert heard[-1] in ("radix 2/2", "hashed 2/2")
    # At the end all accesses have been heard of, those before the window among them.
    run = measured["xalancbmk*", "radix"].run
    assert set(last.values()) == {run.warm_up + run.window(0.05)}
    for system in ("radix", "hashed"):
        m = measured["xalancbmk*", system]
        assert m.stats["accesses"] == m.window
        assert m.stats["fault.minor.count"] == 0, "all pages are there before the window"
        assert sum(part["walk.refs"] for part in m.parts) == m.stats["walk.refs"]
        assert m.run.warm_up - m.run.settling_accesses == (384 << 20) // 4096
    assert 1.0 <= measured["xalancbmk*", "hashed"].per_walk("walk.refs") < 1.2
    hashed = next(m.run for m in measured.all() if m.run.system == "hashed")
    assert hashed.settings == (f"system.layers.native.page_table.table_bytes={6 << 20}",)


def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def status(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["pagelab", "reproduce", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert status("nothing") == 2
    error = capsys.readouterr().err
    assert "hash-dont-cache" in error
    assert "did you mean" not in error
    assert status("hardware-demand-pagin") == 2
    known = (
        "unknown reproduction 'hardware-demand-pagin'; did you mean hardware-demand-paging? known are hash-dont-cache,"
    )
    assert known in " ".join(capsys.readouterr().err.split())
    assert status("ptemagnet", "--scale", "0.1", "--budget", "5") == 2
    error = capsys.readouterr().err
    assert all(part in error for part in ("--scale 0.1", "--budget 5", "give only one of them"))


def test_without_a_name_there_is_a_list(pagelab: Pagelab) -> None:
    listed = pagelab("reproduce")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(REPRODUCTIONS)
