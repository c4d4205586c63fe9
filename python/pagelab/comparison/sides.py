"""The two sides of a comparison: results that were saved, or replays of a trace, a workload or a program."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pagelab._engine import UsageError
from pagelab.capture.recorder import record
from pagelab.capture.traces import is_trace, trace_info
from pagelab.comparison.functions import name_functions
from pagelab.replay.simulation import Progress, run
from pagelab.results.request import Request
from pagelab.results.results import Results
from pagelab.results.windows import is_sampled

Subject: TypeAlias = "str | os.PathLike[str] | Sequence[str] | Results"
Recorder: TypeAlias = Callable[[list[str], Path], object]
"""Records a program into a trace."""


@dataclass(frozen=True)
class ReplayOptions:
    """How sources are replayed; a value of none means that of the other side's results, or else the default."""

    systems: Sequence[str] = ()
    machine: str | None = None
    kernel: str | None = None
    set: Sequence[str] = ()
    max_accesses: int | None = None
    warm_up: int | None = None
    seed: int | None = None
    seeds: int = 1
    profile: bool = True

    def given(self) -> list[str]:
        """Names of the options that were given, except seeds and profile."""
        chosen = {
            "systems": list(self.systems),
            "machine": self.machine,
            "kernel": self.kernel,
            "set": list(self.set),
            "max_accesses": self.max_accesses,
            "warm_up": self.warm_up,
            "seed": self.seed,
        }
        return [name for name, value in chosen.items() if value not in (None, [])]


@dataclass(frozen=True)
class Recorded:
    """A trace's description of its program."""

    command: tuple[str, ...] = ()
    host: str = ""
    kernel: str = ""
    format: str = ""
    tools: str = ""


@dataclass(frozen=True)
class Side:
    """A version of a program: results of one recording, or of several."""

    name: str
    kind: str
    """`results`, `trace`, `workload` or `program`."""
    recordings: tuple[Results, ...]
    recorded: tuple[Recorded, ...] = field(default=())

    @property
    def first(self) -> Results:
        return self.recordings[0]


@dataclass(frozen=True)
class Plan:
    """The input for a side."""

    name: str
    kind: str
    results: tuple[Results, ...] = ()
    source: str = ""
    command: tuple[str, ...] = ()


def plan(subject: Subject) -> Plan:
    """The user's input: results, a file or folder of them, a trace, a workload, or a command as a list.

    Raises:
        UsageError: there is no such thing, or results are damaged.
    """
    if isinstance(subject, Results):
        return Plan("results", "results", (_checked("results", subject),))
    if not isinstance(subject, str | os.PathLike):
        if not subject:
            raise UsageError("a command is empty: name a program and its arguments")
        command = tuple(map(os.fspath, subject))
        # Before the other side is recorded.
        if shutil.which(command[0]) is None and not Path(command[0]).exists():
            raise UsageError(f"{command[0]}: no such program")
        return Plan(" ".join(command), "program", command=command)
    name = os.fspath(subject)
    path = Path(name)
    if is_trace(name):
        if not path.exists():
            raise UsageError(f"{name}: there is no such trace")
        return Plan(name, "trace", source=name)
    if path.is_dir():
        return Plan(name, "results", _from_folder(path))
    if path.is_file() and os.access(path, os.X_OK):
        raise UsageError(f"{name} is a program; put `--` before it: pagelab compare -- OLD ARGS -- NEW ARGS")
    if name.endswith((".json", ".json.gz")) or path.is_file():
        return Plan(name, "results", (_checked(name, Results.load(path)),))
    return Plan(name, "workload", source=name)


def _from_folder(folder: Path) -> tuple[Results, ...]:
    if (folder / "runs.parquet").exists():
        raise UsageError(f"{folder} is a sweep's folder; compare takes results as `pagelab run --json` writes them")
    files = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not files:
        raise UsageError(f"{folder} holds no results: *.json or *.json.gz as `pagelab run --json` writes them")
    return tuple(_checked(str(file), Results.load(file)) for file in files)


def _checked(name: str, results: Results) -> Results:
    """Refuses results with which a comparison would fail later."""
    if not results.systems:
        raise UsageError(f"{name}: these results hold no system")
    for result in results.systems:
        if not isinstance(result.stats, dict) or not all(type(value) is int for value in result.stats.values()):
            raise UsageError(f"{name}: the statistics of {result.label} are not all integers")
        if not result.stats.get("accesses"):
            raise UsageError(f"{name}: {result.label} has no accesses, so there is nothing to compare")
        if not isinstance(result.config, dict):
            raise UsageError(f"{name}: the configuration of {result.label} is no object")
        if result.profile is not None:
            _check_profile(f"{name}: the profile of {result.label}", result.profile, len(result.sources))
    return results


