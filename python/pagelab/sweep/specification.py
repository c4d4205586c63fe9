"""The request of a sweep: a TOML file, or a mapping with the same keys, becomes a list of runs.

Everything is checked here except what only the engine knows: names of presets, keys of settings, workloads.
"""

import difflib
import itertools
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from pagelab import _engine, run_options
from pagelab.quantities import count
from pagelab.replay.simulation import overrides
from pagelab.run_options import OPTIONS

Value: TypeAlias = str | int | float | bool

_GRID = ("sources", "systems", "machines", "kernels", "seeds", "set")
_SOURCE = ("name", "sources", "with", "arrivals")
_LIMITS = ("attempts", "seconds_per_run", "memory_per_run")
_WHOLE = tuple(option.name for option in OPTIONS if option.sweep is run_options.Sweep.WHOLE)
_SWEEP = ("output", "grid", *_WHOLE, "limits")


@dataclass(frozen=True)
class Sources:
    """The sources of one run."""

    name: str
    """Its name in the column `source`."""
    main: tuple[str, ...]
    beside: tuple[str, ...] = ()
    arrivals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One simulation, by its parameters."""

    sources: Sources
    system: str
    machine: str | None
    kernel: str | None
    set: tuple[tuple[str, Value], ...]
    """Settings that the grid varies."""
    seed: int

    def __str__(self) -> str:
        on = "".join(f", {name}" for name in (self.machine, self.kernel) if name)
        settings = "".join(f", {setting}" for setting in overrides(dict(self.set)))
        return f"{self.sources.name} on {self.system}{on}{settings}, seed {self.seed}"


@dataclass(frozen=True)
class Limits:
    """Limits of a run."""

    attempts: int = 3
    """How often to try a run that takes too long or whose process dies."""
    seconds_per_run: float = 86400.0
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Sweep:
    """Runs, and settings for all of them."""

    runs: tuple[Run, ...]
    output: Path | None = None
    set: Mapping[str, Value] = field(default_factory=dict)
    max_accesses: int | None = None
    warm_up: int | None = None
    check: bool = False
    limits: Limits = field(default_factory=Limits)

    def request(self, run: Run) -> dict[str, Any]:
        """The arguments of `pagelab.run` for a run, in a form for JSON."""
        return {
            "sources": list(run.sources.main),
            "systems": [run.system],
            "with_": list(run.sources.beside),
            "arrivals": list(run.sources.arrivals),
            "machine": run.machine,
            "kernel": run.kernel,
            "set": overrides({**self.set, **dict(run.set)}),
            "seed": run.seed,
            "max_accesses": self.max_accesses,
            "warm_up": self.warm_up,
            "check": self.check,
            "threads": 1,
        }


def read(file: str | os.PathLike[str]) -> Sweep:
    """Reads a TOML file.

    Raises:
        OSError: it cannot be read.
        UsageError: it is not TOML, or has an impossible key or value.
    """
    name = os.fspath(file)
    try:
        document = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _engine.UsageError(f"{name}: this is not TOML: {error}") from None
    return parse(document, name)


def parse(document: Mapping[str, Any], name: str = "sweep") -> Sweep:
    """The sweep that a document of TOML's types describes.

    Args:
        document: Its keys are those of docs/sweeps.md.
        name: Its name in errors.

    Raises:
        UsageError: an impossible key or value; the message names it and the possible ones.
    """
    top = _Table(document, name, "", _SWEEP)
    grids = document.get("grid")
    several = grids if isinstance(grids, list) else [grids]
    if not several or not all(isinstance(grid, Mapping) for grid in several):
        raise top.wrong("grid", "a sweep has a table [grid], or several [[grid]]")
    runs: list[Run] = []
    for number, grid in enumerate(several, 1):
        runs += _grid(_Table(grid, name, f"grid[{number}]." if isinstance(grids, list) else "grid.", _GRID))
    limits = _limits(_Table(top.get("limits", dict, {}), name, "limits.", _LIMITS))
    output = top.get("output", str, None)
    settings = top.get("set", dict, {})
    for key, value in settings.items():
        top.value(f"set.{key}", value)
    return Sweep(
        runs=tuple(runs),
        output=None if output is None else Path(output),
        set=settings,
        max_accesses=top.count("max_accesses", least=1),
        warm_up=top.count("warm_up"),
        check=top.get("check", bool, False),
        limits=limits,
    )


class _Table:
    """A table of the document, and where in it that is."""

    def __init__(self, table: Mapping[str, Any], name: str, prefix: str, known: tuple[str, ...]) -> None:
        self._table, self._name, self._prefix = table, name, prefix
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                raise self.wrong(key, f"unknown key; {meant}known are {', '.join(known)}")

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def wrong(self, key: str, what: str) -> Exception:
        return _engine.UsageError(f"{self._name}: {self._prefix}{key}: {what}")

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self._table.get(key, default)
        if value is not default and type(value) is not kind:
            names = {str: "a text", dict: "a table", bool: "true or false", int: "an integer"}
            raise self.wrong(key, f"{value!r} is not possible; it takes {names[kind]}")
        return value

    def count(self, key: str, *, least: int = 0) -> int | None:
        value = self._table.get(key)
        if isinstance(value, bool | float | list | dict):
            raise self.wrong(key, f"{value!r} is not possible; it takes a number such as 1000 or '100M'")
        try:
            return count(key, value, least=least)
        except _engine.UsageError as error:
            raise _engine.UsageError(f"{self._name}: {self._prefix}{error}") from None

    def axis(self, key: str, default: Any = None) -> list[Any]:
        """The values of a key that takes one or several."""
        given = self._table.get(key, default)
        values = given if isinstance(given, list) else [given]
        if not values:
            raise self.wrong(key, "the list is empty, so there would be no run; remove the key or give it a value")
        return values

    def texts(self, key: str, default: str | None = None) -> list[str]:
        values = self.axis(key, default)
        if wrong := [value for value in values if not isinstance(value, str) or not value]:
            raise self.wrong(key, f"{wrong[0]!r} is not possible; it takes a text, or a list of texts")
        return cast("list[str]", values)

    def value(self, key: str, value: Any) -> Value:
        if not isinstance(value, str | int | float | bool):
            raise self.wrong(key, f"{value!r} is not possible; a setting is a text, a number, true or false")
        return value


def _grid(table: _Table) -> Iterator[Run]:
    if "sources" not in table:
        raise table.wrong("sources", "is missing: name at least one trace or workload, such as 'gups:size=1GiB'")
    sources = [_sources(table, number, source) for number, source in enumerate(table.axis("sources"), 1)]
    systems = table.texts("systems", "radix")
    machines = table.texts("machines") if "machines" in table else [None]
    kernels = table.texts("kernels") if "kernels" in table else [None]
    seeds = table.axis("seeds", 1)
    if wrong := [seed for seed in seeds if type(seed) is not int or not 0 <= seed < 1 << 63]:
        raise table.wrong("seeds", f"{wrong[0]!r} is not possible; it takes integers from 0")
    given = table.get("set", dict, {})
    settings = _Table(given, table._name, f"{table._prefix}set.", tuple(given))
    axes = [[(key, settings.value(key, value)) for value in settings.axis(key)] for key in given]
    for parts in itertools.product(sources, systems, machines, kernels, itertools.product(*axes), seeds):
        yield Run(*parts)


def _sources(table: _Table, number: int, source: Any) -> Sources:
    if isinstance(source, str) and source:
        return Sources(source, (source,))
    if not isinstance(source, Mapping):
        raise table.wrong("sources", f"{source!r} is not possible; a source is a text, or a table of {_known(_SOURCE)}")
    inner = _Table(source, table._name, f"{table._prefix}sources[{number}].", _SOURCE)
    main, beside, arrivals = (inner.texts(key) if key in inner else [] for key in ("sources", "with", "arrivals"))
    if not main and not arrivals:
        raise inner.wrong("sources", "is missing: name at least one trace or workload")
    return Sources(
        inner.get("name", str, None) or " ".join(main or arrivals), tuple(main), tuple(beside), tuple(arrivals)
    )


def _limits(table: _Table) -> Limits:
    usual = Limits()
    attempts = table.get("attempts", int, usual.attempts)
    if not 1 <= attempts <= 100:
        raise table.wrong("attempts", f"{attempts} is not possible; allowed are 1 to 100")
    seconds = table.axis("seconds_per_run", usual.seconds_per_run)[0]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise table.wrong("seconds_per_run", f"{seconds!r} is not possible; it takes a number of seconds above 0")
    memory = table.get("memory_per_run", str, None)
    try:
        memory_bytes = None if memory is None else _engine.parse_bytes(memory)
    except _engine.UsageError as error:
        raise table.wrong("memory_per_run", str(error)) from None
    return Limits(attempts, float(seconds), memory_bytes)


def _known(keys: tuple[str, ...]) -> str:
    return f"{', '.join(keys[:-1])} and {keys[-1]}"
