"""Commands that a soak kills at random moments, or whose writing system calls it lets fail.

Whatever happens to a command: it ends with status 0 and complete results, or with one line of error and none under the
final name; nothing that it started still runs; and the same command, run again, makes complete results.
"""

import contextlib
import functools
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGELAB = (sys.executable, "-m", "pagelab")
# Commands per round.
CASES = 12
TIMEOUT_SECONDS = 300
# What the commands start from. Each has its own copy.
INPUTS = ("input.trace", "input.json", "grid.toml", "lackey.txt")
GRID = """
[grid]
sources = ["gups:size=4MiB,updates=20K", "seq:size=1MiB"]
systems = ["radix", "radix-2m"]
seeds = [1, 2]
"""
# System calls that change files other than by writing to them; those are limited by RLIMIT_FSIZE.
CALLS = (
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "unlink",
)
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EACCES")


class MissingError(Exception):
    """A tool that is needed is not there, or an input cannot be made."""


@dataclass(frozen=True)
class Command:
    """A command, and what it makes."""

    arguments: tuple[str, ...]
    output: str
    """The file or folder under its final name."""
    is_whole: Callable[[Path], bool]
    """Whether what is there is complete."""
    resumes: bool = False
    """Whether an interrupted one leaves its finished parts under the final name, and goes on with them."""


def _ends_with(text: bytes) -> Callable[[Path], bool]:
    return lambda path: path.read_bytes().rstrip().endswith(text)


def _trace_is_whole(path: Path) -> bool:
    shown = _run([*PAGELAB, "trace", "info", path.name], path.parent)
    return shown.returncode == 0 and "complete         yes" in shown.stdout


COMMANDS = (
    Command(("record", "-o", "made.trace", "--", "/bin/true"), "made.trace", _trace_is_whole),
    Command(
        ("run", "input.trace", "-s", "radix", "-s", "hashed-compact", "--json", "made.json"),
        "made.json",
        _ends_with(b"}"),
    ),
    Command(("report", "input.json", "-o", "made.html"), "made.html", _ends_with(b"</html>")),
    Command(("mrc", "input.trace", "--json", "made.json"), "made.json", _ends_with(b"}")),
    Command(
        ("trace", "sample", "input.trace", "-o", "made.trace", "--sample", "every=10K,length=1K"),
        "made.trace",
        _trace_is_whole,
    ),
    Command(("trace", "anonymize", "input.trace", "-o", "made.trace"), "made.trace", _trace_is_whole),
    Command(("trace", "import", "lackey.txt", "-o", "made.trace"), "made.trace", _trace_is_whole),
    Command(
        ("trace", "export", "input.trace", "-f", "lackey", "-o", "made.txt"),
        "made.txt",
        lambda path: path.read_bytes().endswith(b"\n"),
    ),
    Command(("sweep", "grid.toml", "--output", "made"), "made", lambda path: (path / "results").is_dir(), resumes=True),
)


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False
    )


