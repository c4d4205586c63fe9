"""How real pages lie together: counts against ones made by hand, mistakes, and a real process if frames are visible."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Pagelab, assert_fails
from hypothesis import given
from hypothesis import strategies as st

from pagelab import PagelabError, UsageError, __version__
from pagelab.host import contiguity
from pagelab.host.contiguity import Contiguity, Measurement, Process, ProcessEndedError, Sample

PRESENT, SWAPPED, GUARD = 1 << 63, 1 << 62, 1 << 58
ZERO_FRAME = 7
PID = 42

# Programs that map memory in known ways and then stop themselves: a stopped process takes no more pages.
ARRAY = """
import mmap, os, signal
memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise({advice})
{touch}
os.kill(os.getpid(), signal.SIGSTOP)
"""


def visible() -> bool:
    try:
        contiguity.find_zero_frame()
    except UsageError:
        return False
    return True


needs_frames = pytest.mark.skipif(not visible(), reason="the kernel hides frame numbers")
needs_hidden_frames = pytest.mark.skipif(visible(), reason="the kernel shows frame numbers")


def naive(entries: dict[int, int]) -> Contiguity:
    """Counts over entries of /proc/PID/pagemap by page number, as one would by hand."""
    groups: dict[int, list[int]] = {}
    zero = swapped = 0
    for page, entry in entries.items():
        frame = entry & (1 << 55) - 1
        if entry & PRESENT and frame == ZERO_FRAME:
            zero += 1
        elif entry & PRESENT:
            groups.setdefault(page // 8, []).append(frame)
        elif entry & SWAPPED and not entry & GUARD:
            swapped += 1
    blocks = [{frame // 8 for frame in frames} for frames in groups.values()]
    full = [len(frames) == 8 for frames in groups.values()]
    return Contiguity(
        groups=len(groups),
        pte_lines=sum(map(len, blocks)),
        full_groups=sum(full),
        contiguous_groups=sum(is_full and len(block) == 1 for is_full, block in zip(full, blocks, strict=True)),
        pages=sum(map(len, groups.values())),
        zero_pages=zero,
        swapped_pages=swapped,
    )


class FakeProc:
    """A folder that looks as /proc does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / str(PID)
        self.folder.mkdir()
        self.entries: dict[int, int] = {}
        self.smaps = ""
        self.pages = 0
        self.stat()

    def stat(self, *, flags: int = 0, started: int = 1000) -> None:
        fields = ["S", *["0"] * 5, str(flags), *["0"] * 12, str(started), "0"]
        (self.folder / "stat").write_text(f"{PID} (a) b (c)) {' '.join(fields)}\n")

    def map(self, begin: int, end: int, access: str = "rw-p", name: str = "", **sizes: int) -> None:
        """Maps pages; sizes in KiB."""
        self.smaps += f"{begin * 4096:08x}-{end * 4096:08x} {access} 00000000 00:00 0 {' ' * 20}{name}\n"
        if access != "---p":
            self.pages = max(self.pages, end)
        lines = {"Size": (end - begin) * 4, "Rss": 4, "Swap": 0, "AnonHugePages": 0} | sizes
        self.smaps += "".join(f"{key}:{value:>16} kB\n" for key, value in lines.items())
        self.smaps += "THPeligible:           0\nVmFlags: rd wr mr mw me ac \n"

    def process(self) -> Process:
        (self.folder / "smaps").write_text(self.smaps)
        # As of a real process, it ends with the address space, whatever group that is in.
        table = [self.entries.get(page, 0) for page in range(self.pages)]
        (self.folder / "pagemap").write_bytes(struct.pack(f"<{self.pages}Q", *table))
        return Process(PID, self.root, ZERO_FRAME)

    def sample(self) -> Contiguity:
        with self.process() as process:
            return process.sample()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_groups_are_counted_as_by_hand(proc: FakeProc) -> None:
    proc.map(16, 48)
    # One block, in any order; then all blocks different; then two pages of one block; then nothing.
    proc.entries |= {16 + n: PRESENT | 800 + (n ^ 5) for n in range(8)}
    proc.entries |= {24 + n: PRESENT | 100 + 16 * n for n in range(8)}
    proc.entries |= {34: PRESENT | 808, 35: PRESENT | 815}
    counted = proc.sample()
    assert counted == Contiguity(groups=3, pte_lines=10, full_groups=2, contiguous_groups=1, pages=18)
    assert counted.pte_lines_per_group == pytest.approx(10 / 3)
    assert counted.full_share == pytest.approx(2 / 3)
    assert counted.contiguous_share == 0.5


