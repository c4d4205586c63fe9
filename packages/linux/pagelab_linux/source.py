"""The kernel's source: fetched from Debian, unpacked once, and changed file by file as `kernel/` says.

A tree has the whole source. Patches and our own files are only written where they differ, so that make only rebuilds
what depends on them. The original of each changed file is kept beside the tree.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab_linux import LinuxError
from pagelab_linux.layout import Series
from pagelab_linux.process import clean_environment, last_lines, logged

Say = Callable[[str], object]
_UNPACKED = 1_700_000_000
"""Bytes of the unpacked source"""
_PATCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Tree:
    """An unpacked source whose files can be changed and changed back."""

    folder: Path

    def become(self, patches: Sequence[Path], added: dict[str, Path]) -> None:
        """Turns the tree into the source with exactly these patches and files.

        Raises:
            LinuxError: a patch does not apply, or a file of ours is one of the kernel's. The tree is as it was.
        """
        before = self._changed()
        wanted = self._wanted(patches, added, before)
        new = {name: self._keep(name) for name in wanted if name not in before}
        # From here on files may differ, whatever interrupts this.
        self._remember(before | new)
        for name in before.keys() - wanted.keys():
            self._write(name, self._original(name, before))
        for name, content in wanted.items():
            self._write(name, content)
        self._remember({name: existed for name, existed in (before | new).items() if name in wanted})

    def _wanted(
        self, patches: Sequence[Path], added: dict[str, Path], before: dict[str, bool]
    ) -> dict[str, bytes | None]:
        names = sorted({name for path in patches for name in _PATCHED.findall(path.read_text(encoding="utf-8"))})
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".patching-") as place:
            scratch = Path(place)
            for name in names:
                original = self._original(name, before)
                if original is not None:
                    (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                    (scratch / name).write_bytes(original)
            for path in patches:
                apply(path, scratch)
            wanted = {name: (scratch / name).read_bytes() if (scratch / name).is_file() else None for name in names}
        for name, path in added.items():
            if name in wanted or self._original(name, before) is not None:
                raise LinuxError(f"{path}: the kernel has a file {name} of its own; give ours another name")
            wanted[name] = path.read_bytes()
        return wanted

    @property
    def _kept(self) -> Path:
        """The originals of changed files."""
        return self.folder.with_name(f"{self.folder.name}-before")

    @property
    def _state(self) -> Path:
        """The files that may differ from the package's, and whether the package has them."""
        return self.folder.with_name(f"{self.folder.name}-changed.json")

    def _changed(self) -> dict[str, bool]:
        try:
            existed_before = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {str(name): bool(existed) for name, existed in existed_before.items()}

    def _remember(self, changed: dict[str, bool]) -> None:
        _replace(self._state, json.dumps(changed, indent=1, sort_keys=True).encode())

    def _keep(self, name: str) -> bool:
        """Keeps the original of an unchanged file; returns whether the file exists."""
        path = self.folder / name
        if not path.is_file():
            return False
        _replace(self._kept / name, path.read_bytes())
        return True

    def _original(self, name: str, changed: dict[str, bool]) -> bytes | None:
        """The file as the package has it; none if it has none."""
        if name in changed:
            return (self._kept / name).read_bytes() if changed[name] else None
        path = self.folder / name
        return path.read_bytes() if path.is_file() else None

    def _write(self, name: str, content: bytes | None) -> None:
        path = self.folder / name
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != content:
            mode = path.stat().st_mode & 0o777 if path.is_file() else 0o644
            _replace(path, content, mode)


