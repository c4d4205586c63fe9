"""The plan of a sweep: each run with its key, computed from all that determines its result.

The engine checks every configuration, placement and source before anything runs.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from pagelab import _engine
from pagelab.capture.traces import is_trace
from pagelab.sweep import isolated, sources
from pagelab.sweep.specification import Run, Sweep

# The tiny source that replaces another one when a configuration is checked.
_STAND_IN = "seq:size=4KiB"
# A workload that is not open after this time is large: an invalid spec is refused at once.
_OPENING_SECONDS = 10.0
_SHAPES_PER_PROCESS = 32
_CONFIGURING_SECONDS = 60.0
_FORMAT = 1

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Planned:
    """A run and the key of its result."""

    run: Run
    key: str
    machine: str
    kernel: str
    task: isolated.Task


def plan(sweep: Sweep) -> list[Planned]:
    """Checks everything that the runs need, and gives each its key.

    Raises:
        UsageError: something is impossible; the message names the run.
        TraceError: a trace cannot be read.
    """
    requests = [sweep.request(run) for run in sweep.runs]
    every = {(role, text) for request in requests for role in sources.ROLES for text in request[role]}
    contents = _all(lambda source: _content(*source), sorted(every))
    # Runs that only differ in the seed have the same configuration otherwise.
    shapes = {_shape(request): str(run) for request, run in zip(requests, sweep.runs, strict=True)}
    configs = _configs(shapes)
    return [
        _planned(sweep, run, request, configs[_shape(request)], contents)
        for run, request in zip(sweep.runs, requests, strict=True)
    ]


def _all(look: Callable[[T], U], items: list[T]) -> dict[T, U]:
    """What `look` finds for each, several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            return dict(zip(items, pool.map(look, items), strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _content(role: str, text: str) -> dict[str, str]:
    """The identity of a source, whatever its path: the content of a trace, the spec of a workload."""
    spec, placing = sources.split(text, arrivals=role == "arrivals")
    if is_trace(spec):
        return {"trace": sources.content_hash(spec), "placing": placing}
    if "/" in spec or os.path.lexists(spec):
        raise _engine.UsageError(
            f"{spec} is neither a trace (a folder NAME.trace) nor a workload; `pagelab list workloads` shows these"
        )
    _open(spec)
    return {"workload": spec, "placing": placing}


@cache
def _open(spec: str) -> None:
    """Opens a workload in a separate process, as it might be too large for this one.

    Raises:
        UsageError: there is no such workload.
    """
    outcome = isolated.attempt(isolated.Task("", {"opens": spec}, {}, _OPENING_SECONDS))
    if outcome.kind == "refused":
        raise _engine.UsageError(outcome.text)


def _shape(request: Mapping[str, Any]) -> str:
    """What determines a configuration, with stand-ins for sources."""
    stand_ins = {
        role: [_STAND_IN + sources.split(text, arrivals=role == "arrivals")[1] for text in request[role]]
        for role in sources.ROLES
    }
    return json.dumps({**request, **stand_ins, "seed": 0, "max_accesses": 1, "warm_up": None})


def _configs(shapes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The effective configurations of shapes, which are given with names of runs that have them."""
    size = min(_SHAPES_PER_PROCESS, -(-len(shapes) // (os.cpu_count() or 1)))
    every = list(shapes)
    parts = [tuple(every[at : at + size]) for at in range(0, len(every), size)]
    by_part = _all(lambda part: _ask(part, shapes), parts)
    return {shape: config for part, configs in by_part.items() for shape, config in zip(part, configs, strict=True)}


def _ask(part: tuple[str, ...], names: Mapping[str, str]) -> list[dict[str, Any]]:
    # In a separate process: a configuration may take more memory than there is.
    asked = {"configures": [[names[shape], shape] for shape in part]}
    outcome = isolated.attempt(isolated.Task("", asked, {}, _CONFIGURING_SECONDS * len(part)))
    if outcome.kind == "done":
        return cast("list[dict[str, Any]]", json.loads(outcome.text))
    if outcome.kind == "refused":
        raise _engine.UsageError(outcome.text)
    if len(part) > 1:
        # The error names one of them.
        return [config for shape in part for config in _ask((shape,), names)]
    raise _engine.UsageError(f"{names[part[0]]}: its configuration cannot be set up on this machine: {outcome.text}")


def _planned(
    sweep: Sweep,
    run: Run,
    request: dict[str, Any],
    shared: Mapping[str, Any],
    contents: Mapping[tuple[str, str], dict[str, str]],
) -> Planned:
    if shared["engine"]["seed"] != 0:
        raise _engine.UsageError(f"{run}: engine.seed is set for it; a sweep takes `seeds`")
    config = {**shared, "engine": {**shared["engine"], "seed": run.seed}}
    by_role = {role: [contents[role, text] for text in request[role]] for role in sources.ROLES}
    identity = {
        "format": _FORMAT,
        "version": _engine.__version__,
        "config": config,
        "max_accesses": request["max_accesses"],
        "warm_up": request["warm_up"],
        **by_role,
    }
    key = digest(identity)
    traces = {
        sources.split(text, arrivals=role == "arrivals")[0]: entry["trace"]
        for role in sources.ROLES
        for text, entry in zip(request[role], by_role[role], strict=True)
        if "trace" in entry
    }
    expected = {"version": _engine.__version__, "config": digest(config), "traces": traces}
    limits = sweep.limits
    task = isolated.Task(key, {"run": request}, expected, limits.seconds_per_run, limits.memory_bytes)
    return Planned(run, key, run.machine or config["machine"]["name"], run.kernel or config["kernel"]["name"], task)


def digest(document: Any) -> str:
    """The hash of a document of JSON's types, whatever the order of its keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def distinct(planned: Iterable[Planned]) -> dict[str, Planned]:
    """One run per key, in their order."""
    first: dict[str, Planned] = {}
    for one in planned:
        first.setdefault(one.key, one)
    return first
