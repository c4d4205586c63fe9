"""The results of a run: raw counts, and frames and tables made from them."""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab import _engine
from pagelab.output import read_text, write_atomically
from pagelab.results.file_format import decode, encode
from pagelab.results.request import Request
from pagelab.results.windows import Figure, Sample, figures, is_sampled
from pagelab.run_options import OPTIONS

# Data frames and tables take longer to import than the command line takes to answer: only what makes them does.
if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from rich.table import Table

_COLUMNS = ("system", "statistic", "value", "unit", "description")


@dataclass(frozen=True)
class Statistic:
    """What a counter means."""

    unit: str
    description: str
    kind: str
    """`robust` (a count that does not depend on timing) or `timing` (it does)."""


@dataclass(frozen=True)
class SourceReport:
    """A trace or workload that was replayed."""

    name: str
    role: str
    """`main`, `co-runner` or `arrivals`."""
    content_hash: str | None
    mappings_inferred: bool
    """True if the trace had no events, so that its mappings were guessed from the accesses."""
    complete: bool
    """False if the recording was cut off."""
    cpus: tuple[int, ...]
    """CPUs that its threads were spread over."""
    layer: str
    """Layer that its processes ran on."""
    live: bool = False
    """True for a program that was recorded while it was replayed."""
    sampled: bool = False
    """True if the accesses are a sample of the program's accesses."""
    threads: int = 1
    """Most threads that run at the same time."""
    stopped: bool = False
    """True if its recording or sampling was stopped before the program's end."""
    exit_status: int | None = None
    """The program's exit status as in a shell: 128 plus the signal's number if a signal ended it; none if unknown."""


@dataclass(frozen=True)
class SystemResult:
    """The statistics of one system, with everything that determines them."""

    system: str
    """The system's name, with `@` and its kernel if one was requested."""
    label: str
    """The name, with its settings or a number if other systems of the run have the same name."""
    settings: tuple[str, ...]
    """The overrides for this system only."""
    machine: str
    seed: int
    sources: tuple[SourceReport, ...]
    config: dict[str, Any]
    stats: dict[str, int]
    windows: tuple[dict[str, int], ...]
    """The same for each of the parts of the run."""
    orders: tuple[dict[str, int], ...]
    """The same for each order of the threads, the recorded one first; empty unless `interleavings` requested others."""
    contiguity_map: dict[str, list[tuple[int, int, int]]]
    """By layer, if requested: runs of adjacent pages in adjacent frames of the main sources' anonymous memory, as
    the number of the first 4 KiB page, that of its frame, and the number of pages."""
    profile: dict[str, Any] | None
    """If requested, the costs of paging by place: `code`, `pages` and `regions` with the most expensive `rows` and the
    sum of the others; `walks` and `faults` with `latencies` (cycles, count), `samples` and the `slowest`. Samples
    of walks have `refs`, those of faults `stages` and `steps`. Cycles and bytes."""
    warnings: tuple[str, ...]
    sample: Sample | None = None
    """How the source was sampled, if it was."""

    def figures(self) -> list[Figure]:
        """Headline figures over the windows of a sampled run, each with its 95 % interval and what a longer warm-up
        changes; empty for a run of a whole program."""
        if not is_sampled(self.stats):
            return []
        return figures(self.windows, self.sample.longer if self.sample else ())


