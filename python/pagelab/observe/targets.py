"""What is observed: processes and what they start, the members of a control group, or a program that is run."""

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from pagelab._engine import UsageError
from pagelab.host.contiguity import ProcessEndedError
from pagelab.inherited import Launch
from pagelab.observe.groups import Group
from pagelab.observe.processes import descendants, ensure_observable


class Target(Protocol):
    """Processes that may start and end while they are observed."""

    @property
    def title(self) -> str:
        """What it is, for the first line of the page."""

    def members(self) -> list[int]:
        """Its processes now; some may have ended meanwhile."""

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until everything has ended. Returns whether something is left."""


@dataclass
class Processes:
    """Running processes, with their children now and later."""

    pids: Sequence[int]
    _handles: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [f"{pid} ({ensure_observable(pid).name})" for pid in self.pids]
        self.title = f"process{'es' * (len(names) > 1)} {', '.join(names)}"
        for pid in self.pids:
            try:
                self._handles[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                raise ProcessEndedError(f"process {pid} has ended") from None

    def members(self) -> list[int]:
        # Children of processes that have ended go on, under another parent.
        return descendants(list(self.pids))

    def wait(self, seconds: float) -> bool:
        _await_ends(self._handles, seconds)
        return bool(self._handles)

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()


def _await_ends(handles: dict[int, int], seconds: float) -> None:
    """Waits until a process ends, and forgets those that have ended."""
    poll = select.poll()
    for handle in handles.values():
        poll.register(handle, select.POLLIN)
    ended = {handle for handle, _ in poll.poll(seconds * 1000)}
    for pid, handle in list(handles.items()):
        if handle in ended:
            os.close(handle)
            del handles[pid]


@dataclass
class Members:
    """The processes of a control group."""

    group: Group

    def __post_init__(self) -> None:
        self.title = f"control group {self.group.name}"
        if not self.group.members():
            raise UsageError(f"--cgroup {self.group.name}: the group {self.group.folder} has no process now")

    def members(self) -> list[int]:
        own = os.getpid()
        return [pid for pid in self.group.members() if pid != own]

    def wait(self, seconds: float) -> bool:
        select.select([], [], [], seconds)
        return bool(self.members())


class Program:
    """A program that is run to be observed, with what it starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self.title = f"`{' '.join(command)}`"
        self._command = list(command)
        self._launch = Launch(command)
        self.pid = self._launch.pid
        self._handle = {self.pid: os.pidfd_open(self.pid)}
        self._status: int | None = None

    def execute(self) -> None:
        """Lets it begin.

        Raises:
            UsageError: it cannot be executed.
        """
        try:
            self._launch.execute()
        except OSError as error:
            self.finish()
            raise UsageError(f"{self._command[0]}: {error.strerror}") from None

    def members(self) -> list[int]:
        return descendants([self.pid])

    def wait(self, seconds: float) -> bool:
        _await_ends(self._handle, seconds)
        return bool(self._handle)

    def finish(self) -> int:
        """Waits for its end and returns its exit status, negative for a signal."""
        if self._status is None:
            self._status, _ = self._launch.wait()
        return self._status

    def kill(self) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.finish()
