"""Kernel presets of the user's own machine: the arithmetic, the file, and simulations that cost what was measured."""

import json
import tomllib
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails
from test_presets import at, is_number, leaves, origin_of

import pagelab
from pagelab.cli.calibrate import command as calibrate_command
from pagelab.hardware.clock import Clock
from pagelab.host import calibrate
from pagelab.host.calibrate import GROUPS, Cost, Host, Share, Walk

STAGES = {stage: 10 * number for number, stage in enumerate((s for group in GROUPS for s in group.stages), 1)}
REFERENCES = {"zero-page-read": 100.0, "file-read": 150.0, "first-write": 300.0}


def host(kernel: str = "Linux 6.18.1", missing: str | None = None, **cycles: float) -> Host:
    """A machine that was never measured."""
    every = {"zero-page-read": 1700.0, "file-read": 2400.0, "first-write": 3400.0, "context-switch": 4500.0}
    every |= {"invalidate-page": 900.0, "shootdown": 7000.0, "fork-page": 300.0}
    every |= {"mapping-call": 2100.0, "unmap-page": 800.0, "change-page": 190.0}
    every |= {
        "walk-timer": 45.0,
        "walk": 32.3,
        "walk-root": 5.6,
        "walk-level": 5.2,
        "walk-look-up": 2.2,
        "walk-look-up-published": 5.6,
    }
    every |= {"walk-fill": 6.0}
    every |= {name.replace("_", "-"): value for name, value in cycles.items()}
    costs = {name: Cost(value, value - 10, value + 10, 101) for name, value in every.items() if name != missing}
    share = Share(28.5, 27.0, 31.0)
    walks = [
        Walk("random", 4096, "stores", costs["first-write"], costs["first-write"], costs["first-write"], share, share)
    ]
    return Host(kernel, "Imaginary", Clock(2.5, 0.004), costs, {missing: "not permitted"} if missing else {}, walks)


def test_groups_are_solved_one_after_the_other() -> None:
    measured = {"zero-page-read": 1000.4, "file-read": 1500.0, "first-write": 3000.0}
    base, lists, frame = calibrate.solve(STAGES, REFERENCES, measured)
    assert sum(base.cycles.values()) == 900
    assert sum(lists.cycles.values()) == 1500 - 150 - 900
    assert sum(frame.cycles.values()) == 3000 - 300 - 900 - 450
    assert all(solution.above == 0 and solution.measured for solution in (base, lists, frame))
    assert base.cycles == {"entry": 60, "lookup": 120, "walk": 180, "install": 240, "return": 300}


def test_a_group_never_costs_less_than_nothing_and_the_rest_knows() -> None:
    measured = {"zero-page-read": 1000.0, "file-read": 1020.0, "first-write": 3000.0}
    _, lists, frame = calibrate.solve(STAGES, REFERENCES, measured)
    assert set(lists.cycles.values()) == {0}
    assert lists.above == 900 + 150 - 1020
    assert sum(frame.cycles.values()) == 3000 - 300 - 900


def test_a_group_without_a_measurement_keeps_the_presets_cycles() -> None:
    _, lists, frame = calibrate.solve(STAGES, REFERENCES, {"zero-page-read": 1000.0, "first-write": 3000.0})
    assert (lists.cycles, lists.measured) == ({"rmap": 60, "lru": 70}, False)
    assert sum(frame.cycles.values()) == 3000 - 300 - 900 - 130


@pytest.mark.parametrize("total", [0, 1, 7, 100, 12345])
def test_parts_sum_to_the_total_in_the_weights_ratio(total: int) -> None:
    weights = {"a": 3, "b": 0, "c": 5}
    parts = calibrate.divide(total, weights)
    assert sum(parts.values()) == total
    assert all(abs(parts[name] - total * weight / 8) <= 1 for name, weight in weights.items())
    assert sum(calibrate.divide(total, dict.fromkeys("abc", 0)).values()) == total


@pytest.mark.parametrize(
    ("kernel", "preset"),
    [
        ("Linux 6.18.44-generic", "linux-6.12"),
        ("Linux 6.12.0", "linux-6.12"),
        ("Linux 5.15.0", "linux-4.19"),
        ("Linux 4.10.0", "linux-4.9"),
        ("Linux 3.10.0", "linux-4.9"),
    ],
)
def test_the_structure_is_the_nearest_presets_that_is_not_newer(kernel: str, preset: str) -> None:
    assert calibrate.nearest_preset(kernel) == preset


