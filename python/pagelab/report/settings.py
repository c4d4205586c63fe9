"""What was run: how the systems' configurations differ, what is estimated, and how to run it again."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagelab.results.results import Results, SystemResult

_NOT_SETTINGS = ("origin", "origins", "description", "class", "year", "name")


def differences(results: Sequence[SystemResult]) -> list[tuple[str, list[str]]]:
    """Keys whose values are not the same in all systems, with the value in each."""
    flat = [dict(_flatten(result.config)) for result in results]
    keys = sorted({key for settings in flat for key in settings})
    rows = [(key, [settings.get(key, "–") for settings in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def estimates(results: Sequence[SystemResult]) -> list[tuple[str, str]]:
    """Keys whose origin says that they are estimated, and what it says."""
    origins: dict[str, str] = {}
    for result in results:
        for part, keys in result.config.items():
            if not isinstance(keys, Mapping):
                continue
            for key, text in keys.get("origin", {}).items():
                if str(text).startswith("estimate"):
                    origins.setdefault(f"{part}.{key}", str(text))
    return sorted(origins.items())


def whole(result: SystemResult) -> str:
    """The effective configuration as JSON."""
    return json.dumps(result.config, indent=1, ensure_ascii=False)


def command(results: Results) -> str:
    """The command that repeats the run; only its start, if results do not contain the request."""
    if results.request is not None:
        return results.request.again()
    first = results.systems[0]
    parts = ["pagelab", "run"]
    live = [source.name for source in first.sources if source.live]
    parts += ["--live"] * bool(live)
    parts += [source.name for source in first.sources if source.role == "main" and not source.live]
    for result in results.systems:
        text = result.system + (f"{{{','.join(result.settings)}}}" if result.settings else "")
        parts += ["-s", text]
    parts += ["-m", first.machine, "--seed", str(first.seed)]
    document = results.to_document()["results"][0]
    for option, key in (("--max-accesses", "max_accesses"), ("--warm-up", "warm_up")):
        if document.get(key):
            parts += [option, str(document[key])]
    if first.orders:
        parts += ["--interleavings", str(len(first.orders))]
    # The program's arguments are not known.
    return shlex.join(parts) + "".join(f" -- {shlex.quote(name)} …" for name in live)


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            if key not in _NOT_SETTINGS:
                yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for at, inner in enumerate(value):
            yield from _flatten(inner, f"{path}.{at}")
    else:
        yield path, json.dumps(value, ensure_ascii=False).strip('"')
