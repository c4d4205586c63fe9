"""Sizes of pages, NUMA nodes, and what changes could save, on memory and nodes that are made by hand."""

import ctypes
import mmap
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pagelab.observe import layout, nodes, projections
from pagelab.observe.budget import Budget
from pagelab.observe.changes import node_text, page_text
from pagelab.observe.folios import PageFlags
from pagelab.observe.layout import Layout, Pagemaps
from pagelab.observe.looks import Look, Looks
from pagelab.observe.mappings import Mapping
from pagelab.observe.nodes import Topology, nodes_of_mappings, topology
from pagelab.observe.observation import Observation, Settings
from pagelab.observe.projections import Projection, Spared, offered_orders, project
from pagelab.observe.regions import Amounts, ProcessRegions, Region
from pagelab.observe.time_shares import AVOIDABLE, PROGRAM, Share, TimeShares
from pagelab.observe.verdict import Kind, Reach, judge

MIB = 1 << 20
HEAD, TAIL = 1 << 15, 1 << 16
SHARE = Share(0.2, 0.1, 0.3)
TIMES = TimeShares(1000, {PROGRAM: Share(0.5, 0.4, 0.6), "page faults": SHARE}, {AVOIDABLE: SHARE}, None)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    """Flags of 64 frames: a page of 16 at frame 16, one of 4 at 32, one of 4 at 36, all others small."""
    entries = [0] * 64
    for first, pages in ((16, 16), (32, 4), (36, 4)):
        entries[first : first + pages] = [HEAD, *[TAIL] * (pages - 1)]
    path = tmp_path / "kpageflags"
    path.write_bytes(b"".join(entry.to_bytes(8, "little") for entry in entries))
    return path


def orders(flags: Path, frames: list[int], missing: tuple[int, ...] = ()) -> dict[int, int]:
    """Pages by order, of pages with these frames, some of which are not in memory."""
    present = np.array([at not in missing for at in range(len(frames))])
    opened = PageFlags(flags)
    counts = opened.orders(np.array(frames, dtype=np.uint64), present)
    opened.close()
    return {order: count for order, count in enumerate(counts) if count}


def test_pages_are_runs_of_frames_that_were_allocated_together(flags: Path) -> None:
    assert orders(flags, [*range(16, 32), 2, 3, *range(32, 40)]) == {0: 2, 2: 8, 4: 16}
    # Frames in another order are of no larger page.
    assert orders(flags, [17, 16, 19, 18]) == {0: 4}
    # A part counts with its own size, rounded down to a power of two.
    assert orders(flags, list(range(20, 31))) == {3: 11}
    # A page that is missing divides a run.
    assert orders(flags, list(range(16, 32)), missing=(8,)) == {3: 8, 2: 7}
    assert orders(flags, [0, 0], missing=(0, 1)) == {}


def test_hidden_flags_give_no_sizes(tmp_path: Path) -> None:
    assert not PageFlags(tmp_path / "missing").readable
    assert orders(tmp_path / "missing", [1, 2]) == {}