def test_eight_adjacent_frames_that_are_not_one_block_take_two_lines(proc: FakeProc) -> None:
    proc.map(8, 16)
    proc.entries |= {8 + n: PRESENT | 804 + n for n in range(8)}
    assert proc.sample() == Contiguity(groups=1, pte_lines=2, full_groups=1, pages=8)


def test_what_is_not_a_page_of_its_own_is_in_no_group(proc: FakeProc) -> None:
    proc.map(8, 32)
    proc.entries |= {8: PRESENT | ZERO_FRAME, 9: SWAPPED | 12345, 10: SWAPPED | GUARD, 11: 1 << 55}
    proc.entries |= {16: PRESENT | ZERO_FRAME, 17: PRESENT | 900}
    assert proc.sample() == Contiguity(groups=1, pte_lines=1, pages=1, zero_pages=2, swapped_pages=1)


def test_only_private_memory_without_a_file_counts(proc: FakeProc) -> None:
    names = ["", "[heap]", "[stack]", "[anon:arena of x]", "/usr/lib/x.so", "[vvar]", "[vdso]", "/memfd:x (deleted)"]
    for number, name in enumerate(names, 1):
        proc.map(number * 8, number * 8 + 8, name=name)
    proc.map(80, 88, access="rw-s")
    proc.entries |= {page: PRESENT | 16 * page for page in range(8, 88)}
    assert proc.sample() == naive({page: entry for page, entry in proc.entries.items() if page < 40})


def test_mappings_may_share_a_group(proc: FakeProc) -> None:
    """A library's pages between two anonymous mappings in one group are left out; the group is counted once."""
    proc.map(10, 19)
    proc.map(19, 21, name="/usr/lib/x.so")
    proc.map(21, 30)
    proc.entries |= {page: PRESENT | 800 + 3 * page for page in range(8, 32)}
    expected = naive({page: entry for page, entry in proc.entries.items() if page in {*range(10, 19), *range(21, 30)}})
    assert proc.sample() == expected
    assert expected.groups == 3


def test_reservations_are_not_read(proc: FakeProc) -> None:
    proc.map(8, 16)
    proc.entries |= {8: PRESENT | 900}
    proc.map(1 << 20, 1 << 34, access="---p", Rss=0)
    assert proc.sample().pages == 1


def test_large_pages_are_those_of_anonymous_memory(proc: FakeProc) -> None:
    proc.map(512, 1536, AnonHugePages=4096)
    proc.map(2048, 2560, name="/usr/lib/x.so", AnonHugePages=2048)
    proc.entries |= {512 + n: PRESENT | 4096 + n for n in range(1024)}
    counted = proc.sample()
    assert counted == Contiguity(128, 128, 128, 128, pages=1024, large_pages=2)


@pytest.mark.parametrize("begin", [512, 504])
def test_the_large_page_of_zeros_is_known_by_its_flags(proc: FakeProc, begin: int) -> None:
    proc.map(begin, 1536)
    frame_of_zeros, another = 1024, 2048
    proc.entries |= {512 + n: PRESENT | frame_of_zeros + n for n in range(512)}
    proc.entries |= {1024 + n: PRESENT | another + n for n in range(512)}
    flags = {frame_of_zeros: 1 << 24 | 1 << 22, another: 1 << 22}
    blind = proc.process()
    assert not blind.huge_zero_known
    assert (blind.sample().pages, blind.sample().zero_pages) == (1024, 0)
    table = struct.pack("<4096Q", *(flags.get(frame, 0) for frame in range(4096)))
    (proc.root / "kpageflags").write_bytes(table)
    with proc.process() as process:
        assert process.huge_zero_known
        assert process.sample() == Contiguity(64, 64, 64, 64, pages=512, zero_pages=512)


@given(
    st.dictionaries(
        st.integers(8, 90),
        st.sampled_from([0, PRESENT, PRESENT, SWAPPED]).flatmap(
            lambda flags: st.integers(1, 40).map(lambda frame: flags | frame)
        ),
    ),
    st.sets(st.integers(8, 90), max_size=8),
    st.sampled_from([512, 8, 24]),
)
def test_any_memory_is_counted_as_by_hand(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[int, int], cuts: set[int], chunk: int
) -> None:
    proc = FakeProc(tmp_path_factory.mktemp("proc"))
    edges = sorted(cuts)
    pages = set()
    for begin, end in zip(edges[::2], edges[1::2], strict=False):
        proc.map(begin, end)
        pages |= {*range(begin, end)}
    proc.map(96, 104)
    proc.entries = entries | {100: PRESENT | 1000}
    pages.add(100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contiguity, "_CHUNK_ENTRIES", chunk)
        assert proc.sample() == naive({page: entry for page, entry in proc.entries.items() if page in pages})


