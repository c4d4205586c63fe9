"""The parts of `pagelab observe` on texts of the kernel that are made by hand."""

import mmap
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pagelab import UsageError
from pagelab.confidence.wilson import share_interval
from pagelab.host import contiguity
from pagelab.observe import counters, damon, layout, pressure
from pagelab.observe.budget import Budget
from pagelab.observe.code import CodeFaults, Frame
from pagelab.observe.events import Access
from pagelab.observe.groups import group_named
from pagelab.observe.kernel_code import KernelSymbols
from pagelab.observe.layout import Layout, Pagemaps
from pagelab.observe.looks import Looks
from pagelab.observe.mappings import Mapping, parse
from pagelab.observe.observation import Observation, Settings, observe
from pagelab.observe.processes import descendants
from pagelab.observe.recipe import commands
from pagelab.observe.regions import ProcessRegions
from pagelab.observe.sampling import Sampler, Totals
from pagelab.observe.targets import Members, Processes
from pagelab.observe.time_shares import AVOIDABLE, PROGRAM, time_shares
from pagelab.observe.verdict import Reach, tlb_reach
from pagelab.run_time.counters import Counters

MIB = 1 << 20
SMAPS = """\
555000000000-555000200000 rw-p 00000000 00:00 0                          [heap]
Size:               2048 kB
KernelPageSize:        4 kB
Rss:                1000 kB
Pss:                 900 kB
Pss_Dirty:           900 kB
Shared_Clean:          4 kB
Shared_Dirty:          8 kB
Private_Clean:         0 kB
Private_Dirty:       988 kB
Referenced:          500 kB
Anonymous:          1000 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:       {huge} kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:    2048 kB
Swap:                 12 kB
SwapPss:              12 kB
Locked:                0 kB
THPeligible:           0
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000001000 r--s 00003000 fd:00 77                         /a folder/lib.so (deleted)
Size:                  4 kB
Rss:                   4 kB
Shared_Clean:          4 kB
Shared_Dirty:          0 kB
Referenced:            4 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
"""


def mapping(begin: int, end: int, name: str = "", *, resident: int = 0, referenced: int = 0) -> Mapping:
    return Mapping(begin, end, "rw-p", 0, name, resident, 0, referenced, 0, 0, "")


def test_mappings_are_read() -> None:
    heap, library = parse(SMAPS.format(huge=2048).encode())
    assert (heap.begin, heap.end, heap.label, heap.anonymous) == (0x555000000000, 0x555000200000, "heap", True)
    # Rss leaves out the pages of hugetlbfs.
    assert (heap.resident, heap.huge) == ((1000 + 2048) << 10, (2048 + 2048) << 10)
    assert (heap.shared, heap.referenced, heap.swapped) == (12 << 10, 500 << 10, 12 << 10)
    assert not parse(SMAPS.format(huge=0).replace("rw-p", "rw-s").encode())[0].anonymous
    assert (library.name, library.offset, library.anonymous) == ("/a folder/lib.so (deleted)", 0x3000, False)


def test_mappings_of_this_process_are_all_read() -> None:
    text = Path("/proc/self/smaps").read_bytes()
    assert len(parse(text)) == text.count(b"VmFlags:") > 10


def test_a_mapping_keeps_its_region_while_it_grows_and_moves() -> None:
    regions = ProcessRegions(1)
    regions.look(0, [mapping(8 * MIB, 16 * MIB, resident=1), mapping(32 * MIB, 36 * MIB, "[heap]")], used=False)
    regions.look(1, [mapping(4 * MIB, 14 * MIB, resident=2, referenced=7), mapping(32 * MIB, 64 * MIB)], used=True)
    first, heap, other = regions.regions
    assert [amounts.resident for amounts in first.looks.values()] == [1, 2]
    assert [amounts.used for amounts in first.looks.values()] == [None, 7]
    assert (first.begin, first.end) == (4 * MIB, 14 * MIB)
    # Memory of another kind at the same place is another region.
    assert (list(heap.looks), list(other.looks)) == ([0], [1])
    assert regions.region_at(5 * MIB) is first
    assert regions.region_at(14 * MIB) is None


