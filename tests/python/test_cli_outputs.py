"""Every command checks the files that it is to write before it begins to work.

The commands and their options are taken from the command line, so a new one is tested without being named here. An
option that takes a path is an output unless `_INPUTS` has its name.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from typer.models import ArgumentInfo, OptionInfo

from pagelab import PagelabError
from pagelab.cli.application import application

_INPUTS = {
    *("against", "cold", "drive", "file", "files", "model", "programs", "sources", "stdin", "trace"),
    # Folders for what is made on the way.
    *("on", "work"),
}
"""Parameters with paths that commands read or work in"""

_FILE_OPTIONS = {"--against", "--cold", "--stdin"}
"""Options with the path of a file that commands read, which an output could overwrite"""

_NOT_FILES = {
    "advise": "a folder, a workload or a program",
    "contiguity": "a process or a program",
    "major-faults": "a program",
    "measure": "a program",
    "mrc": "a folder or a workload",
    "observe": "processes or a program",
    "record": "a program",
    "trace sample": "a folder or a workload",
}
"""What the arguments of a command name, where that is no file that an output could overwrite"""

_NEEDED = {
    "compare": ["missing", "missing"],
    "linux trace --accesses": ["--workload", "random"],
    "measure --traces": ["--replay"],
    "reproduce --output": ["mfoe"],
    "trace export": ["--format", "lackey"],
}
"""Arguments without which a command or an output is refused for another reason"""

_AFTER_OTHERS = {
    "record --output": "the recorder is built first; it refuses a folder that exists",
    "advise --keep": "as record --output",
    "sweep --output": "the file of the sweep is read first, as it may name the folder",
    "trace anonymize --output": "the trace is opened first",
    "trace export --output": "the trace is opened first",
    "trace import --output": "the other tool's trace is opened first",
    "trace sample --output": "the source is opened first",
}
"""Outputs that are checked before the work, but after an input was opened"""

_MAY_REPLACE = {"compare --save": "the results of B become the next baseline, also under the name of the old one"}
"""Outputs that may be written over an input"""

_ANY_ENDING = {
    "advise --stdout": "what the program prints",
    "linux boot --console": "text of the guest",
    "measure --stdout": "what the program prints",
    "measure --traces": "a folder of traces",
    "trace export --output": "the endings of compression tell how to compress",
}
"""Outputs whose names may have any ending"""

_MISSING = "missing"
"""The name of every input that a command requires"""

_BLOCKED = "a-file/below-it"
"""A path below a file, which nobody can write to"""


@dataclass(frozen=True)
class _Command:
    words: tuple[str, ...]
    required: tuple[str, ...]
    """Its required arguments, with values that lead nowhere"""
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    """Its options that take the path of an input"""
    reads_files: bool
    """Whether its arguments may name files"""

    @property
    def name(self) -> str:
        return " ".join(self.words)

    def line(self, *options: str) -> list[str]:
        """The command with these options, each before its value."""
        keys = [self.name, *(f"{self.name} {option}" for option in options[::2])]
        needed = [part for key in keys for part in _NEEDED.get(key, [])]
        return [*self.words, *options, *needed, *self.required]


def _commands(group: typer.Typer, before: tuple[str, ...] = ()) -> Iterator[_Command]:
    for command in group.registered_commands:
        assert command.callback is not None
        words = (*before, command.name or command.callback.__name__.replace("_", "-"))
        yield _command(words, command.callback)
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        assert isinstance(inner.name, str)
        yield from _commands(inner.typer_instance, (*before, inner.name))


def _command(words: tuple[str, ...], function: Callable[..., Any]) -> _Command:
    hints = get_type_hints(function, include_extras=True)
    required: list[str] = []
    outputs: list[str] = []
    inputs: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        about = next(iter(getattr(hints[name], "__metadata__", ())), None)
        if not isinstance(about, ArgumentInfo | OptionInfo):
            continue
        # Typer takes the first of an option's names for its default.
        names = map(str, (about.default, *(about.param_decls or ())))
        flags = [flag for flag in names if flag.startswith("--")]
        option = (flags or [f"--{name.strip('_').replace('_', '-')}"])[0]
        if isinstance(about, OptionInfo) and _is_path(hints[name], about) and name not in _INPUTS:
            outputs.append(option)
        elif option in _FILE_OPTIONS:
            inputs.append(option)
        elif parameter.default is inspect.Parameter.empty and option not in _NEEDED.get(" ".join(words), []):
            required += [_MISSING] if isinstance(about, ArgumentInfo) else [option, _MISSING]
    name = " ".join(words)
    reads_files = name not in _NOT_FILES and bool(required or name in _NEEDED)
    return _Command(words, tuple(required), tuple(outputs), tuple(inputs), reads_files)


def _is_path(hint: object, about: OptionInfo) -> bool:
    return "Path" in str(hint) or (about.metavar or "").startswith("FILE")


APP = application()
COMMANDS = list(_commands(APP))
OUTPUTS = [(command, option) for command in COMMANDS for option in command.outputs]
REPLACED = [(command, source, output) for command, output in OUTPUTS for source in command.inputs]
PAIRS = [(command, *pair) for command in COMMANDS for pair in itertools.combinations(command.outputs, 2)]


def _id(value: object) -> str:
    return value.name if isinstance(value, _Command) else str(value)


def _error(line: Sequence[str]) -> str:
    """The error of a command line, made in this process."""
    with pytest.raises((PagelabError, OSError, typer.TyperException)) as caught:
        APP(list(line), prog_name="pagelab", standalone_mode=False)
    error = caught.value
    return error.format_message() if isinstance(error, typer.TyperException) else str(error)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A command that begins its work finds no compiler, recorder or virtual machine.
    monkeypatch.setenv("PATH", "")
    Path("a-file").touch()


def test_the_outputs_are_found() -> None:
    known = {f"{command.name} {option}" for command, option in OUTPUTS}
    assert len(known) > 30
    assert {"run --json", "run --report", "mrc --picture", "report --output", "linux trace --preset"} <= known
    assert known >= _AFTER_OTHERS.keys() | _ANY_ENDING.keys(), "each exception is an output that there is"


@pytest.mark.parametrize(("command", "option"), OUTPUTS, ids=_id)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(command: _Command, option: str) -> None:
    # The inputs do not exist, so a command that looks at one of them first names that one.
    # Pictures need an ending.
    errors = (_error(command.line(option, _BLOCKED + ending)) for ending in ("", ".svg"))
    refused = any("Not a directory" in error for error in errors)
    assert refused == (f"{command.name} {option}" not in _AFTER_OTHERS)


@pytest.mark.parametrize(("command", "option"), [each for each in OUTPUTS if each[0].reads_files], ids=_id)
def test_an_output_is_not_written_over_an_input(command: _Command, option: str) -> None:
    error = _error(command.line(option, _MISSING))
    allowed = _AFTER_OTHERS.keys() | _MAY_REPLACE.keys()
    assert ("named twice" in error) == (f"{command.name} {option}" not in allowed), error


@pytest.mark.parametrize(("command", "source", "output"), REPLACED, ids=_id)
def test_an_output_is_not_written_over_the_file_of_an_option(command: _Command, source: str, output: str) -> None:
    assert _error(command.line(source, "same", output, "same")).startswith("same is named twice")


@pytest.mark.parametrize(("command", "option"), OUTPUTS, ids=_id)
def test_an_ending_of_another_content_is_refused(command: _Command, option: str) -> None:
    error = _error(command.line(option, "output.xlsx"))
    assert ("output.xlsx" in error) == (f"{command.name} {option}" not in _ANY_ENDING), error


@pytest.mark.parametrize(("command", "one", "other"), PAIRS, ids=_id)
def test_two_outputs_are_not_written_to_one_file(command: _Command, one: str, other: str) -> None:
    # A picture is refused for its ending.
    assert _error(command.line(one, "same", other, "same")).startswith("same")