def test_absent_processes_and_kernel_threads_are_named(proc: FakeProc) -> None:
    with pytest.raises(UsageError, match=r"there is no process 43, or .* does not show it"):
        Process(43, proc.root, ZERO_FRAME)
    proc.stat(flags=0x0020_8040)
    with pytest.raises(UsageError, match=re.escape("process 42 (a) b (c)) is a kernel thread")):
        Process(PID, proc.root, ZERO_FRAME)


def test_hidden_frames_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pread", lambda *_: struct.pack("<Q", PRESENT))
    with pytest.raises(UsageError, match=r"hides frame numbers.*CAP_SYS_ADMIN.*sudo pagelab"):
        contiguity.find_zero_frame()


def test_a_kernel_without_pagemap_and_a_process_of_others(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    process = proc.process()
    (proc.folder / "pagemap").unlink()
    with pytest.raises(UsageError, match="CONFIG_PROC_PAGE_MONITOR"):
        process.sample()

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match="run as root"):
        process.sample()


def test_an_ended_process_is_told_from_one_without_pages(proc: FakeProc) -> None:
    proc.map(8, 16)
    assert proc.sample() == Contiguity()
    process = proc.process()
    (proc.folder / "pagemap").write_bytes(b"")
    with pytest.raises(ProcessEndedError, match="process 42 has ended"):
        process.sample()
    process = proc.process()
    proc.stat(started=1001)
    with pytest.raises(ProcessEndedError):
        process.sample()
    proc.stat()
    (proc.folder / "smaps").write_text("")
    with pytest.raises(ProcessEndedError):
        process.sample()


