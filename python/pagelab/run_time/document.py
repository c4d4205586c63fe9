"""JSON files that one command writes and others read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pagelab._engine import UsageError
from pagelab.output import read_text

T = TypeVar("T")


def read(path: Path, kind: str, what: str, of_document: Callable[[Mapping[str, Any]], T]) -> T:
    """The result of `of_document` for a file of the kind `what`.

    Raises:
        UsageError: it is not such a file.
        OSError: it cannot be read.
    """
    try:
        document = json.loads(read_text(path))
    except ValueError:
        # The place of the error does not matter to a user who named another file.
        raise UsageError(f"{path}: no {what}: not JSON") from None
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise UsageError(f"{path}: no {what}")
    try:
        return of_document(document)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: no {what} of this version: {error}") from None
