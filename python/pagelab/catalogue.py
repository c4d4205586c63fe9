"""What there is to choose from: presets, mechanisms, workloads, configuration keys."""

import json
from typing import Any, cast

from pagelab import _engine


def available(kind: str) -> list[dict[str, Any]]:
    """Everything of a kind (`systems`, `machines`, `workloads`, `page-tables`, …; `kinds`) with its documentation.

    Each entry has at least `name` and `description`.

    Raises:
        UsageError: there is no such kind; the message names those there are.
    """
    return cast("list[dict[str, Any]]", json.loads(_engine.list_json(kind)))


def schema() -> dict[str, Any]:
    """JSON schema of a run's configuration: every key with its type, meaning and default."""
    return cast("dict[str, Any]", json.loads(_engine.schema_json()))
