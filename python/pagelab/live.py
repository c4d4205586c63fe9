"""`pagelab.run_live`: replays a program under systems while it runs."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagelab import _engine
from pagelab.counts import Count, count
from pagelab.recorder import Program, prepare, words
from pagelab.results import Results
from pagelab.simulation import Overrides, Progress, Source, System, request


@dataclass(frozen=True)
class LiveRun:
    """What a live run came to."""

    results: Results
    program: Program


def run_live(
    command: Sequence[str | os.PathLike[str]],
    systems: Source | Iterable[System] = "radix",
    *,
    cpus: int = 1,
    max_threads: int | None = None,
    with_: Source | Iterable[Source] = (),
    machine: str | os.PathLike[str] | None = None,
    kernel: str | os.PathLike[str] | None = None,
    set: Overrides = (),
    seed: Count | None = None,
    max_accesses: Count | None = None,
    warm_up: Count | None = None,
    windows: Count | None = None,
    profile: bool = False,
    check: bool = False,
    progress: Progress | None = None,
) -> LiveRun:
    """Runs a program under Valgrind and replays it meanwhile under each of `systems`. No trace is written.

    The program waits for the slowest system, and all are simulated at once. It has this process's standard input,
    output and error, and signals that this process gets are passed on to it: when it ends, for whatever reason, the
    results are of what it did until then.

    Args:
        command: The program and its arguments, each a text of its own.
        cpus: CPUs of the simulated machine that the program's threads are spread over.
        max_threads: Threads that each process may have at once; default 2,000. Valgrind ends one that starts more.
        max_accesses: End the program after so many accesses, such as `"100M"`.
        windows: Count in parts as well: so many at most and half as many at least, as nobody knows how long it runs.

    The other arguments are those of `run`.

    Raises:
        TypeError: `command` is one text in place of a list.
        UsageError: the program cannot be recorded, or Valgrind or gcc is missing; what `run` raises.
    """
    asked = request(
        systems=systems,
        with_=with_,
        machine=machine,
        kernel=kernel,
        set=set,
        seed=seed,
        max_accesses=max_accesses,
        warm_up=warm_up,
        windows=windows,
        profile=profile,
        check=check,
    )
    spread = count("cpus", cpus, least=1) or 1
    results, program = _engine.run_live_json(
        json.dumps(asked), words(command, "run_live"), prepare(), spread, max_threads, progress
    )
    return LiveRun(Results.from_json(results), Program(**json.loads(program)))
