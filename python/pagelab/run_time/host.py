"""Properties of the machine and of a program that measurements depend on."""

import os
import platform
import resource
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError

_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_INTERPRETERS = 4
"""How often a script's interpreter may be a script itself (fs/exec.c of Linux)"""


@dataclass(frozen=True)
class Machine:
    """The machine that measures."""

    kernel: str
    cpu_model: str
    vendor: str
    """`GenuineIntel`, `AuthenticAMD` or another text of cpuid."""
    clock_mhz: float
    """From /proc/cpuinfo, for the CPU with the highest one."""
    cpus: int
    virtualised: bool
    huge_pages: str
    """Which memory Linux gives transparent huge pages: `always`, `madvise` or `never`."""
    load: float
    """Programs that ran or waited in the last minute, on average."""


def machine() -> Machine:
    """A description of this machine."""
    info = _cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return Machine(
        kernel=f"{platform.system()} {platform.release()}",
        cpu_model=info.get("model name", "unknown"),
        vendor=info.get("vendor_id", "unknown"),
        clock_mhz=float(info.get("cpu MHz", 0)),
        cpus=len(os.sched_getaffinity(0)),
        virtualised="hypervisor" in info.get("flags", "").split(),
        huge_pages=_chosen(_THP),
        load=os.getloadavg()[0],
    )


def _cpuinfo(text: str) -> dict[str, str]:
    """The first CPU's facts, with the highest clock of all."""
    rows = [line.partition(":") for line in text.splitlines()]
    pairs = [(key.strip(), value.strip()) for key, _, value in rows]
    clocks = [float(value) for key, value in pairs if key == "cpu MHz"]
    return {**dict(reversed(pairs)), **({"cpu MHz": str(max(clocks))} if clocks else {})}


def _chosen(path: Path) -> str:
    """The word in brackets; `never` if the kernel has no huge pages."""
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return "never"
    return text.partition("[")[2].partition("]")[0] or "never"


def pool_bytes() -> int:
    """How large a heap to request: far more than programs use, and no more than the kernel promises."""
    memory = _amounts(Path("/proc/meminfo").read_text(encoding="ascii"))
    strict = Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "2"
    whole = memory["CommitLimit"] // 4 if strict else 3 * memory["MemTotal"] // 4
    # A heap that may not grow would be no heap at all.
    limits = [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min([whole, *(limit // 2 for limit in limits if limit != resource.RLIM_INFINITY)]) >> 21 << 21


def available_bytes() -> int:
    """How much memory programs could allocate now without swapping."""
    return _amounts(Path("/proc/meminfo").read_text(encoding="ascii"))["MemAvailable"]


def _amounts(text: str) -> Mapping[str, int]:
    """Bytes by name, of files like /proc/meminfo."""
    words = (line.split() for line in text.splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in words if parts[2:] == ["kB"]}


def refusal(program: str) -> str | None:
    """Why layouts cannot be given to a program; none if they can.

    Raises:
        UsageError: there is no such program.
    """
    located = shutil.which(program)
    if not located:
        if Path(program).is_file():
            raise UsageError(f"{program} is not executable; name a program after --")
        raise UsageError(f"there is no program {program!r}; name one after --")
    path = Path(located)
    for _ in range(_INTERPRETERS):
        if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid():
            return f"{path} runs with another user's rights, for which the dynamic linker loads nothing"
        interpreter = _interpreter(path)
        if interpreter is None:
            return _binary_refusal(path)
        located = shutil.which(interpreter)
        if not located:
            raise UsageError(f"{path}: its interpreter {interpreter} is not there")
        path = Path(located)
    return f"{path} is a script of a script of a script"


def _interpreter(path: Path) -> str | None:
    """The interpreter of a script; for `/usr/bin/env NAME` the name. None if it is not a script."""
    with path.open("rb") as file:
        first = file.readline(256)
    if not first.startswith(b"#!"):
        return None
    words = [word for word in os.fsdecode(first[2:]).split() if not word.startswith("-")]
    return words[1] if words[1:] and words[0].endswith("/env") else next(iter(words), "/bin/sh")


def _binary_refusal(path: Path) -> str | None:
    # Only measurements need it, and the command line must answer soon.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf.get_machine_arch() != "x64":
                return f"{path} is a program for {elf.get_machine_arch()}, not for 64-bit x86"
            loaders = [part.get_interp_name() for part in elf.iter_segments() if isinstance(part, InterpSegment)]
    except ELFError:
        return f"{path} is not a Linux program"
    if not loaders:
        return f"{path} is linked statically, so nothing can be loaded into it"
    if "musl" in loaders[0]:
        return f"{path} is linked with musl, whose allocator has no such settings"
    return None
