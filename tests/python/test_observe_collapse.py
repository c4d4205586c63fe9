"""`pagelab observe --try`: huge pages in a running process, and what of them is refused."""

import ctypes
import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab.observe import collapse
from pagelab.observe.collapse import chosen, ensure_mapped, ensure_valid
from pagelab.observe.mappings import mappings
from pagelab.observe.regions import Amounts, Region
from pagelab.observe.verdict import Judgement, Kind
from pagelab.quantities import size_text

MIB = 1 << 20
SOURCE = Path(__file__).with_name("observed.c")


def judged(begin: int, kind: Kind, *, anonymous: bool = True) -> Judgement:
    looks = {0: Amounts(resident=4 * MIB)}
    region = Region(1, "anonymous memory", begin, begin + 4 * MIB, anonymous, "rw-p", "", looks=looks)
    return Judgement(region, kind, (), None, None, (), 0, 0)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    program = tmp_path / "observed"
    subprocess.run(["gcc", "-O1", "-o", program, SOURCE], check=True)
    started = []

    def start(mode: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([program, mode, "60"])
        started.append(process)
        time.sleep(1)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_mappings_are_chosen_by_verdict_or_address() -> None:
    worth, nothing = judged(16 * MIB, Kind.WORTH_A_RECORDING), judged(32 * MIB, Kind.NOTHING)
    file = judged(64 * MIB, Kind.WORTH_A_RECORDING, anonymous=False)
    everything = [worth, nothing, file]
    assert chosen(["worth"], everything) == [worth.region]
    assert chosen([hex(33 * MIB), "worth"], everything) == [nothing.region, worth.region]
    for word in (hex(64 * MIB), hex(20 * MIB)):
        with pytest.raises(UsageError, match="no anonymous mapping of 2 MiB or more is there"):
            chosen([word], everything)
    with pytest.raises(UsageError, match="no mapping is worth a recording"):
        chosen(["worth"], [nothing])
    with pytest.raises(UsageError, match="takes `worth` or an address"):
        ensure_valid(["everything"])


def test_an_address_where_nothing_is_is_refused_before_the_observation(
    pagelab: Pagelab, running: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    process = running("plain")
    (large,) = (one for one in mappings(process.pid) if one.anonymous and one.size >= 16 * MIB)
    ensure_mapped(["worth", hex(large.begin + 4096)], [process.pid])
    begin = time.monotonic()
    # It would last an hour.
    done = pagelab("observe", str(process.pid), "-t", "3600", "--try", "worth", "--try", "0x1000")
    assert_fails(done, 2, "no anonymous mapping of 2 MiB or more is there")
    assert time.monotonic() - begin < 60


def test_huge_pages_are_made_and_compared(
    pagelab: Pagelab, running: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = running("plain")
    done = pagelab(
        "observe", str(process.pid), "-t", "1.5", "-i", "0.3", "--budget", "50%", "--try", "worth", "--json", "t.json"
    )
    if "CAP_SYS_NICE" in done.stderr:
        pytest.skip("this user may not advise other processes")
    assert done.returncode == 0, done.stderr
    trial = json.loads((tmp_path / "t.json").read_text())["trial"]
    (made,) = trial["collapses"]
    if made["refusals"] and not made["huge_after"]:
        pytest.skip(f"the kernel made no huge pages: {made['refusals']}")
    # khugepaged may have come first to a part: by default it scans 16 MiB in ten seconds.
    before = made["huge_before"]
    assert before <= 32 * MIB
    assert before % (2 * MIB) == 0
    assert made["huge_after"] == 64 * MIB
    assert made["resident_before"] == made["resident_after"] == 64 * MIB
    assert 0 < made["cpu_seconds"] <= made["seconds"]
    huge = next(one for one in trial["differences"] if one["name"].startswith("huge memory"))
    assert 64 * MIB - before <= huge["change"]["value"] <= 64 * MIB
    assert huge["changed"]
    assert f"{size_text(before)} in huge pages before, 64 MiB after" in " ".join(done.stdout.split())
    assert process.poll() is None


def test_memory_that_is_marked_stays_as_it_is(running: Callable[[str], subprocess.Popen[bytes]]) -> None:
    process = running("hot")
    begin = next(one.begin for one in mappings(process.pid) if one.size == 64 * MIB)
    region = Region(process.pid, "", begin, begin + 64 * MIB, True, "rw-p", "")
    try:
        made = collapse.collapse(region)
    except UsageError as error:
        pytest.skip(str(error))
    assert made.huge_after == 0
    # 64 MiB in calls of 32 MiB.
    assert made.refusals == {collapse._reason(errno.EINVAL): 2}


def test_rights_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "_advise", lambda *_: errno.EPERM)
    memory = ctypes.create_string_buffer(8 * MIB)
    begin = ctypes.addressof(memory)
    with pytest.raises(UsageError, match="CAP_SYS_NICE"):
        collapse.collapse(Region(os.getpid(), "", begin, begin + 8 * MIB, True, "rw-p", ""))


def test_only_running_processes_are_tried(pagelab: Pagelab) -> None:
    assert_fails(pagelab("observe", "--try", "worth", "--", "true"), 2, "--try is for running processes")
    assert_fails(pagelab("observe", "--try", "everything", "1"), 2, "--try takes `worth` or an address")