def test_an_exec_is_no_end(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old memory goes between opening its files and reading them."""
    proc.map(8, 16)
    proc.entries |= {8: PRESENT | 900}
    process = proc.process()
    read = os.pread
    answers = [b""]
    monkeypatch.setattr(os, "pread", lambda *where: answers.pop() if answers else read(*where))
    assert process.sample().pages == 1
    assert not answers


def test_looks_go_on_until_the_process_ends(proc: FakeProc) -> None:
    proc.map(8, 16)
    proc.entries |= {8 + n: PRESENT | 800 + n for n in range(8)}
    process = proc.process()
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            (proc.folder / "smaps").write_text("")
        return True

    measurement = contiguity.watch(process, 0.5, repeats=9, pause=pause)
    assert len(measurement.samples) == len(pauses) == 2
    assert all(0.4 < seconds <= 1.0 for seconds in pauses)
    with pytest.raises(PagelabError, match="has ended"):
        contiguity.watch(process, 0.5)
    proc.process()
    assert len(contiguity.watch(process, 0.001, repeats=3).samples) == 3
    assert len(contiguity.watch(process, 1, pause=lambda _: False).samples) == 1
    with pytest.raises(ProcessEndedError):
        contiguity.watch(process, 1, at_once=False, pause=lambda _: False)


def test_spreads_are_quartiles_of_the_samples_that_have_a_value() -> None:
    lines = [10, 20, 30, 40, 80]
    samples = [Sample(n, Contiguity(groups=10, pte_lines=value, pages=90 - n)) for n, value in enumerate(lines)]
    measurement = Measurement(1, "x", [*samples, Sample(9, Contiguity())], True)
    spread = measurement.spread("pte_lines_per_group")
    assert spread is not None
    assert (spread.median, spread.lower_quartile, spread.upper_quartile) == (3, 2, 4)
    assert measurement.spread("contiguous_share") is None
    assert (measurement.peak, measurement.last.seconds) == (samples[0], 9)
    assert measurement.to_dict()["summary"]["pages"]["median"] == np.median([90, 89, 88, 87, 86, 0])


@pytest.fixture
def array(request: pytest.FixtureRequest) -> Iterator[int]:
    """A stopped process with an array of 16 MiB: its number."""
    with subprocess.Popen([sys.executable, "-c", request.param]) as child:
        try:
            seen = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert seen is not None
            assert seen.si_code == os.CLD_STOPPED
            yield child.pid
        finally:
            child.kill()


def by_hand(pid: int) -> Contiguity:
    """A real process's anonymous memory, entry by entry."""
    entries = {}
    zero = contiguity.find_zero_frame()
    with Path(f"/proc/{pid}/pagemap").open("rb") as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split(maxsplit=5)
            if words[1][3] != "p" or (len(words) > 5 and words[5] not in ("[heap]", "[stack]")):
                continue
            begin, end = (int(address, 16) // 4096 for address in words[0].split("-"))
            pagemap.seek(begin * 8)
            for page, (entry,) in enumerate(struct.iter_unpack("<Q", pagemap.read((end - begin) * 8)), begin):
                is_zero = entry & (1 << 55) - 1 == zero
                entries[page] = PRESENT | ZERO_FRAME if is_zero else entry
    return naive(entries)


EVERY_PAGE = ARRAY.format(advice="mmap.MADV_NOHUGEPAGE", touch="for n in range(0, 16 << 20, 4096): memory[n] = 1")
HALF = ARRAY.format(advice="mmap.MADV_NOHUGEPAGE", touch="for n in range(0, 16 << 20, 8192): memory[n] = 1")
READ = ARRAY.format(advice="mmap.MADV_NOHUGEPAGE", touch="sum(memory[::4096])")


@needs_frames
@pytest.mark.parametrize("array", [EVERY_PAGE, HALF, READ], ids=["every page", "half", "read"], indirect=True)
def test_a_real_process_is_counted_as_by_hand(array: int, request: pytest.FixtureRequest) -> None:
    counted = contiguity.measure(array)
    assert counted == by_hand(array)
    pages, zero_pages, full = {"every": (4096, 0, 512), "half": (2048, 0, 0), "read": (0, 4096, 0)}[
        request.node.name.partition("[")[2].rstrip("]").split()[0]
    ]
    # What the interpreter itself takes is a few megabytes.
    assert 0 <= counted.pages - pages < 3000
    assert zero_pages <= counted.zero_pages < zero_pages + 100
    assert 0 <= counted.full_groups - full < 400


@needs_frames
def test_the_command_follows_a_program_and_passes_its_status_on(pagelab: Pagelab, tmp_path: Path) -> None:
    program = "import time; data = bytearray(8 << 20); print('hello'); time.sleep(0.6); raise SystemExit(7)"
    arguments = ("contiguity", "-i", "0.1", "--json", "out.json", "--", sys.executable, "-c", program)
    process = pagelab(*arguments)
    assert (process.returncode, process.stdout) == (7, "hello\n")
    assert "lines of PTEs per group" in process.stderr
    assert "the program ended with status 7" in process.stderr
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["version"] == __version__
    assert len(result["samples"]) >= 3
    assert result["samples"][-1]["pages"] >= 2048
    assert result["peak"]["pages"] == max(sample["pages"] for sample in result["samples"])
    assert 1 <= result["summary"]["pte_lines_per_group"]["median"] <= 8
    killed = pagelab("contiguity", "-i", "0.1", "--", "sh", "-c", "sleep 0.5; kill -9 $$")
    assert killed.returncode == 137
    assert_fails(pagelab("contiguity", "--", "true"), 1, "true ended within 1 s", "--interval")
    assert_fails(pagelab("contiguity", "--", "no-such-program"), 2, "no-such-program")


@needs_frames
@pytest.mark.parametrize("array", [EVERY_PAGE], ids=[""], indirect=True)
def test_the_command_looks_at_a_process(pagelab: Pagelab, array: int) -> None:
    process = pagelab("contiguity", str(array), "--repeats", "3", "--interval", "0.01", "--json", "-")
    result = json.loads(process.stdout)
    assert (result["pid"], len(result["samples"])) == (array, 3)
    spread = result["summary"]["pages"]
    assert spread["lower_quartile"] == spread["median"] == spread["upper_quartile"] >= 4096
    table = pagelab("contiguity", str(array))
    assert table.returncode == 0, table.stderr
    assert re.search(r"groups of 8 pages +[\d,]+\n", table.stdout)
    assert_fails(pagelab("contiguity", "999999999"), 2, "there is no process 999999999")
    assert_fails(pagelab("contiguity", "--repeats", "2", "--", "true"), 2, "--repeats")


@needs_hidden_frames
def test_the_command_says_that_frames_are_hidden(pagelab: Pagelab) -> None:
    assert_fails(pagelab("contiguity", str(os.getpid())), 2, "frame numbers", "sudo pagelab contiguity")
    assert_fails(pagelab("contiguity", "--", "touch", "file"), 2, "frame numbers")