def test_a_mapping_that_is_split_keeps_its_region_once() -> None:
    regions = ProcessRegions(1)
    regions.look(0, [mapping(8 * MIB, 16 * MIB)], used=False)
    regions.look(1, [mapping(8 * MIB, 11 * MIB), mapping(12 * MIB, 16 * MIB)], used=False)
    assert [list(region.looks) for region in regions.regions] == [[0, 1], [1]]


def test_small_mappings_of_a_kind_share_a_region() -> None:
    regions = ProcessRegions(1)
    small = [mapping(n * 8192, n * 8192 + 4096, resident=4096) for n in range(1000)]
    for look in (0, 1):
        regions.look(look, small, used=False)
    (region,) = regions.regions
    assert (region.mappings, region.looks[1].resident, region.may_be_huge) == (1000, 1000 * 4096, False)


def test_a_look_that_was_interrupted_is_not_counted_twice() -> None:
    regions = ProcessRegions(1)
    for _ in range(2):
        regions.look(0, [mapping(0, 4096, resident=4096)], used=False)
    assert regions.regions[0].looks[0].resident == 4096


def test_pages_are_counted_by_pieces_of_2_mib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mapping from the middle of a piece to the middle of another: only the whole one between counts."""
    monkeypatch.setattr(layout, "PROC", tmp_path)
    (tmp_path / "42").mkdir()
    present, size = 1 << 63, 512 * 4
    entries = [present | 1000 + page if page % 2 else 0 for page in range(size)]
    (tmp_path / "42" / "pagemap").write_bytes(b"".join(entry.to_bytes(8, "little") for entry in entries))
    pagemaps = Pagemaps()
    seen = pagemaps.layouts(42, [mapping(512 * 4096 + 256 * 4096, 3 * 512 * 4096 + 256 * 4096)])
    counted = seen[768 * 4096]
    assert (counted.extents, counted.pages, counted.dense_extents) == (1, 256, 1)
    assert counted.growth == 256 * 4096
    # Whole groups are read, and pages of the neighbours do not count.
    edges = pagemaps.layouts(42, [mapping(515 * 4096, 1533 * 4096)])[515 * 4096]
    assert (edges.extents, edges.pages) == (0, 0)
    if pagemaps.frames_known:
        assert edges.contiguity is not None
        assert edges.contiguity.pages == 509
        # From page 768 to 1792, in groups of eight.
        assert counted.contiguity is not None
        assert (counted.contiguity.groups, counted.contiguity.pages) == (128, 512)


def test_empty_pieces_of_reserved_memory_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 GiB with 300 scattered pages and 5,000 pages of which every second one is used: more than one call tells."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    memory = mmap.mmap(-1, 64 << 30, flags=flags)
    memory.madvise(15)  # MADV_NOHUGEPAGE
    view = np.frombuffer(memory, dtype=np.uint8)
    begin = view.ctypes.data
    used = [*range(0, 10_000, 2), *(16_384 + 50_021 * number for number in range(300))]
    view[np.array(used) * 4096] = 1
    reserved = mapping(begin, begin + len(memory), resident=len(used) * 4096)
    seen = Pagemaps().layouts(os.getpid(), [reserved], sizes=False)[begin]
    assert seen.pages == len(used)
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        parts = layout.present_parts(pagemap.fileno(), begin // 4096, (begin + len(memory)) // 4096)
    if parts is not None:
        pieces = {number for first, last in parts for number in range(first // 512, -(-last // 512))}
        assert pieces == {(begin // 4096 + page) // 512 for page in used}
        assert all(last < first for (_, last), (first, _) in pairwise(parts))
    monkeypatch.setattr(layout, "_PAGEMAP_SCAN", 0)
    assert seen == Pagemaps().layouts(os.getpid(), [reserved], sizes=False)[begin]


def test_a_layout_without_frames_has_no_contiguity() -> None:
    known = Layout(1, 2, 0, contiguity.Contiguity(groups=1))
    assert (known + Layout(1, 3, 1)).contiguity is None
    assert (known + known).contiguity == contiguity.Contiguity(groups=2)


def test_kernel_code_is_classified(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    names = ("asm_exc_page_fault", "clear_page_erms", "__x64_sys_munmap", "try_to_compact_pages", "vfs_read.cold")
    path.write_text("".join(f"{0x1000 * n:016x} T {name}\n" for n, name in enumerate(names, 1)))
    symbols = KernelSymbols(path)
    assert symbols.known
    assert symbols.name(0x5008) == "vfs_read"
    assert symbols.classify((0x2010, 0x1010)) == ("page faults", "clearing pages")
    assert symbols.classify((0x4000, 0x2010, 0x1010)) == ("page faults", "compaction")
    assert symbols.classify((0x3FFF,)) == ("memory calls", "other")
    assert symbols.classify((0x5000,)) == ("other", "other")
    path.write_text("0000000000000000 T asm_exc_page_fault\n")
    assert not KernelSymbols(path).known


@pytest.fixture
def kdamonds(tmp_path: Path) -> Path:
    """Two threads of DAMON as sysfs has them, of which one runs."""
    for number, state, operations, target in (("0", "off", "paddr", ""), ("1", "on", "vaddr", "4711")):
        context = tmp_path / number / "contexts" / "0"
        (context / "targets" / "0").mkdir(parents=True)
        (tmp_path / number / "contexts" / "nr_contexts").write_text("1\n")
        (tmp_path / number / "state").write_text(f"{state}\n")
        (tmp_path / number / "pid").write_text("77\n")
        (context / "operations").write_text(f"{operations}\n")
        (context / "targets" / "0" / "pid_target").write_text(f"{target}\n")
    (tmp_path / "nr_kdamonds").write_text("2\n")
    return tmp_path


def test_damon_that_runs_is_busy_and_left_alone(kdamonds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in kdamonds.rglob("*") if path.is_file()}
    running = damon.monitors(kdamonds)
    assert running == [damon.Monitor("1", "77", ["vaddr"], [4711])]
    text = damon.note(running, clears=True)
    assert text
    assert text.startswith("DAMON is busy: kdamond 1 (thread 77, vaddr) belongs to someone else, and is left alone.")
    assert "--no-referenced" in text
    assert "--no-referenced" not in (damon.note(running, clears=False) or "")
    monkeypatch.setattr(damon, "ADMIN", kdamonds)
    observation = observe(Processes([os.getpid()]), Settings(0.2, 0.1, 0.5, False))
    assert any(note.startswith("DAMON is busy: kdamond 1") for note in observation.looks.notes)
    assert {path: path.read_bytes() for path in kdamonds.rglob("*") if path.is_file()} == before


def test_damon_that_does_not_run_is_not_mentioned(kdamonds: Path) -> None:
    (kdamonds / "1" / "state").write_text("off\n")
    assert damon.note(damon.monitors(kdamonds), clears=True) is None
    assert damon.monitors(kdamonds / "missing") is None
    assert damon.note(None, clears=True) is None


def test_pressure_is_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vmstat, stalls = tmp_path / "vmstat", tmp_path / "memory"
    monkeypatch.setattr(pressure, "_VMSTAT", vmstat)
    vmstat.write_text("allocstall_dma 1\nallocstall_normal 4\ncompact_stall 7\nnr_free_pages 9\n")
    stalls.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 total=10\n")
    before = pressure.read_pressure(stalls)
    vmstat.write_text("allocstall_dma 1\nallocstall_normal 9\ncompact_stall 7\nnr_free_pages 1\n")
    stalls.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0.00 total=10\n")
    since = pressure.read_pressure(stalls).since(before)
    assert since.events == {"allocstall": 5, "compact_stall": 0}
    assert since.stalled_us == {"some": 500, "full": 0}
    assert pressure.read_pressure(tmp_path / "missing").stalled_us is None


def test_the_bound_leaves_out_the_first_look_alone() -> None:
    budget = Budget(0.02, first_look=1.0, in_program=1.0)
    budget.in_program += 0.5
    assert not budget.allows(0.0, 10.0)
    assert budget.allows(0.4, 50.0)
    assert not budget.allows(0.6, 50.0)
    budget.sampling = 0.4
    assert budget.allows_sampling(50.0)
    assert not budget.allows_sampling(30.0)


@pytest.mark.parametrize(
    ("hits", "samples", "low", "high"),
    # Wilson's intervals as R's binom.confint(method = "wilson") has them.
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (10, 1000, 0.0054, 0.0183)],
)
def test_intervals_of_shares(hits: int, samples: int, low: float, high: float) -> None:
    assert share_interval(hits, samples) == pytest.approx((low, high), abs=1e-4)


def test_time_that_was_not_sampled_may_be_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """100 samples of 2 ms, half of them in faults, of 0.2 s, of 0.21 s and of 0.8 s of CPU time."""
    symbols = tmp_path / "kallsyms"
    symbols.write_text("0000000000001000 T asm_exc_page_fault\n0000000000002000 T vfs_read\n")
    monkeypatch.setattr("pagelab.observe.time_shares.KernelSymbols", lambda: KernelSymbols(symbols))
    observation = Observation("a", Settings(1.0, 1.0, 0.02, True), Looks(None), Budget(0.02), None, kernel_seen=True)
    observation.clock = Counter({(1, (0x1010,), ()): 50, (1, (), (7,)): 50})
    low, high = share_interval(50, 100)
    for seconds, part in ((0.2, 1.0), (0.21, 1.0), (0.8, 0.25)):
        observation.totals = Totals(seconds, 10, 10, 0)
        times = time_shares(observation)
        assert times.coverage == pytest.approx(part, rel=0.01)
        assert times.faults
        expected = (0.5, low * part, high * part + 1 - part)
        assert (times.faults.share, times.faults.low, times.faults.high) == pytest.approx(expected, rel=0.01)


def test_returns_from_faults_widen_the_interval() -> None:
    """A million faults in 10 s: their returns take at most 0.35 s, which samples see as the program's code."""
    observation = Observation("a", Settings(1.0, 1.0, 0.02, True), Looks(None), Budget(0.02), None)
    observation.clock = Counter({(1, (), (7,)): 5000})
    observation.totals = Totals(10.0, 1_000_000, 1_000_000, 0)
    times = time_shares(observation)
    assert times.returns == pytest.approx(0.035)
    low, high = share_interval(5000, 5000)
    own = times.activities[PROGRAM]
    assert (own.share, own.low, own.high) == pytest.approx((1.0, low - 0.035, high))
    none = times.parts[AVOIDABLE]
    assert (none.low, none.high) == pytest.approx((0.0, 1 - low + 0.035))


