"""The control groups of this machine: where a name is, and which processes it has.

Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cgroups.rst of Linux.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError

_MOUNTS = Path("/proc/self/mounts")
_MOST_FOLDERS = 20_000


@dataclass(frozen=True)
class Group:
    """A control group."""

    name: str
    folder: Path
    version: int

    def members(self) -> list[int]:
        """The processes in it and in the groups below it; none if it has gone."""
        numbers: dict[int, None] = {}
        for folder, _, files in os.walk(self.folder):
            if "cgroup.procs" in files:
                try:
                    text = (Path(folder) / "cgroup.procs").read_text(encoding="ascii")
                except OSError:
                    continue
                numbers.update(dict.fromkeys(map(int, text.split())))
        # 0 stands for a process of another PID namespace.
        return [number for number in numbers if number]

    @property
    def pressure(self) -> Path | None:
        """Its file of memory pressure; version 1 has none."""
        path = self.folder / "memory.pressure"
        return path if path.is_file() else None


def group_named(name: str, mounts: Path = _MOUNTS) -> Group:
    """The group of a name: a path below a hierarchy, a whole path, or the last part of one, such as `nginx.service`.

    Raises:
        UsageError: there is none, or more than one.
    """
    hierarchies = list(_hierarchies(mounts))
    if not hierarchies:
        raise UsageError("no hierarchy of control groups is mounted here, so --cgroup names nothing: give PIDs")
    for root, version in hierarchies:
        folder = Path(name) if name.startswith(str(root)) else root / name.strip("/")
        if (folder / "cgroup.procs").is_file():
            return Group(name, folder, version)
    # The same group has the same path in several hierarchies of version 1.
    named: dict[str, Group] = {}
    for root, version in hierarchies:
        for folder in _folders_named(root, name):
            named.setdefault(str(folder.relative_to(root)), Group(name, folder, version))
    if len(named) == 1:
        return next(iter(named.values()))
    if named:
        raise UsageError(
            f"--cgroup {name}: several groups have this name; give one of them: {', '.join(sorted(named))}"
        )
    places = ", ".join(str(root) for root, _ in hierarchies[:3])
    raise UsageError(f"--cgroup {name}: there is no such group below {places}; `systemd-cgls` lists groups")


def _hierarchies(mounts: Path) -> Iterator[tuple[Path, int]]:
    """Where hierarchies are mounted, that of version 2 first, and then those that manage memory."""
    unified: list[tuple[Path, int]] = []
    memory: list[tuple[Path, int]] = []
    others: list[tuple[Path, int]] = []
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, place, system, options, *_ = line.split()
        if system == "cgroup2":
            unified.append((Path(place), 2))
        elif system == "cgroup":
            (memory if "memory" in options.split(",") else others).append((Path(place), 1))
    yield from (*unified, *memory, *others)


def _folders_named(root: Path, name: str) -> Iterator[Path]:
    if "/" in name:
        return
    for number, (folder, names, _) in enumerate(os.walk(root)):
        if name in names:
            yield Path(folder) / name
        if number > _MOST_FOLDERS:
            return
