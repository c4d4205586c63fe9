"""Long-running programs: their output in a file, and everything they started ended with them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_KEPT = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would change a build: CFLAGS, MAKEFLAGS, ARCH, a language and such."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"LC_ALL": "C"} | more


def logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    seconds: float | None = None,
    append: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Runs a command with its output in `log`. Whatever ends this, an interrupt too, ends all that it started.

    Returns:
        Its exit status; none if it was ended after so many seconds.
    """
    with log.open("ab" if append else "wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment or clean_environment(),
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # The group is the session of our own child, which is waited for only afterwards.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def last_lines(log: Path, count: int = 1) -> str:
    """The end of a file of output."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "; ".join(lines[-count:]) or "it says nothing"
