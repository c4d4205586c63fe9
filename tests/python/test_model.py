"""Models of run time on points whose answer is known in closed form, their errors, and what makes no model."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab.run_time import fitting, points
from pagelab.run_time.host import Machine
from pagelab.run_time.measuring import Measured, Measurement
from pagelab.run_time.models import MODELS, Fitted, Term
from pagelab.run_time.points import Point, Points
from pagelab.run_time.replaying import Replay
from pagelab.run_time.running import Memory, Run

SMALL = Point("4k", runtime_cycles=1000, tlb_hits=20, tlb_misses=10, walk_cycles=400)
HUGE = Point("thp", runtime_cycles=700, tlb_hits=2, tlb_misses=1, walk_cycles=40)
PROBE = Point("probe", runtime_cycles=1, tlb_hits=6, tlb_misses=4, walk_cycles=100)


def points_from(*listed: Point) -> Points:
    return Points(listed, 1000.0, "counters", False, None, 0.5, [])


def line(layout: str, walk_cycles: float, slope: float = 0.5, base: float = 1000) -> Point:
    return Point(layout, base + slope * walk_cycles, walk_cycles / 9, walk_cycles / 30, walk_cycles)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # A = 300/360, B = 1000 - 400 A
        ("yaniv", 1000 - 400 * 5 / 6 + 100 * 5 / 6),
        # 40 cycles per miss
        ("basu", 40 * 4 + 1000 - 400),
        ("pham", 7 * 6 + 100 + 1000 - 400 - 7 * 20),
        ("gandhi", 40 * 4 + 700 - 40),
        ("alam", 100 + 700 - 40),
        ("least-squares", 1000 - 400 * 5 / 6 + 100 * 5 / 6),
    ],
)
def test_models_are_those_of_the_papers(name: str, expected: float) -> None:
    models = {model.fitted.name: model.fitted for model in fitting.fit(points_from(SMALL, HUGE)).models}
    assert models[name].at(PROBE) == pytest.approx(expected)


def test_a_window_core_is_scaled_to_the_measured_time() -> None:
    small, huge = replace(SMALL, window_cycles=2000.0), replace(HUGE, window_cycles=1500.0)
    models = {model.fitted.name: model for model in fitting.fit(points_from(small, huge)).models}
    assert models["window"].fitted.at(replace(PROBE, window_cycles=500.0)) == 250
    assert models["window"].errors == {"thp": pytest.approx(750 / 700 - 1)}
    assert "window" in fitting.fit(points_from(small, HUGE)).refused


def test_errors_are_of_layouts_that_a_model_has_not_seen() -> None:
    listed = [line("4k", 900), line("thp", 30), line("heap=30%", 630), line("heap=60%", 400)]
    # One layout is 10 % slower than the line has it.
    listed[2] = replace(listed[2], runtime_cycles=1.1 * listed[2].runtime_cycles)
    models = {model.fitted.name: model for model in fitting.fit(points_from(*listed)).models}
    yaniv, fitted = models["yaniv"], models["least-squares"]
    assert set(yaniv.errors) == {"heap=30%", "heap=60%"}
    assert yaniv.errors["heap=30%"] == pytest.approx(1 / 1.1 - 1)
    assert yaniv.errors["heap=60%"] == pytest.approx(0, abs=1e-12)
    assert yaniv.largest == pytest.approx(1 - 1 / 1.1)
    assert yaniv.geometric_mean == pytest.approx(((1 - 1 / 1.1) * 1e-6) ** 0.5)
    # √((0.0909² + 0²)/2) · 4.303
    assert yaniv.half_interval == pytest.approx(4.303 * (1 - 1 / 1.1) / 2**0.5)
    assert set(fitted.errors) == {point.layout for point in listed}
    # The line through the others is exact for this one.
    assert fitted.errors["heap=30%"] == pytest.approx(1 / 1.1 - 1)
    assert abs(fitted.errors["4k"]) > 0.01


def test_models_are_compared_by_the_layouts_that_all_were_tested_on() -> None:
    # basu is exact in the middle, and wrong for thp alone.
    middle = Point("heap=50%", runtime_cycles=820, tlb_hits=9, tlb_misses=5.5, walk_cycles=260)
    quarter = Point("heap=25%", runtime_cycles=920, tlb_hits=9, tlb_misses=8, walk_cycles=330)
    models = fitting.fit(points_from(SMALL, HUGE, middle, quarter))
    by_name = {model.fitted.name: model for model in models.models}
    assert by_name["basu"].errors["heap=50%"] == pytest.approx(0)
    assert (by_name["basu"].largest or 0) > (by_name["yaniv"].largest or 0)
    assert models.best
    assert models.best.fitted.name == "basu"


def test_models_without_a_layout_in_common_are_not_compared(pagelab: Pagelab, tmp_path: Path) -> None:
    """Of two layouts, alam is tested on 4k and basu on thp: neither is better."""
    models = fitting.fit(points_from(SMALL, HUGE))
    assert {tuple(model.errors) for model in models.models} == {(), ("4k",), ("thp",)}
    assert models.best is None
    assert models.compared_on == []
    (tmp_path / "two.csv").write_text("layout,R,H,M,C\n4k,1000,20,10,400\nthp,700,2,1,40\n")
    done = pagelab("model", "fit", "two.csv")
    assert "best:" not in done.stdout
    assert done.returncode == 3
    assert "error: there is no best model" in done.stderr


def test_doubt_of_the_best_model_is_told(pagelab: Pagelab, tmp_path: Path) -> None:
    trusted = [line("4k", 900), line("thp", 30), line("heap=30%", 630), line("heap=60%", 400)]
    models = fitting.fit(points_from(*trusted))
    assert models.doubt is None
    # Run times differ by 43 %.
    far = [replace(model, errors=dict.fromkeys(model.errors, 0.22)) for model in models.models]
    assert "it says almost nothing about this program" in (replace(models, models=far).doubt or "")
    (tmp_path / "points.csv").write_text(CSV)
    assert pagelab("model", "fit", "points.csv", "-o", "models.json").returncode == 0
    document = json.loads((tmp_path / "models.json").read_text())
    (tmp_path / "empty.json").write_text(json.dumps({**document, "models": []}))
    assert_fails(pagelab("predict", "-q", "x.trace", "--model", "empty.json"), 2, "empty.json: no model file")


def cubic() -> list[Point]:
    """A cubic in C, with the other inputs in other places."""
    listed = []
    for number in range(20):
        walk = 1e6 * (number + 1) / 20
        x = walk / 1e6
        name = {0: "thp", 19: "4k"}.get(number, f"heap={number}%")
        listed.append(
            Point(name, 1e6 * (1 + 0.3 * x + 0.8 * x**3), 1e4 * (number * 7 % 20), 3e4 * (number * 3 % 20), walk)
        )
    return listed


def test_the_order_of_layouts_changes_no_model() -> None:
    # Times that no polynomial meets: which part holds which point out decides how many terms there are.
    listed = [
        replace(point, runtime_cycles=point.runtime_cycles * (1 + 0.03 * (number * 11 % 7 - 3)))
        for number, point in enumerate(cubic())
    ]
    first = fitting.fit(points_from(*listed))
    for others in (listed[::-1], listed[7:] + listed[:7], listed[::2] + listed[1::2]):
        again = fitting.fit(points_from(*others))
        polynomials = [
            next(model.fitted.terms for model in models.models if model.fitted.name == "mosmodel")
            for models in (first, again)
        ]
        assert polynomials[0] == polynomials[1]


def test_a_polynomial_is_found_again() -> None:
    """No line is near it."""
    listed = cubic()
    models = {model.fitted.name: model for model in fitting.fit(points_from(*listed)).models}
    assert (models["mosmodel"].geometric_mean or 1) < 0.01
    assert (models["mosmodel"].geometric_mean or 1) < (models["least-squares"].geometric_mean or 0) / 3
    assert models["mosmodel"].fitted.at(listed[10]) == pytest.approx(listed[10].runtime_cycles, rel=0.02)


def test_what_makes_no_model_is_said() -> None:
    with pytest.raises(UsageError, match="there is one point"):
        fitting.fit(points_from(SMALL))
    same = replace(HUGE, walk_cycles=400, runtime_cycles=900)
    refused = fitting.fit(points_from(SMALL, same)).refused
    assert "the same walk cycles" in refused["yaniv"]
    assert "the same walk cycles" in refused["least-squares"]
    assert "10 at least are needed" in refused["mosmodel"]
    mixed = fitting.fit(points_from(SMALL, replace(HUGE, layout="heap=50%"))).refused
    assert mixed["gandhi"] == "it needs the layout thp, which is not among 4k, heap=50%"
    assert "no misses of the TLB" in fitting.fit(points_from(replace(SMALL, tlb_misses=0), HUGE)).refused["basu"]
    with pytest.raises(UsageError, match="no model can be fitted"):
        fitting.fit(points_from(replace(SMALL, layout="a", walk_cycles=5), replace(HUGE, layout="b", walk_cycles=5)))


CSV = "layout,R,H,M,C\n4K,1000,20,10,400\nheap=25%,920,9,8,330\nheap=50%,820,9,5.5,260\nthp,700,2,1,40\n"


def test_the_command_fits_csv(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(CSV)
    done = pagelab("model", "fit", "points.csv", "-o", "models.json")
    assert done.returncode == 0, done.stderr
    assert "best: basu, R = 40·M + 600" in done.stdout
    assert "not mosmodel: it has up to 19 terms, and there are 4 layouts" in done.stdout
    document = json.loads((tmp_path / "models.json").read_text())
    assert document["best"] == "basu"
    loaded = fitting.load(tmp_path / "models.json")
    assert loaded.to_json() == (tmp_path / "models.json").read_text()
    basu = next(model for model in loaded.models if model.fitted.name == "basu")
    assert basu.fitted == Fitted("basu", [Term(40.0, {"tlb_misses": 1}), Term(600.0, {})])

    (tmp_path / "two.csv").write_text("".join(row + "\n" for row in CSV.splitlines() if "heap" not in row))
    done = pagelab("model", "fit", "two.csv")
    assert done.returncode == 3
    assert "yaniv                         0" in done.stdout
    (tmp_path / "one.csv").write_text("layout,R,H,M,C\n4k,1,2,3,4\n")
    assert_fails(pagelab("model", "fit", "one.csv"), 2, "there is one point (4k)", "4k and thp")
    (tmp_path / "bad.csv").write_text("layout,R,H,M,C\n4k,1,2,x,4\n")
    assert_fails(pagelab("model", "fit", "bad.csv"), 2, "bad.csv, line 2: tlb_misses is 'x'")
    (tmp_path / "few.csv").write_text("layout,R,M,C\n4k,1,2,4\n")
    assert_fails(pagelab("model", "fit", "few.csv"), 2, "column tlb_hits is missing")
    assert_fails(pagelab("model", "fit", "points.csv", "two.csv"), 2, "layout 4k is given twice")
    assert_fails(pagelab("model", "fit", "models.json"), 2, "models.json: no result of `pagelab measure`")
    assert_fails(pagelab("model", "fit", "points.csv", "--time", "wall"), 2, "--time wall: give user or cpu")
    assert_fails(pagelab("model", "fit", "points.csv", "-o", "points.csv"), 2, "name it points.json")


def test_without_scikit_learn_the_others_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    refused = fitting.fit(points_from(*(line(f"heap={number}%", 100 * number) for number in range(12)))).refused
    assert "pip install 'pagelab[models]'" in refused["mosmodel"]


def measurement(counted: bool) -> Measurement:
    """4k and thp in seconds, with walk cycles of either kind."""
    machine = Machine("Linux 6.12.1", "Imaginary", "AuthenticAMD", 2000.0, 2, False, "madvise", 0.0)
    memory = Memory(1 << 20, 0, 1 << 20, 1, 0)
    listed = []
    for layout, user, walk in (("4k", 3.0, 900), ("thp", 2.0, 100), ("host", 3.0, 0)):
        counts = {"cycles_user": int(user * 5e9), "cycles_kernel": 7, "load_walk_cycles": walk, "store_walk_cycles": 1}
        counts |= {"load_misses": 50, "store_misses": 2, "load_hits": 70, "store_hits": 3}
        run = Run(user, 0.5, 4.0, 1000, 0, 0, counts if counted else {})
        replay = (
            Replay(walk, 30, 40, 5000, 4000, 3000.0, "kabylake-7700hq", "radix", 1)
            if layout != "host" and not counted
            else None
        )
        listed.append(Measured(layout, memory, [run, run], replay))
    kind = "counters" if counted else "replay"
    return Measurement(["p"], machine, listed, None, kind, False, None if counted else "kabylake-7700hq", [])


def mixed_measurement() -> Measurement:
    """A program whose run time rises by two cycles with each replayed walk cycle, under five layouts."""
    measured = measurement(counted=False)
    first = measured.layouts[0]
    assert first.replay
    listed = []
    for layout, share in (("4k", 1.0), ("heap=25%", 0.75), ("heap=50%", 0.5), ("heap=75%", 0.25), ("thp", 0.0)):
        walks = round(1e9 * (share + 0.01))
        run = replace(first.runs[0], user_seconds=1 + 2 * walks / 3000e6)
        replay = replace(first.replay, walk_cycles=walks, tlb_misses=walks // 30, tlb_hits=walks // 90)
        listed.append(Measured(layout, first.memory, [run, run], replay))
    return replace(measured, layouts=listed)


def objections(*listed: Point, origin: str = "counters") -> dict[str, str | None]:
    """What speaks against each model of the points."""
    models = fitting.fit(replace(points_from(*listed), walk_cycles_from=origin))
    return {model.fitted.name: model.objection for model in models.models}


MIXED = (("4k", 900.0), ("heap=25%", 675.0), ("heap=50%", 450.0), ("heap=75%", 225.0), ("thp", 30.0))


def test_a_model_that_falls_with_walk_cycles_is_never_best() -> None:
    objected = objections(*(line(*layout, slope=-0.2) for layout in MIXED))
    for name in ("yaniv", "least-squares"):
        assert objected[name] == "its run time does not rise with walk cycles (-0.2 cycles for each)"
    assert objected["alam"] is not None
    assert fitting.fit(points_from(*(line(*layout, slope=-0.2) for layout in MIXED))).best is None


def test_a_walk_cycle_costs_no_more_than_is_possible() -> None:
    """Replays of native tables for a virtual machine's walks have a sixth of these."""
    for slope, counted, replayed in ((1.9, True, True), (2.1, False, True), (11.9, False, True), (12.1, False, False)):
        listed = [line(*layout, slope=slope) for layout in MIXED]
        for origin, possible in (("counters", counted), ("replay", replayed), ("file", replayed)):
            why = objections(*listed, origin=origin)["yaniv"]
            assert (why is None) == possible, (slope, origin, why)
            assert why is None or "is impossible" in why


