"""Two observations compared, with known answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab.confidence.wilson import share_interval
from pagelab.observe.difference import Difference, Value, differences, read, remarks, rows


def observation(hits: dict[str, int], samples: int, **other: Any) -> dict[str, Any]:
    """An observation whose time has so many samples of each activity."""
    activities = {
        name: dict(zip(("share", "low", "high"), (count / samples, *share_interval(count, samples)), strict=True))
        for name, count in hits.items()
    }
    return {
        "format": "pagelab observation",
        "target": "a",
        "kernel": "Linux 6.18",
        "version": "1",
        "time": {"samples": samples, "missing": None, "activities": activities, "kernel": {}},
        "faults": {"seconds": None, "count": 0, "over_time": []},
        "looks": [],
        **other,
    }


def look(resident: int) -> dict[str, int | None]:
    return {"resident": resident, "huge": 0, "used": None, "swapped": 0}


def named(changes: list[Difference]) -> dict[str, Difference]:
    return {one.name: one for one in changes}


def test_intervals_of_differences_are_newcombes() -> None:
    """The example of Newcombe (1998): 56 of 70 and 48 of 80, by his tenth method."""
    before, after = observation({"page faults": 48}, 80), observation({"page faults": 56}, 70)
    (difference,) = differences(before, after)
    change = difference.change
    assert (change.value, change.low, change.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert difference.changed
    assert rows([difference])[0][:4] == ("* page faults", "60.0%", "80.0%", "+20.0 points")
    (same,) = differences(before, before)
    assert not same.changed


def test_what_one_side_never_did_is_nothing_there() -> None:
    before, after = observation({"page faults": 50}, 100), observation({"memory calls": 10, "page faults": 50}, 1000)
    changes = named(differences(before, after))
    assert changes["memory calls"].before == Value(0.0, *share_interval(0, 100))
    assert not changes["memory calls"].changed
    without = observation({}, 0)
    without["time"]["missing"] = "no rights"
    assert differences(without, after) == []


def test_rates_are_of_blocks_of_cpu_time() -> None:
    def over_time(rates: list[int]) -> list[dict[str, float]]:
        sums = [sum(rates[: at + 1]) for at in range(len(rates))]
        return [{"seconds": at, "faults": total, "cpu_seconds": at} for at, total in enumerate(sums, 1)]

    def observed(rates: list[int]) -> dict[str, Any]:
        faults = {"seconds": None, "count": sum(rates), "over_time": over_time(rates)}
        return observation({}, 0, faults=faults)

    # Four blocks of 90, 110, 90, 110: the mean is 100, its error 3.182 × 11.547 / 2.
    (rate,) = differences(observed([90, 110, 90, 110]), observed([200, 200, 200, 200]))
    assert (rate.before.value, rate.before.high) == pytest.approx((100, 100 + 18.37), abs=0.01)
    assert rate.after == Value(200, 200, 200)
    assert rate.changed
    # Too few blocks for an interval.
    assert differences(observed([90, 110]), observed([200, 200])) == []


def test_memory_is_that_of_the_median_look() -> None:
    before = observation({}, 0, looks=[look(size) for size in (10, 20, 30, 40, 50, 60)])
    after = observation({}, 0, looks=[look(size) for size in (100, 200, 300, 400, 500, 600)])
    resident = named(differences(before, after))["resident memory, median look"]
    assert (resident.before, resident.after) == (Value(35, 10, 60), Value(350, 100, 600))
    assert resident.changed


def test_what_else_differs_is_said() -> None:
    before = observation({}, 0)
    assert remarks(before, before) == []
    assert remarks(before, before | {"target": "b"}) == ["what was observed differs: a and b"]


def test_a_damaged_observation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="damaged, or of another version"):
        differences({"time": {}}, {"time": {}})
    path = tmp_path / "a.json"
    path.write_text("{")
    assert read(path) is None
    path.write_text('{"format": "something else"}')
    assert read(path) is None


def test_the_command_compares_files(pagelab: Pagelab, tmp_path: Path) -> None:
    for name, hits in (("before", 10), ("after", 500)):
        (tmp_path / f"{name}.json").write_text(json.dumps(observation({"page faults": hits}, 1000)))
    done = pagelab("compare", "before.json", "after.json", "--json", "change.json")
    assert done.returncode == 0, done.stderr
    assert "+49.0 points" in done.stdout
    (figure,) = json.loads((tmp_path / "change.json").read_text())["differences"]
    assert figure["changed"]
    markdown = pagelab("compare", "before.json", "after.json", "--markdown", "-").stdout
    assert "page faults | 1.0% | 50.0% | +49.0 points |" in markdown
    table = pagelab("compare", "before.json", "after.json", "--csv", "-").stdout
    assert table.splitlines()[1].startswith("* page faults,1.0%")
    assert_fails(pagelab("compare", "before.json", "gups"), 2, "compared with another one")
    assert_fails(pagelab("compare", "before.json", "after.json", "--fail-if", "walks>1"), 2, "--fail-if is for results")


def test_an_observation_can_be_compared_with_itself(pagelab: Pagelab, tmp_path: Path) -> None:
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    assert pagelab("observe", "--json", "seen.json", "--", "sh", "-c", loop).returncode == 0
    document = json.loads((tmp_path / "seen.json").read_text())
    assert not any(one.changed for one in differences(document, document))
    assert pagelab("compare", "seen.json", "seen.json").returncode == 0