class Results:
    """The results of all systems of a run, in the order of the request."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.version: str = document["version"]
        asked = document.get("request")
        self.request: Request | None = None if asked is None else Request.from_document(asked)
        """The request; none in results of versions that did not keep it."""
        self.statistics = {name: Statistic(**about) for name, about in document["statistics"].items()}
        self.systems: list[SystemResult] = []
        for entry in document["results"]:
            self.systems.append(
                SystemResult(
                    system=entry["system"],
                    label=entry["label"],
                    settings=tuple(entry["settings"]),
                    machine=entry["machine"],
                    seed=entry["seed"],
                    sources=tuple(
                        SourceReport(**{**source, "cpus": tuple(source["cpus"])}) for source in entry["sources"]
                    ),
                    config=entry["config"],
                    stats=entry["stats"],
                    windows=tuple(entry["windows"]),
                    orders=tuple(entry.get("orders", ())),
                    contiguity_map={
                        layer: [(page, frame, pages) for page, frame, pages in runs]
                        for layer, runs in entry.get("contiguity_map", {}).items()
                    },
                    profile=entry.get("profile"),
                    warnings=tuple(entry["warnings"]),
                    sample=Sample.from_dict(entry["sample"]) if "sample" in entry else None,
                )
            )

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """Reads what `to_json` or `pagelab run --json` wrote, in this or an older version.

        Raises:
            UsageError: the text is not JSON, not results of pagelab, or of a newer format.
        """
        document = decode(text)
        try:
            return cls(document)
        except (KeyError, TypeError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise _engine.UsageError(
                f"this is not a pagelab result file, as `pagelab run --json` {_engine.__version__} writes it: {what}"
            ) from None

    @classmethod
    def of_run(cls, text: str, request: dict[str, Any]) -> "Results":
        """The engine's answer to a request, with the request."""
        document = json.loads(text)
        left_out = {option.key for option in OPTIONS if not option.is_kept}
        kept = {key: value for key, value in request.items() if key not in left_out}
        return cls({"version": document.pop("version"), "request": kept} | document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Results":
        """Reads a file that `pagelab run --json` or `save` wrote, compressed or not.

        Raises:
            OSError: it cannot be read.
            UsageError: it contains no results of pagelab.
        """
        text = read_text(Path(path))
        try:
            return cls.from_json(text)
        except _engine.UsageError as error:
            raise _engine.UsageError(f"{os.fspath(path)}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_json` to a file, whole or not at all; compressed if its name ends with `.gz`.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(Path(path), self.to_json())

    def labelled(self, labels: Sequence[str]) -> "Results":
        """The same results, whose systems have other labels, in their order."""
        results = [{**entry, "label": label} for entry, label in zip(self._document["results"], labels, strict=True)]
        return Results({**self._document, "results": results})

    @classmethod
    def side_by_side(cls, parts: Sequence["Results"], names: Sequence[str]) -> "Results | None":
        """All systems of several runs as one result; none if the runs differ in sources, machine or version.

        Args:
            parts: Results of runs.
            names: Names that distinguish runs whose systems have the same label.
        """
        first = parts[0]
        if any(_circumstances(part) != _circumstances(first) for part in parts):
            return None
        labels = [result.label for part in parts for result in part.systems]
        entries, statistics = [], {}
        for part, name in zip(parts, names, strict=True):
            statistics.update(part.to_document()["statistics"])
            for entry in part.to_document()["results"]:
                unique = labels.count(entry["label"]) == 1
                entries.append(entry if unique else {**entry, "label": f"{entry['label']} ({name})"})
        return cls({"version": first.version, "statistics": statistics, "results": entries})

    def joined(self, other: "Results", labels: Sequence[str]) -> "Results":
        """The systems of both, in the order of their labels; everything else is of these."""
        entries = {entry["label"]: entry for entry in self._document["results"] + other.to_document()["results"]}
        statistics = other.to_document()["statistics"] | self._document["statistics"]
        return Results({**self._document, "statistics": statistics, "results": [entries[label] for label in labels]})

    def __getitem__(self, system: str) -> SystemResult:
        """The result of a system by its label, or by its name alone or with its settings as they were given."""
        for name_of in (_label, _asked_for, _name):
            for result in self.systems:
                if name_of(result) == system:
                    return result
        raise KeyError(f"no system {system!r} in these results; there are {', '.join(r.label for r in self.systems)}")

    def to_document(self) -> dict[str, Any]:
        """All results as nested mappings and lists, with a mapping per window and per order of the threads."""
        return self._document

    def to_json(self) -> str:
        """All results as one JSON document, the same bytes for the same run."""
        return encode(self._document)

    def to_polars(self) -> "pl.DataFrame":
        """A long frame: a row per system and statistic, with columns system, statistic, value, unit, description."""
        import polars as pl

        types = (pl.String, pl.String, pl.UInt64, pl.String, pl.String)
        return pl.DataFrame(list(self._rows()), schema=dict(zip(_COLUMNS, types, strict=True)), orient="row")

    def to_pandas(self) -> "pd.DataFrame":
        """The frame of `to_polars` as one of pandas.

        Raises:
            ImportError: pandas is not installed; pagelab itself does not need it.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_pandas needs pandas, an optional package: pip install pandas") from None
        return pd.DataFrame(list(self._rows()), columns=list(_COLUMNS)).astype({"value": "uint64"})

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows of `to_polars` as CSV with a line of headings; also written to `path`, whole or not at all.

        Raises:
            OSError: `path` cannot be written.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(self._rows())
        if path is not None:
            write_atomically(Path(path), text.getvalue())
        return text.getvalue()

    def wide(self) -> "pl.DataFrame":
        """A row per statistic, a column per system; a statistic that a system does not have is null."""
        import polars as pl

        names = list(dict.fromkeys(name for result in self.systems for name in result.stats))
        columns = {"statistic": pl.Series(names, dtype=pl.String)}
        for result in self.systems:
            values = [result.stats.get(name) for name in names]
            columns[result.label] = pl.Series(values, dtype=pl.UInt64)
        return pl.DataFrame(columns)

    def summary(self) -> "Table":
        """A line per system in 80 columns: what paging costs, as a `rich` table."""
        from pagelab.results.summary import summary

        return summary(self._columns())

    def table(self) -> "Table":
        """The systems side by side, as a `rich` table; `rich.print` shows it."""
        from pagelab.results.table import comparison

        return comparison(self._columns())

    def tables(self, width: int) -> "list[Table]":
        """The same in tables of `width` columns of text at most, each with some of the systems."""
        from pagelab.results.table import blocks

        return blocks(self._columns(), width)

    def spread(self) -> "Table | None":
        """The spread of headline figures between orders of the threads, as a `rich` table; none for one order."""
        several = [(result.label, result.orders) for result in self.systems if result.orders]
        if not several:
            return None
        from pagelab.results.spread import spread_table

        return spread_table(several)

    @property
    def is_one_order(self) -> bool:
        """Whether a main source has several threads, of whose legal orders one was replayed."""
        threads = [source.threads for result in self.systems for source in result.sources if source.role == "main"]
        return max(threads, default=1) > 1 and not any(result.orders for result in self.systems)

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        from pagelab.results.table import html_comparison

        return html_comparison(self._columns())

    @property
    def warnings(self) -> list[str]:
        """Warnings about the figures; a warning for one system names it."""
        every = [warning for result in self.systems for warning in result.warnings]
        common = [w for w in dict.fromkeys(every) if all(w in result.warnings for result in self.systems)]
        single = [f"{result.label}: {w}" for result in self.systems for w in result.warnings if w not in common]
        return common + single

    def _columns(self) -> list[tuple[str, dict[str, int]]]:
        return [(result.label, result.stats) for result in self.systems]

    def _rows(self) -> Iterator[tuple[str, str, int, str | None, str | None]]:
        for result in self.systems:
            for name, value in result.stats.items():
                yield result.label, name, value, *self._about(name)

    def _about(self, name: str) -> tuple[str | None, str | None]:
        about = self.statistics.get(name)
        return (about.unit, about.description) if about else (None, None)


def _circumstances(results: Results) -> tuple[Any, ...]:
    """What runs must have in common for their systems to be compared."""
    asked = results.request
    parts = (asked.max_accesses, asked.warm_up, asked.sample) if asked else ()
    sources = {tuple((one.name, one.role, one.content_hash) for one in result.sources) for result in results.systems}
    return results.version, {result.machine for result in results.systems}, sources, parts


def _label(result: SystemResult) -> str:
    return result.label


def _asked_for(result: SystemResult) -> str:
    return f"{result.system}{{{','.join(result.settings)}}}"


def _name(result: SystemResult) -> str:
    return result.system
