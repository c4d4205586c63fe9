"""What hardware demand paging would gain, by the runs of a real kernel that emulates its unit (recorded under QEMU)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pagelab as package
from pagelab import UsageError
from pagelab_linux import LinuxError, hardware_unit
from pagelab_linux.bench import Figure
from pagelab_linux.cli import bench_output
from pagelab_linux.hardware_unit import ALL_WORK, FROM_KERNEL, IN_PASS, Miss

# `pagelab linux bench -s off -s block-mapping -s block-mapping-threads -w storage-random --levels 4`, QEMU 7.2, icount.
KERNEL = Figure("off", "storage-random", 4, 8192, 81_819_214, 57_355, {})
SOFTWARE = Figure(
    *("block-mapping", "storage-random", 4, 8192, 25_694_056, 57_355),
    {"mapped": "8192", "empty": "0", "kpted_ticks": "13055302", "kpoold_ticks": "3917760"},
)
THREADS = Figure(
    *("block-mapping-threads", "storage-random", 4, 8192, 27_795_335, 57_355),
    {"mapped": "8181", "empty": "11", "kpted_ticks": "15189603", "kpoold_ticks": "6849215"},
)
FIGURES = (KERNEL, SOFTWARE, THREADS)
MISS = Miss(unit=400, kernel=9000, drive=30_000)


def _by_method(figures: tuple[Figure, ...], miss: Miss) -> dict[str, hardware_unit.Estimate]:
    return {one.method: one for one in hardware_unit.estimates(figures, miss)}


def test_time_of_the_hardware_is_that_of_the_run_without_the_software_of_its_misses() -> None:
    made = _by_method(FIGURES, MISS)
    software = 25_694_056 / 8192
    kernel = (81_819_214 + 57_355) / 8192 + 30_000
    in_pass = (27_795_335 + 57_355 - 8181 * (software - 400)) / 8192 + 30_000
    assert made[IN_PASS].delta.value == software - 400
    assert made[IN_PASS].kernel.value == kernel
    assert made[IN_PASS].hardware.value == pytest.approx(in_pass)
    assert made[IN_PASS].gain_percent.value == pytest.approx(100 * (kernel / in_pass - 1))
    # Without the software: the load, the unit, the threads and the drive.
    all_work = (57_355 + 13_055_302 + 3_917_760) / 8192 + 400 + 30_000
    assert made[ALL_WORK].hardware.value == pytest.approx(all_work)
    assert made[FROM_KERNEL].hardware.value == pytest.approx(kernel - 8600)
    assert made[ALL_WORK].gain_percent.value < made[IN_PASS].gain_percent.value


def test_misses_that_the_kernel_serves_keep_their_time() -> None:
    fewer = replace(THREADS, counters={**THREADS.counters, "mapped": "4096"})
    more, less = (_by_method((KERNEL, SOFTWARE, one), MISS)[IN_PASS] for one in (fewer, THREADS))
    assert more.hardware.value - less.hardware.value == pytest.approx((8181 - 4096) * less.delta.value / 8192)


def test_a_simulated_kernel_slower_than_this_one_gives_no_estimate() -> None:
    assert set(_by_method(FIGURES, replace(MISS, kernel=36_500))) == {IN_PASS, ALL_WORK}


def test_rounds_are_summarised_and_incomplete_ones_left_out() -> None:
    rounds = [replace(one, round=number) for number in range(1, 8) for one in FIGURES]
    slower = [replace(one, ticks=one.ticks + 8192 * one.round) if one.setting == "off" else one for one in rounds]
    gain = _by_method(tuple(slower[:-1]), MISS)[IN_PASS].gain_percent
    assert gain.count == 6
    assert gain.low < gain.value < gain.high
    assert hardware_unit.estimates(FIGURES[:2], MISS) == []


def test_delta_needs_a_run_in_which_the_unit_serves_every_miss() -> None:
    some = replace(SOFTWARE, counters={**SOFTWARE.counters, "mapped": "8000"})
    with pytest.raises(LinuxError, match=r"8,000 of 8,192 misses; Δ needs a run in which it serves all"):
        hardware_unit.estimates((KERNEL, some, THREADS), MISS)
    with pytest.raises(LinuxError, match=r"storage-random: does not say mapped, so it maps no drive: use storage"):
        hardware_unit.estimates((KERNEL, replace(SOFTWARE, counters={}), THREADS), MISS)


def test_all_settings_are_needed() -> None:
    hardware_unit.ensure_settings(("plain", *hardware_unit.SETTINGS))
    with pytest.raises(UsageError, match=r"--against needs -s block-mapping -s block-mapping-threads as well"):
        hardware_unit.ensure_settings(("off", "rings"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "miss.json"
    spec = "mapped-read:size=64MiB,lines=1,accesses=4K"
    package.run(spec, ["osdp", "hwdp"]).save(path)
    return path


def test_a_simulated_miss_is_without_the_drive(results: Path) -> None:
    miss = hardware_unit.simulated_miss(results)
    systems = package.Results.load(results).systems
    kernel, unit = (system.stats for system in systems)
    drive = kernel["layer.native.storage.reads.cycles"] / kernel["layer.native.storage.reads"]
    assert miss.drive == pytest.approx(drive)
    assert miss.kernel + drive == pytest.approx(kernel["fault.major.latency.cycles"] / kernel["fault.major.count"])
    of_unit = unit["layer.native.fault_engine.latency.cycles"] / unit["layer.native.fault_engine.mapped"]
    assert miss.unit + unit["layer.native.storage.reads.cycles"] / unit["layer.native.storage.reads"] == pytest.approx(
        of_unit
    )
    assert 0 < miss.unit < miss.kernel


def test_results_of_one_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    package.run("mapped-read:size=16MiB,lines=1,accesses=1K", ["osdp"]).save(path)
    with pytest.raises(UsageError, match=r"misses of 1 kernels and 0 units; it must have one of each"):
        hardware_unit.simulated_miss(path)


def test_estimates_are_shown_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    document = bench_output.show_hardware(FIGURES, replace(MISS, kernel=36_500))
    shown = capsys.readouterr().out
    assert "a miss takes 400.0 cycles by the simulated unit and 30,000.0 by the drive" in shown
    assert f"{FROM_KERNEL}: no estimate" in shown
    text = bench_output.as_json("6.12", "instructions", FIGURES, (), None, document)
    written = json.loads(text)["hardware"]
    assert [one["method"] for one in written["estimates"]] == [IN_PASS, ALL_WORK]
    assert written["miss_cycles"]["unit"] == 400
    assert "hardware" not in json.loads(bench_output.as_json("6.12", "instructions", FIGURES, (), None))