def test_a_program_takes_time_without_walks() -> None:
    objected = objections(*(line(*layout, slope=1.5, base=-20) for layout in MIXED))
    assert objected["yaniv"] == "without walks, its run time would be -20 cycles"


def test_a_model_is_tested_on_as_many_layouts_as_it_has_parameters() -> None:
    three = [line(*MIXED[number]) for number in (0, 2, 4)]
    assert objections(*three)["yaniv"] == "it was tested on 1 layout, and at least 2 are needed"
    assert objections(*three)["least-squares"] is None
    models = fitting.fit(points_from(*(line(*MIXED[number]) for number in (0, 1, 2, 4))))
    assert (models.best and models.best.fitted.name) == "yaniv"
    # Its twenty layouts determine four terms: with more of these than layouts it would not be the best.
    polynomial = next(model for model in MODELS if model.name == "mosmodel")
    assert polynomial.parameters_of(Fitted("mosmodel", [Term(1, {})] * 7)) == 7


def test_a_model_that_is_off_by_what_layouts_differ_by_is_never_best() -> None:
    listed = [line(*layout, slope=0.1) for layout in MIXED]
    # One cycle for each walk cycle is ten times too many: 1003 + 870 for 4k, which takes 1090.
    assert objections(*listed)["alam"] == "it is off by up to 71.8%, and run times of the layouts differ by 8.7% only"
    assert objections(*listed)["yaniv"] is None


