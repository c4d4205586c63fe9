"""Sweeps on a Dask cluster of real processes, and traces from an object store."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Pagelab, assert_fails
from sweeps import children, data, results, start, wait_for, write

from pagelab import sweep

pytest.importorskip("distributed", reason="pagelab[cluster] is not installed")

# moto's server is no package of ours, as it wants an older dateutil.
MOTO = shutil.which("moto_server") or os.environ.get("PAGELAB_MOTO_SERVER")


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Cluster:
    """A scheduler and two workers."""

    def __init__(self, folder: Path) -> None:
        self.address = f"tcp://127.0.0.1:{_port()}"
        self._folder = folder
        self.scheduler = self._begin("scheduler", "--port", self.address.rpartition(":")[2])
        self.workers = [self.add_worker(), self.add_worker()]

    def add_worker(self) -> "subprocess.Popen[bytes]":
        return self._begin("worker", self.address, "--nthreads", "1", "--no-nanny")

    def _begin(self, kind: str, *arguments: str) -> "subprocess.Popen[bytes]":
        module = f"distributed.cli.dask_{kind}"
        with (self._folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments, "--no-dashboard"], stdout=log, stderr=log, cwd=self._folder
            )

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "dask").mkdir()
    running = Cluster(tmp_path / "dask")
    yield running
    running.end()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    sweep.run(write(folder), folder / "grid")
    return data(folder / "grid")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_by_the_others(
    tmp_path: Path, cluster: Cluster, undisturbed: dict[str, bytes]
) -> None:
    write(tmp_path)
    process = start(tmp_path, "grid.toml", "--scheduler", cluster.address)
    wait_for(lambda: results(tmp_path / "grid"))
    cluster.workers[0].kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert data(tmp_path / "grid") == undisturbed


@pytest.mark.slow
def test_a_killed_scheduler_ends_the_client_and_loses_nothing(
    tmp_path: Path, cluster: Cluster, undisturbed: dict[str, bytes]
) -> None:
    write(tmp_path)
    process = start(tmp_path, "grid.toml", "--scheduler", cluster.address)
    wait_for(lambda: len(results(tmp_path / "grid")) > 3)
    cluster.scheduler.kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    assert f"the Dask scheduler at {cluster.address} is gone" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "grid" / "failures").exists() or not list((tmp_path / "grid" / "failures").iterdir())
    process = start(tmp_path, "grid.toml")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert data(tmp_path / "grid") == undisturbed


@pytest.mark.slow
def test_a_killed_client_leaves_the_cluster_free(
    tmp_path: Path, cluster: Cluster, undisturbed: dict[str, bytes]
) -> None:
    endless = write(tmp_path, '[grid]\nsources = "gups:size=64MiB,updates=100G"\nseeds = [1, 2]\n', "endless.toml")
    process = start(tmp_path, endless.name, "--scheduler", cluster.address)
    wait_for(lambda: all(_simulates(worker.pid) for worker in cluster.workers))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(_simulates(worker.pid) for worker in cluster.workers))
    write(tmp_path)
    process = start(tmp_path, "grid.toml", "--scheduler", cluster.address)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert data(tmp_path / "grid") == undisturbed


def _simulates(process: int) -> bool:
    return bool(children(process))


def test_a_cluster_that_is_not_there_is_named(pagelab: Pagelab, tmp_path: Path) -> None:
    write(tmp_path, '[grid]\nsources = "seq:size=1MiB"\n')
    process = pagelab("sweep", "grid.toml", "--scheduler", "nonsense://", "--quiet")
    assert_fails(process, 2, "--scheduler nonsense://", "tcp://HOST:8786")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that speaks S3, which the environment points to."""
    if MOTO is None:
        pytest.skip("no moto_server in PATH or PAGELAB_MOTO_SERVER")
    port = _port()
    address = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen([MOTO, "-p", str(port)], stdout=log, stderr=log)
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError):
            _put(f"{address}/bucket", b"")
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    yield address
    server.kill()
    server.wait()


# Without it, they would be a form's.
_BYTES = {"Content-Type": "application/octet-stream"}


def _put(address: str, content: bytes) -> None:
    urllib.request.urlopen(urllib.request.Request(address, content, _BYTES, method="PUT"), timeout=60).close()


def test_a_trace_comes_from_an_object_store(pagelab: Pagelab, tmp_path: Path, store: str) -> None:
    samples = ROOT / "crates" / "pagelab-trace" / "tests" / "import_samples"
    assert pagelab("trace", "import", samples / "lackey.txt", "-o", "a.trace").returncode == 0
    for file in (tmp_path / "a.trace").iterdir():
        _put(f"{store}/bucket/traces/a.trace/{file.name}", file.read_bytes())
    write(tmp_path, '[grid]\nsources = "a.trace@1"\n', "here.toml")
    write(tmp_path, '[grid]\nsources = "s3://bucket/traces/a.trace@1"\n', "there.toml")
    for name in ("here", "there"):
        process = pagelab("sweep", f"{name}.toml")
        assert process.returncode == 0, process.stderr
    here, there = (data(tmp_path / name) for name in ("here", "there"))
    assert {name: content for name, content in here.items() if name != "runs.parquet"} == {
        name: content for name, content in there.items() if name != "runs.parquet"
    }
    assert not list((tmp_path / "cache" / "pagelab" / "traces").rglob(".fetching-*"))
    write(tmp_path, '[grid]\nsources = "s3://bucket/traces/b.trace"\n', "nowhere.toml")
    assert_fails(pagelab("sweep", "nowhere.toml"), 2, "s3://bucket/traces/b.trace: cannot be read")
