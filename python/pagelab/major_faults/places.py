"""Where the file lies: a folder on a block device, or a device in memory."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab.major_faults import MajorFaultError

PAGE = 4096
_CHUNK_PAGES = 256
_ZRAM = Path("/sys/block/zram0")
_ZRAM_DEVICE = Path("/dev/zram0")
_PATIENCE_SECONDS = 5


@dataclass(frozen=True)
class BlockDevice:
    """A file's block device."""

    device: str
    file_system: str

    @property
    def name_and_system(self) -> str:
        return f"{self.device} ({self.file_system})"


def place(folder: Path) -> BlockDevice:
    """The block device and file system of a folder.

    Raises:
        MajorFaultError: there is no such folder, or it has no block device of its own.
    """
    if not folder.is_dir():
        raise MajorFaultError(f"{folder}: no folder; give one on the drive that is to be measured")
    number = folder.stat().st_dev
    system = _file_system(folder)
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise MajorFaultError(
            f"{folder}: lies on {system or 'a file system'} without a block device; give a folder on ext4 or xfs "
            "with --on"
        )
    return BlockDevice(device.resolve().name, system)


def _file_system(folder: Path) -> str:
    """Type of the file system, from mountinfo (proc_pid_mountinfo(5)); empty if unknown."""
    number = folder.stat().st_dev
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in reversed(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()):
            fields = line.split()
            if fields[2] == f"{os.major(number)}:{os.minor(number)}":
                return fields[fields.index("-") + 1]
    return ""


@contextmanager
def cold_file(folder: Path, size: int) -> Iterator[Path]:
    """A file of random bytes on the drive, each page of which begins with its number. It has no name in the folder.

    So it disappears with this process, however that ends.

    Raises:
        MajorFaultError: the drive is full.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=".pagelab-major-faults-", dir=folder)
        Path(name).unlink()
    except OSError as error:
        raise MajorFaultError(
            f"{folder}: no file can be made there ({error.strerror}); name another with --on"
        ) from None
    with os.fdopen(handle, "wb", buffering=0) as file:
        try:
            _fill(file.fileno(), size // PAGE)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            room = shutil.disk_usage(folder).free
            raise MajorFaultError(
                f"{folder}: no room for a file of {size >> 20} MiB ({room >> 20} MiB are free); give a smaller --size "
                "or another folder with --on"
            ) from None
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _fill(handle: int, pages: int) -> None:
    for first in range(0, pages, _CHUNK_PAGES):
        count = min(_CHUNK_PAGES, pages - first)
        chunk = bytearray(os.urandom(count * PAGE))
        for page in range(count):
            chunk[page * PAGE : page * PAGE + 8] = (first + page).to_bytes(8, sys.byteorder)
        left = memoryview(chunk)
        while left:
            left = left[os.write(handle, left) :]
    os.fsync(handle)


def ram_disk_refusal(size: int) -> str | None:
    """Why a device in memory for a file of this size is impossible; none if it is possible."""
    if os.geteuid() != 0:
        return "it takes root"
    if not _ZRAM.is_dir():
        return f"there is no {_ZRAM_DEVICE}; load it: modprobe zram"
    if (_ZRAM / "disksize").read_text(encoding="ascii").strip() != "0":
        return f"{_ZRAM_DEVICE} is in use; free it, if nobody needs it: umount or swapoff, then echo 1 > {_ZRAM}/reset"
    missing = [program for program in ("mkfs.ext4", "mount", "umount") if not shutil.which(program)]
    if missing:
        return f"{', '.join(missing)} not installed"
    available = _available()
    if available < 3 * size:
        return f"it takes {3 * size >> 20} MiB of free memory, and there are {available >> 20} MiB"
    return None


def _available() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


@contextmanager
def ram_disk(size: int) -> Iterator[Path]:
    """A folder on a device in memory, zram, with room for a file of this size. Both are removed afterwards."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="pagelab-zram-")))
        whole = (size + size // 8 + (16 << 20)) // PAGE * PAGE
        # Undoing a step that was not done is harmless. So nothing remains if a signal comes in between.
        undo.callback(_reset, whole)
        try:
            (_ZRAM / "disksize").write_text(str(whole), encoding="ascii")
        except OSError as error:
            raise MajorFaultError(f"{_ZRAM_DEVICE} cannot be set up: {error.strerror}") from None
        _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(_ZRAM_DEVICE))
        undo.callback(_unmount, folder)
        _run("mount", "-t", "ext4", str(_ZRAM_DEVICE), str(folder))
        yield folder


def _run(*command: str) -> None:
    # A process group of its own: Ctrl-C does not leave it half done.
    done = subprocess.run(command, capture_output=True, text=True, check=False, process_group=0)
    if done.returncode:
        raise MajorFaultError(f"{' '.join(command)}: {' '.join(done.stderr.split()) or 'failed'}")


def _unmount(folder: Path) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while folder.is_mount():
        try:
            _run("umount", str(folder))
        except MajorFaultError:
            if time.monotonic() > give_up:
                _run("umount", "--lazy", str(folder))
                raise
            time.sleep(0.1)


def _reset(whole: int) -> None:
    """Gives the device back if it is ours, which its size shows."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (_ZRAM / "disksize").read_text(encoding="ascii").strip() == str(whole):
        try:
            (_ZRAM / "reset").write_text("1", encoding="ascii")
        except OSError as error:
            if time.monotonic() > give_up:
                raise MajorFaultError(
                    f"{_ZRAM_DEVICE} cannot be given back ({error.strerror}): umount it, then echo 1 > {_ZRAM}/reset"
                ) from None
            time.sleep(0.1)
