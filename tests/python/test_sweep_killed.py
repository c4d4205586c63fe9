"""Whatever is killed or full, what was complete is kept, and the resumed data set is the undisturbed one."""

import os
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import COMMAND
from sweeps import RUNS, children, data, results, start, wait_for, write

from pagelab import sweep


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    sweep.run(write(folder), folder / "grid")
    return data(folder / "grid")


def _resume(folder: Path) -> None:
    process = start(folder, "grid.toml")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert f"{RUNS} runs done" in errors


def _kill_one(processes: list[int]) -> bool:
    """Kills one of these that has not ended yet; false if there is none."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            return True
    return False


def test_a_killed_process_of_a_run_is_tried_again(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    write(tmp_path)
    process = start(tmp_path, "grid.toml", "--workers", "2")
    wait_for(lambda: results(tmp_path / "grid"))
    wait_for(lambda: _kill_one(children(process.pid)))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "tried again: " in errors
    assert "SIGKILL" in errors
    assert data(tmp_path / "grid") == undisturbed


def test_a_killed_client_leaves_no_process_and_loses_nothing(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    write(tmp_path)
    process = start(tmp_path, "grid.toml")
    wait_for(lambda: len(results(tmp_path / "grid")) > 3)
    running = children(process.pid)
    process.kill()
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in results(tmp_path / "grid")}
    assert 3 < len(kept) < RUNS
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in running), 10)
    _resume(tmp_path)
    assert data(tmp_path / "grid") == undisturbed
    # What was there was not written anew.
    assert all((tmp_path / "grid" / "results" / name).stat().st_mtime_ns == at for name, at in kept.items())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_client_ends_in_order(
    tmp_path: Path, undisturbed: dict[str, bytes], number: signal.Signals, status: int
) -> None:
    write(tmp_path)
    process = start(tmp_path, "grid.toml")
    wait_for(lambda: results(tmp_path / "grid"))
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    assert not children(process.pid)
    _resume(tmp_path)
    assert data(tmp_path / "grid") == undisturbed


def test_two_clients_do_no_harm(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    write(tmp_path)
    first = start(tmp_path, "grid.toml")
    wait_for(lambda: results(tmp_path / "grid"))
    second = start(tmp_path, "grid.toml")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 2
    assert f"another sweep is running there (process {first.pid} on " in errors
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert data(tmp_path / "grid") == undisturbed


def test_a_file_that_cannot_grow_is_not_there(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    write(tmp_path)
    process = subprocess.run(
        [*COMMAND, "sweep", "grid.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert process.returncode == 1
    assert "File too large" in process.stderr
    assert "Traceback" not in process.stderr
    assert not list((tmp_path / "grid" / "results").iterdir())
    _resume(tmp_path)
    assert data(tmp_path / "grid") == undisturbed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_disk_ends_the_sweep_and_loses_nothing(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    write(tmp_path)
    disk = tmp_path / "grid"
    disk.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        process = start(tmp_path, "grid.toml")
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "No space left on device" in errors
        assert "Traceback" not in errors
        kept = results(disk)
        assert 0 < len(kept) < RUNS
        assert all(undisturbed[f"results/{path.name}"] == path.read_bytes() for path in kept)
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        _resume(tmp_path)
        assert data(disk) == undisturbed
    finally:
        subprocess.run(["umount", str(disk)], check=True)
