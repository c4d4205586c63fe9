"""Long-running programs: their output goes to a file, and everything that they started ends with them."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

_KEPT = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
_KEEPER = ("/bin/sh", "-c", "read -r line; kill -s KILL 0")
"""Leads a group of processes, and kills the group when its standard input ends: at the latest when this process ends"""

_LEAST_FREE = 1 << 20


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without variables that would change a build: CFLAGS, MAKEFLAGS, ARCH, the language and others."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"LC_ALL": "C"} | more


def logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    seconds: float | None = None,
    append: bool = False,
    environment: Mapping[str, str] | None = None,
    started: Callable[[int], object] = lambda _: None,
) -> int | None:
    """Runs a command with its output in `log`. Whatever ends this, SIGKILL too, ends all that it started.

    Args:
        started: Is called with the process's number when it runs.

    Returns:
        Its exit status; none if it was ended after this many seconds.
    """
    with (
        log.open("ab" if append else "wb") as output,
        subprocess.Popen(_KEEPER, stdin=subprocess.PIPE, stdout=output, stderr=output, process_group=0) as keeper,
    ):
        try:
            with subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment or clean_environment(),
                process_group=keeper.pid,
            ) as process:
                try:
                    started(process.pid)
                    return process.wait(seconds)
                except subprocess.TimeoutExpired:
                    return None
                finally:
                    _end(keeper)
        finally:
            _end(keeper)


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """Ends its group, itself included. It is waited for only afterwards, so the group is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(keeper.pid, signal.SIGKILL)


def remove_of_killed(paths: Iterable[Path]) -> None:
    """Removes files and folders of processes that are gone. Names end with a point and the process's number."""
    for path in paths:
        if not Path("/proc", path.name.rpartition(".")[2]).exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def last_lines(log: Path, count: int = 1) -> str:
    """The end of a file of output, and whether its disk is full, so that output may be missing."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    tail = "; ".join(lines[-count:]) or "it says nothing"
    return f"no space is left for {log.parent}; {tail}" if is_full(log.parent) else tail


def is_full(folder: Path) -> bool:
    """Whether the disk is full."""
    return shutil.disk_usage(folder).free < _LEAST_FREE
