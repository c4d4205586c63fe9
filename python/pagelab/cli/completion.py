"""Completion in the shell: names of presets and kinds."""

from collections.abc import Callable

import pagelab


def names_of(kind: str) -> Callable[[str], list[str]]:
    """Completes a word by the names of a kind, those of `pagelab list KIND`."""

    def complete(incomplete: str) -> list[str]:
        return [entry["name"] for entry in pagelab.available(kind) if entry["name"].startswith(incomplete)]

    return complete