def test_the_reach_of_the_tlb(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: x\nTLB size\t: 3584 4K pages\n")
    assert tlb_reach(cpuinfo).size == 12 * MIB
    # In units of 32, of which the kernel does not know.
    cpuinfo.write_text("model name\t: x\nTLB size\t: 192 4K pages\n")
    assert tlb_reach(cpuinfo) == Reach(16 * MIB, "/proc/cpuinfo: 4,096 entries, Zen 5")
    cpuinfo.write_text("model name\t: x\nTLB size\t: 1024 4K pages\n")
    assert tlb_reach(cpuinfo) == Reach(4 * MIB, "/proc/cpuinfo: 1,024 entries, data and instructions")
    cpuinfo.write_text("model name\t: x\n")
    assert tlb_reach(cpuinfo).origin.startswith("an estimate")


def test_what_is_recorded_begins_at_the_function_with_most_faults() -> None:
    library, own, main = Frame("memset", "libc.so.6", ""), Frame("fill", "a", ""), Frame("main", "a", "")
    code = [CodeFaults((library, own, main), 60.0), CodeFaults((main,), 40.0)]
    program = ["./a", "b c"]
    assert commands(program, code, faults=True) == [
        "pagelab record --faults -o NAME.faults -- ./a 'b c'",
        "pagelab advise --start-at fill --max-accesses 100M -- ./a 'b c'",
    ]
    # A recording that begins at main, or at the function of few faults, has no part less.
    windows = "pagelab advise --windows every=1G,length=10M -- ./a 'b c'"
    assert commands(program, [CodeFaults((main,), 1.0)], faults=True)[1] == windows
    assert commands(program, [code[0], CodeFaults((main,), 70.0)], faults=True)[1] == windows
    assert commands(None, code, faults=False) == ["pagelab advise --windows every=1G,length=10M -- PROGRAM ARGUMENTS…"]


@pytest.mark.skipif(not shutil.which("perf"), reason="needs perf")
def test_hardware_events_are_counted_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an event of the kernel instead of the processor's, as most virtual machines have none of those."""
    monkeypatch.setattr(counters, "refusal", lambda: None)
    monkeypatch.setattr(
        "pagelab.run_time.counters.find", lambda _: Counters({"cycles_user": "page-faults"}, "no walk cycles")
    )
    # New mappings: an allocator could give the same memory again.
    touch = "import mmap, time\nwhile True: mmap.mmap(-1, 1 << 22).write(bytes(1 << 22)); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", touch]) as program:
        with counters.counting([program.pid]) as counted:
            time.sleep(1.5)
        program.kill()
    if not counted.counts:
        pytest.skip("perf may not count here")
    assert counted.counts["cycles_user"] > 100
    assert (counted.walk_share, counted.missing) == (None, "no walk cycles")


