"""The guest's files: busybox, the first process and the test programs, as one archive.

Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux 6.12 (cpio, format "newc").
"""

import gzip
import re
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab_linux import LinuxError, tools
from pagelab_linux.layout import Layout, digest, files_below, prune
from pagelab_linux.process import clean_environment

_FLAGS = ("-std=gnu11", "-O2", "-static", "-pthread", "-s", "-Wall", "-Wextra", "-Werror")
_PT_INTERP = 3
_MOST_ARCHIVES = 8


@dataclass(frozen=True)
class Entry:
    """A file of the archive."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def initramfs(
    layout: Layout, work: Path, more: Callable[[], Sequence[Entry]] | None = None, key: Sequence[str | Path] = ()
) -> Path:
    """The archive, created if it does not exist yet.

    Args:
        more: Returns additional entries.
        key: What they are made of.

    Raises:
        LinuxError: a tool is missing, or a program does not compile.
    """
    tools.require(tools.GUEST, "running a kernel")
    busybox = Path(str(shutil.which("busybox"))).resolve()
    ensure_static(busybox)
    made_of = digest([" ".join(_FLAGS), tools.compiler(), *files_below(layout.tests), busybox, *key])
    archive = work / f"initramfs-{made_of}.cpio.gz"
    if archive.is_file():
        archive.touch()
        return archive
    work.mkdir(parents=True, exist_ok=True)
    folder, program, script = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFREG | 0o755
    entries = [Entry(name, folder) for name in ("bin", "dev", "proc", "sys", "tests", "tmp")]
    entries += [
        Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        Entry("dev/null", stat.S_IFCHR | 0o666, device=(1, 3)),
        Entry("bin/busybox", program, busybox.read_bytes()),
        Entry("init", script, (layout.tests / "init").read_bytes()),
    ]
    with tempfile.TemporaryDirectory(dir=work, prefix=".tests-") as place:
        entries += [Entry(f"tests/{path.stem}", program, compiled(path)) for path in sorted(layout.tests.glob("*.c"))]
        entries += more() if more else []
        partial = Path(place) / "archive"
        partial.write_bytes(gzip.compress(cpio(entries), 6, mtime=0))
        partial.replace(archive)
    prune(work.glob("initramfs-*.cpio.gz"), _MOST_ARCHIVES)
    return archive


def programs(layout: Layout) -> set[str]:
    """Names of the test programs."""
    return {path.stem for path in layout.tests.glob("*.c")}


def compiled(source: Path) -> bytes:
    """A program for the guest, from a file in C.

    Raises:
        LinuxError: it does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="pagelab-") as place:
        program = Path(place) / source.stem
        command = ["gcc", *_FLAGS, "-o", str(program), str(source)]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if re.search("No space left|error", line)]
            lines = lines or ["gcc gives no reason"]
            raise LinuxError(f"{source.name} cannot be compiled: {lines[0]}")
        return program.read_bytes()


def cpio(entries: Iterable[Entry]) -> bytes:
    """An archive of these entries; folders come before their content."""
    parts = []
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        # inode, mode, user, group, links, time, size, device, device of a special file, length of the name, checksum
        fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        parts += [_padded(header + name), _padded(entry.content)]
    return b"".join(parts)


def ensure_static(program: Path) -> None:
    """Refuses a program that needs a dynamic loader, which the guest does not have.

    Raises:
        LinuxError: it does, or is none.
    """
    content = program.read_bytes()
    if content[:5] != b"\x7fELF\x02":
        raise LinuxError(f"{program}: no 64-bit program; install the Debian package busybox-static")
    first, size, count = struct.unpack_from("<Q", content, 32)[0], *struct.unpack_from("<HH", content, 54)
    kinds = [struct.unpack_from("<I", content, first + number * size)[0] for number in range(count)]
    if _PT_INTERP in kinds:
        raise LinuxError(f"{program}: is linked dynamically; install the Debian package busybox-static in its place")


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
