"""JSON files that one command writes and others read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pagelab._engine import UsageError
from pagelab.output import read_text

T = TypeVar("T")


def read(path: Path, kind: str, what: str, of_document: Callable[[Mapping[str, Any]], T]) -> T:
    """What `of_document` makes of a file of a kind, which is `what` in words.

    Raises:
        UsageError: it is no such file.
        OSError: it cannot be read.
    """
    try:
        document = json.loads(read_text(path))
    except ValueError:
        # Where in it that shows matters to nobody who named another file.
        raise UsageError(f"{path}: no {what}: not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise UsageError(f"{path}: no {what}")
    try:
        return of_document(document)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: no {what} of this version: {error}") from None
