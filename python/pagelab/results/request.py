"""The request of a run, as results contain it: enough to repeat the run."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pagelab.run_options import OPTIONS, Kind, RunOption

WINDOWS_OF_PROFILES = 100
"""Parts that `pagelab run --profile` counts separately."""

_NEEDED = ("sources", "systems")


@dataclass(frozen=True)
class Request:
    """The arguments of `pagelab.run` or `pagelab.run_live`, without those that change no result."""

    sources: list[str]
    systems: list[str]
    with_: list[str]
    arrivals: list[str]
    machine: str | None
    kernel: str | None
    set: list[str]
    seed: int | None
    max_accesses: int | None
    warm_up: int | None
    windows: int | None
    contiguity_map: bool
    profile: bool
    check: bool
    command: list[str]
    """The program of a live run, with its arguments; empty for others."""
    cpus: int | None
    """Of a live run."""
    max_threads: int | None
    """Of a live run, if it was given."""
    interleavings: int | None
    """Legal orders of threads that were replayed."""
    sample: str | None
    """Which windows of the source were replayed, if not all of it."""
    follow: str | None
    """Of a live run, which children of the program were followed, as `K/N`."""
    stretches: dict[str, Any] | None
    """Of a live run, which of its stretches were recorded: the fields of `pagelab.Stretches`."""

    @classmethod
    def from_document(cls, document: Any) -> "Request":
        """Reads it from results.

        Raises:
            TypeError: it is none.
        """
        if not isinstance(document, Mapping):
            raise TypeError("its request is no object")
        values = {_argument(key): value for key, value in document.items()}
        defaults = {field.name: _DEFAULTS[field.type] for field in fields(cls) if field.name not in _NEEDED}
        for name in _NEEDED:
            if name not in values:
                raise TypeError(f"its request has no {name}")
        made = cls(**{**defaults, **values})
        for field in fields(cls):
            if not _is(field.type, getattr(made, field.name)):
                raise TypeError(f"{field.name} of its request is no {field.type}")
        return made

    def again(self) -> str:
        """A command that repeats the run, or a Python program if no command can."""
        as_profiled = WINDOWS_OF_PROFILES if self.profile and self.sample is None else None
        if self.contiguity_map or self.windows != as_profiled or self.max_threads is not None:
            return self._python()
        return self._shell()

    def _shell(self) -> str:
        parts = ["pagelab", "run", *(["--live"] if self.command else [])]
        for option in OPTIONS:
            parts += self._words(option)
        parts += [] if self.cpus is None else ["--cpus", str(self.cpus)]
        parts += [] if self.follow is None else ["--follow", self.follow]
        parts += [word for option, value in self._stretches() if value is not None for word in (option, str(value))]
        parts += ["--start-on-signal"] * bool(self.stretches and self.stretches.get("start_on_signal"))
        # A source's name may begin with a hyphen, as an option does.
        if self.command or any(source.startswith("-") for source in self.sources):
            return shlex.join([*parts, "--", *self.command, *self.sources])
        return shlex.join([*parts[:2], *self.sources, *parts[2:]])

    def _words(self, option: RunOption) -> list[str]:
        """What a command says for an option; nothing for its default."""
        if not option.command or not option.is_kept:
            return []
        value = getattr(self, option.name)
        match option.kind:
            case Kind.SWITCH:
                return [option.command] * value
            case Kind.SOURCES | Kind.SYSTEMS | Kind.OVERRIDES:
                return [word for one in value for word in (option.command, one)]
            case Kind.PRESET | Kind.COUNT | Kind.POSITIVE | Kind.SAMPLE | Kind.OUTPUT:
                return [] if value is None else [option.command, str(value)]

    def _stretches(self) -> list[tuple[str, Any]]:
        """The options that choose stretches, with their values."""
        wanted = self.stretches or {}
        single = [("--skip", wanted.get("skip")), ("--windows", wanted.get("windows"))]
        starts = [("--start-at", function) for function in wanted.get("start_at", [])]
        return single + starts + [("--stop-at", function) for function in wanted.get("stop_at", [])]

    def _python(self) -> str:
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("sources", "systems", "command", "stretches")
            and getattr(self, field.name) not in (None, [], False)
        }
        chosen = {name: value for name, value in (self.stretches or {}).items() if value not in (None, [], False)}
        arguments = [
            repr(self.command or self.sources),
            repr(self.systems),
            *(f"{name}={value!r}" for name, value in given.items()),
            *([f"stretches=pagelab.Stretches(**{chosen!r})"] if self.stretches else []),
        ]
        function = "run_live" if self.command else "run"
        return f"import pagelab\n\nresults = pagelab.{function}({', '.join(arguments)})"


_ARGUMENTS = {option.key: option.name for option in OPTIONS}
"""Arguments of `pagelab.run` by the engine's names"""

_DEFAULTS: Mapping[Any, Any] = {
    list[str]: [],
    str | None: None,
    int | None: None,
    dict[str, Any] | None: None,
    bool: False,
}


def _argument(key: Any) -> str:
    return _ARGUMENTS.get(key, str(key))


def _is(kind: Any, value: Any) -> bool:
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    if kind == int | None and isinstance(value, bool):
        return False
    if kind == dict[str, Any] | None:
        return value is None or isinstance(value, dict)
    return isinstance(value, kind)
