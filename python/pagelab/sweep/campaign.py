"""Performs the missing runs of a sweep, on this machine's cores or on a cluster, and keeps their results."""

import queue
from collections.abc import Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Protocol

from pagelab.sweep.folder import Folder
from pagelab.sweep.isolated import Outcome, Task
from pagelab.sweep.plan import Planned

# How often to check that the crew still exists.
_LOOK_SECONDS = 1.0


class Watch:
    """Is told of a sweep's progress; this one ignores it."""

    def planned(self, runs: int, done: int, failed: int, to_make: int) -> None:
        """There are this many different runs; this many of them will be performed now."""

    def goes_on(self, ended: float) -> None:
        """This many runs have ended, including parts of unfinished ones. Called from any thread."""

    def failed(self, one: Planned, error: str) -> None:
        """A run failed, and the failure is recorded."""

    def again(self, one: Planned, error: str) -> None:
        """A run is tried again."""


class Crew(Protocol):
    """Performs the runs."""

    executor: Executor

    def perform(self, task: Task) -> "Future[Outcome]":
        """Begins a run as soon as there is room."""

    def lost(self, future: "Future[Outcome]") -> Outcome:
        """Interprets a future without an outcome.

        Raises:
            PagelabError: the crew is gone.
        """

    def look(self) -> None:
        """Raises PagelabError if the crew is gone."""

    def __enter__(self) -> "Crew": ...

    def __exit__(self, *_: object) -> None:
        """Ends all unfinished runs."""


@dataclass(frozen=True)
class _Attempt:
    one: Planned
    number: int


def carry_out(missing: Mapping[str, Planned], crew: Crew, folder: Folder, attempts: int, watch: Watch) -> None:
    """Performs runs until each has a result or is recorded as failed.

    Raises:
        OSError: a result cannot be written, as on a full disk.
        PagelabError: the crew is gone.
    """
    ended: queue.SimpleQueue[tuple[Future[Outcome], _Attempt]] = queue.SimpleQueue()

    def begin(attempt: _Attempt) -> None:
        crew.perform(attempt.one.task).add_done_callback(lambda future: ended.put((future, attempt)))

    for one in missing.values():
        begin(_Attempt(one, 1))
    left = len(missing)
    while left:
        try:
            future, attempt = ended.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            crew.look()
            continue
        outcome = _outcome(crew, future)
        one = attempt.one
        folder.log(one.key, attempt.number, outcome.kind, outcome.provenance)
        if outcome.kind == "done":
            folder.keep(one, outcome.text)
        elif outcome.kind in ("lost", "stopped") and attempt.number < attempts:
            watch.again(one, outcome.text)
            begin(_Attempt(one, attempt.number + 1))
            continue
        else:
            error = outcome.text if outcome.kind == "refused" else f"{outcome.text} ({attempts} attempts)"
            folder.fail(one, error)
            watch.failed(one, error)
        left -= 1
        watch.goes_on(len(missing) - left)


def _outcome(crew: Crew, future: "Future[Outcome]") -> Outcome:
    try:
        return future.result()
    except (Exception, CancelledError):
        return crew.lost(future)
