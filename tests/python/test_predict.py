"""Run times of systems that no machine has: scaling by replays, intervals, and layouts held out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Pagelab, assert_fails
from test_model import HUGE, SMALL, line, points_from

import pagelab
from pagelab import UsageError
from pagelab.run_time import fitting, predicting
from pagelab.run_time.points import Point
from pagelab.run_time.replaying import Replay, Replaying, replays

CHASE = "chase:size=16MiB,accesses=60K"
"""Any source that can be replayed stands for a trace."""


def replay(system: str, walk_cycles: int, misses: int = 100, hits: int = 50, window: int = 1000) -> Replay:
    return Replay(walk_cycles, misses, hits, 2000, window, 3000.0, "m", system, 1)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    file = tmp_path / "models.json"
    listed = (line("4k", 900), line("thp", 30), line("heap=30%", 630), line("heap=60%", 400))
    listed = (*listed[:3], replace(listed[3], runtime_cycles=1.02 * listed[3].runtime_cycles))
    file.write_text(fitting.fit(points_from(*listed)).to_json())
    return file


def test_inputs_are_those_of_4k_in_the_ratio_of_the_replays() -> None:
    base = replace(SMALL, window_cycles=500.0)
    scaled = predicting.scaled(base, replay("radix", 800), replay("other", 200, misses=300, hits=25, window=1500))
    assert (scaled.walk_cycles, scaled.tlb_misses, scaled.tlb_hits, scaled.window_cycles) == (100, 30, 10, 750)
    # Where the replay of 4k has none, the ratio says nothing.
    assert predicting.scaled(base, replay("radix", 0), replay("other", 70)).walk_cycles == 70


def test_replays_tell_misses_hits_and_cycles() -> None:
    (replayed,) = replays(CHASE, ["radix"], "kabylake-7700hq")
    window = {"machine.core": {"model": "window", "cycles_per_instruction": 0.25, "branch_predictor": "tage"}}
    own, other = pagelab.run(CHASE, ["radix", ("radix", window)], machine="kabylake-7700hq").systems
    kinds = ("dtlb", "itlb")
    assert replayed.tlb_misses == sum(own.stats[f"{kind}.l2.misses"] for kind in kinds) > 0
    assert replayed.tlb_hits + replayed.tlb_misses == sum(own.stats[f"{kind}.l1.misses"] for kind in kinds)
    assert replayed.tlb_hits > 0
    assert replayed.walk_cycles == own.stats["walk.cycles"]
    assert replayed.mhz == 2800
    for cycles, stats in ((replayed.core_cycles, own.stats), (replayed.window_cycles, other.stats)):
        assert cycles == stats["cycles"] - stats["cycles.fault"] - stats["cycles.kernel"]


def test_a_prediction_is_the_models_of_the_replays(models: Path) -> None:
    loaded = fitting.load(models)
    prediction = predicting.predict(CHASE, ["radix-thp", "radix"], loaded, "kabylake-7700hq")
    small, huge = replays(CHASE, ["radix", "radix-thp"], "kabylake-7700hq")
    assert huge.walk_cycles < 0.01 * small.walk_cycles
    thp, same = prediction.systems
    yaniv = {estimate.model: estimate for estimate in thp.estimates}["yaniv"]
    assert yaniv.cycles == pytest.approx(1000 + 0.5 * 900 * huge.walk_cycles / small.walk_cycles)
    assessed = next(model for model in loaded.models if model.fitted.name == "yaniv")
    assert yaniv.half_interval == assessed.half_interval == pytest.approx(4.303 * (1 - 1 / 1.02) / 2**0.5)
    # Nothing changes under the system that is compared with, whatever the model says of 4k.
    at_4k = {estimate.model: estimate.at_4k for estimate in same.estimates}
    assert at_4k["alam"] == pytest.approx((1015 - 30 + 900) / 1450)
    assert len(same.estimates) == 7
    for estimate in same.estimates:
        assert estimate.cycles == pytest.approx(prediction.base.runtime_cycles), estimate.model
        assert not estimate.blind
    # Its points were not replayed, so the core that overlaps accesses is there, untested.
    window = {estimate.model: estimate for estimate in thp.estimates}["window"]
    assert window.half_interval is None
    assert not window.tested
    assert yaniv.tested
    ratio = huge.window_cycles / small.window_cycles
    assert window.cycles == pytest.approx(ratio * prediction.base.runtime_cycles)


def test_systems_unlike_all_layouts_are_warned_of(models: Path) -> None:
    loaded = fitting.load(models)
    prediction = predicting.predict(CHASE, ["radix-no-mmu-cache", "radix"], loaded)
    assert [system.beyond for system in prediction.systems] == [True, False]
    assert any("radix-no-mmu-cache: its walk cycles are outside" in warning for warning in prediction.warnings)
    assert any("kabylake-7700hq, since neither --machine" in warning for warning in prediction.warnings)
    # A line that falls: far out it predicts a negative time.
    falling = fitting.fit(points_from(line("4k", 900, slope=-1.1), line("thp", 30, slope=-1.1)))
    far = predicting.predict(CHASE, ["radix-no-mmu-cache"], falling, "kabylake-7700hq", model="yaniv")
    assert any("yaniv predicts a negative time" in warning for warning in far.warnings)


def test_what_the_simulator_warns_of_is_passed_on(models: Path, tmp_path: Path) -> None:
    trace = tmp_path / "lackey.trace"
    pagelab.import_trace(ROOT / "crates" / "pagelab-trace" / "tests" / "import_samples" / "lackey.txt", trace)
    prediction = predicting.predict(trace, ["radix"], fitting.load(models), "kabylake-7700hq")
    assert any("accesses contain no dependencies" in warning for warning in prediction.warnings)


def test_held_out_layouts_are_predicted(models: Path) -> None:
    loaded = fitting.load(models)
    prediction = predicting.validate(CHASE, loaded, "kabylake-7700hq")
    for model in loaded.models:
        assert prediction.by_layout[model.fitted.name] == pytest.approx(dict(model.errors_from_4k))
    # Models that thp makes cannot predict it.
    assert not {"yaniv", "gandhi", "alam"} & prediction.by_trace.keys()
    small, huge = replays(CHASE, ["radix", "radix-thp"], "kabylake-7700hq")
    walks = 900 * huge.walk_cycles / small.walk_cycles
    assert prediction.by_trace["pham"] == pytest.approx(
        (1000 + 0.5 * 900 - 900 + walks + 7 * 100 * (huge.tlb_hits / small.tlb_hits - 1)) / 1015 - 1
    )


def test_what_a_model_is_off_at_4k_is_no_gain() -> None:
    """Walk cycles are cheaper than they are counted, so alam and gandhi say 4k takes longer than it does."""
    small = Point("4k", runtime_cycles=1320, tlb_hits=100, tlb_misses=60, walk_cycles=600)
    huge = Point("thp", runtime_cycles=1000, tlb_hits=1, tlb_misses=0.1, walk_cycles=1)
    middle = Point("heap=50%", runtime_cycles=1155, tlb_hits=50, tlb_misses=30, walk_cycles=300)
    quarter = Point("heap=25%", runtime_cycles=1237, tlb_hits=75, tlb_misses=45, walk_cycles=450)
    models = fitting.fit(points_from(small, quarter, middle, huge))
    by_name = {model.fitted.name: model for model in models.models}
    assert by_name["alam"].fitted.at(small) == pytest.approx(1599)
    # As fitted, alam is off where nothing is replayed; from 4k it is off by what a walk cycle is worth.
    assert by_name["alam"].errors["heap=50%"] == pytest.approx((999 + 300) / 1155 - 1)
    from_4k = {"heap=25%": (450, 1237), "heap=50%": (300, 1155)}
    assert by_name["alam"].errors_from_4k == pytest.approx(
        {name: 1320 * (999 + walks) / (999 + 600) / time - 1 for name, (walks, time) in from_4k.items()}
    )
    prediction = predicting.predict(CHASE, ["radix"], models, "kabylake-7700hq")
    (same,) = prediction.systems
    document = prediction.to_dict()["systems"][0]["estimates"]
    for estimate, written in zip(same.estimates, document, strict=True):
        assert estimate.cycles == pytest.approx(1320), estimate.model
        assert written["ratio"] == pytest.approx(1), estimate.model


def test_models_of_misses_alone_say_nothing_of_other_page_tables(models: Path) -> None:
    loaded = fitting.load(models)
    prediction = predicting.predict(CHASE, ["radix-no-mmu-cache", "radix-thp"], loaded, "kabylake-7700hq")
    slower, thp = ({estimate.model: estimate for estimate in system.estimates} for system in prediction.systems)
    for name in ("basu", "gandhi"):
        assert slower[name].cycles is None
        assert slower[name].blind
    (message,) = (warning for warning in prediction.warnings if "left out" in warning)
    assert message.startswith("radix-no-mmu-cache: basu, gandhi left out")
    assert not any(slower[name].blind for name in ("yaniv", "pham", "alam", "least-squares", "window"))
    # Huge pages change misses as well: what these models are for.
    assert thp["basu"].cycles is not None


def test_the_best_prediction_is_by_errors_from_4k(models: Path) -> None:
    loaded = fitting.load(models)
    changed = [
        replace(model, errors_from_4k={"heap=30%": 0.001, "heap=60%": 0.001})
        if model.fitted.name == "least-squares"
        else model
        for model in loaded.models
    ]
    prediction = predicting.predict(CHASE, ["radix"], replace(loaded, models=changed), "kabylake-7700hq")
    assert loaded.best
    assert (loaded.best.fitted.name, prediction.best) == ("yaniv", "least-squares")


def test_a_trace_of_another_program_is_told(models: Path, tmp_path: Path) -> None:
    trace = tmp_path / "true.trace"
    pagelab.record(["true", "x"], trace)
    loaded = fitting.load(models)

    def warnings(source: object, *command: str) -> list[str]:
        points = replace(loaded.points, command=list(command))
        prediction = predicting.predict(str(source), ["radix"], replace(loaded, points=points), "kabylake-7700hq")
        assert [system.system for system in prediction.systems] == ["radix"]
        return [warning for warning in prediction.warnings if "was measured" in warning]

    assert warnings(trace, "true", "x") == []
    assert warnings(trace, "chase", "16") == [f"{trace} is a recording of true x, and chase 16 was measured"]
    (message,) = warnings(CHASE, "chase")
    assert message.endswith("is a workload, not a recording of chase, which was measured")


def test_nested_models_are_compared_with_nested_tables() -> None:
    points = replace(points_from(line("4k", 900), line("thp", 30)), nested=True, machine="kabylake-7700hq")
    prediction = predicting.predict(CHASE, ["nested-radix"], fitting.fit(points), model="alam")
    (same,) = prediction.systems
    assert same.inputs.walk_cycles == 900
    assert Replaying(nested=True).huge == "nested-radix-thp"


def test_models_without_4k_predict_nothing() -> None:
    models = fitting.fit(points_from(replace(SMALL, layout="heap=10%"), HUGE))
    with pytest.raises(UsageError, match="the models lack the layout 4k"):
        predicting.predict(CHASE, ["radix"], models, model="alam")


def test_the_command(pagelab: Pagelab, tmp_path: Path, models: Path) -> None:
    arguments = ("predict", CHASE, "--model", models, "-s", "radix-thp", "-s", "hashed-clustered", "--validate")
    done = pagelab(*arguments, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "the kernel's part, 0.500 s with 4k, is not predicted" in done.stdout
    assert "thp, by the trace" in done.stdout
    document: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    assert [system["system"] for system in document["systems"]] == ["radix-thp", "hashed-clustered"]
    yaniv = next(estimate for estimate in document["systems"][0]["estimates"] if estimate["model"] == "yaniv")
    assert yaniv["ratio"] == pytest.approx(1000 / 1450, rel=0.01)
    assert document["errors"]["by_layout"]["yaniv"]["heap=30%"] == pytest.approx(0)
    again = pagelab(*arguments, "--json", "-")
    assert again.stdout == (tmp_path / "out.json").read_text()

    assert_fails(pagelab("predict", "-q", CHASE, "--model", "none.json"), 1, "none.json")
    (tmp_path / "other.json").write_text("{}")
    assert_fails(pagelab("predict", "-q", CHASE, "--model", "other.json"), 2, "other.json: no model file")
    assert_fails(pagelab("predict", "-q", CHASE, "--model", models, "-s", "radx"), 2, "radx")
    same = pagelab("predict", "-q", CHASE, "--model", models, "--json", models)
    assert_fails(same, 2, "named twice")
    assert_fails(pagelab("predict", "-q", "none.trace", "--model", models), 1, "none.trace")
