"""Parses the texts of sources, and copies traces from object stores to this machine."""

import contextlib
import fcntl
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagelab import _engine
from pagelab.capture.traces import trace_info
from pagelab.output import cache_folder

ROLES = ("sources", "with_", "arrivals")
"""Arguments of `pagelab.run` that name sources."""

_LIMIT = ("memory_limit=",)
_PACE = (*_LIMIT, "per_second=", "count=", "spacing=")


def split(text: str, *, arrivals: bool = False) -> tuple[str, str]:
    """A source's text divided into its name and its placement: `a.trace` and `@0,memory_limit=1GiB`."""
    names = _PACE if arrivals else _LIMIT
    parts = text.split(",")
    placing = [part.strip() for part in parts if part.strip().startswith(names)]
    rest = ",".join(part for part in parts if not part.strip().startswith(names))
    pinned = re.fullmatch(r"(.*)(@[\d,-]+)", rest)
    spec, cpus = (pinned[1], pinned[2]) if pinned else (rest, "")
    return spec, ",".join([cpus, *placing])


def is_remote(spec: str) -> bool:
    return "://" in spec


def content_hash(spec: str) -> str:
    """The hash of a trace's content, here or in an object store.

    Raises:
        TraceError: it cannot be read or is damaged.
        UsageError: the object store cannot be reached, or its trace has no hash.
    """
    if not is_remote(spec):
        return str(trace_info(spec)["content_hash"])
    with _told(spec):
        system, path = _store(spec)
        meta = json.loads(system.cat_file(f"{path}/trace.json"))
    if not meta.get("complete"):
        raise _engine.UsageError(f"{spec}: the recording was cut off, so it has no hash; replay it from a folder")
    return str(meta["content_hash"])


def local(spec: str, content: str) -> Path:
    """The local path of a trace; one in an object store is copied here once.

    Args:
        spec: A folder or an address.
        content: The hash of its content.

    Raises:
        OSError: it cannot be written here.
        UsageError: the object store cannot be reached.
    """
    if not is_remote(spec):
        return Path(spec)
    cache = cache_folder() / "traces" / content.replace(":", "-")
    # Results name a trace by its folder.
    target = cache / Path(spec).name
    cache.mkdir(parents=True, exist_ok=True)
    # Other processes on this machine that need it wait, instead of fetching it as well.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(spec, cache, target)
    return target


def _fetch(spec: str, cache: Path, target: Path) -> None:
    with _told(spec):
        system, path = _store(spec)
        files = [name for name in system.ls(path, detail=False) if not name.endswith("/")]
    temporary = Path(tempfile.mkdtemp(prefix=".fetching-", dir=cache))
    try:
        for name in files:
            with _told(spec), system.open(name, "rb") as remote, (temporary / Path(name).name).open("wb") as here:
                shutil.copyfileobj(remote, here, 1 << 20)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _store(spec: str) -> tuple[Any, str]:
    """The file system of an address and the path in it; the environment has its settings."""
    try:
        import fsspec
    except ImportError:
        raise _engine.UsageError(f"{spec}: object stores need fsspec: pip install 'pagelab[cluster]'") from None
    protocol, path = spec.split("://", 1)
    try:
        system = fsspec.filesystem(protocol)
    except ImportError:
        # fsspec's own client of this store is not installed.
        from obstore.fsspec import register

        register(protocol)
        system = fsspec.filesystem(protocol)
    return system, path.rstrip("/")


@contextlib.contextmanager
def _told(spec: str) -> Iterator[None]:
    """Turns errors of an object store's client into an error that names the address."""
    try:
        yield
    except (OSError, _engine.PagelabError) as error:
        if isinstance(error, _engine.PagelabError) or error.filename:
            raise
        raise _engine.UsageError(f"{spec}: cannot be read: {error or type(error).__name__}") from None
    except Exception as error:  # Each store's client has its own errors.
        raise _engine.UsageError(f"{spec}: cannot be read: {error}") from None
