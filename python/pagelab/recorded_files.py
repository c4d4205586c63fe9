"""Programs' files, which may have changed since a trace of them was recorded."""

import re
from collections.abc import Iterable
from pathlib import Path

from pagelab.results import Results
from pagelab.traces import is_trace, trace_info


def unchanged(files: Iterable[str], results: Results) -> set[str]:
    """Those of the files whose symbols can be used: they are as they were when what was replayed was recorded."""
    recorded = _recording_time(results)
    return {file for file in files if recorded is None or not _changed_since(Path(file), recorded)}


def _recording_time(results: Results) -> int | None:
    """When the first of the traces that were replayed was recorded, in seconds since 1970; none of other sources."""
    sources = results.request.sources if results.request else []
    # What stands behind a name pins it to CPUs or limits its memory.
    names = [re.sub(r"(\.trace/?)([@,].*)$", r"\1", source) for source in sources]
    times = [trace_info(name)["meta"].get("started_unix_seconds") for name in names if is_trace(name)]
    return min((time for time in times if time is not None), default=None)


def _changed_since(file: Path, seconds: int) -> bool:
    try:
        # Recordings keep whole seconds. The time of the last change of the inode is also that of an installation.
        return int(file.stat().st_ctime) > seconds
    except OSError:
        return True