def test_pieces_are_counted_at_each_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the first 2 MiB the pages 0, 1 and 4, of the second one page, of the third none."""
    monkeypatch.setattr(layout, "PROC", tmp_path)
    (tmp_path / "42").mkdir()
    entries = np.zeros(512 * 4, dtype="<u8")
    entries[[512, 513, 516, 1024 + 100]] = (1 << 63) | 1000
    (tmp_path / "42" / "pagemap").write_bytes(entries.tobytes())
    mapping = Mapping(2 * MIB, 8 * MIB, "rw-p", 0, "", 16384, 0, 0, 0, 0, "")
    (seen,) = Pagemaps().layouts(42, [mapping]).values()
    assert seen.pieces == (4, 3, 3, 2, 2, 2, 2, 2, 2, 2)
    assert [seen.growth_with(order) for order in (0, 1, 4)] == [0, 2 * 4096, (32 - 4) * 4096]
    assert seen.growth == (1024 - 4) * 4096


def test_sizes_of_a_former_sample_stay() -> None:
    regions = ProcessRegions(1)
    regions.look(0, [Mapping(0, 2 * MIB, "rw-p", 0, "", 4096, 0, 0, 0, 0, "")], used=False)
    sizes = (1, *[0] * 9)
    for pages, sampled, kept in ((5, sizes, 5), (7, (0,) * 10, 7), (6, (0, 2, *[0] * 8), 7)):
        regions.set_layouts({0: Layout(pages=pages, orders=sampled)})
        (region,) = regions.regions
        assert region.layout == Layout(pages=kept, orders=sampled if any(sampled) else sizes)


def test_the_nodes_of_a_machine(tmp_path: Path) -> None:
    for node, cpus, distance in ((0, "0-1,4", "10 21"), (1, "2-3", "21 10")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cpus}\n")
        (tmp_path / f"node{node}" / "distance").write_text(f"{distance}\n")
    known = topology(tmp_path)
    assert known.cpus == {0: (0, 1, 4), 1: (2, 3)}
    assert (known.several, known.node_of(4), known.node_of(3), known.node_of(9)) == (True, 0, 1, None)
    assert (known.slowdown(0, 1), known.slowdown(1, 1)) == (2.1, 1.0)
    assert not topology(tmp_path / "missing").several


def test_pages_on_nodes_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "numa_maps").write_text(
        "7f0000000000 default anon=5 dirty=5 N0=3 N1=2 kernelpagesize_kB=4\n"
        "7f0000200000 bind:1 file=/N0=9 huge dirty=2 N1=2 kernelpagesize_kB=2048\n"
        "7f0000400000 default\n"
    )
    monkeypatch.setattr(nodes, "PROC", tmp_path)
    seen = nodes_of_mappings(42)
    assert seen == {0x7F0000000000: {0: 3 * 4096, 1: 2 * 4096}, 0x7F0000200000: {1: 4 * MIB}, 0x7F0000400000: {}}
    assert nodes_of_mappings(43) == {}
    regions = ProcessRegions(42)
    large = [Mapping(begin, begin + 2 * MIB, "rw-p", 0, "", 4096, 0, 0, 0, 0, "") for begin in seen]
    regions.look(0, large, used=False)
    regions.set_nodes(seen)
    assert [region.nodes for region in regions.regions] == list(seen.values())


def test_this_kernel_says_on_which_nodes_pages_are() -> None:
    with mmap.mmap(-1, 8 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(8 * MIB))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        seen = nodes_of_mappings(os.getpid())
        if not seen:
            pytest.skip("this kernel has no numa_maps")
        own = max((begin for begin in seen if begin <= address), default=0)
        assert sum(seen[own].values()) >= 8 * MIB


def region(faults: float, *, size: int = 8 * MIB, resident: int = 4 * MIB, label: str = "", begin: int = 0) -> Region:
    """Memory that was empty at first, with so many faults since."""
    looks = {0: Amounts(size=size), 1: Amounts(size=size, resident=resident)}
    return Region(
        1, label, begin, begin + size, True, "rw-p", "", looks=looks, faults=faults, samples=10_000, layout=Layout()
    )


def projected(region: Region, times: TimeShares = TIMES, **observed: object) -> dict[str, Projection]:
    """What changes of a region could save that has all faults."""
    looks = Looks(None)
    looks.topology = observed.pop("topology", Topology({0: (0,)}, {0: (10,)}))  # type: ignore[assignment]
    looks.regions[1] = ProcessRegions(1)
    looks.regions[1].regions.append(region)
    observation = Observation("a", Settings(1.0, 1.0, 0.02, True), looks, Budget(0.02), None)
    for name, value in observed.items():
        setattr(observation, name, value)
    # Memory that comes and goes is the last.
    return {one.change: one for one in sorted(project(observation, times), key=lambda one: one.region is None)}


def test_larger_pages_spare_at_most_the_faults_of_their_small_pages() -> None:
    seen = projected(region(6400.0))
    assert seen["pages of 64 KiB"].spared == Spared(0.0, 6000.0)
    saving = seen["pages of 64 KiB"].saving
    assert saving
    assert saving.high == pytest.approx(0.3 * 15 / 16)
    assert saving.low == pytest.approx(0.1 * 15 / 16)
    assert seen["pages of 64 KiB"].kind is Kind.WORTH_A_RECORDING
    little = TimeShares(1000, TIMES.activities, {AVOIDABLE: Share(0.005, 0.001, 0.009)}, None)
    assert projected(region(6400.0), little)["pages of 64 KiB"].kind is Kind.NOTHING
    unknown = TimeShares(0, {}, {}, "no rights")
    assert projected(region(6400.0), unknown)["pages of 64 KiB"].kind is Kind.UNDECIDED


def test_populating_spares_first_touches() -> None:
    populate = projected(region(6400.0))["populate"]
    # 1,024 pages have come, and perhaps all faults were first touches.
    assert populate.spared == Spared(1024.0, 6400.0)
    assert populate.growth == 4 * MIB
    # A process that was observed from the middle had its pages before.
    old = region(6400.0)
    old.looks = {0: Amounts(size=8 * MIB, resident=3 * MIB), 1: Amounts(size=8 * MIB, resident=4 * MIB)}
    assert projected(old)["populate"].spared == Spared(256.0, 6400.0)
    assert projected(old, from_start=True)["populate"].spared == Spared(1024.0, 6400.0)


def test_more_faults_than_pages_are_repeated() -> None:
    kept = projected(region(6400.0))["keep memory"]
    # The error of 10,000 samples is 2 %, and there are 2,048 addresses of pages.
    assert kept.spared == Spared(6400 * 0.98 - 2048, 6400 - 1024)
    assert kept.saving
    assert kept.saving.high == pytest.approx(0.3 * 5376 / 6400)
    assert kept.saving.low == pytest.approx(0.1 * 4224 / 6400)
    assert projected(region(1024.0))["keep memory"].spared == Spared(0.0, 0.0)


@pytest.mark.parametrize(
    ("label", "begin", "setting"),
    [
        ("heap", 0, "M_TRIM_THRESHOLD and M_TOP_PAD"),
        ("anonymous memory", 128 * MIB, "MALLOC_ARENA_MAX"),
        ("anonymous memory", 130 * MIB, "M_MMAP_THRESHOLD"),
    ],
)
def test_the_setting_is_that_of_the_kind_of_memory(label: str, begin: int, setting: str) -> None:
    assert setting in projected(region(6400.0, label=label, begin=begin))["keep memory"].setting


def test_memory_that_comes_and_goes_is_repeated() -> None:
    one = projected(region(10.0), elsewhere=990.0, pids={1: None})["keep memory"]
    several = projected(region(10.0), elsewhere=990.0, pids={1: None, 2: None})["keep memory"]
    assert (one.region, one.kind, several.kind) == (None, Kind.WORTH_A_RECORDING, Kind.UNDECIDED)
    assert one.saving
    assert one.saving.high == pytest.approx(0.3 * 0.99)


def test_memory_that_comes_and_goes_may_have_larger_pages_and_be_populated() -> None:
    seen = projected(region(10.0), elsewhere=990.0, pids={1: None})
    for change, part in (("pages of 2 MiB", 511 / 512), ("populate", 1.0)):
        one = seen[change]
        assert (one.region, one.kind, one.growth) == (None, Kind.WORTH_A_RECORDING, None)
        assert one.saving
        assert one.saving.high == pytest.approx(0.3 * 0.99 * part)
        assert one.spared
        assert one.spared.low == 0
        assert one.spared.high == pytest.approx(990 * part)


def test_placement_is_bounded_by_distances() -> None:
    far = region(10.0)
    far.nodes = {0: 3 * MIB, 1: MIB}
    two = Topology({0: (0,), 1: (1,)}, {0: (10, 20), 1: (20, 10)})
    placed = projected(far, topology=two, cpus=Counter({0: 100}))["NUMA placement"]
    assert placed.saving
    # A quarter of the pages are twice as far; at most all accesses go there.
    assert placed.saving.share == pytest.approx(0.5 * 0.25 * 0.5)
    assert placed.saving.high == pytest.approx(0.6 * 0.5)
    near = region(10.0)
    near.nodes = {1: 4 * MIB}
    assert projected(near, topology=two, cpus=Counter({1: 7}))["NUMA placement"].kind is Kind.NOTHING
    assert "NUMA placement" not in projected(far)
    assert node_text(far, two) == "3 MiB on node 0, 1 MiB on node 1"


def test_sizes_that_a_kernel_offers(tmp_path: Path) -> None:
    assert offered_orders(tmp_path / "missing") == []
    assert offered_orders(tmp_path) == [9]
    for size in (16, 64, 2048):
        (tmp_path / f"hugepages-{size}kB").mkdir()
    assert offered_orders(tmp_path) == [2, 4, 9]


def test_sizes_are_told_in_words() -> None:
    seen = region(1.0)
    seen.layout = Layout(orders=(25, 0, 0, 0, 75, 0, 0, 0, 0, 0))
    assert page_text(seen) == "25% in pages of 4 KiB, 75% in pages of 64 KiB (a sample of 100 pages)"
    seen.layout = Layout(orders=(100, *[0] * 9))
    assert page_text(seen) == ""


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("thp")
    for size in (16, 64, 2048):
        (folder / f"hugepages-{size}kB").mkdir()
    monkeypatch.setattr(projections, "_SIZES", folder)


@pytest.mark.parametrize(
    ("used", "kind"), [(None, Kind.UNDECIDED), (0, Kind.NOTHING), (6 * MIB, Kind.WORTH_A_RECORDING)]
)
def test_memory_whose_use_is_unknown_is_undecided_if_all_of_it_exceeds_the_tlb(used: int | None, kind: Kind) -> None:
    """Two mappings of 6 MiB, and a TLB that covers 8 MiB: each alone would fit."""
    looks = Looks(None)
    looks.regions[1] = ProcessRegions(1)
    for begin in (0, 64 * MIB):
        one = region(0.0, begin=begin)
        one.looks = {0: Amounts(size=8 * MIB, resident=6 * MIB, used=used)}
        looks.regions[1].regions.append(one)
    looks.looks.append(Look(1.0, 1, 2, None, 0.0, 0.0))
    observation = Observation("a", Settings(1.0, 1.0, 0.02, True), looks, Budget(0.02), None)
    little = TimeShares(1000, TIMES.activities, {AVOIDABLE: Share(0.001, 0.0, 0.002)}, None)
    judged = judge(observation, little, Reach(8 * MIB, "a test"))
    assert [one.kind for one in judged] == [kind, kind]


@pytest.mark.parametrize(
    ("used", "kind"),
    [(3 * MIB, Kind.NOTHING), (6 * MIB, Kind.UNDECIDED), (9 * MIB, Kind.WORTH_A_RECORDING)],
)
def test_processes_that_only_together_exceed_the_tlb_are_undecided(used: int, kind: Kind) -> None:
    """Two processes with as much used memory each, and a TLB that covers 8 MiB."""
    looks = Looks(None)
    for pid in (1, 2):
        one = region(0.0)
        one.pid, one.looks = pid, {0: Amounts(size=10 * MIB, resident=10 * MIB, used=used)}
        looks.regions[pid] = ProcessRegions(pid)
        looks.regions[pid].regions.append(one)
    looks.looks.append(Look(1.0, 2, 2, None, 0.0, 0.0))
    observation = Observation("a", Settings(1.0, 1.0, 0.02, True), looks, Budget(0.02), None)
    little = TimeShares(1000, TIMES.activities, {AVOIDABLE: Share(0.001, 0.0, 0.002)}, None)
    judged = judge(observation, little, Reach(8 * MIB, "a test"))
    assert [one.kind for one in judged] == [kind, kind]
