"""Drives fitted to what fio measured."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import Pagelab, assert_fails

import pagelab


def job(rw: str, depth: int, per_second: float, mean: float, median: float, size: int = 4096) -> dict[str, Any]:
    """A job of fio's report, with the keys of fio 3.33 that matter."""
    measured = {
        "total_ios": 1000,
        "io_bytes": 1000 * size,
        "iops": per_second,
        "clat_ns": {"mean": mean, "percentile": {"50.000000": median}},
    }
    nothing = {"total_ios": 0, "io_bytes": 0, "iops": 0.0, "clat_ns": {"mean": 0.0}}
    directions = {"read": nothing, "write": nothing, rw.removeprefix("rand"): measured}
    return {"jobname": f"{rw}-{depth}", "job options": {"rw": rw, "iodepth": str(depth)}, **directions}


def report(*jobs: dict[str, Any]) -> str:
    return json.dumps({"fio version": "fio-3.33", "global options": {"bs": "4k"}, "jobs": list(jobs)})


READS = (job("randread", 1, 12_000, 81_000, 80_000), job("randread", 64, 500_000, 120_000, 118_000))
WRITES = (job("randwrite", 1, 40_000, 20_000, 19_000), job("randwrite", 128, 100_000, 1_200_000, 900_000))


def test_the_drive_has_the_latency_and_the_rate_that_were_measured(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "drive.json").write_text(report(*READS, *WRITES))
    process = pagelab("calibrate", "--fio", "drive.json", "-o", "mine.toml")
    assert process.returncode == 0, process.stderr
    assert "use it with --set kernel.storage=mine.toml" in process.stderr
    preset = tomllib.loads((tmp_path / "mine.toml").read_text())
    device = preset["device"]
    assert device["controller_ns"] + device["read_ns"] == 80_000
    assert device["controller_ns"] == 2000, "half a million per second"
    # 40 reads at a time, four times as many units.
    assert device["units"] == 256
    assert device["slow_per_million"] * device["slow_ns"] == 1000 * 1_000_000, "the mean is 1000 ns above the median"
    assert device["controller_ns"] + device["write_ns"] == 19_000
    assert device["program_ns"] == 256 * 10_000
    assert preset["origin"].keys() == {f"device.{key}" for key in device if key != "model"}
    swapped = 'kernel.swap={"size_bytes":"64MiB","drive":"mine"}'
    run = pagelab("run", "seq:size=4MiB,passes=2,write=1", "-s", "radix", "--json", "r.json",
                  "--set", swapped, "--set", "kernel.cgroup_limit_bytes=2MiB")  # fmt: skip
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "r.json").read_text())["results"][0]
    assert result["config"]["kernel"]["swap"]["read_ns"] == 78_000
    stats, mhz = result["stats"], result["config"]["machine"]["frequency_mhz"]
    assert stats["layer.native.swap.reads.p50"] >= 80 * mhz
    assert 0 < stats["layer.native.swap.reads"] <= stats["layer.native.swap.requests"]


def test_without_writes_they_are_estimated(pagelab: Pagelab, tmp_path: Path) -> None:
    (tmp_path / "drive.json").write_text(report(*READS))
    assert pagelab("calibrate", "--fio", "drive.json").returncode == 0
    preset = tomllib.loads((tmp_path / "this-drive.toml").read_text())
    assert preset["device"]["write_ns"] == preset["device"]["read_ns"]
    assert preset["origin"]["device.write_ns"].startswith("estimate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no list `jobs`"),
        (report(), "no job of random reads of 4 KiB one at a time; run fio --rw=randread --bs=4k --iodepth=1"),
        (report(READS[0]), "16 or more at a time; run fio --rw=randread --bs=4k --iodepth=256"),
        (report(READS[0], job("randread", 64, 500_000, 1, 1, size=65536)), "16 or more at a time"),
        (report(READS[0], job("read", 64, 500_000, 1, 1)), "16 or more at a time"),
        (report(*READS, WRITES[1]), "no job of random writes of 4 KiB one at a time"),
        (report({"jobname": "x"}), "a job of fio that cannot be understood (KeyError: 'read')"),
    ],
)
def test_what_is_missing_is_said(pagelab: Pagelab, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "drive.json").write_text(text)
    assert_fails(pagelab("calibrate", "--fio", "drive.json"), 1, "drive.json", message)
    assert not (tmp_path / "this-drive.toml").exists()


def test_drives_are_named_where_devices_are(pagelab: Pagelab, tmp_path: Path) -> None:
    run = ("run", "seq:size=1MiB,passes=1", "-s", "radix")
    assert_fails(
        pagelab(*run, "--set", "kernel.storage=z-ssd"), 2, "neither a preset nor a TOML file", "pagelab list drives"
    )
    assert_fails(pagelab(*run, "--set", 'kernel.storage={"drive":7}'), 2, "kernel.storage.drive", "7 is not a name")
    assert_fails(pagelab(*run, "--set", 'kernel.storage={"drive":"disk","units":0}'), 2, "kernel.storage.units", "0")
    assert_fails(pagelab(*run, "--set", 'kernel.storage={"drive":"disk","depth":1}'), 2, "depth")
    assert_fails(
        pagelab(*run, "--set", "kernel.storage=disk", "--set", "kernel.storage.queue_depth=0"), 2, "1 to 65535"
    )
    (tmp_path / "bare.toml").write_text('name = "bare"\ndescription = ""\n')
    assert_fails(pagelab(*run, "--set", "kernel.storage=bare.toml"), 2, "`bare.toml` has no table `device`")
    listed = pagelab("list", "drives")
    assert listed.returncode == 0
    assert "z-ssd-sz985" in listed.stdout


def test_every_drive_serves_a_program_that_is_short_of_memory() -> None:
    latencies = {}
    for drive in pagelab.available("drives"):
        overrides = {
            "kernel.swap": {"size_bytes": "64MiB", "drive": drive["name"]},
            "kernel.cgroup_limit_bytes": "2MiB",
        }
        results = pagelab.run("random:size=8MiB,accesses=20K,write=1", systems=["radix"], set=overrides)
        stats = results.systems[0].stats
        latencies[drive["name"]] = stats["layer.native.swap.reads.cycles"] / stats["layer.native.swap.reads"]
    assert latencies["cxl-memory"] < latencies["z-ssd-sz985"] < latencies["tlc-flash"] < latencies["disk"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fios_own_report_is_understood(pagelab: Pagelab, tmp_path: Path) -> None:
    jobs = [
        f"--name={rw}-{depth} --stonewall --rw={rw} --iodepth={depth}"
        for rw in ("randread", "randwrite")
        for depth in (1, 64)
    ]
    options = "--output-format=json --output=out.json --filename=data --size=32M --bs=4k --runtime=1 --time_based"
    options += " --ioengine=libaio"
    subprocess.run(["fio", *f"{options} {' '.join(jobs)}".split()], cwd=tmp_path, check=True)
    process = pagelab("calibrate", "--fio", "out.json")
    assert process.returncode == 0, process.stderr
