"""Files that pagelab writes: results, whole or not at all, and its cache folder."""

import errno
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagelab._engine import UsageError

MISSING_FOLDERS = "Missing folders are created."
"""Common behaviour of all outputs, for the help of their options."""


_ENDINGS = {
    "HTML": (".html", ".htm"),
    "JSON": (".json", ".json.gz"),
    "CSV": (".csv", ".txt"),
    "Parquet": (".parquet",),
    "Markdown": (".md", ".txt"),
    "TOML": (".toml",),
    "a trace": (".trace",),
    "a fault trace": (".faults",),
    "folded stacks": (".folded", ".txt"),
    "a pprof profile": (".pb.gz", ".gz", ".pprof", ".pb"),
    "a Callgrind profile": (".callgrind", ".out"),
    "a flame graph": (".svg",),
    "a table": (".txt",),
    "a folder of results": (),
}
"""What commands write, with the endings of file names; other endings that do not name a content are allowed, too"""
_KNOWN = {
    *(ending for endings in _ENDINGS.values() for ending in endings),
    *(".csv", ".gif", ".gz", ".jpeg", ".jpg", ".md", ".parquet", ".pdf", ".png", ".py", ".svg", ".tsv", ".txt"),
    *(".xls", ".xlsx", ".xml", ".xz", ".yaml", ".yml", ".zip", ".zst"),
}


_GZIP_MAGIC = b"\x1f\x8b"
_LARGEST_TEXT = 1 << 30
"""Bytes; a small compressed file from elsewhere may expand to any number"""


def ensure_ending(path: Path, content: str) -> None:
    """Refuses a name whose ending does not fit the content.

    Args:
        path: The output. A device or pipe may have any name.
        content: A key of the table above.

    Raises:
        UsageError: naming the ending that would be right.
    """
    endings, suffix = _ENDINGS[content], path.suffix.lower()
    if suffix not in _KNOWN or path.name.lower().endswith(endings):
        return
    if path.exists() and not path.is_file() and not path.is_dir():
        return
    right = path.with_suffix(endings[0]) if endings else path.with_suffix("")
    raise UsageError(f"{path}: the output is {content}, not {suffix[1:]}: name it {right}")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content` to `path`, which contains either its old content or all of the new one at every moment.

    Missing folders are created. A device or pipe is written to directly. Symbolic links are followed.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    try:
        _write(path.resolve(), content if isinstance(content, bytes) else _encoded(path, content))
    except OSError as error:
        # Nobody knows the file under its temporary name yet.
        if not error.filename or Path(os.fsdecode(error.filename)).name.startswith(f".{path.name}."):
            error.filename = str(path)
        raise


def read_text(path: Path) -> str:
    """The text of a file, which may be compressed by gzip, whatever its name is.

    Raises:
        OSError: it cannot be read.
        UsageError: it is not text, its compression is damaged, or it is larger than any file that pagelab writes.
    """
    content = path.read_bytes()
    if content.startswith(_GZIP_MAGIC):
        try:
            with gzip.open(path) as file:
                content = file.read(_LARGEST_TEXT + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            message = f"{path}: the compressed file is damaged or incomplete: copy it again, or create it again"
            raise UsageError(message) from None
        if len(content) > _LARGEST_TEXT:
            raise UsageError(f"{path}: it holds more than {_LARGEST_TEXT >> 30} GiB, more than any file of pagelab")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: it is no text") from None


def ensure_writable(path: Path) -> None:
    """Fails before long work rather than after it if `path` clearly cannot be written.

    Raises:
        OSError: naming the folder or file in the way.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = path.resolve().parent
    # Writing makes the folders that are missing.
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, os.strerror(code), str(path))
    if path.exists() and not path.is_file():
        return
    # Permissions are not enough: nothing can be created in /proc, for example.
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    Path(temporary).unlink()


def ensure_absent(path: Path) -> None:
    """Fails before long work if a folder to be created exists already.

    Raises:
        UsageError: naming it.
    """
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already, and a new folder is needed: name another, or remove it")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` at the end; nothing is left behind if filling it fails.

    Raises:
        OSError: it cannot be made, or `path` is there already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as temporary:
        filled = Path(temporary) / path.name
        filled.mkdir()
        yield filled
        filled.rename(path)


def ensure_apart(*paths: Path | None) -> None:
    """Refuses outputs that would overwrite each other.

    Raises:
        UsageError: two of the paths are one file.
    """
    named = [path for path in paths if path is not None]
    for number, path in enumerate(named):
        if any(path.resolve() == other.resolve() for other in named[:number]):
            raise UsageError(f"{path} is named twice and would be overwritten: name another output")


def _encoded(path: Path, text: str) -> bytes:
    content = text.encode()
    # Without a time the same text gives the same bytes.
    return gzip.compress(content, mtime=0) if path.name.lower().endswith(".gz") else content


def _write(target: Path, content: bytes) -> None:
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            file.write(content)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(target))
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Permissions for the file: those of the one it replaces, else what the umask leaves."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def cache_folder() -> Path:
    """The user's cache folder for pagelab, which need not exist (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "pagelab"
