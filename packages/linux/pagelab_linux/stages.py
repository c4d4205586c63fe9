"""Assigns functions of the kernel to stages of a fault: `kernel/plugin/stages.toml`, applied to a System.map.

Source: mm/memory.c, mm/page_alloc.c, arch/x86/mm/fault.c and arch/x86/entry/entry_64.S of Linux 6.12.
Parameters: the table.
Deviations: a symbol stands for all that the compiler inlined into it.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab_linux import LinuxError
from pagelab_linux.layout import read_toml

STAGES = ("entry", "lookup", "walk", "allocation", "zeroing", "charge", "rmap", "lru", "install", "return")
STORAGE = "storage"
"""Stage that the model's faults do not have: the block layer reads missing pages"""
OTHER = "other"
"""Stage of functions that the table does not name"""
ALL_STAGES = (*STAGES, STORAGE, OTHER)
NO_KIND = "none of these"
_ROLES = {"fault": 1, "interrupt": 2, "switch": 3}
_APPENDED = re.compile(r"(\.(isra|constprop|part|cold|llvm)(\.\d+)*|\.\d+)+$")
_MOST_MET = 64


@dataclass(frozen=True)
class Kind:
    """The name of a kind of faults, which call some functions and not others."""

    name: str
    met: Sequence[str]
    never: Sequence[str]
    ours: bool = False
    """Whether it names functions of ours, which the plain kernel lacks"""


@dataclass(frozen=True)
class Function:
    """A function of the kernel's text; names at one address are one."""

    start: int
    end: int
    names: Sequence[str]


@dataclass(frozen=True)
class StageTable:
    """The table."""

    path: Path
    stages: Mapping[str, str]
    whole: frozenset[str]
    after: Mapping[str, str]
    helpers: frozenset[str]
    roles: Mapping[str, Sequence[str]]
    kinds: Sequence[Kind]

    @property
    def markers(self) -> list[str]:
        """Functions that kinds name, by the number of their bit."""
        return sorted({name for kind in self.kinds for name in (*kind.met, *kind.never)})

    def kind(self, met: int) -> str:
        """The kind of a fault that called the functions of these bits."""
        names = {name for bit, name in enumerate(self.markers) if met >> bit & 1}
        for kind in self.kinds:
            if names.issuperset(kind.met) and names.isdisjoint(kind.never):
                return kind.name
        return NO_KIND

    def symbols(self, functions: Sequence[Function]) -> str:
        """The plugin's input.

        Raises:
            LinuxError: the kernel lacks functions that are needed to recognise faults.
        """
        bits = {name: bit for bit, name in enumerate(self.markers)}
        here = {name for function in functions for name in function.names}
        needed = {name for kind in self.kinds if not kind.ours for name in (*kind.met, *kind.never)}
        missing = sorted((needed | set(self.roles["fault"])) - here)
        if missing:
            raise LinuxError(
                f"{self.path}: this kernel has no function {', '.join(missing)}, which kinds or roles name; it may "
                "be inlined: name another one"
            )
        lines = [f"pagelab-fault-symbols 1 {len(ALL_STAGES)}"]
        lines += [self._line(function, bits) for function in functions]
        return "\n".join(lines) + "\n"

    def _line(self, function: Function, bits: Mapping[str, int]) -> str:
        known = (name for name in function.names if name in self.stages or name in self.helpers)
        name = next(known, function.names[0])
        stage = -1 if name in self.helpers else ALL_STAGES.index(self.stages.get(name, OTHER))
        after = ALL_STAGES.index(self.after[name]) if name in self.after else -1
        role = next((_ROLES[role] for role, names in self.roles.items() if _matches(function.names, names)), 0)
        met = next((bits[each] for each in function.names if each in bits), -1)
        return f"{function.start:x} {function.end:x} {stage} {int(name in self.whole)} {after} {role} {met} {name}"


def load(path: Path) -> StageTable:
    """The table of a file.

    Raises:
        LinuxError: the file is wrong; the message says what is right.
    """
    document = read_toml(path)
    try:
        plain, whole = _by_function(document["stages"], path), _by_function(document["whole"], path)
        kinds = [
            Kind(each["name"], each["met"], each.get("never", []), each.get("ours", False)) for each in document["kind"]
        ]
        table = StageTable(
            path,
            plain | whole,
            frozenset(whole),
            dict(document["after"]),
            frozenset(document["helpers"]["names"]),
            {role: document["roles"][role] for role in _ROLES},
            kinds,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise LinuxError(
            f"{path}: {error}: it must have tables roles (fault, interrupt, switch), stages, whole, after, helpers "
            "(names) and [[kind]] (name, met)"
        ) from None
    twice = sorted((plain.keys() & whole.keys()) | (table.helpers & table.stages.keys()))
    if twice:
        raise LinuxError(f"{path}: {', '.join(twice)}: named twice; a function has one stage, or is a helper")
    known = (*STAGES, STORAGE)
    unknown = sorted({*table.stages.values(), *table.after.values()} - {*known})
    if unknown:
        raise LinuxError(f"{path}: no stage is called {', '.join(unknown)}; there are {', '.join(known)}")
    if len(table.markers) > _MOST_MET:
        raise LinuxError(f"{path}: kinds name {len(table.markers)} functions; at most {_MOST_MET} can be told apart")
    return table


def functions(system_map: Path) -> list[Function]:
    """The functions of a kernel, in the order of their addresses. One ends where the next begins.

    Raises:
        LinuxError: the file is missing or not a System.map.
    """
    try:
        lines = system_map.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise LinuxError(f"{system_map}: no such file; it belongs to the kernel's build") from None
    names: dict[int, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"([0-9a-f]{8,16}) (\S) (\S+)", line)
        if not match:
            raise LinuxError(f"{system_map}: line {number}: {line!r} is not ADDRESS TYPE NAME")
        address = int(match[1], 16)
        if match[2] in "tTwW" and address >> 63:
            names.setdefault(address, []).append(plain_name(match[3]))
    starts = sorted(names)
    if len(starts) < 2:
        raise LinuxError(f"{system_map}: has no functions; it must be the System.map of an x86-64 kernel")
    return [Function(start, end, names[start]) for start, end in itertools.pairwise(starts)]


def plain_name(symbol: str) -> str:
    """A symbol without the compiler's suffix."""
    return _APPENDED.sub("", symbol)


def _matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _by_function(table: Mapping[str, Any], path: Path) -> dict[str, str]:
    stage_of: dict[str, str] = {}
    for stage, names in table.items():
        for name in names:
            if name in stage_of:
                raise LinuxError(f"{path}: {name}: named twice; a function has one stage, or is a helper")
            stage_of[name] = stage
    return stage_of