def test_noise_is_no_effect() -> None:
    quiet = [replace(line(*layout), noise=0.01) for layout in MIXED]
    assert fitting.fit(points_from(*quiet)).best
    noisy = [replace(point, noise=0.4) for point in quiet]
    models = fitting.fit(points_from(*noisy))
    assert models.best is None
    assert (models.no_best or "").startswith("run times of 4k and thp differ by 30.0%, which is within the noise of ±")
    once = replace(points_from(*quiet), unknown_noise=["4k"])
    assert (fitting.fit(once).no_best or "").startswith("4k: timed once, so the noise of run times is unknown")


def test_layouts_that_walk_alike_tell_nothing() -> None:
    models = fitting.fit(points_from(*(line(layout, 900 + walks / 25) for layout, walks in MIXED)))
    assert models.best is None
    assert (models.no_best or "").startswith("walk cycles of the layouts differ by less than 5%")


def test_without_a_best_model_the_status_is_3_and_the_file_says_why(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "falls.csv").write_text(
        "layout,R,H,M,C\n4k,700,20,10,400\nheap=25%,760,15,7,300\nheap=50%,840,9,5,200\nthp,1000,2,1,40\n"
    )
    done = pagelab("model", "fit", "falls.csv", "-o", "models.json")
    assert done.returncode == 3
    assert "best:" not in done.stdout
    assert "excluded, yaniv: its run time does not rise with walk cycles" in done.stdout
    assert "pagelab: error: there is no best model: no model passes the checks" in done.stderr
    document = json.loads((tmp_path / "models.json").read_text())
    assert document["best"] is None
    assert document["no_best"].startswith("no model passes the checks (yaniv: its run time does not rise")
    assert all(model["objection"] for model in document["models"])
    arguments = ("predict", "-q", "gups:size=4MiB,accesses=20K", "--model", "models.json", "-s", "radix-2m")
    assert_fails(pagelab(*arguments), 2, "there is no best model, so nothing is predicted", "--model yaniv")
    assert_fails(pagelab(*arguments, "--model", "mosmodel"), 2, "--model mosmodel: it is not in the model file")
    assert_fails(pagelab(*arguments, "--model", "x.json"), 2, "--model: give one file")
    named = pagelab(*arguments, "--model", "yaniv", "--json", "out.json")
    assert named.returncode == 0, named.stderr
    assert "warning: yaniv is not reliable: its run time does not rise with walk cycles" in named.stderr
    (system,) = json.loads((tmp_path / "out.json").read_text())["systems"]
    assert [estimate["model"] for estimate in system["estimates"]] == ["yaniv"]


