"""Other differences between two sides, and whether they make a comparison invalid."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pagelab.capture.program_exit import SIGNALLED
from pagelab.comparison.sides import Recorded, Side, sampled
from pagelab.results.results import SourceReport, SystemResult

_MOST_KEYS = 5
_NO_RESULT = ("engine.fast_path", "engine.lookahead", "engine.check", "engine.input_window_accesses")
"""Settings that do not change statistics"""
_NOT_MODELLED = ("description", "class", "year", "origin")


@dataclass(frozen=True)
class Difference:
    """A difference between the sides other than the program."""

    what: str
    a: str
    b: str
    voids: bool
    """Whether it, and not the program, may be the cause of changed figures."""

    def describe(self) -> str:
        return f"{self.what}: {self.a} in A, {self.b} in B"


def find(a: Side, b: Side, pairs: list[tuple[SystemResult, SystemResult]]) -> list[Difference]:
    """All known differences, those that make a comparison invalid first."""
    differing = [
        *_versions(a, b),
        *(difference for pair in pairs for difference in _of_systems(*pair)),
        *_requests(a, b),
        *_sources(a, b),
        *_exits(a, b),
        *_recordings(a, b),
    ]
    return sorted(dict.fromkeys(differing), key=lambda difference: not difference.voids)


def _versions(a: Side, b: Side) -> Iterator[Difference]:
    # Another version may simulate differently.
    yield from _unequal("pagelab version", _joined(a, "version"), _joined(b, "version"), voids=True)


def _joined(side: Side, attribute: str) -> str:
    return ", ".join(sorted({getattr(results, attribute) for results in side.recordings}))


def _of_systems(a: SystemResult, b: SystemResult) -> Iterator[Difference]:
    yield from _unequal("machine", a.machine, b.machine, voids=True)
    yield from _unequal("system", a.system, b.system, voids=True)
    names = [str((result.config.get("kernel") or {}).get("name", "unknown")) for result in (a, b)]
    yield from _unequal("kernel", *names, voids=True)
    if a.machine != b.machine or names[0] != names[1] or a.system != b.system:
        # Differences that follow from these are not listed.
        return
    flat = [dict(_flat(result.config)) for result in (a, b)]
    keys = [key for key in dict.fromkeys([*flat[0], *flat[1]]) if flat[0].get(key) != flat[1].get(key)]
    for key in keys[:_MOST_KEYS]:
        values = [str(side.get(key, "nothing")) for side in flat]
        yield Difference(key, values[0], values[1], voids=key not in _NO_RESULT)
    if len(keys) > _MOST_KEYS:
        more = f"{len(keys) - _MOST_KEYS} more keys"
        yield Difference("configuration", more, more, voids=any(key not in _NO_RESULT for key in keys[_MOST_KEYS:]))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a configuration with their values; its seed is compared separately."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in _NOT_MODELLED and f"{prefix}{key}" != "engine.seed":
                yield from _flat(part, f"{prefix}{key}.")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _flat(part, f"{prefix}{number}.")
    else:
        yield prefix.rstrip("."), value


def _requests(a: Side, b: Side) -> Iterator[Difference]:
    asked = [side.first.request for side in (a, b)]
    for name in ("max_accesses", "warm_up"):
        values = [getattr(one, name) if one else None for one in asked]
        texts = ["none" if value is None else f"{value:,}" for value in values]
        yield from _unequal(name.replace("_", " "), *texts, voids=True)
    beside = [", ".join(one.with_ + one.arrivals) or "nothing" if one else "nothing" for one in asked]
    yield from _unequal("runs beside it", *beside, voids=True)
    seeds = [{result.seed for results in side.recordings for result in results.systems} for side in (a, b)]
    texts = [", ".join(map(str, sorted(each))) for each in seeds]
    # With several seeds on both sides, the interval covers the effect of a seed.
    several = all(len(each) > 1 for each in seeds)
    yield from _unequal("seed", *texts, voids=not several)


def _sources(a: Side, b: Side) -> Iterator[Difference]:
    first = [side.first.systems[0].sources for side in (a, b)]
    counts = [str(sum(source.role == "main" for source in sources)) for sources in first]
    yield from _unequal("programs at once", *counts, voids=True)
    windows = ["windows of the program" if sampled(side) else "the whole program" for side in (a, b)]
    yield from _unequal("sample", *windows, voids=True)
    parts = [any(source.sampled for source in sources) for sources in first]
    yield from _unequal("trace", *("sampled accesses" if sample else "all accesses" for sample in parts), voids=True)
    whole = [_is_complete(side) for side in (a, b)]
    yield from _unequal("recording", *("complete" if each else "ended early" for each in whole), voids=True)
    inferred = [any(source.mappings_inferred for source in sources) for sources in first]
    yield from _unequal("mappings", *("guessed" if guess else "recorded" for guess in inferred), voids=False)
    cpus = [str(sorted({cpu for source in sources for cpu in source.cpus})) for sources in first]
    yield from _unequal("CPUs", *cpus, voids=False)


def _is_complete(side: Side) -> bool:
    return all(source.complete and not source.stopped for source in _all_sources(side))


def _all_sources(side: Side) -> Iterator[SourceReport]:
    return (source for results in side.recordings for result in results.systems for source in result.sources)


def _exits(a: Side, b: Side) -> Iterator[Difference]:
    """A program that failed did something else, and one that crashed did only a part, even if both crashed."""
    statuses = [sorted({source.exit_status or 0 for source in _all_sources(side)}) for side in (a, b)]
    texts = [", ".join(map(str, each)) for each in statuses]
    if any(max(each) > SIGNALLED for each in statuses):
        yield Difference("exit status of the program (above 128: ended by a signal)", texts[0], texts[1], voids=True)
    else:
        yield from _unequal("exit status of the program", *texts, voids=True)


def _recordings(a: Side, b: Side) -> Iterator[Difference]:
    if not a.recorded or not b.recorded:
        return
    for what, attribute in (
        ("recorded on", "host"),
        ("recorded under", "kernel"),
        ("recorded with", "tools"),
        ("trace format", "format"),
    ):
        values = [_texts(side.recorded, attribute) for side in (a, b)]
        yield from _unequal(what, *values, voids=False)


def _texts(recorded: tuple[Recorded, ...], attribute: str) -> str:
    return ", ".join(sorted({getattr(one, attribute) or "unknown" for one in recorded}))


def _unequal(what: str, a: str, b: str, *, voids: bool) -> Iterator[Difference]:
    if a != b:
        yield Difference(what, a, b, voids)