@functools.cache
def prepare() -> Path:
    """A folder with the inputs of all commands, which stays until this process ends.

    Raises:
        MissingError: `strace`, `valgrind` or `gcc` is not there, or an input cannot be made.
    """
    for tool in ("strace", "valgrind", "gcc"):
        if not shutil.which(tool):
            raise MissingError(f"{tool} is not installed: it is needed to disturb commands")
    folder = Path(_FOLDERS.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
    (folder / "grid.toml").write_text(GRID)
    for arguments in (
        ("record", "-o", "input.trace", "--", "/bin/true"),
        ("run", "input.trace", "-s", "radix", "--json", "input.json"),
        ("trace", "export", "input.trace", "-f", "lackey", "-o", "lackey.txt"),
    ):
        ended = _run([*PAGELAB, *arguments], folder)
        if ended.returncode:
            raise MissingError(f"pagelab {' '.join(arguments)} failed: {ended.stderr.strip()}")
    return folder


_FOLDERS = contextlib.ExitStack()


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """A folder of one command's own."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        for entry in INPUTS:
            source = prepare() / entry
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / entry)
        yield folder


@functools.cache
def _undisturbed(command: Command) -> tuple[float, int]:
    """How many seconds a command takes, and the bytes of the largest file that it makes."""
    with _copy() as folder:
        start = time.monotonic()
        ended = _run([*PAGELAB, *command.arguments], folder)
        seconds = time.monotonic() - start
        if ended.returncode or not command.is_whole(folder / command.output):
            raise MissingError(f"pagelab {' '.join(command.arguments)} fails without any disturbance: {ended.stderr}")
        made = folder / command.output
        files = [made] if made.is_file() else [file for file in made.rglob("*") if file.is_file()]
        return seconds, max(file.stat().st_size for file in files)


def _complaint(text: str) -> str:
    """The line of a panic or a traceback, if there is one."""
    signs = ("Traceback (most recent call last)", "panicked at", "core dumped")
    return next((line for line in text.splitlines() if any(sign in line for sign in signs)), "")


def _still_running(folder: Path) -> list[str]:
    """Commands of processes that work in a folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return commands


def _left_behind(command: Command, folder: Path) -> str:
    """What is wrong with a folder after a disturbed command; empty if nothing is."""
    end = time.monotonic() + 20
    while running := _still_running(folder):
        if time.monotonic() > end:
            return f"still runs: {running[0]}"
        time.sleep(0.05)
    made = folder / command.output
    if made.exists() and not command.resumes and not command.is_whole(made) and not _is_known_as_incomplete(made):
        return f"{command.output} is there, but not whole"
    if not command.resumes:
        shutil.rmtree(made, ignore_errors=True)
        made.unlink(missing_ok=True)
    again = _run([*PAGELAB, *command.arguments], folder)
    if again.returncode or not command.is_whole(made):
        return f"run again, it fails: {again.stderr.strip()[-300:]}"
    return ""


def _is_known_as_incomplete(made: Path) -> bool:
    """Whether a trace says of itself that its recording did not end."""
    if made.suffix != ".trace":
        return False
    shown = _run([*PAGELAB, "trace", "info", made.name], made.parent)
    return not _complaint(shown.stderr) and (shown.returncode != 0 or "complete         no" in shown.stdout)


def _killed(command: Command, draws: random.Random) -> str:
    """Kills a command with SIGKILL at a random moment."""
    moment = draws.uniform(0, 1.1 * _undisturbed(command)[0])
    with _copy() as folder:
        process = subprocess.Popen(
            [*PAGELAB, *command.arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        process.kill()
        wrong = _left_behind(command, folder)
        assert process.stderr is not None
        wrong = _complaint(process.stderr.read()) or wrong
        process.stderr.close()
        process.wait()
        return f"killed after {moment:.3f} s: {wrong}" if wrong else ""


def _limit(largest: int) -> None:
    """Lets writes fail behind so many bytes of a file, as a full disk does, with EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


def _refused(command: Command, draws: random.Random) -> str:
    """Lets writes beyond a random size fail, or the n-th call of a random system call."""
    arguments = [*PAGELAB, *command.arguments]
    if draws.random() < 0.5:
        most = draws.randrange(_undisturbed(command)[1])
        what, before = f"files of {most} bytes", functools.partial(_limit, most)
    else:
        call, error, number = draws.choice(CALLS), draws.choice(ERRORS), draws.randrange(1, 5)
        what, before = f"{error} of {call} number {number}", None
        inject = [f"--trace={call}", f"--inject={call}:error={error}:when={number}+"]
        # The program under the recorder is traced by no other, so the first process alone is.
        arguments = ["strace", "--quiet=all", "--output=/dev/null", *inject, *arguments]
    with _copy() as folder:
        ended = subprocess.run(
            arguments,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            preexec_fn=before,
            check=False,
        )
        wrong = _complaint(ended.stderr)
        made = folder / command.output
        if not wrong and ended.returncode == 0 and not (made.exists() and command.is_whole(made)):
            wrong = "status 0, but the result is not whole"
        if not wrong and ended.returncode and "pagelab: error: " not in ended.stderr:
            wrong = f"status {ended.returncode} without an error: {ended.stderr.strip()[-200:]}"
        wrong = wrong or _left_behind(command, folder)
        return f"{what}: {wrong}" if wrong else ""


def _round(disturb: Callable[[Command, random.Random], str], seed: int) -> tuple[int, str]:
    """Disturbs some commands. Returns how many, up to the first one that did not bear it, and what was wrong then."""
    draws = random.Random(seed)
    for number in range(1, CASES + 1):
        command = draws.choice(COMMANDS)
        wrong = disturb(command, draws)
        if wrong:
            return number, f"pagelab {' '.join(command.arguments)}: {' '.join(wrong.split())}"
    return CASES, ""


def killed(seed: int) -> tuple[int, str]:
    """A round of commands that are killed."""
    return _round(_killed, seed)


def refused(seed: int) -> tuple[int, str]:
    """A round of commands that cannot write."""
    return _round(_refused, seed)
