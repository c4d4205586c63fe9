"""What there is to choose from: presets, mechanisms, workloads, configuration keys."""

import difflib
import json
from typing import Any, cast

from pagelab import _engine

_WITH_PRESETS = ("machines", "systems", "kernels", "drives", "windows")


def available(kind: str) -> list[dict[str, Any]]:
    """Everything of a kind (`systems`, `machines`, `workloads`, `page-tables`, …; `kinds`) with its documentation.

    Each entry has at least `name` and `description`. A machine has a `class` (`server`, `desktop`, `mobile` or
    `simulated`) and, unless it is simulated, the `year` in which its processor was launched.

    Raises:
        UsageError: there is no such kind; the message names the kinds.
    """
    return cast("list[dict[str, Any]]", json.loads(_engine.list_json(kind)))


def preset_toml(kind: str, name: str) -> str:
    """The TOML file of a preset, with the origin of each number: `preset_toml("machines", "kabylake-7700hq")`.

    Raises:
        UsageError: the kind has no presets, or none of this name; the message names the presets.
    """
    texts = dict(_engine.preset_texts(kind.removesuffix("s")))
    if not texts:
        ensure_name(kind, name)
        raise _engine.UsageError(f"{kind} are no presets, so {name} has no TOML file; {', '.join(_WITH_PRESETS)} have")
    ensure_name(kind, name)
    return texts[name]


def ensure_name(kind: str, name: str) -> None:
    """Refuses a name that is not of a kind.

    Raises:
        UsageError: naming those that are nearest, or all.
    """
    names = [entry["name"] for entry in available(kind)]
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=3)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    raise _engine.UsageError(f"`{name}` is not one of the {kind}; {meant}")


def schema() -> dict[str, Any]:
    """JSON schema of a run's configuration: every key with its type, meaning and default."""
    return cast("dict[str, Any]", json.loads(_engine.schema_json()))
