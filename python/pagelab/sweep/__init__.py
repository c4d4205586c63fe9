"""Sweeps: many runs of one kind, each identified by what determines its result.

    import pagelab

    pagelab.sweep("tlb.toml")
    frame = pagelab.sweep.load("tlb")

The module is callable, as short for `run`.
"""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pagelab import _engine
from pagelab.quantities import Count, count
from pagelab.sweep import campaign, crews, specification
from pagelab.sweep.folder import Folder, load, runs
from pagelab.sweep.plan import Planned, distinct, plan

__all__ = ["Planned", "Summary", "load", "prepare", "run", "runs"]


@dataclass(frozen=True)
class Summary:
    """The outcome of a sweep."""

    folder: Path
    done: int
    """Runs with a result, made now or before."""
    made: int
    """Of these, those made now."""
    failed: int


def run(
    file: str | os.PathLike[str] | Mapping[str, Any],
    output: str | os.PathLike[str] | None = None,
    *,
    scheduler: str | None = None,
    workers: Count | None = None,
    retry: bool = False,
    watch: campaign.Watch | None = None,
) -> Summary:
    """Performs the missing runs of a sweep, and keeps their results in a folder.

    Args:
        file: A TOML file, or a mapping of its keys (docs/sweeps.md).
        output: The folder; by default what the file says, or the file's name without `.toml`.
        scheduler: Address of a Dask scheduler, whose workers perform the runs instead of this machine.
        workers: Runs at a time on this machine; by default one per CPU. Changes no result.
        retry: Repeat runs that failed.
        watch: Is told of the progress.

    Raises:
        UsageError: an impossible key or value in the file, or another client works in the folder.
        PagelabError: the scheduler is gone.
        OSError: the folder cannot be written to, as on a full disk. Finished runs are kept.
    """
    watch = watch or campaign.Watch()
    at_a_time = count("workers", workers, least=1)
    if scheduler is not None and at_a_time is not None:
        raise _engine.UsageError(
            "`workers` is for this machine, and a scheduler has its own workers: give only one of the two"
        )
    sweep, path = prepare(file, output)
    planned = plan(sweep)
    every = distinct(planned)
    folder = Folder(path)
    folder.open(planned)
    try:
        done = {key for key in every if folder.done(key)}
        failed = {key for key in every if key not in done and not retry and folder.failure(key) is not None}
        missing = {key: one for key, one in every.items() if key not in done and key not in failed}
        watch.planned(len(every), len(done), len(failed), len(missing))
        if missing:
            parts = _Parts(watch)
            with crews.Cluster(scheduler) if scheduler else crews.Local(at_a_time, parts.report) as crew:
                campaign.carry_out(missing, crew, folder, sweep.limits.attempts, parts)
        now_done = sum(folder.done(key) for key in every)
        return Summary(path, now_done, now_done - len(done), len(every) - now_done)
    finally:
        folder.close()


def prepare(
    file: str | os.PathLike[str] | Mapping[str, Any], output: str | os.PathLike[str] | None = None
) -> tuple[specification.Sweep, Path]:
    """The sweep that a file or mapping asks for, and its folder.

    Raises:
        UsageError: an impossible key or value, or there is no name for the folder.
        OSError: the file cannot be read.
    """
    sweep = specification.parse(file) if isinstance(file, Mapping) else specification.read(file)
    folder = output or sweep.output
    if folder is None:
        if isinstance(file, Mapping):
            raise _engine.UsageError("output: is missing: name the folder of the results")
        folder = Path(file).with_suffix("").name
        if folder == Path(file).name:
            raise _engine.UsageError(f"{os.fspath(file)} has no ending .toml, so name a folder with --output")
    return sweep, Path(folder)


class _Parts(campaign.Watch):
    """Adds the parts of unfinished runs to the number of finished ones."""

    def __init__(self, watch: campaign.Watch) -> None:
        self._watch, self._ended, self._lock = watch, 0.0, threading.Lock()
        self._parts: dict[str, float] = {}

    def failed(self, one: Planned, error: str) -> None:
        self._watch.failed(one, error)

    def again(self, one: Planned, error: str) -> None:
        self._watch.again(one, error)

    def goes_on(self, ended: float) -> None:
        with self._lock:
            self._ended = ended
        self._tell()

    def report(self, key: str, part: float) -> None:
        with self._lock:
            self._parts[key] = part
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            self._watch.goes_on(self._ended + sum(self._parts.values()))


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Summary:
        return run(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
