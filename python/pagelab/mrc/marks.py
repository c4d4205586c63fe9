"""The TLBs and caches of a machine, as marks on miss-ratio curves."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pagelab import _engine
from pagelab.mrc.curves import LINE_SIZE

PAGE_BYTES = {"4K": 4 << 10, "2M": 2 << 20, "1G": 1 << 30}


@dataclass(frozen=True)
class Mark:
    """A TLB or cache of a processor."""

    stream: str
    """A key of `STREAMS`"""
    name: str
    entries: int
    granules: tuple[int, ...]
    """Sizes of its pages or lines in bytes"""


def marks_of(machine: str | None) -> list[Mark]:
    """Those of a machine, by the name of a preset or the path of a TOML file; none stands for the default.

    Raises:
        UsageError: there is no such machine, or it is impossible.
    """
    return list(_marks(json.loads(_engine.machine_json(machine))))


def _marks(machine: dict[str, Any]) -> Iterator[Mark]:
    arrays = (("data-tlb", "L1", "l1d"), ("data-tlb", "L2", "l2"), ("code-tlb", "L1", "l1i"), ("code-tlb", "L2", "l2"))
    for stream, level, key in arrays:
        for array in machine["tlb"][key]:
            pages = array["pages"]
            yield Mark(
                stream, f"{level} {'+'.join(pages)}", array["entries"], tuple(PAGE_BYTES[size] for size in pages)
            )
    for level in ("l1", "l2", "l3"):
        if cache := machine["cache"].get(level):
            size = _engine.parse_bytes(str(cache["size_bytes"]))
            yield Mark("data-cache", level.upper(), size // LINE_SIZE, (LINE_SIZE,))