@pytest.mark.parametrize("missing", [None, "file-read", "shootdown"])
def test_every_number_of_the_file_has_an_origin(missing: str | None) -> None:
    machine = host(missing=missing)
    text = calibrate.calibrate(machine).to_toml(machine)
    preset = tomllib.loads(text)
    origins = preset.pop("origin")
    keys = list(leaves(preset))
    assert not [key for key in keys if is_number(at(preset, key)) and not origin_of(key, origins)]
    assert not origins.keys() - {origin_of(key, origins) for key in keys}
    assert origins["fault.entry.cycles"].startswith("measured: zero-page-read takes 1,700 cycles")
    assert origins["fault.rmap.cycles"].startswith("estimated" if missing == "file-read" else "measured")
    assert origins["shootdown_ipi_cycles"].startswith("estimated" if missing == "shootdown" else "measured")
    assert "# first-write: 3,400 cycles" in text
    assert "whole prefixes save 28 % (27 to 31)" in text


def test_the_walk_is_what_was_measured_of_it_and_its_group_keeps_its_sum() -> None:
    without, with_walk = calibrate.calibrate(host(missing="walk")), calibrate.calibrate(host())
    stages = [
        [result.preset["fault"][stage]["cycles"] for stage in GROUPS[0].stages] for result in (without, with_walk)
    ]
    assert sum(stages[0]) == sum(stages[1])
    # Four references of four cycles on the default machine.
    assert with_walk.preset["fault"]["walk"]["cycles"] == 32 - 4 * 4
    assert with_walk.preset["origin"]["fault.walk.cycles"].startswith(
        "measured: walk of a replica of Linux 4.19's walk"
    )


def test_a_translation_cache_costs_what_was_measured(tmp_path: Path) -> None:
    for form, look_up in [("full-prefix", 0), ("as-published", 2)]:
        machine = host()
        calibration = calibrate.calibrate(machine, translation_cache=form)
        cache = calibration.preset["translation_cache"]
        costs = [cache[key] for key in ("form", "cycles", "level_cycles", "root_cycles", "fill_cycles")]
        assert costs == [form, look_up, 1, 2, 2]
        file = tmp_path / f"{form}.toml"
        file.write_text(calibration.to_toml(machine))
        result = pagelab.run("seq:size=1MiB", "radix", kernel=str(file)).systems[0]
        assert result.stats["stc.hits.pmd"] > 200
    with pytest.raises(pagelab.UsageError, match="cannot be measured here: not permitted"):
        calibrate.calibrate(host(missing="walk"), translation_cache="full-prefix")


def test_the_simulation_then_costs_what_was_measured() -> None:
    calibration = calibrate.calibrate(host(kernel="Linux 4.14.0"), "sandybridge-e5-2420")
    assert (calibration.base, calibration.machine) == ("linux-4.9", "sandybridge-e5-2420")
    rows = {row.benchmark: row for row in calibration.comparisons}
    for name, cycles in [("zero-page-read", 1700), ("file-read", 2400), ("first-write", 3400)]:
        assert rows[name].calibrated_cycles == pytest.approx(cycles, rel=0.001)
        assert rows[name].preset_cycles != pytest.approx(cycles, rel=0.02)
    assert rows["forked-write"].calibrated_cycles > rows["first-write"].calibrated_cycles


def test_mapping_calls_cost_what_was_measured() -> None:
    calibration = calibrate.calibrate(host())
    rows = {row.benchmark: row for row in calibration.comparisons}
    for name, cycles in [("unmap-page", 800), ("change-page", 190)]:
        assert rows[name].calibrated_cycles == pytest.approx(cycles, abs=1)
        assert rows[name].preset_cycles < cycles / 2
    calls = calibration.preset["mapping_calls"]
    assert (calls["call"]["cycles"], calls["downgrade"]) == (2100, "on")
    # Beside its references, which the simulation adds.
    assert 400 < calls["unmap_page"]["cycles"] < 800
    assert calibration.preset["origin"]["mapping_calls.unmap_page.cycles"].startswith("measured: munmap of 1,024")
    old = calibrate.calibrate(host(kernel="Linux 4.14.0")).preset["mapping_calls"]
    assert old["downgrade"] == "off"


@pytest.mark.parametrize("missing", ["mapping-call", "unmap-page", "change-page"])
def test_mapping_calls_are_free_if_one_cost_is_missing(missing: str) -> None:
    preset = calibrate.calibrate(host(missing=missing)).preset
    assert "mapping_calls" not in preset
    assert not [key for key in preset["origin"] if key.startswith("mapping_calls")]


