"""Major faults and instructions per operation of RocksDB, natively, against those of the workload `lsm`.

`pytest -m slow -rPs tests/python/test_rocksdb_major_faults.py` prints numbers as docs/major-faults.md has them.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_example_stores import STORES, answers, missing_for_stores, missing_packages, run
from test_store_major_faults import pagelab

import pagelab as package
from pagelab.major_faults import MajorFaultError
from pagelab.major_faults.memory_group import limited
from pagelab.major_faults.native import drop
from pagelab_studies import hardware_demand_paging_runs as planned

MIB = 1 << 20
RECORDS, OPERATIONS, LIMIT = 65_536, 50_000, 32 * MIB
"""The tables have 67 MB."""
SIZES = ("--write-buffer", str(MIB))
TOLERANCE = 0.25
"""Measured: -14 to +10 %; how many tables RocksDB has in each level depends on the time that loading takes."""
_NEEDED = {"librocksdb-dev": ("rocksdb/c.h", "-lrocksdb")}


@pytest.fixture(scope="module")
def ycsb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with RocksDB, whose package is installed if this runs as root. Skips if something is missing."""
    if missing_packages(_NEEDED) and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_NEEDED]
        subprocess.run(
            install, capture_output=True, check=False, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        )
    if missing := missing_for_stores() or missing_packages(_NEEDED):
        pytest.skip(f"to run this test, install {missing}")
    folder = tmp_path_factory.mktemp("driver")
    sources = [STORES / name for name in ("ycsb.c", "lmdb.c", "sqlite.c", "rocksdb.c")]
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-DWITH_ROCKSDB")
    done = run("cc", *flags, "-o", folder / "ycsb", *sources, "-lrocksdb", "-llmdb", "-lsqlite3", "-lm")
    assert done.returncode == 0, done.stderr
    return folder / "ycsb"


def _load(ycsb: Path, store: Path, *options: str) -> Path:
    answers(run(ycsb, "rocksdb", "load", store, "--records", str(RECORDS), *options))
    return store


def _source(bits: int, distribution: str, operations: int, size: int = MIB) -> str:
    sizes = f"memtable={size},table={size},bloom={bits},level0=0"
    return f"lsm:records={RECORDS},{sizes},mix=c,distribution={distribution},operations={operations}"


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0, 10])
def test_major_faults_per_operation_are_those_of_rocksdb(ycsb: Path, tmp_path: Path, bits: int) -> None:
    try:
        with limited(LIMIT):
            pass
    except MajorFaultError as error:
        pytest.skip(f"no memory limit can be set here: {error}")
    store = _load(ycsb, tmp_path / "store", *SIZES, "--filter-bits", str(bits))
    tables = sorted(store.glob("*.sst"))
    if left := sum(map(drop, tables)):
        pytest.skip(f"{left} pages of files in {tmp_path} stay in the page cache; give --basetemp on a drive")
    cold = [part for table in tables for part in ("--cold", str(table))]
    for distribution in ("uniform", "zipf"):
        requests = ["--mix", "c", "--distribution", distribution, "--operations", str(OPERATIONS)]
        command = [str(ycsb), "rocksdb", "run", str(store), *requests, "--filter-bits", str(bits)]
        # Mapped blocks do not enter the block cache, so the workload needs none.
        assert int(answers(run(*command))["block_cache_bytes"]) < 4096
        output = tmp_path / f"{distribution}.json"
        pagelab(
            "major-faults", "-q", "--memory", str(LIMIT), *cold, "--runs", "2", "--json", str(output), "--", *command
        )
        native = json.loads(output.read_text())["native"]["major_faults"]["median"] / OPERATIONS
        limits = {"kernel.read_ahead_bytes": "4KiB", "kernel.cgroup_limit_bytes": LIMIT}
        stats = package.run(_source(bits, distribution, OPERATIONS), "osdp", set=limits).systems[0].stats
        simulated = stats["fault.major.count"] / OPERATIONS
        print(f"{distribution}, {bits} bits per key: RocksDB {native:.3f}, lsm {simulated:.3f} per operation")
        assert simulated == pytest.approx(native, rel=TOLERANCE)


@pytest.mark.slow
def test_the_study_has_the_instructions_of_rocksdb(ycsb: Path, tmp_path: Path) -> None:
    store = _load(ycsb, tmp_path / "store", "--one-level")
    counts = []
    for operations in (0, 2000):
        trace = tmp_path / f"{operations}.trace"
        command = [str(ycsb), "rocksdb", "run", str(store), "--operations", str(operations)]
        pagelab("record", "-q", "-o", str(trace), "--", *command)
        counts.append(package.run(trace, "radix").systems[0].stats["instructions"])
    recorded = (counts[1] - counts[0]) / 2000
    accesses = package.run(_source(0, "zipf", 2000, 64 * MIB), "radix").systems[0].stats["accesses"] / 2000
    print(f"RocksDB: {recorded:.0f} instructions per operation; lsm: {accesses:.1f} accesses")
    assert recorded / accesses == pytest.approx(planned.gap("c"), rel=0.1)
