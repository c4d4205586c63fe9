"""DAMON's monitor of our own, on a folder like the kernel's that is made by hand."""

import json
import os
from pathlib import Path

import pytest

from pagelab import UsageError
from pagelab.observe.address_use import Part, Snapshot, address_monitor, columns
from pagelab.observe.processes import identify

MIB = 1 << 20
CONTEXT = "0/contexts/0"
SCHEME = f"{CONTEXT}/schemes/0"
FILES = (
    *(
        "0/contexts/nr_contexts",
        f"{CONTEXT}/operations",
        f"{CONTEXT}/targets/nr_targets",
        f"{CONTEXT}/schemes/nr_schemes",
    ),
    *(f"{CONTEXT}/monitoring_attrs/intervals/{name}" for name in ("sample_us", "aggr_us", "update_us")),
    *(f"{CONTEXT}/monitoring_attrs/nr_regions/{name}" for name in ("min", "max")),
    f"{SCHEME}/action",
    *(f"{SCHEME}/access_pattern/{name}/max" for name in ("sz", "nr_accesses", "age")),
)


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{value}\n")


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text().strip()


@pytest.fixture
def admin(tmp_path: Path) -> Path:
    """A kernel with DAMON that nobody uses. Its folders are there already, as no kernel makes them."""
    folder = tmp_path / "kdamonds"
    for name, value in {**dict.fromkeys(FILES, ""), "nr_kdamonds": 0, "0/state": "off", "0/pid": os.getpid()}.items():
        write(folder, name, value)
    (folder / CONTEXT / "targets/0").mkdir(parents=True)
    for number, region in enumerate(((8 * MIB, 10 * MIB, 0, 7), (2 * MIB, 8 * MIB, 15, 0))):
        for name, value in zip(("start", "end", "nr_accesses", "age"), region, strict=True):
            write(folder, f"{SCHEME}/tried_regions/{number}/{name}", value)
    return folder


def test_a_monitor_is_set_up_read_and_removed(admin: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    with address_monitor(4711, admin, record) as monitor:
        assert read(admin, "nr_kdamonds") == "1"
        assert read(admin, f"{CONTEXT}/operations") == "vaddr"
        assert read(admin, f"{CONTEXT}/targets/0/pid_target") == "4711"
        assert read(admin, f"{SCHEME}/action") == "stat"
        assert read(admin, f"{SCHEME}/access_pattern/sz/max") == str(2**64 - 1)
        assert read(admin, "0/state") == "on"
        assert json.loads(record.read_text())["target"] == 4711
        snapshot = monitor.snapshot(1.5)
        assert snapshot == Snapshot(1.5, [Part(2 * MIB, 8 * MIB, 0.75, 0.0), Part(8 * MIB, 10 * MIB, 0.0, 0.7)])
        assert read(admin, "0/state") == "update_schemes_tried_regions"
        assert monitor.cpu_seconds > 0
    assert (read(admin, "0/state"), read(admin, "nr_kdamonds")) == ("off", "0")
    assert not record.exists()


@pytest.mark.parametrize("left", [None, 99])
def test_a_monitor_of_somebody_else_is_left_alone(admin: Path, tmp_path: Path, left: int | None) -> None:
    """Also if a killed observation of another process has left a record."""
    record = tmp_path / "record.json"
    if left:
        record.write_text(json.dumps({"pid": 2**22 + 1, "started": 1, "target": left}))
    for name, value in {"nr_kdamonds": 1, "0/state": "on", f"{CONTEXT}/targets/0/pid_target": 4711}.items():
        write(admin, name, value)
    with pytest.raises(UsageError, match="kdamond of somebody else"), address_monitor(5, admin, record):
        pass
    assert (read(admin, "nr_kdamonds"), read(admin, "0/state")) == ("1", "on")
    assert read(admin, f"{CONTEXT}/targets/0/pid_target") == "4711"


def test_a_monitor_without_a_target_is_left_alone(admin: Path, tmp_path: Path) -> None:
    """It may be somebody else's, of the whole machine."""
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"pid": 2**22 + 1, "started": 1, "target": 4711}))
    for name, value in {"nr_kdamonds": 1, "0/state": "on"}.items():
        write(admin, name, value)
    with pytest.raises(UsageError, match="kdamond of somebody else"), address_monitor(5, admin, record):
        pass
    assert (read(admin, "nr_kdamonds"), read(admin, "0/state")) == ("1", "on")


def test_what_a_killed_observation_left_is_ended(admin: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"pid": 2**22 + 1, "started": 1, "target": 4711}))
    for name, value in {"nr_kdamonds": 1, "0/state": "on", f"{CONTEXT}/targets/0/pid_target": 4711}.items():
        write(admin, name, value)
    with address_monitor(5, admin, record):
        assert read(admin, f"{CONTEXT}/targets/0/pid_target") == "5"


def test_an_observation_that_runs_keeps_its_monitor(admin: Path, tmp_path: Path) -> None:
    own, record = identify(os.getpid()), tmp_path / "record.json"
    record.write_text(json.dumps({"pid": own.pid, "started": own.started, "target": 4711}))
    for name, value in {"nr_kdamonds": 1, "0/state": "on", f"{CONTEXT}/targets/0/pid_target": 4711}.items():
        write(admin, name, value)
    with pytest.raises(UsageError, match="busy"), address_monitor(5, admin, record):
        pass
    assert read(admin, "0/state") == "on"
    assert record.exists()


def test_a_kernel_without_damon_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CONFIG_DAMON_VADDR"), address_monitor(5, tmp_path, tmp_path / "record"):
        pass
    assert not list(tmp_path.iterdir())


def test_without_a_record_nothing_is_started(admin: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"), address_monitor(5, admin, tmp_path / "no folder" / "r"):
        pass
    assert (read(admin, "nr_kdamonds"), read(admin, "0/state")) == ("0", "off")


def test_parts_of_a_mapping_are_means_over_snapshots() -> None:
    """Four parts of 2 MiB: one that is unknown, one that is used, and two that are used half of the time or space."""
    first = Snapshot(0.0, [Part(2 * MIB, 5 * MIB, 1.0, 0.0), Part(5 * MIB, 8 * MIB, 0.0, 0.0)])
    second = Snapshot(
        1.0, [Part(2 * MIB, 5 * MIB, 1.0, 0.0), Part(5 * MIB, 6 * MIB, 0.0, 0.0), Part(6 * MIB, 9 * MIB, 1, 0)]
    )
    assert columns([first, second], 0, 8 * MIB, 4) == [None, 1.0, 0.5, 0.5]
    assert columns([], 0, 8 * MIB, 2) == [None, None]