def test_what_cannot_be_reached_is_said() -> None:
    calibration = calibrate.calibrate(host(zero_page_read=40.0))
    rows = {row.benchmark: row for row in calibration.comparisons}
    above = calibration.solutions[0].above
    assert above > 0
    assert rows["zero-page-read"].calibrated_cycles == pytest.approx(40 + above, abs=1)
    assert f"stays {above:,} above" in calibration.preset["origin"]["fault.entry.cycles"]


def test_a_preset_in_the_current_folder_is_found_by_its_name(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("run", "seq:size=1MiB", "-k", "this-host"), 2, "this-host", "linux-6.12", "pagelab calibrate")
    machine = host()
    (tmp_path / "this-host.toml").write_text(calibrate.calibrate(machine).to_toml(machine))
    unused = "note: this-host.toml in this folder is not used; use it with -k this-host"
    assert unused in pagelab("run", "seq:size=1MiB").stderr
    for named in (("-k", "this-host"), ("-k", "linux-4.9"), ("-s", "radix@linux-4.9"), ("-q",)):
        assert "is not used" not in pagelab("run", "seq:size=1MiB", *named).stderr
    assert unused in pagelab("advise", "seq:size=1MiB").stderr
    process = pagelab("run", "seq:size=1MiB", "-s", "radix@this-host", "-s", "radix@this-host.toml")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("radix@this-host") == 2


def test_calibrations_are_told_apart_by_their_files_names(pagelab: Pagelab, tmp_path: Path) -> None:
    machine = host()
    for name in ("idle", "busy"):
        (tmp_path / f"{name}.toml").write_text(calibrate.calibrate(machine, name=name).to_toml(machine))
    process = pagelab("run", "seq:size=1MiB", "-s", "radix@idle", "-s", "radix@busy.toml", "--json", "-")
    assert process.returncode == 0, process.stderr
    assert [result["label"] for result in json.loads(process.stdout)["results"]] == ["radix@idle", "radix@busy"]


@pytest.mark.parametrize(("file", "name"), [("new/after-reboot.toml", "after-reboot"), ("/dev/null", "this-host")])
def test_the_presets_name_is_its_files(
    file: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "measure", host)
    monkeypatch.setattr("pagelab.cli.calibrate.write_atomically", lambda _, text: print(text))
    calibrate_command(Path(file))
    assert f'name = "{name}"' in capsys.readouterr().out


@pytest.mark.slow
def test_this_machine_can_be_calibrated(pagelab: Pagelab, tmp_path: Path) -> None:
    process = pagelab("calibrate", "-o", "measured.toml")
    assert process.returncode == 0, process.stderr
    assert "first-write" in process.stdout
    machine = calibrate.measure()
    calibration = calibrate.calibrate(machine)
    above = {solution.group.benchmark: solution.above for solution in calibration.solutions}
    fitted = [row for row in calibration.comparisons if row.fitted and row.measured and not above.get(row.benchmark)]
    assert fitted
    for row in fitted:
        assert row.measured is not None
        assert row.calibrated_cycles == pytest.approx(row.measured.median_cycles, rel=0.02)
    run = pagelab("run", "seq:size=1MiB", "-k", "measured")
    assert run.returncode == 0, run.stderr
    assert tomllib.loads((tmp_path / "measured.toml").read_text())["name"] == "measured"


def test_a_file_that_cannot_be_written_is_refused_before_measuring(pagelab: Pagelab) -> None:
    assert_fails(pagelab("calibrate", "-o", "/dev/null/host.toml"), 1, "/dev/null", "Not a directory")


def test_a_preset_survives_its_text() -> None:
    machine = host()
    calibration = calibrate.calibrate(machine)
    assert tomllib.loads(calibration.to_toml(machine)) == calibration.preset


def test_a_file_that_it_did_not_write_is_left_alone(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("name = 'mine'\n")
    assert_fails(pagelab("calibrate", "-o", "mine.toml"), 2, "was not written by `pagelab calibrate`")
    assert (tmp_path / "mine.toml").read_text() == "name = 'mine'\n"
    assert_fails(pagelab("calibrate", "-o", "host"), 2, "give host.toml")
    assert_fails(pagelab("calibrate", "-o", "linux-6.12.toml"), 2, "choose another name")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml"]
