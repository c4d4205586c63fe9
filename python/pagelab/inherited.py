"""What the command was started with, and what of it a recorded program inherits."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_STANDARD_STREAMS = range(3)

_opened: list[int] = []
_variables: list[str] = []


def open_missing_streams() -> None:
    """Opens /dev/null for closed standard streams: the next opened file would take the number of one and its output."""
    for descriptor in _STANDARD_STREAMS:
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            _opened.append(opened)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # the descriptor stays open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def note_variables() -> None:
    """Notes the variable that Python sets in the locale "C" (PEP 538). To be called before the command sets any."""
    if "LC_CTYPE" in os.environ and not _was_set(b"LC_CTYPE="):
        _variables.append("LC_CTYPE")


def leave_to_programs() -> None:
    """Lets programs that are started from now on inherit what the command inherited.

    Standard streams that were closed are closed, and variables that Python set are missing. Where Python's interface
    is used without the command, nothing was noted, and nothing changes.
    """
    for descriptor in _opened:
        os.set_inheritable(descriptor, False)
    for name in _variables:
        os.environ.pop(name, None)


@dataclass(frozen=True)
class Used:
    """What a process has used, as getrusage(2) reports it."""

    minor_faults: int
    major_faults: int
    cpu_seconds: float


class Launch:
    """A process that waits until it may become a program. The program inherits what the command inherited.

    No shell and no other program runs before it: shells drop variables and set others. The process is a fork of this
    one. Who counts the program's faults must subtract those before, which `execute` returns.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: int | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        """
        Args:
            command: The program and its arguments.
            output: The descriptor that becomes its standard output.
            prepare: Called in the new process before it waits.
        """
        leave_to_programs()
        self._program, self._ended = command[0], False
        permission, self._permit = os.pipe()
        self._report, report = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._permit)
            _become(command, permission, report, output, prepare)
        os.close(permission)
        os.close(report)

    def execute(self) -> Used:
        """Lets the process become the program, and returns what it has used before.

        Raises:
            OSError: it could not, and ends.
        """
        os.write(self._permit, b"x")
        os.close(self._permit)
        with os.fdopen(self._report, "rb") as report:
            lines = report.read().decode(errors="surrogateescape").splitlines()
        for line in lines:
            if line.startswith(_FAILED):
                number, _, name = line.removeprefix(_FAILED).partition(" ")
                raise OSError(int(number), os.strerror(int(number)), name or self._program)
        minor, major, cpu = lines[-1].split() if lines else ("0", "0", "0")
        return Used(int(minor), int(major), float(cpu))

    def wait(self) -> tuple[int, resource.struct_rusage]:
        """Waits until the program has ended. Returns its exit status, negative for a signal, and what it used."""
        _, status, usage = os.wait4(self.pid, 0)
        self._ended = True
        return os.waitstatus_to_exitcode(status), usage

    @contextmanager
    def ended_on_errors(self) -> Iterator[None]:
        """Ends the process if the block raises an exception."""
        try:
            yield
        except BaseException:
            if not self._ended:
                os.kill(self.pid, signal.SIGKILL)
                self.wait()
            raise


_FAILED = "failed "


def _become(
    command: Sequence[str], permission: int, report: int, output: int | None, prepare: Callable[[], object] | None
) -> NoReturn:
    """Runs in the forked process. It must not return, and nothing of the parent's clean-up may run."""
    try:
        if output is not None:
            os.dup2(output, 1)
        if prepare:
            prepare()
        # These two Python ignores. Handlers become defaults when the program is executed.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if os.read(permission, 1):
            _execute(command, report)
    except OSError as error:
        name = os.fsencode(error.filename or "")
        os.write(report, f"{_FAILED}{error.errno} ".encode() + name + b"\n")
    finally:
        os._exit(127)


def _execute(command: Sequence[str], report: int) -> None:
    """Executes the program, as execvp(3) finds it, and reports before each try what the process has used.

    The first try fails: it copies the pages that the next ones need, so hardly any fault follows the last report.

    Raises:
        OSError: it cannot be executed.
    """
    program, environment = command[0], dict(os.environb)
    places = [program] if "/" in program else [str(Path(folder, program)) for folder in os.get_exec_path()]
    refused: OSError | None = None
    for place in ("", *places):
        try:
            used = resource.getrusage(resource.RUSAGE_SELF)
            os.write(report, f"{used.ru_minflt} {used.ru_majflt} {used.ru_utime + used.ru_stime}\n".encode())
            os.execve(place, list(command), environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _was_set(beginning: bytes) -> bool:
    """Whether the variable was set as this process started."""
    try:
        first = Path("/proc/self/environ").read_bytes()
    except OSError:
        return True
    return any(variable.startswith(beginning) for variable in first.split(b"\0"))
