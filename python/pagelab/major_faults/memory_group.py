"""A memory cgroup for one run of a program: version 1 or 2, whichever has the memory controller here.

Source: Linux Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

import contextlib
import errno
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab.major_faults import MajorFaultError

_PATIENCE_SECONDS = 5
_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True)
class Version:
    """The names of the files in a version's groups."""

    number: int
    limit: str
    peak: str
    events: str
    """Has the number of processes that were killed for lack of memory, in the line `oom_kill`"""
    file: str
    """The line of memory.stat with the bytes of its page cache"""


V1 = Version(1, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control", "cache")
V2 = Version(2, "memory.max", "memory.peak", "memory.events", "file")


@dataclass(frozen=True)
class Hierarchy:
    """Where groups are created."""

    root: Path
    version: Version


@dataclass(frozen=True)
class Group:
    """A cgroup with a limit."""

    path: Path
    version: Version

    @property
    def members(self) -> Path:
        """The file to which a process writes its number to become a member."""
        return self.path / "cgroup.procs"

    def peak_bytes(self) -> int | None:
        """Most memory that was charged at once; none if the kernel does not report it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / self.version.peak).read_text(encoding="ascii"))
        return None

    def file_bytes(self) -> int | None:
        """Page cache that is charged to it now; none if the kernel does not report it."""
        return _field(self.path / "memory.stat", self.version.file)

    def refaults(self) -> int | None:
        """Pages of files that were read again after they had left memory; none if the kernel does not report it."""
        return _field(self.path / "memory.stat", "workingset_refault_file")

    def killed(self) -> bool:
        """Whether a process was ended because the limit left no room."""
        return bool(_field(self.path / self.version.events, "oom_kill"))


def hierarchy(mounts: Path = _MOUNTS) -> Hierarchy:
    """The mounted hierarchy that has the memory controller.

    Raises:
        MajorFaultError: none has it.
    """
    unified = None
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, place, system, options, *_ = line.split()
        if system == "cgroup" and "memory" in options.split(","):
            return Hierarchy(Path(place), V1)
        if system == "cgroup2":
            unified = Path(place)
    if unified is not None:
        controllers = unified / "cgroup.controllers"
        if controllers.is_file() and "memory" in controllers.read_text(encoding="ascii").split():
            return Hierarchy(unified, V2)
    raise MajorFaultError(
        "no hierarchy of cgroups with the memory controller is mounted; mount one: mount -t cgroup2 none "
        "/sys/fs/cgroup, or leave out --memory"
    )


@contextmanager
def limited(limit_bytes: int, within: Hierarchy | None = None) -> Iterator[Group]:
    """A cgroup with this limit. It is removed afterwards, and its remaining processes are killed.

    Raises:
        MajorFaultError: it cannot be created.
    """
    within = within or hierarchy()
    if within.version is V2:
        _delegate(within.root)
    try:
        path = Path(tempfile.mkdtemp(prefix=f"pagelab-{os.getpid()}-", dir=within.root))
    except OSError as error:
        raise MajorFaultError(_refusal(within.root, "no cgroup can be made there", error)) from None
    try:
        try:
            (path / within.version.limit).write_text(str(limit_bytes), encoding="ascii")
        except OSError as error:
            raise MajorFaultError(
                _refusal(path / within.version.limit, f"{limit_bytes:,} bytes are refused", error)
            ) from None
        yield Group(path, within.version)
    finally:
        _remove(path)


def _delegate(root: Path) -> None:
    """Gives the groups below the root the memory controller, if they do not have it."""
    control = root / "cgroup.subtree_control"
    try:
        if "memory" not in control.read_text(encoding="ascii").split():
            control.write_text("+memory", encoding="ascii")
    except OSError as error:
        raise MajorFaultError(_refusal(control, "the memory controller cannot be handed down", error)) from None


def _refusal(path: Path, what: str, error: OSError) -> str:
    text = f"{path}: {what} ({error.strerror})"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{text}: a memory limit needs root and writable cgroups; or leave out --memory"
    return f"{text}; or leave out --memory"


def _field(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, value = line.split()
            if key == name:
                return int(value)
    return None


def _remove(path: Path) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > give_up:
                raise MajorFaultError(
                    f"{path}: the cgroup cannot be removed; end its processes, then rmdir it"
                ) from None
        _end_members(path)
        time.sleep(0.05)


def _end_members(path: Path) -> None:
    """Kills what the program left running: all processes in the group are the program's."""
    with contextlib.suppress(OSError):
        for process in (path / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