def _check_profile(name: str, profile: Any, sources: int) -> None:
    counts = ("walks", "translation_cycles", "faults", "fault_cycles")
    try:
        for table, own in (("code", ("offset",)), ("regions", ("start", "end", "process", "source"))):
            for row in [profile[table]["others_cost"], *profile[table]["rows"]]:
                needed = counts if row is profile[table]["others_cost"] else (*counts, *own)
                if not all(type(row[key]) is int for key in needed):
                    raise UsageError(f"{name}: a row of its {table} has a figure that is no integer")
        for row in profile["code"]["rows"]:
            if not isinstance(row["file"], str | None) or not isinstance(row.get("function", ""), str):
                raise UsageError(f"{name}: a row of its code has no readable name")
        for row in profile["regions"]["rows"]:
            if not (row["start"] < row["end"] and 0 <= row["source"] < sources and isinstance(row["kind"], str)):
                raise UsageError(f"{name}: a row of its regions makes no sense")
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{name} is not a pagelab result: {what}") from None


def make(
    plans: tuple[Plan, Plan],
    options: ReplayOptions,
    *,
    repeat: int = 1,
    recorder: Recorder | None = None,
    progress: Progress | None = None,
) -> tuple[Side, Side]:
    """Makes missing results: records programs alternately, and replays.

    Raises:
        UsageError: options that do not apply to these sides.
    """
    kinds = [one.kind for one in plans]
    if repeat > 1 and kinds != ["program", "program"] and not ("program" in kinds and "results" in kinds):
        raise UsageError("--repeat records programs again: name two commands, or a folder of results and a command")
    if "results" in kinds:
        if options.seeds > 1:
            raise UsageError("--seeds is for replays on both sides; saved results keep the seeds they were made with")
        if kinds == ["results", "results"] and (given := options.given()):
            raise UsageError(f"{given[0]}: saved results are not replayed, so this has no effect")
    model = next((one.results[0] for one in plans if one.results), None)
    asked = model.request if model is not None else None
    if model is not None and kinds != ["results", "results"]:
        if asked is None:
            raise UsageError("the saved results do not contain their request; create them again with this version")
        if asked.command or asked.stretches or asked.sample:
            raise UsageError(
                "the saved results come from a live run or a sample; compare them with results of the same kind"
            )
    replay = _Replay(options, asked, progress)
    made: list[list[tuple[Results, Recorded | None]]] = [[(results, None) for results in one.results] for one in plans]
    for _ in range(repeat):
        for one, results in zip(plans, made, strict=True):
            if one.kind == "program":
                results.append(_record_and_replay(one, replay, recorder or _record))
    for one, results in zip(plans, made, strict=True):
        if one.source:
            recorded = _from_trace(trace_info(one.source)) if one.kind == "trace" else None
            results.append((replay(one.source), recorded))
    sides = [
        Side(one.name, one.kind, tuple(each for each, _ in results), tuple(r for _, r in results if r))
        for one, results in zip(plans, made, strict=True)
    ]
    return sides[0], sides[1]


@dataclass(frozen=True)
class _Replay:
    """Replays a source with the options, or as saved results were made."""

    options: ReplayOptions
    asked: Request | None
    progress: Progress | None

    def __call__(self, source: str) -> Results:
        options, asked = self.options, self.asked
        results = run(
            source,
            _with_seeds(options.systems or (asked.systems if asked else ["radix"]), options.seeds),
            with_=asked.with_ if asked else (),
            machine=options.machine or (asked.machine if asked else None),
            kernel=options.kernel or (asked.kernel if asked else None),
            set=options.set or (asked.set if asked else ()),
            seed=_either(options.seed, asked.seed if asked else None),
            max_accesses=_either(options.max_accesses, asked.max_accesses if asked else None),
            warm_up=_either(options.warm_up, asked.warm_up if asked else None),
            profile=options.profile,
            progress=self.progress,
        )
        return name_functions(results) if options.profile else results


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _with_seeds(systems: Iterable[str], seeds: int) -> list[str]:
    """Each system once per seed, from 1 on."""
    if seeds == 1:
        return list(systems)
    return [
        f"{system[:-1]},engine.seed={seed}}}" if system.endswith("}") else f"{system}{{engine.seed={seed}}}"
        for system in systems
        for seed in range(1, seeds + 1)
    ]


def _record_and_replay(one: Plan, replay: _Replay, recorder: Recorder) -> tuple[Results, Recorded]:
    with tempfile.TemporaryDirectory(prefix="pagelab-") as folder:
        trace = Path(folder) / f"{Path(one.command[0]).name}.trace"
        recorder(list(one.command), trace)
        recorded = _from_trace(trace_info(trace))
        # The folder no longer exists when somebody reads this.
        results = _renamed_source(replay(str(trace)), trace.name)
    return results, recorded


def _renamed_source(results: Results, name: str) -> Results:
    document = results.to_document()
    return Results({**document, "request": {**document["request"], "sources": [name]}})


def _record(command: list[str], trace: Path) -> None:
    record(command, trace)


def _from_trace(info: Mapping[str, Any]) -> Recorded:
    meta = info["meta"]
    host, tools = meta.get("host") or {}, meta.get("tools") or {}
    return Recorded(
        command=tuple(meta.get("command") or ()),
        host=host.get("cpu_model") or "",
        kernel=host.get("kernel") or "",
        format=f"{meta.get('format', '')} {meta.get('version', '')}".strip(),
        tools=", ".join(f"{name} {version}" for name, version in sorted(tools.items())),
    )


def sampled(side: Side) -> bool:
    """Whether the figures are from windows of the program."""
    return any(is_sampled(result.stats) for result in side.first.systems)
