"""Whose memory it is that huge pages help, and which way to them is advised."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_recorder

import pagelab
from pagelab.advice import Memory, Owner
from pagelab.advice.gains import Helped
from pagelab.advice.ways import ways

_PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void *allocate(void *unused) {
    for (int i = 0; i < 64; i++)
        memset(malloc(64 << 10), 1, 64 << 10);
    return unused;
}
int main(int argc, char **argv) {
    char *at = 0;
    switch (argv[1][0]) {
    case 'b': at = malloc(8 << 20); break;
    case 'm': at = map(8 << 20); break;
    case 'h': allocate(0); return 0;
    case 't': {
        pthread_t thread;
        pthread_create(&thread, 0, allocate, 0);
        pthread_join(thread, 0);
        return 0;
    }
    }
    memset(at, 1, 8 << 20);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "memory.c").write_text(_PROGRAM)
    for name, options in (("memory", []), ("static", ["-static"])):
        subprocess.run(["gcc", "-O1", "-pthread", *options, "-o", folder / name, folder / "memory.c"], check=True)
    (folder / "empty.c").write_text("int jemalloc_is_here;")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libjemalloc.so.2", folder / "empty.c"], check=True)
    return folder / "memory"


def _memory(row: Mapping[str, Any], trace: Path) -> list[Owner]:
    return Memory(trace).owners(row)


def _row(trace: Path, kind: str = "anonymous") -> dict[str, Any]:
    """The region where paging cost most."""
    profile = pagelab.run(trace, "radix", profile=True).systems[0].profile
    assert profile
    return next(row for row in profile["regions"]["rows"] if row["kind"] == kind)


@needs_recorder
@pytest.mark.parametrize(
    ("what", "kind", "owner"),
    [
        ("block", "anonymous", Owner.GLIBC),
        ("map", "anonymous", Owner.PROGRAM),
        ("heap", "heap", Owner.GLIBC),
        ("thread", "anonymous", Owner.GLIBC),
    ],
)
def test_mallocs_memory_is_told_from_mappings_of_the_program(
    what: str, kind: str, owner: Owner, program: Path, tmp_path: Path
) -> None:
    pagelab.record([program, what], tmp_path / "a.trace")
    assert _memory(_row(tmp_path / "a.trace", kind), tmp_path / "a.trace") == [owner]


@needs_recorder
def test_a_static_program_has_no_tunable_that_is_known(program: Path, tmp_path: Path) -> None:
    static = program.with_name("static")
    pagelab.record([static, "block"], tmp_path / "a.trace")
    assert _memory(_row(tmp_path / "a.trace"), tmp_path / "a.trace") == [Owner.PROGRAM]


@needs_recorder
def test_another_allocator_is_known_by_its_library(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(program.with_name("libjemalloc.so.2")))
    pagelab.record([program, "map"], tmp_path / "a.trace")
    assert _memory(_row(tmp_path / "a.trace"), tmp_path / "a.trace") == [Owner.JEMALLOC]


@needs_recorder
def test_workloads_tell_nothing_and_go_is_known_by_its_addresses(program: Path, tmp_path: Path) -> None:
    row = {"source": 0, "process": 0, "kind": "anonymous", "start": 0xC000000000, "end": 0xC000400000}
    assert Memory(None).owners(row) == [Owner.UNKNOWN]
    pagelab.record([program, "heap"], tmp_path / "a.trace")
    assert Memory(tmp_path / "a.trace").owners(row) == [Owner.GO]


@pytest.mark.parametrize(
    ("owners", "wanted", "unwanted"),
    [
        ([Owner.GLIBC], ["GLIBC_TUNABLES"], ["madvise(address"]),
        ([Owner.PROGRAM], ["madvise(address"], ["GLIBC_TUNABLES"]),
        ([Owner.UNKNOWN], ["GLIBC_TUNABLES", "madvise(address"], []),
        ([Owner.PROGRAM, Owner.GLIBC], ["GLIBC_TUNABLES", "madvise(address"], []),
        ([Owner.JAVA], ["-XX:+UseTransparentHugePages"], ["GLIBC_TUNABLES", "madvise(address"]),
        ([Owner.JEMALLOC], ["MALLOC_CONF=thp:always"], ["GLIBC_TUNABLES", "madvise(address"]),
        ([Owner.MIMALLOC], ["MIMALLOC_ALLOW_LARGE_OS_PAGES=1"], ["GLIBC_TUNABLES"]),
        ([Owner.TCMALLOC], ["it has no setting for huge pages"], ["GLIBC_TUNABLES", "madvise(address"]),
        ([Owner.GO], ["it has no setting for huge pages"], ["GLIBC_TUNABLES", "madvise(address"]),
    ],
)
def test_the_way_to_huge_pages_is_that_of_the_owner(
    owners: list[Owner], wanted: list[str], unwanted: list[str]
) -> None:
    mappings = [Helped({"kind": "anonymous"}, 1.0)]
    text = "\n".join(ways("huge", mappings, owners, nested=False))
    assert all(part in text for part in [*wanted, "echo always"])
    assert not any(part in text for part in unwanted)
