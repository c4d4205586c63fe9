"""The process of one run: reads a request on standard input, answers in lines of JSON on standard output."""

import contextlib
import json
import os
import platform
import resource
import sys
import threading
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.capture.traces import is_trace
from pagelab.replay.simulation import run
from pagelab.sweep import sources
from pagelab.sweep.plan import digest

# The kernel's score for which process to kill first when memory runs out.
_FIRST_TO_END = "1000"


def main() -> None:
    """Answers one request and ends; ends at once if its parent does."""
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # If memory runs out, this process is killed rather than the client's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
    if asked["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_bytes"],) * 2)
    try:
        kind, text = "done", _answer(asked)
    except _engine.PagelabError as error:
        kind, text = "refused", str(error)
    except (OSError, MemoryError) as error:
        kind, text = "lost", str(error) or type(error).__name__
    _say({"kind": kind, "text": text, "provenance": _provenance()})
    sys.stdout.flush()
    # The reader of standard input prevents an ordinary end.
    os._exit(0)


def _answer(asked: dict[str, Any]) -> str:
    if "opens" in asked:
        _engine.drain(asked["opens"], 1)
        return ""
    if "configures" in asked:
        return json.dumps([_configuration(name, shape) for name, shape in asked["configures"]])
    expected = asked["expected"]
    if expected["version"] != _engine.__version__:
        raise _engine.UsageError(
            f"pagelab is {_engine.__version__} on the worker and {expected['version']} on the client: install the same"
        )
    request = _with_local_traces(asked["run"], expected["traces"])
    results = run(**request, progress=_report)
    (result,) = results.systems
    if digest(result.config) != expected["config"]:
        raise _engine.UsageError(
            "its configuration differs from the plan: a file or a preset differs on the worker, or has changed"
        )
    hashes = {source.content_hash for source in result.sources if source.content_hash}
    if hashes != set(expected["traces"].values()):
        raise _engine.UsageError("a trace has changed since the sweep started: run it again")
    return results.to_json()


def _configuration(name: str, shape: str) -> dict[str, Any]:
    try:
        return run(**json.loads(shape)).systems[0].config
    except _engine.PagelabError as error:
        raise _engine.UsageError(f"{name}: {error}") from None


def _with_local_traces(request: dict[str, Any], traces: dict[str, str]) -> dict[str, Any]:
    """The request with traces of object stores replaced by their local copies."""

    def here(text: str, role: str) -> str:
        spec, placing = sources.split(text, arrivals=role == "arrivals")
        if not is_trace(spec) or not sources.is_remote(spec):
            return text
        return f"{sources.local(spec, traces[spec])}{placing}"

    return {**request, **{role: [here(text, role) for text in request[role]] for role in sources.ROLES}}


def _report(_: str, done: int, total: int | None) -> None:
    if total:
        _say({"done": min(done / total, 1.0)})


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _provenance() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": platform.node(),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_memory_bytes": usage.ru_maxrss * 1024,
    }


def _end_with_parent() -> None:
    # No more input comes; it ends when the parent does.
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
