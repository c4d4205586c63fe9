"""The folder of a sweep: a data set with the same bytes however often the sweep was interrupted.

runs.parquet            the runs of the sweep, in order: key and parameters
results/KEY.parquet     the statistics of one run
failures/KEY.json       why a run has none
log.jsonl               when, where and how long: an entry per attempt, no part of the data set
"""

import fcntl
import io
import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pagelab._engine import UsageError
from pagelab.output import ensure_writable, write_atomically
from pagelab.results.results import Results
from pagelab.sweep.plan import Planned
from pagelab.sweep.specification import Run

if TYPE_CHECKING:
    import polars as pl

_RUNS, _RESULTS, _FAILURES, _LOG, _LOCK = "runs.parquet", "results", "failures", "log.jsonl", "lock"
_OWN = {_RUNS, _RESULTS, _FAILURES, _LOG, _LOCK}
_MAGIC = b"PAR1"


class Folder:
    """Finished and failed runs on disk. One client writes at a time: `open` and `close` hold a lock meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def open(self, planned: Iterable[Planned]) -> None:
        """Locks the folder and writes the table of runs.

        Raises:
            UsageError: it contains other files, or another client works in it.
            OSError: it cannot be written to.
        """
        if self.path.is_dir() and (others := {entry.name for entry in self.path.iterdir()} - _OWN):
            strange = [name for name in sorted(others) if not name.startswith(f".{_RUNS}.")]
            if strange:
                raise UsageError(
                    f"{self.path} contains something else ({strange[0]}): name another folder with --output"
                )
        ensure_writable(self.path / _RUNS)
        for folder in (self.path, self.path / _RESULTS, self.path / _FAILURES):
            folder.mkdir(parents=True, exist_ok=True)
        self._take()
        # A client that was killed may have left some.
        for folder in (self.path, self.path / _RESULTS, self.path / _FAILURES):
            for left in folder.glob(".*"):
                left.unlink(missing_ok=True)
        write_atomically(self.path / _RUNS, _parquet(_table(list(planned)), {}))

    def _take(self) -> None:
        lock = (self.path / _LOCK).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise UsageError(f"{self.path}: another sweep is running there ({holder}): wait until it ends") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}\n")
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Unlocks the folder."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def done(self, key: str) -> bool:
        """Whether the result of a run exists and is complete."""
        try:
            with self._result(key).open("rb") as file:
                begin = file.read(len(_MAGIC))
                file.seek(-len(_MAGIC), os.SEEK_END)
                return begin == file.read() == _MAGIC
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # Shorter than that.
            return False

    def failure(self, key: str) -> str | None:
        """Why a run failed; none if it did not."""
        try:
            return str(json.loads(self._failure(key).read_text(encoding="utf-8"))["error"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):
            return "the record of the failure is damaged"

    def keep(self, one: Planned, document: str) -> None:
        """Writes the result of a run, as `pagelab.run` gave it.

        Raises:
            OSError: it cannot be written; the file then does not exist.
        """
        import polars as pl

        results = Results.from_json(document)
        (result,) = results.systems
        names = list(result.stats)
        frame = pl.DataFrame(
            {
                "key": pl.Series([one.key] * len(names), dtype=pl.String),
                "statistic": pl.Series(names, dtype=pl.String),
                "value": pl.Series(list(result.stats.values()), dtype=pl.UInt64),
                "unit": pl.Series([results.statistics[name].unit for name in names], dtype=pl.String),
            }
        )
        about = {"version": results.version, "seed": result.seed, "config": result.config, "warnings": result.warnings}
        write_atomically(self._result(one.key), _parquet(frame, {"pagelab": json.dumps(about, ensure_ascii=False)}))
        self._failure(one.key).unlink(missing_ok=True)

    def fail(self, one: Planned, error: str) -> None:
        """Records that a run failed.

        Raises:
            OSError: the record cannot be written.
        """
        text = json.dumps({"run": str(one.run), "error": error}, indent=1, ensure_ascii=False)
        write_atomically(self._failure(one.key), f"{text}\n")

    def log(self, key: str, attempt: int, kind: str, provenance: dict[str, Any]) -> None:
        """Appends to the log."""
        entry = {"key": key, "attempt": attempt, "outcome": kind, "ended": datetime.now(UTC).isoformat(), **provenance}
        with (self.path / _LOG).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(entry)}\n")

    def _result(self, key: str) -> Path:
        return self.path / _RESULTS / f"{key}.parquet"

    def _failure(self, key: str) -> Path:
        return self.path / _FAILURES / f"{key}.json"


def load(folder: str | os.PathLike[str]) -> "pl.DataFrame":
    """The results of a sweep as one long frame: the columns of `runs`, then statistic, value and unit.

    Runs that are not finished, or failed, have no rows.

    Raises:
        UsageError: the folder holds no sweep.
    """
    import polars as pl

    table = _runs(Path(folder))
    there = [key for key in dict.fromkeys(table["key"]) if Folder(Path(folder)).done(key)]
    if not there:
        empty = {"key": pl.String, "statistic": pl.String, "value": pl.UInt64, "unit": pl.String}
        return table.join(pl.DataFrame(schema=empty), on="key", how="inner")
    results = pl.read_parquet([Path(folder) / _RESULTS / f"{key}.parquet" for key in there])
    return table.join(results, on="key", how="inner", maintain_order="left_right")


def runs(folder: str | os.PathLike[str]) -> "pl.DataFrame":
    """The runs of a sweep, a row each: key and parameters, `state` (done, failed or missing) and `error`.

    Raises:
        UsageError: the folder holds no sweep.
    """
    import polars as pl

    table, kept = _runs(Path(folder)), Folder(Path(folder))
    errors = [None if kept.done(key) else kept.failure(key) for key in table["key"]]
    states = [
        "done" if kept.done(key) else "failed" if error else "missing"
        for key, error in zip(table["key"], errors, strict=True)
    ]
    return table.with_columns(pl.Series("state", states, dtype=pl.String), pl.Series("error", errors, dtype=pl.String))


def _runs(folder: Path) -> "pl.DataFrame":
    import polars as pl

    try:
        return pl.read_parquet(folder / _RUNS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(f"{folder} holds no sweep: its {_RUNS} cannot be read ({error})") from None


def _table(planned: list[Planned]) -> "pl.DataFrame":
    """The runs by their parameters; settings have the columns that their keys name."""
    import polars as pl

    every: list[Run] = [one.run for one in planned]
    settings = dict.fromkeys(key for run in every for key, _ in run.set)
    columns = {
        "key": pl.Series([one.key for one in planned], dtype=pl.String),
        "source": pl.Series([run.sources.name for run in every], dtype=pl.String),
        "system": pl.Series([run.system for run in every], dtype=pl.String),
        "machine": pl.Series([one.machine for one in planned], dtype=pl.String),
        "kernel": pl.Series([one.kernel for one in planned], dtype=pl.String),
    }
    for key in settings:
        columns[key] = _column([dict(run.set).get(key) for run in every])
    columns["seed"] = pl.Series([run.seed for run in every], dtype=pl.UInt64)
    return pl.DataFrame(columns)


def _column(values: list[Any]) -> "pl.Series":
    """Numbers and switches if all values are such; texts otherwise."""
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    types: list[tuple[set[type], Any]] = [({bool}, pl.Boolean), ({int}, pl.Int64), ({int, float}, pl.Float64)]
    for known, dtype in types:
        if kinds <= known:
            return pl.Series(values, dtype=dtype, strict=False)
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)


def _parquet(frame: "pl.DataFrame", metadata: dict[str, str]) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file, metadata=metadata)
    return file.getvalue()
