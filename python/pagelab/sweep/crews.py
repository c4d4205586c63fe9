"""Crews that perform the runs: processes of this machine, or the workers of a Dask cluster."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from pagelab import _engine
from pagelab.sweep import isolated
from pagelab.sweep.isolated import Outcome, Task


class Local:
    """Processes of this machine, up to a number at a time."""

    def __init__(self, workers: int | None = None, report: Callable[[str, float], object] = lambda *_: None) -> None:
        self._stop = threading.Event()
        self._report = report
        self.executor: Executor = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)))

    def perform(self, task: Task) -> "Future[Outcome]":
        return self.executor.submit(self._attempt, task)

    def _attempt(self, task: Task) -> Outcome:
        try:
            return isolated.attempt(task, lambda: not self._stop.is_set(), lambda done: self._report(task.key, done))
        finally:
            self._report(task.key, 0.0)

    def lost(self, future: "Future[Outcome]") -> Outcome:
        error = future.exception()
        if isinstance(error, OSError):
            # No process can be started, for this run or another.
            raise error
        return Outcome("lost", str(error))

    def look(self) -> None:
        """Threads of this process are there as long as it is."""

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.executor.shutdown(cancel_futures=True)


class Cluster:
    """Workers of a Dask cluster, with a separate process for each run."""

    def __init__(self, address: str, patience_seconds: float = 30.0) -> None:
        """Connects to a scheduler.

        Raises:
            UsageError: there is none, or dask.distributed is not installed.
        """
        try:
            import distributed
        except ImportError:
            raise _engine.UsageError(
                "--scheduler needs dask.distributed, which is not installed: pip install 'pagelab[cluster]'"
            ) from None
        self._address = address
        # Dask prints a traceback if a scheduler disappears; here, one line reports that.
        for name in ("asyncio", "tornado.application", "distributed", "distributed.client", "distributed.comm"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        connect: Any = distributed.Client
        try:
            # A client with an impossible address would take long to end.
            distributed.comm.addressing.get_address_host_port(address)
            self._client: Any = connect(address, timeout=patience_seconds, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _engine.UsageError(
                f"--scheduler {address}: there is no Dask scheduler ({error}); such an address is tcp://HOST:8786"
            ) from None
        self.executor: Executor = self._client.get_executor(pure=False, retries=0)

    def perform(self, task: Task) -> "Future[Outcome]":
        return self.executor.submit(_on_worker, task)

    def lost(self, future: "Future[Outcome]") -> Outcome:
        import distributed

        if future.cancelled():
            raise self._gone()
        error = future.exception()
        if isinstance(error, distributed.KilledWorker):
            return Outcome("lost", "the Dask workers that had it died")
        return Outcome("lost", f"the Dask worker answered: {error}")

    def look(self) -> None:
        if self._client.status != "running":
            raise self._gone()

    def _gone(self) -> Exception:
        return _engine.PagelabError(
            f"the Dask scheduler at {self._address} is gone; finished runs are kept, and the same command continues"
        )

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        # Workers see that their runs are no longer wanted.
        self._client.close()


def _on_worker(task: Task) -> Outcome:
    """A run on a Dask worker: abandoned when the client gives up."""
    import distributed

    worker = distributed.get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        state = worker.state.tasks.get(key)
        return state is not None and state.state == "executing"

    return isolated.attempt(task, wanted)
