"""`pagelab.run`: replays traces and workloads under systems."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from pagelab import _engine
from pagelab._engine import ConfigError, UsageError
from pagelab.output import ensure_writable
from pagelab.quantities import Count, count
from pagelab.renamed import complaint
from pagelab.results.results import Results
from pagelab.run_options import OPTIONS, Kind, Run, RunOption

Source: TypeAlias = str | os.PathLike[str]
Overrides: TypeAlias = Mapping[str, Any] | Iterable[str]
System: TypeAlias = Source | tuple[Source, Overrides]
Progress: TypeAlias = Callable[[str, int, int | None], object]

_SYSTEM_KEY = re.compile(r"[{,]\s*([a-z_][\w.]*)=")
"""Keys in `SYSTEM{KEY=VALUE,…}`"""


def run(
    sources: Source | Iterable[Source] = (),
    systems: Source | Iterable[System] = "radix",
    *,
    with_: Source | Iterable[Source] = (),
    arrivals: str | Iterable[str] = (),
    machine: str | os.PathLike[str] | None = None,
    kernel: str | os.PathLike[str] | None = None,
    set: Overrides = (),
    seed: Count | None = None,
    max_accesses: Count | None = None,
    warm_up: Count | None = None,
    windows: Count | None = None,
    contiguity_map: bool = False,
    faults: Source | None = None,
    profile: bool = False,
    interleavings: Count | None = None,
    sample: str | bool | None = None,
    check: bool = False,
    threads: Count | None = None,
    progress: Progress | None = None,
) -> Results:
    """Replays `sources` under each of `systems` and returns all statistics.

    Args:
        sources: Traces (`NAME.trace`) and workload specs (`gups:size=2GiB`), run at once as processes. `@` and a
            list of CPUs at the end pin one (`a.trace@0`, `seq@1-3,5`); behind that, `,memory_limit=SIZE` puts its
            processes into a memory cgroup of their own. The same holds for `with_` and `arrivals`.
        systems: Names of presets or paths of TOML files; `@` and a kernel behind that replace `kernel`
            (`radix@linux-4.9`). Overrides of one system alone follow in braces (`"radix{engine.seed=7}"`) or as a
            pair (`("radix", {"engine.seed": 7})`); they are applied after those of `set`.
        with_: Sources that run beside these, and restart whenever they end, until these have ended.
        arrivals: Short-lived processes that arrive during the run, each stream as
            `SPEC[@CPUS],per_second=RATE[,count=N][,spacing=uniform|poisson]`. Without `sources` they need a `count`.
        machine: Name of a preset or path of a TOML file; the default is the first of `available("machines")`.
        kernel: The same for the kernel's costs.
        set: Overrides of configuration keys: `{"machine.tlb.l2_latency_cycles": 7}` or
            `["machine.tlb.l2_latency_cycles=7"]`. The keys are those of `schema()`.
        seed: Seed of every random choice (`engine.seed`). The same seed gives the same statistics, to the byte.
        max_accesses: Replay at most this many accesses of each source; `"100M"` is possible, as for the other counts.
        warm_up: Start counting after this many accesses of all sources together, when caches and memory are in the
            state to be measured.
        contiguity_map: Return the frames of the sources' pages at their end, as `SystemResult.contiguity_map`.
        faults: Write a fault trace of the run to this file (`NAME.faults`): each page fault of the programs that their
            own kernel handled, with its time and latency by the simulated clock. For one system, without `warm_up`.
        windows: Also count in this many equal parts, as `SystemResult.windows`.
        profile: Return the costs of paging by memory and code, as `SystemResult.profile`. Changes no other result; TLB
            misses take about four times as long to simulate.
        interleavings: Replay this many legal orders of the main sources' threads, the recorded one first. The figures
            of each are `SystemResult.orders`, and `Results.spread` shows their spread. For sources with several
            threads.
        sample: Replay and measure only windows of the source, as `every=10M,length=100K,warm=500K` in instructions;
            True chooses windows by its length. Faults are counted for all of it; `SystemResult.figures()` gives
            intervals.
        check: Compare every translation with a flat record of the mappings; slower.
        threads: Systems simulated at the same time; default: the number of CPUs. Changes no result.
        progress: Called with (system, accesses done, all accesses if known) about ten times a second. An exception
            in it ends the run.

    Raises:
        ConfigError: an impossible configuration key or value.
        UsageError: an unknown name, or an invalid workload spec.
        TraceError: a trace that cannot be read or is damaged, or one that cannot be written.
        OutOfMemoryError: the simulated machine ran out of memory.
        CheckError: `check` found a wrong translation.
    """
    asked = request(locals())
    if faults is not None:
        # Reported before the run rather than after it.
        ensure_writable(Path(faults))
        if os.path.lexists(faults):
            raise UsageError(f"{os.fspath(faults)}: exists; name another output")
    answer = _engine.run_json(json.dumps(asked), progress, None if faults is None else os.fspath(faults))
    return Results.of_run(answer, asked)


class Settings(TypedDict, total=False):
    """Arguments of all kinds of runs, in addition to `systems`; `run` documents them."""

    with_: Source | Iterable[Source]
    machine: str | os.PathLike[str] | None
    kernel: str | os.PathLike[str] | None
    set: Overrides
    seed: Count | None
    max_accesses: Count | None
    warm_up: Count | None
    windows: Count | None
    profile: bool
    check: bool


def request(given: Mapping[str, Any], *, live: bool = False) -> dict[str, Any]:
    """What to run, as the engine takes it.

    Args:
        given: Options by their names (`run_options`); what is missing has its default, and what is no option is passed
            by.
        live: For `run_live`, whose request has no other sources than the program.
    """
    options = [option for option in OPTIONS if option.runs is Run.ALL or not live]
    asked: dict[str, Any] = {"sources": []}
    asked |= {option.key: _as_asked(option, given.get(option.name)) for option in options if option.is_asked}
    own = (key for system in asked["systems"] for key in _SYSTEM_KEY.findall(system))
    if renamed := complaint([*(text.partition("=")[0] for text in asked["set"]), *own]):
        raise ConfigError(renamed)
    return asked


def _as_asked(option: RunOption, value: Any) -> Any:
    """The value of an option as JSON holds it."""
    match option.kind:
        case Kind.SOURCES:
            return [os.fspath(source) for source in _several(() if value is None else value)]
        case Kind.SYSTEMS:
            return _systems(value)
        case Kind.PRESET:
            return None if value is None else os.fspath(value)
        case Kind.OVERRIDES:
            return overrides(() if value is None else value)
        case Kind.COUNT:
            return count(option.name, value)
        case Kind.POSITIVE:
            return count(option.name, value, least=1)
        case Kind.SAMPLE:
            return "auto" if value is True else value or None
        case Kind.SWITCH:
            return bool(value)
        case Kind.OUTPUT:
            raise AssertionError("the engine is told of outputs apart")


def overrides(settings: Overrides) -> list[str]:
    """The settings as `key=value` texts; values other than text are written as JSON."""
    if isinstance(settings, str):
        raise TypeError(f"set takes a mapping or a list of 'key=value' texts, not {settings!r}")
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={value if isinstance(value, str) else _json(value)}" for key, value in settings.items()]


def _json(value: Any) -> str:
    def plain(part: Any) -> Any:
        # Numbers and arrays of numpy.
        if hasattr(part, "tolist"):
            return part.tolist()
        raise TypeError(f"{part!r} is no value of a setting; these are numbers, texts, switches, lists and mappings")

    return json.dumps(value, default=plain)


def _systems(systems: Source | Iterable[System]) -> list[str]:
    several: Iterable[System] = [systems] if isinstance(systems, str | os.PathLike) else systems
    return [_system(*system) if isinstance(system, tuple) else os.fspath(system) for system in several]


def _system(name: Source, settings: Overrides) -> str:
    """`NAME{KEY=VALUE,…}`; a value with commas or brackets is written as a JSON string."""
    pairs = (setting.split("=", 1) for setting in overrides(settings))
    return f"{os.fspath(name)}{{{','.join('='.join([key, *map(_uncut, value)]) for key, *value in pairs)}}}"


def _uncut(value: str) -> str:
    try:
        json.loads(value)
    except ValueError:
        return json.dumps(value) if any(mark in value for mark in ',"[]{}') else value
    return value


def _several(values: Source | Iterable[Source]) -> list[Source]:
    return [values] if isinstance(values, str | os.PathLike) else list(values)
