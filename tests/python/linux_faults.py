"""The minor faults of this machine's kernel: counted by wait4, located by perf."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_THP_DISABLE = 41
ADDR_NO_RANDOMIZE = 0x0040000

# Starts a program with or without large pages, at fixed or random addresses; it inherits both over fork and exec.
# Started by vfork, it costs one fault before it execs, on the stack that posix_spawn gives it.
_STEADY = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
if sys.argv.pop(1) == "small":
    assert libc.prctl({PR_SET_THP_DISABLE}, 1, 0, 0, 0) == 0
if sys.argv.pop(1) == "fixed":
    libc.personality({ADDR_NO_RANDOMIZE})
os.environ.pop("LC_CTYPE", None)
"""
_COUNT = """
null = os.open(os.devnull, os.O_WRONLY)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
_, status, usage = os.wait4(child, 0)
assert status == 0, status
print(usage.ru_minflt, usage.ru_majflt)
"""
_EXECUTE = """
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Native:
    """Faults of a command, its children included; medians of several runs."""

    minor: int
    """ru_minflt"""
    major: int
    """ru_majflt"""
    least: int
    """Smallest number of minor faults"""
    most: int
    """Largest number of minor faults"""


@dataclass
class Located:
    """Where a command's minor faults were; perf does not see those of get_user_pages (mm_account_fault)."""

    count: int = 0
    in_kernel: int = 0
    """Of these, taken by the kernel's own accesses: system-call buffers, elf_load"""
    file_pages: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By path and page of the file"""
    others: Counter[str] = field(default_factory=Counter)
    """By perf's name of the mapping, `//anon`, `[heap]`, `[stack]`, `[vdso]` …"""
    mappings: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Address of the first mapping by program, path and file offset"""


def transparent_large_pages() -> str:
    """What this machine's kernel is set to: always, madvise or never."""
    text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    chosen = re.search(r"\[(\w+)\]", text)
    assert chosen, text
    return chosen[1]


def measure(
    command: Sequence[str],
    environment: Mapping[str, str],
    runs: int = 3,
    *,
    large_pages: bool = False,
    random_addresses: bool = False,
) -> Native:
    """Runs `command` once to bring its files into the page cache, then `runs` times.

    Without transparent huge pages, or with `large_pages` as the machine is set to. At fixed addresses, or with
    `random_addresses` at others in each run, as programs are started by default.
    """
    how = ["large" if large_pages else "small", "random" if random_addresses else "fixed"]
    counts = [_count(command, environment, how) for _ in range(runs + 1)][1:]
    minor = [counted[0] for counted in counts]
    return Native(
        minor=int(statistics.median(minor)),
        major=int(statistics.median(counted[1] for counted in counts)),
        least=min(minor),
        most=max(minor),
    )


def _count(command: Sequence[str], environment: Mapping[str, str], how: Sequence[str]) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", _STEADY + _COUNT, *how, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    minor, major = done.stdout.split()
    return int(minor), int(major)


def locate(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Located | None:
    """Runs `command` once more and samples each minor fault; none where perf is missing or not allowed."""
    data = folder / "faults.perf"
    options = ["--quiet", "--event=minor-faults", "--count=1", "--data", "--mmap-pages=4M", f"--output={data}"]
    try:
        recorded = subprocess.run(
            [sys.executable, "-c", _STEADY + _EXECUTE, "small", "fixed", "perf", "record", *options, "--", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        script = subprocess.run(
            ["perf", "script", f"--input={data}", "--fields=pid,addr,ip", "--show-task-events", "--show-mmap-events"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    if recorded.returncode != 0 or script.returncode != 0:
        return None
    return _attribute(script.stdout)


_EXEC = re.compile(r"\s*(\d+) PERF_RECORD_COMM exec:")
_FORK = re.compile(r"\s*\d+ PERF_RECORD_FORK\((\d+):\d+\):\((\d+):")
_MMAP = re.compile(
    r"\s*(\d+) PERF_RECORD_MMAP2? \d+/\d+: \[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+) .*?\]: .{4} (.*)"
)
_SAMPLE = re.compile(r"\s*(\d+)\s+([0-9a-f]+)\s+([0-9a-f]+)")


@dataclass
class _Image:
    """What a process executes and the mappings it made, the last one first."""

    program: str = ""
    mappings: list[tuple[int, int, int, str]] = field(default_factory=list)


def _attribute(script: str) -> Located:
    located = Located()
    images: dict[int, _Image] = {}
    for line in script.splitlines():
        if match := _EXEC.match(line):
            images[int(match[1])] = _Image()
        elif match := _FORK.match(line):
            parent = images.get(int(match[2]), _Image())
            images[int(match[1])] = _Image(parent.program, parent.mappings.copy())
        elif match := _MMAP.match(line):
            image = images.setdefault(int(match[1]), _Image())
            start, length, offset = (int(match[group], 16) for group in (2, 3, 4))
            name = match[5]
            image.mappings.insert(0, (start, start + length, offset, name))
            if _is_file(name):
                image.program = image.program or name
                located.mappings.setdefault((image.program, name, offset), start)
        elif "PERF_RECORD" not in line and (match := _SAMPLE.match(line)):
            address, instruction = int(match[2], 16), int(match[3], 16)
            located.count += 1
            located.in_kernel += instruction >> 63
            mappings = images.get(int(match[1]), _Image()).mappings
            mapped = next((mapping for mapping in mappings if mapping[0] <= address < mapping[1]), None)
            if mapped is not None and _is_file(mapped[3]):
                located.file_pages[mapped[3], (address - mapped[0] + mapped[2]) >> 12] += 1
            else:
                located.others[mapped[3] if mapped else "unknown"] += 1
    return located


def _is_file(name: str) -> bool:
    return name.startswith("/") and not name.startswith("//")
