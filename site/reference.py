"""The reference pages of the site, made of what the engine says of itself: nothing here is written down twice.

Every page is a pure function of the installed package, so two builds have the same bytes.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import commands
import keys
import pagelab
from tables import cell, code, table

_PRESETS = Path(__file__).resolve().parents[1] / "presets"
_NUMBERED = ("machines", "kernels", "drives", "windows")
"""Presets whose every number has an origin"""
_WITH_PARAMETERS = ("workloads", "fault-processes", "fault-models")
_ACCOUNT = re.compile(r"^(?:main|source\.\d+|co_runner(?:\.\d+)?|arrivals(?:\.\d+)?|kthread)\.")
_TINY = "seq:size=16KiB"


def pages() -> dict[str, str]:
    """Each page by its path in the site."""
    return {
        "reference/presets.md": _presets(),
        "reference/mechanisms.md": _mechanisms(),
        "reference/workloads.md": _workloads(),
        "reference/keys.md": keys.page(pagelab.schema()),
        "reference/statistics.md": _statistics(),
        "reference/commands.md": "# Commands\n\n" + commands.markdown().split("\n", 1)[1],
    }


def _kinds() -> dict[str, str]:
    return {kind["name"]: kind["description"] for kind in pagelab.available("kinds")}


def _presets() -> str:
    kinds = _kinds()
    text = [
        "# Presets\n\nWhat can be named on a command line. "
        "Of machines, kernels, drives and windows, each number has its origin. "
        "Copy a file, change it, and name its path ([configuration](../configuration.md)).\n\n"
    ]
    for kind in ("systems", *_NUMBERED):
        text.append(f"## {kind.capitalize()}\n\n{kinds[kind][0].upper()}{kinds[kind][1:]}.\n\n{_names(kind)}")
        if kind in _NUMBERED:
            text.extend(_numbers(path) for path in sorted((_PRESETS / kind).glob("*.toml")))
    return "".join(text)


def _names(kind: str) -> str:
    entries = pagelab.available(kind)
    made = [key for key in ("year", "class") if any(key in entry for entry in entries)]
    rows = [[code(e["name"]), *(str(e.get(key, "")) for key in made), cell(e["description"])] for e in entries]
    return table(["name", *made, "what it is"], rows)


def _numbers(path: Path) -> str:
    """Every number of a preset with its origin, to be unfolded."""
    preset = tomllib.loads(path.read_text())
    origins = preset.pop("origin")
    leaves = [(key, value) for key, value in _leaves(preset, "") if key not in ("name", "description")]
    rows = [[code(key), code(value), cell(_origin(origins, key))] for key, value in leaves]
    shown = table(["key", "value", "origin"], rows)
    folded = "".join(f"    {line}\n" for line in shown.splitlines())
    return f'??? note "`{path.stem}`: {len(rows)} values"\n\n{folded}\n'


def _leaves(value: Any, key: str) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return [(key, _written(value))]
    return [leaf for name, part in value.items() for leaf in _leaves(part, f"{key}.{name}" if key else name)]


def _written(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_written(part)}" for name, part in value.items()) + " }"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _origin(origins: dict[str, str], key: str) -> str:
    """What a preset says of a key, or of the longest beginning of it."""
    parts = key.split(".")
    known = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((origins[part] for part in known if part in origins), "")


def _mechanisms() -> str:
    text = ["# Mechanisms\n\nDesigns that a configuration chooses among, with the key that chooses. "]
    text.append("Their parameters are under [configuration keys](keys.md).\n\n")
    others = {kind: what for kind, what in _kinds().items() if kind not in ("systems", *_NUMBERED, *_WITH_PARAMETERS)}
    for kind, what in others.items():
        text.append(f"## {kind.replace('-', ' ').capitalize().replace('Mmu', 'MMU')}\n\n{cell(what)}\n\n{_names(kind)}")
    return "".join(text)


def _workloads() -> str:
    kinds = _kinds()
    text = ["# Workloads\n\nA spec is `NAME:PARAMETER=VALUE,…`. What it leaves out has its default.\n\n"]
    for kind in _WITH_PARAMETERS:
        text.append(f"## {kind.replace('-', ' ').capitalize()}\n\n{cell(kinds[kind])}\n\n")
        for entry in pagelab.available(kind):
            what = cell(entry.get("summary") or entry["description"])
            origin = f" ({cell(entry['origin'])})" if entry.get("origin") else ""
            rows = [
                [code(p["name"]), cell(p["meaning"]), code(p["default"]), cell(p.get("allowed", "")), cell(p["unit"])]
                for p in entry["parameters"]
            ]
            headings = ["parameter", "what it is", "default", "allowed", "unit"]
            text.append(f"### `{entry['name']}`\n\n{what}{origin}\n\n{table(headings, rows)}")
    return "".join(text)


def _statistics() -> str:
    """Every statistic that any preset counts: all of them run, for a moment."""
    systems = [entry["name"] for entry in pagelab.available("systems")]
    systems += [f"radix@{entry['name']}" for entry in pagelab.available("kernels")]
    alone = pagelab.run(_TINY, systems=systems, max_accesses=100)
    beside = [f"{_TINY}@2"]
    together = pagelab.run(
        [f"{_TINY}@0", f"{_TINY}@1"], with_=beside, arrivals=[f"{_TINY}@3,per_second=1000,count=2"], max_accesses=100
    )
    known: dict[str, tuple[str, str]] = {}
    for results in (alone, together):
        for row in results.to_polars().iter_rows(named=True):
            known.setdefault(_pattern(row["statistic"]), (row["unit"], row["description"]))
    families: dict[str, list[str]] = {}
    for name in sorted(known):
        families.setdefault(_family(name), []).append(name)
    text = [
        "# Every statistic\n\n"
        "The names in `--json`, `to_polars()`, `to_pandas()` and `to_csv()`, with what each counts. "
        "[Statistics](../statistics.md) explains them. `LAYER` is the name of a layer such as `native`, `guest` "
        "or `host`; `N` is a number. `ACCOUNT` is a source or a role, and meanings there are those of one example.\n\n"
    ]
    for family, names in families.items():
        rows = [[code(name), cell(known[name][1]), cell(known[name][0])] for name in names]
        text.append(f"## `{family}`\n\n{table(['statistic', 'what it counts', 'unit'], rows)}")
    return "".join(text)


def _pattern(name: str) -> str:
    """The name with letters where a layer, a level, a size or an account stands."""
    name = _ACCOUNT.sub("ACCOUNT.", name)
    name = re.sub(r"\blayer\.[a-z0-9_-]+\.", "layer.LAYER.", name)
    name = re.sub(r"\.level\d", ".levelN", name)
    return re.sub(r"\.\d+K\b", ".SIZE", name)


def _family(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[:3]) if parts[:2] == ["layer", "LAYER"] else parts[0]
