"""The content of the folder `kernel/` of this package, and where its results are kept.

Source: kernel/README.md.
"""

import contextlib
import hashlib
import shutil
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab.output import cache_folder
from pagelab_linux import LinuxError

_FOLDER = Path(__file__).resolve().parent / "kernel"
_SERIES_KEYS = ("package", "version", "from", "tarball", "sha256")


@dataclass(frozen=True)
class Series:
    """The kernel that everything is built from."""

    package: str
    version: str
    origin: str
    """Which archive has it"""
    tarball: Path
    """Where the package puts the source"""
    sha256: str
    """Of the tarball"""


@dataclass(frozen=True)
class Layout:
    """The folder `kernel/`."""

    folder: Path

    @property
    def tests(self) -> Path:
        return self.folder / "tests"

    @property
    def patches(self) -> list[Path]:
        """In the order in which they are applied: that of their names."""
        return sorted((self.folder / "patches").glob("*.patch"))

    @property
    def has_changes(self) -> bool:
        """Whether there are patches or files of ours."""
        return bool(self.patches or self.added())

    def added(self) -> dict[str, Path]:
        """Files of ours by their paths in the kernel's tree: headers in include/, all else in mm/pagelab."""
        source = self.folder / "src"
        files = {}
        for path in files_below(source):
            name = path.relative_to(source).as_posix()
            if not name.startswith("include/"):
                name = f"mm/pagelab/{name}"
            elif name.count("/") == 1:
                name = f"include/linux/{path.name}"
            files[name] = path
        return files

    def fragments(self, *, plain: bool, debug: bool, locks: bool = False) -> list[Path]:
        """Fragments of the configuration, in the order in which they are merged."""
        config = self.folder / "config"
        wanted = [config / "base.config"]
        wanted += [config / "debug.config"] * debug + [config / "locks.config"] * locks
        ours = [] if plain else [config / "pagelab.config", *[config / "pagelab-debug.config"] * debug]
        return wanted + [path for path in ours if path.is_file()]

    def series(self) -> Series:
        """The pinned kernel.

        Raises:
            LinuxError: `series.toml` is missing or wrong.
        """
        path = self.folder / "series.toml"
        document = read_toml(path)
        wrong = sorted(set(_SERIES_KEYS) ^ set(document)) or [
            key for key in document if not isinstance(document[key], str)
        ]
        if wrong:
            raise LinuxError(f"{path}: {', '.join(wrong)}: it must have the texts {', '.join(_SERIES_KEYS)}, no others")
        return Series(
            document["package"], document["version"], document["from"], Path(document["tarball"]), document["sha256"]
        )


def layout() -> Layout:
    """The folder `kernel/` of this package."""
    return Layout(_FOLDER)


def default_work() -> Path:
    """The default folder of kernels."""
    return cache_folder() / "linux"


def read_toml(path: Path) -> dict[str, Any]:
    """The file's content.

    Raises:
        LinuxError: it is missing or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LinuxError(f"{path}: no such file; it belongs to the package pagelab-linux") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LinuxError(f"{path}: {error}") from None


def files_below(folder: Path) -> Iterator[Path]:
    """All files, except those that editors and git leave, in the order of their paths."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(("~", ".orig", ".rej")):
            yield path


def digest(parts: Iterable[str | Path]) -> str:
    """A short hash of texts and of files' contents and names."""
    whole = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        name = part.name if isinstance(part, Path) else ""
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:16]


def prune(kept: Iterable[Path], most: int) -> None:
    """Removes the least recently used, until this many are left. What was used within a day may be in use."""
    old = time.time() - 24 * 3600
    # Another process may remove it at the same time.
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(kept, key=lambda path: -path.stat().st_mtime)[most:]:
            if path.stat().st_mtime < old:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