def test_what_replays_are_of_is_told_of_models_and_predictions(pagelab: Pagelab, tmp_path: Path) -> None:
    measured = measurement(counted=False)
    small, huge, host = measured.layouts
    assert small.replay
    assert huge.replay
    both, one = "walk cycles are those of 2 windows", "the trace ends before the program"
    layouts = [
        replace(small, replay=replace(small.replay, warnings=[both, one])),
        replace(huge, replay=replace(huge.replay, warnings=[both])),
        host,
    ]
    file = tmp_path / "m.json"
    file.write_text(replace(measured, layouts=layouts).to_json())
    assert points.read([file]).notes[2:] == [both, f"4k: {one}"]
    fitted = pagelab("model", "fit", file, "-o", "models.json")
    assert fitted.returncode == 3, fitted.stderr
    assert f"warning: {both}" in fitted.stderr
    by_alam = ("--model", "alam", "-s", "radix-2m")
    predicted = pagelab("predict", "-q", "gups:size=4MiB,accesses=20K", "--model", "models.json", *by_alam)
    assert predicted.returncode == 0, predicted.stderr
    assert f"warning: the models: {both}" in predicted.stderr
    assert "the models: walk cycles come from replays, and" not in predicted.stderr


def test_how_far_run_times_are_known_is_told(tmp_path: Path) -> None:
    measured = measurement(counted=False)
    small, *others = measured.layouts
    file = tmp_path / "m.json"

    def notes(*seconds: float) -> list[str]:
        runs = [replace(small.runs[0], user_seconds=user, system_seconds=0.0) for user in seconds]
        file.write_text(replace(measured, layouts=[replace(small, runs=runs), *others]).to_json())
        return list(points.read([file]).notes[2:])

    assert notes(3.0, 3.0) == []
    # Student's quantile of two degrees of freedom, by the root of three.
    assert notes(2.9, 3.0, 3.1) == [
        f"CPU time is known to ±{4.3027 * 0.1 / 3**0.5 / 3:.0%} at worst (4k): smaller errors mean little"
    ]
    assert notes(3.0) == ["a layout was run once, so the noise of its run time is unknown"]


