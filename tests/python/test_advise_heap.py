"""A heap that malloc grows by brk: what huge pages change as it is, and if it grows by 2 MiB."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_recorder

import pagelab
from pagelab.advice import Advice, Checked, Choice, Circumstances, Memory, Owner, advice_of, document_of, replay, words
from pagelab.advice.gains import Helped
from pagelab.advice.trials import systems
from pagelab.advice.ways import ways

KEY = "system.layers.0.brk_alignment_bytes"
TUNABLE = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"

# A heap of blocks below malloc's threshold for mappings, then stores to random places of it; or blocks without them.
_PROGRAM = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    enum { BLOCKS = 110, BYTES = 64 << 10 };
    static char *blocks[BLOCKS];
    uint64_t state = 1;
    if (argv[1][0] == 's')
        return malloc(100) == 0;
    if (argv[1][0] == 'm') {
        memset(mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 8 << 20);
        return 0;
    }
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(BYTES), 1, BYTES);
    for (long i = 0; i < 200000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        blocks[(state >> 40) % BLOCKS][(state >> 20) % BYTES]++;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "heap.c").write_text(_PROGRAM)
    for name, options in (("heap", []), ("static", ["-static"])):
        subprocess.run(["gcc", "-O1", *options, "-o", folder / name, folder / "heap.c"], check=True)
    (folder / "empty.c").write_text("int jemalloc_is_here;")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libjemalloc.so.2", folder / "empty.c"], check=True)
    return folder / "heap"


@pytest.fixture(scope="module")
def trace(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("traces") / "heap.trace"
    pagelab.record([program, "heap"], trace)
    return trace


@pytest.mark.parametrize("nested", [False, True])
def test_only_what_stands_for_the_tunable_grows_the_heap_in_steps(nested: bool) -> None:
    choice = Choice("kabylake-7700hq", "", None, nested)
    tlb: dict[str, Any] = {"l2": [{"entries": 1536}]}
    tried = systems(choice, tlb, malloc_heap=True)
    in_steps = {key for key, system in tried.items() if not isinstance(system, str) and KEY in system[1]}
    assert in_steps == {"malloc-huge"} | ({"small-host-malloc-huge", "cold-huge"} if nested else set())
    assert {system[1][KEY] for system in tried.values() if not isinstance(system, str) and KEY in system[1]} == {"2MiB"}
    without = systems(choice, tlb, malloc_heap=False)
    assert KEY not in str(without)
    assert [key for key in tried if key in without] == list(without)


@pytest.mark.parametrize("nested", [False, True])
def test_replays_of_a_heap_in_steps_have_names_of_their_own(nested: bool) -> None:
    names = set()
    trials = replay(
        "gups:size=1MiB,updates=1K",
        Choice("kabylake-7700hq", "", None, nested),
        malloc_heap=True,
        progress=lambda name, *_: names.add(name.partition(": ")[2].partition(", core")[0]),
    )
    labels = [system.label for system in trials.window.systems]
    assert names == set(labels)
    assert len(trials.keys) == len(labels) == (12 if nested else 8)
    for key, label in zip(trials.keys, labels, strict=True):
        assert ("heap in steps of 2 MiB" in label) == ("malloc-huge" in key)


@needs_recorder
def test_a_heap_of_malloc_is_known_by_its_brk_calls(program: Path, trace: Path, tmp_path: Path) -> None:
    assert Memory(trace).has_malloc_heap()
    assert not Memory(None).has_malloc_heap()
    jemalloc = f"LD_PRELOAD={program.with_name('libjemalloc.so.2')}"
    commands: list[tuple[str, list[str | Path]]] = [
        ("small", [program, "small"]),
        ("mapped", [program, "mapped"]),
        ("static", [program.with_name("static"), "heap"]),
        ("jemalloc", ["env", jemalloc, program, "heap"]),
    ]
    for name, command in commands:
        pagelab.record(command, tmp_path / f"{name}.trace")
        assert not Memory(tmp_path / f"{name}.trace").has_malloc_heap(), name


@needs_recorder
def test_huge_pages_help_a_heap_that_grows_by_whole_ones(trace: Path) -> None:
    advice = advice_of("heap", replay(trace, Choice("kabylake-7700hq", "", None, nested=False), malloc_heap=True))
    pages = {key: advice.trials.pair(key)[0]["layer.native.pages.2M"] for key in ("base", "huge", "malloc-huge")}
    assert pages["base"] == pages["huge"] == 0
    assert pages["malloc-huge"] >= 2
    walks, huge_walks = (advice.trials.pair(key)[0]["walk.count"] for key in ("huge", "malloc-huge"))
    assert huge_walks < walks / 4
    gains = {gain.key: gain for gain in advice.remedies}
    assert gains["malloc-huge"].saved.low > gains["huge"].saved.high + 0.05
    assert advice.huge is gains["malloc-huge"]
    assert advice.mappings[0].row["kind"] == "heap"
    assert advice.mappings[0].of_gain > 0.8
    _assert_page(advice, Memory(trace).owners(advice.mappings[0].row))
    # What is measured with a heap in huge pages is set beside that trial.
    measured = document_of(advice, Checked((0.2,) * 6, 0.02, 0.016, 1.0, ()))["measured"]
    assert measured["predicted"] == {"low": gains["malloc-huge"].saved.low, "high": gains["malloc-huge"].saved.high}


def _assert_page(advice: Advice, owners: list[Owner]) -> None:
    text = words.page(advice, circumstances=Circumstances(owners=owners))
    assert "* huge pages (2 MiB), and malloc's heap in steps of 2 MiB: −" in text
    assert TUNABLE in text
    assert "* huge pages (2 MiB) for all anonymous memory: " not in text


def test_the_tunable_is_a_way_to_the_remedy_that_it_stands_for() -> None:
    mappings = [Helped({"kind": "heap"}, 1.0)]
    both = {
        key: "\n".join(ways(key, mappings, [Owner.GLIBC, Owner.PROGRAM], nested=False, malloc_apart=True))
        for key in ("huge", "malloc-huge")
    }
    assert TUNABLE in both["malloc-huge"]
    assert "echo always" not in both["malloc-huge"]
    assert TUNABLE not in both["huge"]
    assert "echo always" in both["huge"]
    assert all("MADV_HUGEPAGE" in text for text in both.values())
    alone = "\n".join(ways("huge", mappings, [Owner.GLIBC], nested=False))
    assert TUNABLE in alone
