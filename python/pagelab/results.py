"""What a run answers: raw counts, and frames and tables made of them."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pagelab.table import comparison

if TYPE_CHECKING:
    from rich.table import Table


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


@dataclass(frozen=True)
class SystemResult:
    """The statistics of one system, with everything that determines them."""

    system: str
    """The system's name, with `@` and its kernel if that was asked for."""
    label: str
    """The name, with what tells it from the run's other systems: its settings, or a number."""
    settings: tuple[str, ...]
    """The overrides that hold for it alone."""
    machine: str
    seed: int
    sources: tuple[SourceReport, ...]
    config: dict[str, Any]
    stats: dict[str, int]
    windows: tuple[dict[str, int], ...]
    """The same of each of the parts that the run was cut into."""
    contiguity_map: dict[str, list[tuple[int, int, int]]]
    """By layer, if asked for: runs of adjacent pages in adjacent frames of the main sources' anonymous memory, as
    the number of the first 4 KiB page, that of its frame, and pages."""
    warnings: tuple[str, ...]


class Results:
    """The results of all systems of a run, in the order in which they were asked for."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.version: str = document["version"]
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
                    contiguity_map={
                        layer: [(page, frame, pages) for page, frame, pages in runs]
                        for layer, runs in entry.get("contiguity_map", {}).items()
                    },
                    warnings=tuple(entry["warnings"]),
                )
            )

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """Reads what `to_json` wrote."""
        return cls(json.loads(text))

    def __getitem__(self, system: str) -> SystemResult:
        """The result of a system by its label, or by its name alone or with its settings as they were given."""
        for name_of in (_label, _asked_for, _name):
            for result in self.systems:
                if name_of(result) == system:
                    return result
        raise KeyError(f"no system {system!r} in these results; there are {', '.join(r.label for r in self.systems)}")

    def to_json(self) -> str:
        """All results as one JSON document, the same bytes for the same run."""
        return json.dumps(self._document, indent=1, ensure_ascii=False) + "\n"

    def to_polars(self) -> pl.DataFrame:
        """A long frame: a row per system and statistic, with columns system, statistic, value, unit, description."""
        rows = [
            (result.label, name, value, *self._about(name))
            for result in self.systems
            for name, value in result.stats.items()
        ]
        schema = {
            "system": pl.String,
            "statistic": pl.String,
            "value": pl.UInt64,
            "unit": pl.String,
            "description": pl.String,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def wide(self) -> pl.DataFrame:
        """A row per statistic, a column per system; a statistic that a system does not have is null."""
        names = list(dict.fromkeys(name for result in self.systems for name in result.stats))
        columns = {"statistic": pl.Series(names, dtype=pl.String)}
        for result in self.systems:
            values = [result.stats.get(name) for name in names]
            columns[result.label] = pl.Series(values, dtype=pl.UInt64)
        return pl.DataFrame(columns)

    def table(self) -> "Table":
        """The systems side by side, as a `rich` table; `rich.print` shows it."""
        return comparison([(result.label, result.stats) for result in self.systems])

    @property
    def warnings(self) -> list[str]:
        """What should be known before the figures are trusted; what holds for one system only names it."""
        every = [warning for result in self.systems for warning in result.warnings]
        common = [w for w in dict.fromkeys(every) if all(w in result.warnings for result in self.systems)]
        single = [f"{result.label}: {w}" for result in self.systems for w in result.warnings if w not in common]
        return common + single

    def _about(self, name: str) -> tuple[str | None, str | None]:
        about = self.statistics.get(name)
        return (about.unit, about.description) if about else (None, None)


def _label(result: SystemResult) -> str:
    return result.label


def _asked_for(result: SystemResult) -> str:
    return f"{result.system}{{{','.join(result.settings)}}}"


def _name(result: SystemResult) -> str:
    return result.system
