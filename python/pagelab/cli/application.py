"""The command `pagelab`.

Every mistake of the user ends in one line on standard error and exit status 2 (usage) or 1. The exit status is 130
after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, and 141 if the reader of standard output ends early.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, TypeAlias

import typer

from pagelab import _engine
from pagelab.cli import installed
from pagelab.cli.command import App

_INTERRUPTED = 130
_ENDING = {signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
_BY_SIGNAL = 128
"""Added to a signal's number, this is the exit status of a command that the signal ended"""

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


class _EndedError(BaseException):
    """SIGTERM or SIGHUP: running work cleans up after itself, as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def _end(number: int, _: object) -> None:
    raise _EndedError(number)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a command is defined: a module of `pagelab.cli`, and its function or its group of commands."""

    module: str
    function: str = "command"
    cls: str | None = None
    runs_program: bool = False
    """What follows the program's name are arguments of the program, not options of the command"""


_COMMANDS = {
    "demo": _Source("demo"),
    "record": _Source("record", runs_program=True),
    "run": _Source("run"),
    "sweep": _Source("sweep"),
    "show": _Source("run", "show_command"),
    "report": _Source("report"),
    "stacks": _Source("stacks"),
    "compare": _Source("compare", cls="Command"),
    "advise": _Source("advise", cls="Command"),
    "mrc": _Source("mrc"),
    "trace": _Source("trace", "app"),
    "measure": _Source("measure", runs_program=True),
    "model": _Source("model", "app"),
    "predict": _Source("predict"),
    "calibrate": _Source("calibrate"),
    "observe": _Source("observe", cls="Command", runs_program=True),
    "contiguity": _Source("contiguity"),
    "major-faults": _Source("native_major_faults", runs_program=True),
    "linux": None,
    "reproduce": None,
    "list": _Source("catalogue", "list_command"),
    "schema": _Source("catalogue", "schema_command"),
}
"""Where each command is defined, in the order of the help; None: in a package that may be installed"""


def application(command: str | None = None) -> App:
    """The command line with all commands; if `command` is the name of one, with that one alone.

    Importing the modules of all commands takes more than 0.3 s; a run needs one of them, and the version none.
    """
    app = App(
        name="pagelab",
        help="A laboratory for paging: record a program once, replay it under many virtual-memory systems.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in _needed(command):
        _add(app, name)
    return app


def _needed(command: str | None) -> Iterable[str]:
    if command == "--version":
        # Typer wants one.
        return ["list"]
    return [command] if command in _COMMANDS else _COMMANDS


def _add(app: App, name: str) -> None:
    source = _COMMANDS[name]
    if source is None:
        installed.add(app, name)
        return
    module = import_module(f"pagelab.cli.{source.module}")
    definition = getattr(module, source.function)
    if isinstance(definition, typer.Typer):
        app.add_typer(definition, name=name)
        return
    settings = {"allow_interspersed_args": False} if source.runs_program else None
    cls = getattr(module, source.cls) if source.cls else None
    app.command(name, cls=cls, context_settings=settings)(definition)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pagelab {_engine.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(interrupts: _Handler = signal.default_int_handler) -> None:
    """Runs the command and ends with its status. `interrupts` is the handler of SIGINT from now on."""
    # Ctrl-C raises no exception yet while the command's modules load.
    app = application(sys.argv[1] if len(sys.argv) > 1 else None)
    status = _run(app, interrupts)
    # The interpreter has nothing left to clean up, and an exception now would print a traceback.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)


def _run(app: App, interrupts: _Handler) -> int:
    for number in _ENDING:
        # nohup has SIGHUP ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    interrupted: list[bool] = []
    try:
        signal.signal(signal.SIGINT, _noting(interrupts, interrupted))
        status = app(prog_name="pagelab", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        # A bare `pagelab` has printed the help, so its usage error needs no message.
        message = error.format_message()
        return _complain(message, error.exit_code) if message else error.exit_code
    except _engine.UsageError as error:
        return _complain(str(error), 2)
    except _engine.PagelabError as error:
        return _complain(str(error), 1)
    except BrokenPipeError:
        return _end_without_reader()
    except SystemExit as end:
        # Libraries raise this if nobody reads their output.
        if isinstance(end.__context__, BrokenPipeError):
            return _end_without_reader()
        raise
    except OSError as error:
        _silence_stdout()
        return _complain(_describe(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", _INTERRUPTED)
    except _EndedError as ended:
        return _complain(_ENDING[ended.signal], _BY_SIGNAL + ended.signal)
    except Exception:
        # Libraries that are interrupted while they load raise their own errors.
        if interrupted:
            return _complain("interrupted", _INTERRUPTED)
        raise
    # Typer turns an interrupt inside a command into this status.
    if status == _INTERRUPTED:
        return _complain("interrupted", _INTERRUPTED)
    return status if isinstance(status, int) else 0


def _noting(handler: _Handler, interrupted: list[bool]) -> _Handler:
    """The handler, which also notes that it was called."""
    if not callable(handler):
        return handler

    def noted(number: int, frame: FrameType | None) -> Any:
        interrupted.append(True)
        return handler(number, frame)

    return noted


def _complain(message: str, status: int) -> int:
    """Prints the error in one line and returns the status."""
    # A standard error that cannot be written to must not change the status.
    with suppress(OSError):
        print(f"pagelab: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return status


def _describe(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error.strerror or str(error)


def _end_without_reader() -> int:
    """The reader of the output has ended, as `head` does."""
    _silence_stdout()
    return _BY_SIGNAL + signal.SIGPIPE


def _silence_stdout() -> None:
    """Drops what is still buffered for a standard output that cannot take it, so that exiting does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
