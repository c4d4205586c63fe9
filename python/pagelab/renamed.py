"""Names of older versions that users may still write, and their new names.

An entry stays until the second minor version after the one that renamed it. docs/interfaces.md says which names are
promised.
"""

from collections.abc import Iterable

RENAMED = {
    "kernel.kswapd": "kernel.threads.kswapd",
    "kernel.khugepaged": "kernel.threads.khugepaged",
}
"""By old name: a key of a configuration, or a name of the package such as `pagelab.run`. Keys below a key are
renamed with it."""


def new_name(old: str) -> str | None:
    """The new name for a name of an older version, or None if it is not such a name."""
    for name, new in RENAMED.items():
        if old == name or old.startswith(f"{name}."):
            return new + old.removeprefix(name)
    return None


def complaint(names: Iterable[str]) -> str | None:
    """A message with the new name of the first renamed name, or None if none was renamed."""
    for name in names:
        new = new_name(name)
        if new is not None:
            return f"{name} is now {new}"
    return None
