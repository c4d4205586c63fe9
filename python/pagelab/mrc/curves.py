"""Miss-ratio curves: the misses that TLBs and caches of every size would have, from one pass over a program's accesses.

Models: fully associative TLBs and caches with LRU replacement, by stack distance (crates/pagelab-mrc).
Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems J. 9(2), 1970.
    Samples: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015.
Parameters: sizes of pages and lines; the share of them that is analysed.
Deviations: docs/miss-ratio-curves.md.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab import _engine
from pagelab.output import read_text, write_atomically
from pagelab.quantities import Count, count
from pagelab.replay.simulation import Progress, Source

# Data frames take longer to import than the command line takes to answer.
if TYPE_CHECKING:
    import polars as pl

PAGE_SIZES = ("4KiB", "64KiB", "2MiB", "1GiB")
LINE_SIZE = 64
STREAMS = {"data-tlb": "data TLB", "code-tlb": "instruction TLB", "data-cache": "data cache"}

COLUMNS = {
    "stream": ("", "data-tlb, code-tlb or data-cache: what is looked up"),
    "granule_bytes": ("bytes", "size of a page or line"),
    "entries": ("entries", "size of the TLB or cache"),
    "misses": ("look-ups", "look-ups that miss if it is fully associative and replaces the least recently used"),
    "least_misses": ("look-ups", "of a sample, the least that they may be; else the same"),
    "most_misses": ("look-ups", "of a sample, the most that they may be; else the same"),
    "misses_with_ways": ("look-ups", "the same with so many ways as were asked for, by Smith's estimate; else none"),
    "references": ("look-ups", "one for each page or line that an access touches"),
}
"""The columns of `to_polars`, with unit and meaning"""


@dataclass(frozen=True)
class Curve:
    """The misses of one stream in pages or lines of one size, by entries."""

    stream: str
    """A key of `STREAMS`"""
    granule_bytes: int
    references: int
    """Look-ups: one for each page or line that an access touches. For code, those of instructions are not counted: 0"""
    changes: int
    """References to another page than the one before, counted whatever the sample"""
    first_references: int
    """Misses of an infinite TLB: first references to a page, and first ones after it was unmapped"""
    pages: int
    """Pages in use at the end; for a sample, those in it"""
    sample_rate: float
    """Share of the pages that was analysed, at the end; 1 if all were"""
    sizes: Sequence[int]
    """Entries, in order"""
    misses: Sequence[int]
    least_misses: Sequence[int]
    """The bounds of a sample; without a sample, the misses"""
    most_misses: Sequence[int]
    misses_with_ways: Sequence[int]
    """Empty unless ways were requested"""

    @property
    def shown(self) -> Sequence[int]:
        """The misses with the requested ways, or fully associative ones."""
        return self.misses_with_ways or self.misses

    @property
    def enough(self) -> int:
        """The smallest size beyond which no other has fewer misses."""
        return next(size for size, misses in zip(self.sizes, self.shown, strict=True) if misses == self.shown[-1])

    @property
    def is_empty(self) -> bool:
        """True if there is no data: no look-ups, or a sample without any."""
        return not self.changes or not any(map(self.is_known, range(len(self.sizes))))

    def at(self, entries: int) -> int:
        """The index in `sizes` of the largest size up to `entries`, or of the first; its misses are not fewer."""
        return max(0, bisect_right(self.sizes, entries) - 1)

    def is_known(self, at: int) -> bool:
        """False if the sample decides nothing at this size, or saw no use at all."""
        seen = self.misses[0] > 0 and self.most_misses[at] < self.changes
        return self.sample_rate == 1 or seen or self.least_misses[at] > 0

    def entries_for(self, times: float) -> int | None:
        """The smallest size with `times` fewer misses than the first one; none if none is known."""
        few = (
            size
            for at, (size, misses) in enumerate(zip(self.sizes, self.shown, strict=True))
            if misses * times <= self.shown[0] and self.is_known(at)
        )
        return next(few, None)


@dataclass(frozen=True)
class SourceFacts:
    """The trace or workload."""

    name: str
    content_hash: str | None
    complete: bool
    """False if the recording was cut off"""
    mappings_inferred: bool
    threads: int
    """Most at the same time: all look up one TLB here"""


class MissRatioCurves:
    """All curves of a source."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.version: str = document["version"]
        self.source = SourceFacts(**document["source"])
        self.options: dict[str, Any] = document["options"]
        self.accesses: int = document["accesses"]
        self.data_accesses: int = document["data_accesses"]
        """Accesses to data; the others are fetches"""
        self.instructions: int = document["instructions"]
        self.curves = [Curve(**curve) for curve in document["curves"]]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MissRatioCurves":
        """Reads a file that `save` or `pagelab mrc --json` wrote, compressed or not.

        Raises:
            OSError: it cannot be read.
            UsageError: it contains no curves of pagelab.
        """
        text = read_text(Path(path))
        try:
            return cls(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise _engine.UsageError(
                f"{os.fspath(path)}: these are no curves of `pagelab mrc --json` ({error})"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_json` to a file, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(Path(path), self.to_json())

    def to_json(self) -> str:
        """All curves with what determines them, as JSON: the same bytes for the same source and options."""
        about = {name: {"unit": unit, "description": text} for name, (unit, text) in COLUMNS.items()}
        return json.dumps(self._document | {"statistics": about}, ensure_ascii=False) + "\n"

    def to_polars(self) -> "pl.DataFrame":
        """A long frame: a row per curve and size, with the columns of `COLUMNS`."""
        import polars as pl

        types = (pl.String, *[pl.UInt64] * (len(COLUMNS) - 1))
        return pl.DataFrame(list(self._rows()), schema=dict(zip(COLUMNS, types, strict=True)), orient="row")

    def of_stream(self, stream: str) -> list[Curve]:
        """The curves of a stream, from the smallest page to the largest."""
        return [curve for curve in self.curves if curve.stream == stream]

    def curve(self, stream: str, granule: Count) -> Curve:
        """The curve of a stream and a size of pages or lines.

        Raises:
            KeyError: there is none.
        """
        size = _bytes("granule", granule)
        for curve in self.of_stream(stream):
            if curve.granule_bytes == size:
                return curve
        raise KeyError(f"no curve of {stream!r} in pages or lines of {size} bytes")

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for curve in self.curves:
            ways: Sequence[int | None] = curve.misses_with_ways or [None] * len(curve.sizes)
            points = zip(curve.sizes, curve.misses, curve.least_misses, curve.most_misses, ways, strict=True)
            for point in points:
                yield curve.stream, curve.granule_bytes, *point, curve.references


def miss_ratio_curves(
    source: Source,
    *,
    page_sizes: Iterable[Count] = PAGE_SIZES,
    line_size: Count | None = LINE_SIZE,
    sample: float | str | None = None,
    seed: Count | None = None,
    max_accesses: Count | None = None,
    sizes: Iterable[Count] = (),
    ways: Count | None = None,
    progress: Progress | None = None,
) -> MissRatioCurves:
    """Analyses a source once, and returns how many misses TLBs and caches of every size would have.

    Args:
        source: A trace (`NAME.trace`) or a workload spec (`gups:size=2GiB`).
        page_sizes: Sizes of pages, powers of two; there is a curve for data and one for code for each.
        line_size: Size of a line; none leaves caches out.
        sample: Analyse this share of the pages (a number up to 1, such as `0.01`), or at most this many per curve
            (`"8K"`). The curves then have bounds.
        seed: Seed of a workload, and of the sample; default 1.
        max_accesses: Analyse at most this many accesses, such as `"100M"`.
        sizes: Additional numbers of entries for each curve. All up to 4,096 are exact, and larger ones with at most
            twelve significant bits; others have the misses of the next smaller such number.
        ways: Also estimate the misses of TLBs and caches with this many ways. The curves then have a size per power
            of two of sets.
        progress: Called with (source, accesses done, accesses in all if known) about ten times a second.

    Raises:
        UsageError: an impossible size, sample or workload spec.
        TraceError: a trace that cannot be read or is damaged.
    """
    options = {
        "page_bytes": [_bytes("page_sizes", size) for size in page_sizes],
        "line_bytes": None if line_size is None else _bytes("line_size", line_size),
        "sampling": _sampling(sample),
        "seed": 1 if seed is None else count("seed", seed),
        "max_accesses": count("max_accesses", max_accesses, least=1),
        "sizes": [count("sizes", size, least=1) for size in sizes],
        "ways": count("ways", ways, least=1),
    }
    answer = _engine.miss_ratio_curves_json(os.fspath(source), json.dumps(options), progress)
    return MissRatioCurves(json.loads(answer))


def _bytes(name: str, size: Count) -> int:
    if not isinstance(size, str):
        return count(name, size) or 0
    try:
        return _engine.parse_bytes(size)
    except _engine.UsageError as error:
        raise _engine.UsageError(f"{name}: {error}") from None


def _sampling(sample: float | str | None) -> str | dict[str, float | int | None]:
    """The sample in the engine's form. A value up to 1 is a share, a larger one a number of pages."""
    if sample is None:
        return "all"
    try:
        number = float(sample)
    except ValueError:
        number = 2.0
    if number <= 1:
        return {"rate": number}
    pages = count("sample", sample if isinstance(sample, str) else int(sample))
    return {"pages": pages}