def test_walks_are_a_share_of_the_cycles() -> None:
    counts = {"cycles_user": 1000, "load_walk_cycles": 30, "store_walk_cycles": 20}
    assert counters.HardwareCounts(counts, None).walk_share == 0.05
    assert counters.HardwareCounts({"cycles_user": 1000}, "why").walk_share is None
    assert counters.HardwareCounts({"misses": 7, "l1_misses": 9}, "why").misses == 7


@pytest.fixture
def hierarchies(tmp_path: Path) -> Path:
    """Hierarchies as they are mounted on a hybrid system."""
    for folder in ("unified/system.slice/nginx.service", "memory/old/nginx.service", "memory/docker/abc", "cpu/only"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").write_text("0\n17\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\n"
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
        f"cgroup2 {tmp_path}/unified cgroup2 rw 0 0\n"
    )
    return mounts


def test_groups_are_named_by_path_or_by_their_last_part(hierarchies: Path) -> None:
    root = hierarchies.parent
    whole = group_named("system.slice/nginx.service", hierarchies)
    assert (whole.folder, whole.version) == (root / "unified/system.slice/nginx.service", 2)
    assert whole.members() == [17]
    last = group_named("abc", hierarchies)
    assert (last.folder, last.version) == (root / "memory/docker/abc", 1)
    assert group_named("/only", hierarchies).folder == root / "cpu/only"
    assert group_named(str(root / "memory/docker/abc"), hierarchies).members() == [17]


