"""The cores that one program is replayed on: one definition for predictions, advice and benchmarks."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import pagelab
from pagelab.advice import trials
from pagelab.replay import cores
from pagelab.run_time.replaying import replays

OWN_WINDOW = {"model": "window", "cycles_per_instruction": 0.5, "window": 64, "branch_predictor": "perfect"}
OWN_IN_ORDER = {"model": "in-order", "cycles_per_instruction": 1.0, "l1_hit_hidden": False}
CLASSES = ("base", "data_stall", "translation", "branch")


def test_a_machines_own_core_is_taken_for_what_it_is() -> None:
    assert cores.overlapping(OWN_WINDOW) == {**OWN_WINDOW, "branch_predictor": "tage"}
    assert cores.in_order(OWN_WINDOW)["model"] == "in-order"
    assert cores.in_order(OWN_IN_ORDER) == OWN_IN_ORDER
    assert cores.overlapping(OWN_IN_ORDER) == {
        "model": "window",
        "cycles_per_instruction": 0.25,
        "branch_predictor": "tage",
    }


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording whose branches TAGE does not all predict."""
    folder = tmp_path_factory.mktemp("recorded")
    program = shutil.which("sort")
    assert program
    (folder / "lines").write_text("".join(f"{number * 7919 % 1009}\n" for number in range(1009)))
    pagelab.record([program, "-o", str(folder / "sorted"), str(folder / "lines")], folder / "sort.trace")
    return folder / "sort.trace"


def machine_with(core: Mapping[str, Any], file: Path) -> Path:
    """A machine preset with another core."""
    text = (ROOT / "presets" / "machines" / "kabylake-7700hq.toml").read_text()
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in core.items())
    text, replaced = re.subn(r"\[core\]\n(?:\w+ = .*\n)+", f"[core]\n{keys}", text)
    assert replaced == 1
    lines = [line for line in text.splitlines() if not line.startswith('"core.')]
    file.write_text("\n".join(lines).replace('name = "kabylake-7700hq"', f'name = "{file.stem}"') + "\n")
    return file


@pytest.mark.parametrize("own", [OWN_WINDOW, OWN_IN_ORDER])
def test_predictions_and_advice_replay_the_same_core(tmp_path: Path, trace: Path, own: Mapping[str, Any]) -> None:
    machine = machine_with(own, tmp_path / "own.toml")
    (replay,) = replays(trace, ["radix"], machine)
    (expected,) = pagelab.run(trace, ["radix"], machine=machine, set={"machine.core": cores.overlapping(own)}).systems
    assert expected.stats["cycles.branch"] > 0
    # What mispredicted branches cost is the program's own time.
    assert replay.window_cycles == sum(expected.stats[f"cycles.{part}"] for part in CLASSES)
    tried = trials.replay(trace, trials.Choice(str(machine), "", None, nested=False))
    replayed = tried.window.systems[0].config["machine"]["core"]
    assert replayed == expected.config["machine"]["core"]
    assert replayed["branch_predictor"] == "tage"
    assert tried.in_order.systems[0].config["machine"]["core"]["model"] == "in-order"
    if own is OWN_IN_ORDER:
        assert tried.in_order.systems[0].config["machine"]["core"].items() >= own.items()
        plain = pagelab.run(trace, ["radix"], machine=machine).systems[0].stats
        assert replay.core_cycles == sum(plain.get(f"cycles.{part}", 0) for part in CLASSES)
    else:
        assert replayed["window"] == 64
        assert replay.core_cycles == replay.window_cycles