def test_errors_are_told_as_they_are_compared(pagelab: Pagelab, tmp_path: Path) -> None:
    rows = ("4k,100,1,5,50", "heap=25%,92,1,4,38", "heap=50%,79,1,3,26", "heap=75%,71,1,2,13", "thp,60,1,1,1")
    (tmp_path / "p.csv").write_text("layout,R,H,M,C\n" + "\n".join(rows) + "\n")
    done = pagelab("model", "fit", "p.csv", "-o", "m.json")
    assert done.returncode == 0, done.stderr
    assert "as compared" in done.stdout.splitlines()[0]
    models = json.loads((tmp_path / "m.json").read_text())
    compared = {
        model["name"]: max(abs(model["errors"][layout]) for layout in models["compared_on"])
        for model in models["models"]
        if model["errors"]
    }
    assert models["best"] == min(compared, key=lambda name: compared[name])
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert all(f"{100 * error:.2f} %" in shown[name] for name, error in compared.items())


def test_a_measurement_with_other_things_for_numbers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(measurement(counted=False).to_json().replace('"user_seconds": 3.0', '"user_seconds": "x"', 1))
    with pytest.raises(UsageError, match="user_seconds is 'x', which is no number"):
        points.read([file])


def test_points_of_a_measurement(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(measurement(counted=False).to_json())
    replayed = points.read([file])
    # Seconds at the clock of the replays' machine.
    assert replayed.points[0] == Point("4k", 3 * 3000e6, 40, 30, 900, 4000.0, 0.0)
    assert [point.layout for point in replayed.points] == ["4k", "thp"]
    assert replayed.notes[0] == "host is left out: its walk cycles are unknown"
    assert (replayed.mhz, replayed.system_seconds, replayed.machine) == (3000.0, 0.5, "kabylake-7700hq")
    assert points.read([file], "cpu").points[0].runtime_cycles == 3.5 * 3000e6
    assert points.read([file], "cpu").system_seconds is None
    counted = tmp_path / "c.json"
    counted.write_text(measurement(counted=True).to_json())
    assert points.read([counted]).points[0] == Point("4k", 15e9, 73, 52, 901, None, 0.0)
    assert points.read([counted], "cpu").points[0].runtime_cycles == 15e9 + 7
    with pytest.raises(UsageError, match="have another source"):
        points.read([file, counted])
    file.write_text(replace(measurement(counted=False), walk_cycles_from=None).to_json())
    with pytest.raises(UsageError, match="it has no walk cycles; measure with --replay or --trace"):
        points.read([file])


def test_every_model_says_what_it_is() -> None:
    names = [model.name for model in MODELS]
    assert len(set(names)) == len(names) == 8
    assert all("R =" in model.form or model.name == "mosmodel" for model in MODELS)
    assert str(Fitted("x", [Term(2.5, {"walk_cycles": 2, "tlb_misses": 1}), Term(1, {})])) == "R = 2.5·C^2·M + 1"
