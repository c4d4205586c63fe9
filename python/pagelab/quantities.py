"""Readable numbers: counts such as `100M`, sizes such as 1.5 KiB."""

import operator
from typing import SupportsIndex, TypeAlias

from pagelab import _engine

Count: TypeAlias = SupportsIndex | str


def count(name: str, value: Count | None, *, least: int = 0) -> int | None:
    """The number that `value` means; none stays none.

    Args:
        name: What it is, for errors.
        value: An integer, numpy's included, or a text with a unit: `"25M"`, `"1Mi"`, `"1e6"`.
        least: The smallest number that makes sense.

    Raises:
        TypeError: it is neither.
        UsageError: a text that is not a count, or a number below `least`.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            number = _engine.parse_count(value)
        except _engine.UsageError as error:
            raise _engine.UsageError(f"{name}: {error}") from None
    else:
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} takes an integer or a text such as '100M', not {value!r}") from None
    if number < least:
        raise _engine.UsageError(f"{name}: {number} is not possible; allowed is {least} and more")
    return number


def size_text(size: float) -> str:
    """Bytes with a binary prefix: 1536 are 1.5 KiB."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if size < 1024:
            return f"{size:.4g} {prefix}B"
        size /= 1024
    return f"{size:.4g} TiB"


def counted(number: int, one: str, several: str) -> str:
    """A number with what it counts: 1 access, 1,000 accesses."""
    return f"{number:,} {one if number == 1 else several}"
