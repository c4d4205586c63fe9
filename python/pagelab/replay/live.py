"""`pagelab.run_live`: replays a program under systems while it runs."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Unpack

from pagelab import _engine
from pagelab.capture.recorder import Program, facts, prepare, words
from pagelab.capture.stretches import Stretches
from pagelab.inherited import leave_to_programs
from pagelab.quantities import count
from pagelab.replay.simulation import Progress, Settings, Source, System, request
from pagelab.results.results import Results


@dataclass(frozen=True)
class LiveRun:
    """The result of a live run."""

    results: Results
    program: Program


def run_live(
    command: Sequence[str | os.PathLike[str]],
    systems: Source | Iterable[System] = "radix",
    *,
    cpus: int = 1,
    max_threads: int | None = None,
    stretches: Stretches | None = None,
    follow: str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> LiveRun:
    """Runs a program under Valgrind and replays it at the same time under each of `systems`. No trace is written.

    The program waits for the slowest system, and all are simulated at once. It has this process's standard input,
    output and error, and signals to this process are passed on to it. When it ends, for whatever reason, the results
    cover what it did until then.

    Args:
        command: The program and its arguments, each a text of its own.
        cpus: CPUs of the simulated machine that the program's threads are spread over.
        max_threads: Threads that each process may have at once; default 2,000. Valgrind ends one that starts more.
        stretches: What to measure of a long program; everything unless given. Results are then of the recorded
            windows, which are the parts in `SystemResult.windows`.
        follow: Which of the program's children are recorded, as `record` takes it.
        progress: Called with (system, accesses done, none) about ten times a second.
        settings: `with_`, `machine`, `kernel`, `set`, `seed`, `warm_up`, `profile` and `check` as `run` takes them;
            `max_accesses`, after which the program is ended; and `windows`, of which there are at most this many and at
            least half as many, as the length of the run is not known in advance.

    Raises:
        TypeError: `command` is one text instead of a list.
        UsageError: the program cannot be recorded, or Valgrind or gcc is missing; what `run` raises.
    """
    asked = request({"systems": systems, **settings}, live=True)
    spread = count("cpus", cpus, least=1) or 1
    program_words = words(command, "run_live")
    wanted = stretches.to_json() if stretches else None
    tool = prepare()
    leave_to_programs()
    results, program = _engine.run_live_json(
        json.dumps(asked), program_words, tool, spread, max_threads, progress, wanted, follow
    )
    # Results are UTF-8; an argument may be any bytes.
    shown = [os.fsencode(word).decode("utf-8", "backslashreplace") for word in program_words]
    whole = asked | {"command": shown, "cpus": spread, "max_threads": max_threads, "follow": follow}
    if wanted:
        whole["stretches"] = json.loads(wanted)
    return LiveRun(Results.of_run(results, whole), Program(**facts(json.loads(program))))
