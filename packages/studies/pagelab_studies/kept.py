"""Finished runs of a study on disk, so that an interrupted study continues where it stopped.

A folder holds `study.json`, the request, and `runs/`, with a file per finished run.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pagelab
from pagelab import _engine
from pagelab.output import ensure_writable, write_atomically
from pagelab_studies.study import Measurement, Run

_STUDY = "study.json"
_RUNS = "runs"


def build() -> str:
    """A hash of the engine that makes the runs."""
    engine = Path(_engine.__file__ or "")
    return hashlib.sha256(engine.read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class StudyRequest:
    """Everything that determines the figures of a study."""

    reproduction: str
    version: str
    build: str
    """Distinguishes builds of one version: a hash of the engine."""
    scale: float
    beside: tuple[str, ...]
    """Requested co-runners in addition to the paper's."""
    programs: str = ""
    """Folder of recordings; empty if there is none."""

    def differences(self, other: "StudyRequest") -> str:
        mine, others = asdict(self), asdict(other)

        def show(value: object) -> str:
            return " and ".join(value) or "nothing" if isinstance(value, tuple) else str(value)

        return ", ".join(
            f"{name} {show(others[name])}, not {show(mine[name])}" for name in mine if mine[name] != others[name]
        )


class Kept:
    """The finished runs of a folder."""

    def __init__(self, folder: Path, asked: StudyRequest) -> None:
        """Opens or begins a folder.

        Raises:
            UsageError: it holds runs of another study, or other files.
            OSError: it cannot be written to.
        """
        self._runs = folder / _RUNS
        before = earlier_request(folder)
        if before is None:
            if folder.is_dir() and any(folder.iterdir()):
                raise pagelab.UsageError(f"{folder} holds other files: choose an empty or a new folder with --output")
            ensure_writable(folder / _STUDY)
            write_atomically(folder / _STUDY, json.dumps(asdict(asked), indent=1) + "\n")
        elif before != asked and not self.count:
            # The earlier request was a mistake, or was stopped at once.
            write_atomically(folder / _STUDY, json.dumps(asdict(asked), indent=1) + "\n")
        elif before != asked:
            raise pagelab.UsageError(
                f"{folder} holds runs of another study ({asked.differences(before)}): choose another folder with "
                "--output, request the same again, or remove the folder"
            )
        else:
            ensure_writable(folder / _STUDY)

    @property
    def count(self) -> int:
        """Number of finished runs in the folder."""
        return finished(self._runs.parent)

    def find(self, run: Run, window: int) -> Measurement | None:
        """The measurement of a run over a window, if it exists and is of exactly this run."""
        path = self._path(run)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            # A field that came later had its default then.
            before = {**_plain(Run("", "", "", "", 0)), **document["run"]}
            if before != _plain(run) or document["window"] != window:
                return None
            maps = {
                layer: [(start, count, frame) for start, count, frame in rows]
                for layer, rows in document["contiguity_map"].items()
            }
            return Measurement(run, window, document["stats"], tuple(document["parts"]), maps)
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            # Whatever is wrong with the file (invalid JSON and UTF-8 are ValueErrors), the run is repeated.
            return None

    def keep(self, measurement: Measurement) -> None:
        document = {
            "run": _plain(measurement.run),
            "window": measurement.window,
            "stats": dict(measurement.stats),
            "parts": [dict(part) for part in measurement.parts],
            "contiguity_map": {layer: list(rows) for layer, rows in measurement.contiguity_map.items()},
        }
        write_atomically(self._path(measurement.run), json.dumps(document) + "\n")

    def _path(self, run: Run) -> Path:
        name = "-".join("".join(c if c.isalnum() else "_" for c in part) for part in run.key if part)
        # Names that differ only in their punctuation stay different.
        return self._runs / f"{name}-{run.seed}-{hashlib.sha256(repr(run.key).encode()).hexdigest()[:8]}.json"


def finished(folder: Path) -> int:
    """Finished runs in the folder of a study."""
    runs = folder / _RUNS
    return len(list(runs.iterdir())) if runs.is_dir() else 0


def earlier_request(folder: Path) -> StudyRequest | None:
    """The request of the study in a folder; none if there is no study.

    Raises:
        UsageError: its `study.json` cannot be read.
    """
    path = folder / _STUDY
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return StudyRequest(
            reproduction=document["reproduction"],
            version=document["version"],
            build=document["build"],
            scale=document["scale"],
            beside=tuple(document["beside"]),
            programs=document["programs"],
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise pagelab.UsageError(f"{path} does not describe its runs ({error}): remove the folder") from error


def _plain(run: Run) -> dict[str, Any]:
    """A run in the form that it has after a round trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(run)))
    return plain