def test_an_unknown_or_ambiguous_group_is_an_error(hierarchies: Path) -> None:
    with pytest.raises(UsageError, match="there is no such group below"):
        group_named("apache.service", hierarchies)
    with pytest.raises(UsageError, match=r"several groups .* old/nginx\.service, system\.slice/nginx\.service"):
        group_named("nginx.service", hierarchies)
    hierarchies.write_text("")
    with pytest.raises(UsageError, match="no hierarchy of control groups is mounted"):
        group_named("a", hierarchies)


@pytest.fixture(params=["memory", "unified"])
def group_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group of this test's own."""
    folder = Path("/sys/fs/cgroup", request.param, f"pagelab-test-{os.getpid()}")
    if not folder.parent.is_dir():
        folder = Path("/sys/fs/cgroup", folder.name)
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield folder
    folder.rmdir()


def test_the_members_of_a_group_are_observed(group_folder: Path) -> None:
    with pytest.raises(UsageError, match="has no process now"):
        Members(group_named(group_folder.name))
    spin = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    program = subprocess.Popen([sys.executable, "-c", spin])
    try:
        (group_folder / "cgroup.procs").write_text(str(program.pid))
        target = Members(group_named(group_folder.name))
        observation = observe(target, Settings(0.8, 0.3, 0.5, True))
    finally:
        program.kill()
        program.wait()
    assert list(observation.pids) == [program.pid]
    assert observation.looks.names[program.pid].startswith("python")
    assert not observation.ended


def test_children_belong_to_their_parents() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 5 & wait"]) as shell:
        give_up = time.monotonic() + 5
        while len(descendants([shell.pid])) < 2 and time.monotonic() < give_up:
            time.sleep(0.01)
        known = descendants([shell.pid])
        for pid in known:
            os.kill(pid, 9)
    assert known[0] == shell.pid
    assert len(known) == 2


def test_the_period_of_samples_follows_the_rate_of_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.observe.events.access", lambda: Access(kernel=True))
    sampler = Sampler()
    periods = []
    for faults, seconds in ((10, 1.0), (7000, 1.0), (7001, 1.0), (100_000, 0.5), (10**9, 1.0), (0, 0.0)):
        sampler.adapt(faults, seconds)
        periods.append(sampler._faults.period)
    assert periods == [7, 7, 11, 211, 20117, 7]
