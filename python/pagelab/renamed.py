"""Names of older versions that users may still write, and the names that stand for them now.

An entry stays until the second minor version after the one that renamed it. docs/interfaces.md says which names are
promised.
"""

from collections.abc import Iterable

RENAMED = {
    "kernel.kswapd": "kernel.threads.kswapd",
    "kernel.khugepaged": "kernel.threads.khugepaged",
}
"""By old name: a key of a configuration, or a name of the package such as `pagelab.run`. What lies below a key is
renamed with it."""


def new_name(old: str) -> str | None:
    """What stands for a name of an older version, or None if it is no such name."""
    for name, new in RENAMED.items():
        if old == name or old.startswith(f"{name}."):
            return new + old.removeprefix(name)
    return None


def complaint(names: Iterable[str]) -> str | None:
    """Says of the first name that has another now what to write, or None if there is no such name."""
    for name in names:
        new = new_name(name)
        if new is not None:
            return f"{name} is now {new}"
    return None
