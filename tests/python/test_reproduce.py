"""`pagelab reproduce`: what is measured, what is made of it, and what is written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pagelab.cli import main
from pagelab.reproduce import REPRODUCTIONS, hash_dont_cache, hash_dont_cache_runs, report, study

_CHEAPER = {"chained": 9, "open": 8, "clustered": 6, "compact": 5, "radix": 7, "perfect": 4, "hashed": 4.5, "2M": 1}
_CHEAPER |= {"direct segment": 0, "VMM direct": 4, "guest direct": 4, "dual direct": 0, "speculative": 6}


def _made_up(run: study.Run) -> study.Measurement:
    """Walks that cost what the paper says of their order."""
    size = 1 + run.warm_up / 1e6 if run.system in ("radix", "nested radix") else 1.0
    cost = _CHEAPER[run.system.removeprefix("nested ")] * size * (4 if run.system.startswith("nested") else 1)
    if run.label.startswith("cluster"):
        cost += 100 / int(run.label.split()[1])
    misses = 0.9 if run.system in ("radix", "perfect") else 0.1
    if run.label == hash_dont_cache_runs.DATA_CACHE:
        cost, misses = 4.0, 0.05
    walks = 1000
    refs = {"perfect": 1, "nested perfect": 3}.get(run.system, cost)
    stats = {
        "walk.count": walks,
        "walk.cycles": int(walks * cost * 10),
        "walk.refs": int(walks * refs),
        "walk.refs.l1": int(walks * refs) - int(walks * misses),
        "walk.refs.dram": int(walks * cost / 10) * (5 if run.system == "chained" else 1),
        "accesses": walks,
        "cycles.base": 100_000,
        "cycles.data_stall": 100_000,
        "cycles.translation": int(walks * cost * 10),
    }
    # Half of the parts cost a tenth more than the others.
    parts = tuple({**stats, "walk.cycles": stats["walk.cycles"] * (10 + n % 2)} for n in range(study.PARTS))
    return study.Measurement(run, run.accesses, stats, parts)


@pytest.fixture(scope="module")
def findings() -> study.Findings:
    measured = study.Measurements(_made_up(run) for run in hash_dont_cache_runs.runs())
    return hash_dont_cache.evaluate(measured)


def test_every_run_has_a_name_of_its_own() -> None:
    for reproduction in REPRODUCTIONS.values():
        keys = [(run.key, run.seed) for run in reproduction.runs()]
        assert len(set(keys)) == len(keys) > 10


def test_an_order_that_holds_is_said_to_hold_and_one_that_does_not_is_not(findings: study.Findings) -> None:
    broken = [claim.text for claim in findings.claims if claim.holds is False]
    assert broken == [
        # Of the made-up walks those of perfect MMU caches are the cheapest everywhere.
        "mcf*, bare: hashed tables save more run time than perfect MMU caches",
        "cactusADM*, bare: hashed tables save more run time than perfect MMU caches",
        "xalancbmk*, bare: hashed tables save more run time than perfect MMU caches",
        "cactusADM: what hashed tables save beyond perfect MMU caches comes from these conflicts",
        "cactusADM*, virtual: hashed tables save more run time than perfect MMU caches",
    ]

    def costly(stats: Mapping[str, int]) -> dict[str, int]:
        return {**stats, "walk.cycles": 10**6}

    runs = [_made_up(run) for run in hash_dont_cache_runs.runs()]
    turned = [
        replace(m, stats=costly(m.stats), parts=tuple(map(costly, m.parts))) if m.run.system == "compact" else m
        for m in runs
    ]
    again = hash_dont_cache.evaluate(study.Measurements(turned))
    assert "each optimisation lowers the cycles of a walk" in [c.text for c in again.claims if c.holds is False]


def test_a_window_with_a_part_without_walks_decides_nothing(tmp_path: Path) -> None:
    def empty(m: study.Measurement) -> study.Measurement:
        return replace(m, parts=({**m.parts[0], "walk.count": 0}, *m.parts[1:]))

    runs = [_made_up(run) for run in hash_dont_cache_runs.runs()]
    findings = hash_dont_cache.evaluate(study.Measurements(empty(m) if m.run.system == "hashed" else m for m in runs))
    verdicts = {claim.text: claim.holds for claim in findings.claims}
    assert verdicts["mcf*, bare: hashed tables save more run time than perfect MMU caches"] is None
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
    assert {claim.figure for claim in findings.claims} == {"Fig 6", "Fig 9", "§4"}
    assert "Not complete" in findings.incomplete[0]
    assert "mcf* on radix" in findings.incomplete[0]


def test_figures_carry_the_error_of_their_window(findings: study.Findings) -> None:
    cycles = next(series for series in findings.series if series.title == "cycles of a 2D walk by guest cluster")
    (group, member), value = next(iter(cycles.values.items()))
    # Eight parts of 10 and 11 times the cycles: a standard deviation of sqrt(2/7), over sqrt(8); Student's t is 2.365.
    margin = value * (2 / 7 / 8) ** 0.5 * 2.365
    interval = cycles.intervals[group, member]
    assert (interval.low, interval.high) == pytest.approx((value - margin, value + margin))
    assert study.standard_error([1.0]) is None
    assert study.error_of_mean([3.0, 4.0]) == pytest.approx(2.5)
    assert study.error_of_mean([3.0, None]) is None
    mean = next(row for row in findings.comparisons if row.quantity == "references of a walk, bare")
    assert mean.error == 0.0, "all parts make the same references"


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
    rows = [row for row in findings.comparisons if row.figure == "Table 4"]
    assert len(rows) == 36
    assert all(row.paper is not None and row.ours < 0 for row in rows)


def test_the_report_holds_every_claim_and_picture(tmp_path: Path) -> None:
    reproduction = REPRODUCTIONS["hash-dont-cache"]
    measured = study.Measurements(_made_up(run) for run in reproduction.runs())
    findings = reproduction.evaluate(measured)
    files = report.write(tmp_path, reproduction, 0.5, measured, findings)
    text = (tmp_path / "REPORT.md").read_text()
    claims = len(findings.claims)
    assert f"**{claims - 5} of {claims} of the paper's statements hold here, 5 do not, 0 are not decided.**" in text
    assert all(claim.text in text for claim in findings.claims)
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["runs"]) == len(reproduction.runs())
    assert document["scale"] == 0.5
    assert "±" in text
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

        def ended(self, run: study.Run, so_far: int, of: int) -> None:
            heard.append(f"{run.system} {so_far}/{of}")

    measured = study.measure(
        reproduction,
        0.05,
        lambda run: run.workload == "xalancbmk*" and run.system in ("radix", "hashed"),
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
        assert 0.5 * m.window <= m.stats["accesses"] <= m.window
        assert m.stats["fault.minor.count"] == 0, "all pages are there before the window"
        assert sum(part["walk.refs"] for part in m.parts) == m.stats["walk.refs"]
        error = m.per_walk_error("walk.refs")
        assert error is not None
        assert error < 0.1
    assert 1.0 <= measured["xalancbmk*", "hashed"].per_walk("walk.refs") < 1.2
    hashed = next(m.run for m in measured.all() if m.run.system == "hashed")
    assert hashed.settings == (f"system.layers.native.page_table.table_bytes={8 << 20}",)


def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def status(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["pagelab", "reproduce", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert status("nothing") == 2
    assert "hash-dont-cache" in capsys.readouterr().err
    assert status("ptemagnet", "--scale", "0.1", "--budget", "5") == 2
    error = capsys.readouterr().err
    assert all(part in error for part in ("--scale 0.1", "--budget 5", "leave --budget away"))