def apply(patch: Path, folder: Path) -> None:
    """Applies a patch without fuzz.

    Raises:
        LinuxError: naming the patch, with patch's message about the hunks that do not fit.
    """
    command = ["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch", "-d", str(folder), "-i", str(patch)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    file, failed = "", []
    for line in done.stdout.splitlines():
        if line.startswith(("patching file ", "can't find file ")):
            file = line.removeprefix("patching file ")
        elif "FAILED at" in line:
            failed.append(f"{file}: {line.split(' -- ')[0]}")
    why = "; ".join(failed) or (done.stdout + done.stderr).strip().splitlines()[-1]
    raise LinuxError(
        f"{patch}: does not apply to this kernel ({why}); no fuzz is allowed. Use the version that "
        "kernel/series.toml names, or remake the patch for this one"
    )


def unpack(series: Series, work: Path, say: Say) -> Tree:
    """The tree in `work`, unpacked if it does not exist yet.

    Raises:
        LinuxError: the source cannot be fetched, or differs from what `series` says.
    """
    tree = work / "tree"
    if not tree.is_dir():
        free = shutil.disk_usage(work).free
        if free < _UNPACKED:
            raise LinuxError(
                f"{work}: has {free / 1e9:.1f} GB free, and the kernel's source takes {_UNPACKED / 1e9:.1f} GB; make "
                "room, or give another folder with --work"
            )
        partial = work / "tree.part"
        shutil.rmtree(partial, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=work, prefix=".source-") as place:
            tarball = find(series, Path(place), say)
            say(f"unpacking {tarball}")
            partial.mkdir()
            log = work / "unpack.log"
            if logged(["tar", "-C", partial, "--strip-components=1", "-xf", tarball], log) != 0:
                why = last_lines(log)
                shutil.rmtree(partial, ignore_errors=True)
                raise LinuxError(f"{tarball} cannot be unpacked: {why}")
        # A tree under its final name is complete.
        partial.rename(tree)
    return Tree(tree)


def find(series: Series, place: Path, say: Say) -> Path:
    """The tarball: of the installed package if it is the right version, else of one fetched to `place`.

    Raises:
        LinuxError: there is none, or it is another one.
    """
    tarball = series.tarball
    if not is_installed(series):
        say(f"fetching {series.package} {series.version}")
        tarball = _fetch(series, _installed(series.package), place)
    with tarball.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != series.sha256:
        raise LinuxError(
            f"{tarball}: its SHA-256 is {digest}, and kernel/series.toml says {series.sha256} of {series.package} "
            f"{series.version}; install that version again"
        )
    return tarball


def is_installed(series: Series) -> bool:
    """Whether the package is installed here in the right version."""
    return _installed(series.package) == series.version and series.tarball.is_file()


def _installed(package: str) -> str | None:
    """Version of an installed package; none if it is not."""
    if not shutil.which("dpkg-query"):
        return None
    command = ["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package]
    status, _, version = subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition(" ")
    return version if status == "installed" else None


def _fetch(series: Series, installed: str | None, place: Path) -> Path:
    here = f"version {installed} is installed" if installed else "it is not installed"
    wanted = f"{series.package} {series.version}, from {series.origin}"
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise LinuxError(f"the kernel's source is the Debian package {wanted}; there is no apt-get here to fetch it")
    # apt switches to its own user, who may not write here; it prints that, and continues.
    log = place / "apt.log"
    shell = 'cd "$0" && exec apt-get download "$1"'
    status = logged(["sh", "-c", shell, place, f"{series.package}={series.version}"], log, seconds=1800)
    packages = list(place.glob("*.deb"))
    if status != 0 or len(packages) != 1:
        raise LinuxError(
            f"the kernel's source is the Debian package {wanted}; {here}, and apt-get download failed: "
            f"{last_lines(log)}. As root: apt-get update && apt-get install {series.package}={series.version}; "
            "if that version is no longer offered, pin another in kernel/series.toml"
        )
    if logged(["dpkg-deb", "-x", packages[0], place], log) != 0:
        raise LinuxError(f"{packages[0].name} cannot be unpacked: {last_lines(log)}")
    return place / series.tarball.relative_to("/")


def _replace(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(content)
    partial.chmod(mode)
    partial.replace(path)
