"""Acquisitions of locks that a guest counts: what its kernel prints, kernels that do not count, CPUs that stay put."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pagelab import UsageError
from pagelab_linux import LinuxError, lock_counts
from pagelab_linux.build import Variant, ensure_configured
from pagelab_linux.guest import Machine
from pagelab_linux.layout import layout
from pagelab_linux.lock_counts import LockCount, counted
from pagelab_linux.pinning import Pinning
from pagelab_linux.report import parse

HEAD = "PAGELAB kernel 6.12.117-pagelab\r\nPAGELAB begin 1 count_locks,fault_loops,one,threads,2,8\r\n"
VERSION = "lock_stat version 0.4\r\n"
TABLE = (
    " class name con-bounces contentions waittime-min waittime-max waittime-total waittime-avg acq-bounces acquisitions"
    " holdtime-min holdtime-max holdtime-total holdtime-avg\r\n"
    " &mm->mmap_lock-W: 0 0 0.00 0.00 0.00 0.00 1 2 1.00 2.00 3.00 1.50\r\n"
    " &mm->mmap_lock-R: 3 5 0.10 9.00 12.00 2.40 7 40 1.00 2.00 3.00 1.50\r\n"
    " ---------------\r\n"
    " &mm->mmap_lock 5 [<0000000081f3c1a2>] lock_mm_and_find_vma+0x42/0x200\r\n"
    " ptlock_ptr(ptdesc): 90 100 0.10 9.00 12.00 0.12 7 4096 1.00 2.00 3.00 1.50\r\n"
    " ptlock_ptr(ptdesc)#2/1: 9 10 0.10 9.00 12.00 1.20 7 4 1.00 2.00 3.00 1.50\r\n"
    " key#2: 0 0 0.00 0.00 0.00 0.00 7 128 1.00 2.00 3.00 1.50\r\n"
    " &vma->vm_lock->lock-W: 0 1 0.00 0.00 0.00 0.00 7 3 1.00 2.00 3.00 1.50\r\n"
    " &vma->vm_lock->lock-R: 0 0 0.00 0.00 0.00 0.00 7 4100 1.00 2.00 3.00 1.50\r\n"
    " &zone->lock: 0 0 0.00 0.00 0.00 0.00 7 66 1.00 2.00 3.00 1.50\r\n"
    " (&timer.timer): 1 20 0.10 9.00 12.00 0.60 7 90 1.00 2.00 3.00 1.50\r\n"
    " &rq->__lock: 1 30 0.10 9.00 12.00 0.40 7 90 1.00 2.00 3.00 1.50\r\n"
)
VALUES = (
    "before_vma_lock_abort=7\r\nbefore_vma_lock_retry=1\r\nbefore_vma_lock_miss=0\r\n"
    "after_vma_lock_abort=11\r\nafter_vma_lock_retry=1\r\nafter_vma_lock_miss=2\r\nresult=403396 0.999 1.0000\r\n"
)
END = "PAGELAB end 1 status=0\r\nPAGELAB tainted 0\r\nPAGELAB done\r\n"


def parsed(text: str) -> lock_counts.Counted:
    return counted(parse(HEAD + text + END).steps[0])


def test_classes_are_counted_by_lock_and_mode() -> None:
    result = parsed(VALUES + VERSION + TABLE)
    assert result.result == "403396 0.999 1.0000"
    counts = {kind: result.count(name) for kind, name in lock_counts.KINDS.items()}
    assert counts == {
        "mmap_read": LockCount(40, 5),
        "mmap_write": LockCount(2, 0),
        "vma": LockCount(4100, 0),
        # Those of all versions and levels of a class.
        "page_table": LockCount(4100, 110),
        "zone": LockCount(66, 0),
        "vma_write": LockCount(3, 1),
        "lru": LockCount(0, 0),
        "rss": LockCount(128, 0),
    }
    assert list(result.others().items()) == [("&rq->__lock", LockCount(90, 30)), ("(&timer.timer)", LockCount(90, 20))]


def test_faults_without_the_lock_of_their_mapping_are_those_of_the_run() -> None:
    assert parsed(VALUES + VERSION + TABLE).fallbacks == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VALUES + TABLE, "one,threads,2,8: printed no line lock_stat version 0.4"),
        (VALUES + "lock_stat version 0.5\r\n" + TABLE, "printed no line lock_stat version 0.4"),
        (VALUES + VERSION + "*WARNING* lock debugging disabled!!\r\n" + TABLE, "has stopped counting locks"),
        (
            VALUES + VERSION + TABLE.replace("ptlock", "other"),
            r"no acquisition of ptlock_ptr\(ptdesc\), which each fault",
        ),
        (VERSION + TABLE, "its last argument"),
    ],
)
def test_other_counts_are_refused(text: str, message: str) -> None:
    with pytest.raises(LinuxError, match=message):
        parsed(text)


def test_a_kernel_that_does_not_count_is_named() -> None:
    """The script as the guest runs it, on a kernel without the counts: that of this machine."""
    if Path("/proc/lock_stat").exists():
        pytest.skip("this machine's kernel counts acquisitions")
    script = layout().tests / "count_locks"
    done = subprocess.run(["sh", script, "fault_loops", "one"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    output = parse(f"{HEAD}{done.stdout}PAGELAB end 1 status=1\nPAGELAB tainted 0\nPAGELAB done\n")
    assert output.problems() == [
        "count_locks,fault_loops,one,threads,2,8: status 1, this kernel does not count acquisitions of locks: it is "
        "built without CONFIG_LOCK_STAT"
    ]


def test_the_kernel_that_counts_is_one_of_its_own() -> None:
    counting = Variant(plain=True, locks=True)
    assert counting.name == "plain-locks"
    assert len({counting.suffix, Variant(plain=True, debug=True).suffix, Variant(plain=True).suffix}) == 3
    fragments = layout().fragments(plain=True, debug=False, locks=True)
    assert [path.name for path in fragments] == ["base.config", "locks.config"]
    with pytest.raises(LinuxError, match=r"locks.config: asks for CONFIG_LOCK_STAT=y, .* has n"):
        ensure_configured("CONFIG_DEBUG_KERNEL=y\n", fragments[1:])


PINNED = Machine(cpus=2, at_once=True, pinned=True)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (replace(PINNED, at_once=False), "pinned CPUs are those that tcg emulates at once"),
        (replace(PINNED, before=("perf", "stat")), "without a command before QEMU"),
        (replace(PINNED, cpus=3), "3 CPUs, each on one of the host's: this process may use 2 CPUs"),
    ],
)
def test_cpus_that_cannot_stay_are_refused(machine: Machine, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    PINNED.check()
    with pytest.raises(UsageError, match=message):
        machine.check()


@pytest.fixture
def emulator() -> Iterator[subprocess.Popen[str]]:
    """A process with a busy thread that has the name of an emulated CPU's."""
    script = (
        "import sys, threading\n"
        "done = threading.Event()\n"
        "def run():\n"
        "    open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w').write('CPU 0/TCG')\n"
        "    print(threading.get_native_id(), flush=True)\n"
        "    while not done.is_set(): pass\n"
        "threading.Thread(target=run).start()\n"
        "sys.stdin.read()\n"
        "done.set()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate()


def test_an_emulated_cpu_gets_a_cpu_of_its_own(emulator: subprocess.Popen[str]) -> None:
    assert emulator.stdout
    thread = int(emulator.stdout.readline())
    usable = os.sched_getaffinity(0)
    pinning = Pinning(1)
    pinning.begin(emulator.pid)
    deadline = time.monotonic() + 30
    while os.sched_getaffinity(thread) != {min(usable)} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert os.sched_getaffinity(thread) == {min(usable)}
    assert os.sched_getaffinity(emulator.pid) == usable
    emulator.communicate()
    pinning.check()


def test_time_without_the_cpu_is_told(emulator: subprocess.Popen[str]) -> None:
    """A thread that shares its CPU with one that never sleeps waits for about half of its time, or for more of it."""
    assert emulator.stdout
    emulator.stdout.readline()
    usable = min(os.sched_getaffinity(0))
    loop = f"import os\nos.sched_setaffinity(0, {{{usable}}})\nwhile True: pass"
    pinning = Pinning(1)
    pinning.begin(emulator.pid)
    with subprocess.Popen([sys.executable, "-c", loop]) as other:
        time.sleep(1.5)
        other.kill()
    emulator.communicate()
    assert 0.2 < pinning.waited() < 1


def test_an_emulated_cpu_that_is_not_found_is_named(emulator: subprocess.Popen[str]) -> None:
    assert emulator.stdout
    emulator.stdout.readline()
    pinning = Pinning(2)
    pinning.begin(emulator.pid)
    emulator.communicate()
    with pytest.raises(LinuxError, match=r"CPU 1 of the guest did not get a CPU of the host"):
        pinning.check()
