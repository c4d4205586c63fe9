"""Programs and libraries needed to build and run a kernel, by their Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab_linux import LinuxError


@dataclass(frozen=True)
class Tool:
    """A program, or a file that a library's package has."""

    name: str
    package: str
    files: tuple[str, ...] = ()
    """Of a library: places of which one must exist"""

    def is_there(self) -> bool:
        if self.files:
            return any(Path(file).exists() for file in self.files)
        return shutil.which(self.name) is not None


BUILD = (
    Tool("gcc", "gcc"),
    Tool("make", "make"),
    Tool("flex", "flex"),
    Tool("bison", "bison"),
    Tool("bc", "bc"),
    Tool("patch", "patch"),
    Tool("tar", "tar"),
    Tool("xz", "xz-utils"),
    Tool("libelf", "libelf-dev", ("/usr/include/libelf.h",)),
)
GUEST = (
    Tool("gcc", "gcc"),
    Tool("libc.a", "libc6-dev", ("/usr/lib/x86_64-linux-gnu/libc.a", "/usr/lib64/libc.a", "/usr/lib/libc.a")),
    Tool("qemu-system-x86_64", "qemu-system-x86"),
    Tool("busybox", "busybox-static"),
)


def missing(tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if not tool.is_there()]


def require(tools: Iterable[Tool], what: str) -> None:
    """Fails if something is missing.

    Raises:
        LinuxError: naming each tool and its package.
    """
    gone = missing(tools)
    if gone:
        names = ", ".join(tool.name for tool in gone)
        packages = " ".join(sorted({tool.package for tool in gone}))
        raise LinuxError(
            f"{what} takes {names}, which cannot be found here; as root: apt-get install {packages}, "
            "or: pagelab linux build --install"
        )


def compiler() -> str:
    """Which gcc this is; nothing if there is none."""
    if not shutil.which("gcc"):
        return ""
    return subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]


def install(packages: Iterable[str], say: Callable[[str], object]) -> None:
    """Installs Debian packages.

    Raises:
        UsageError: not as root, or not on Debian.
        LinuxError: apt-get fails.
    """
    wanted = sorted(set(packages))
    if not wanted:
        return
    if not shutil.which("apt-get"):
        raise UsageError(
            f"--install needs apt-get, which is missing here; install what Debian calls {' '.join(wanted)}"
        )
    if os.geteuid() != 0:
        raise UsageError(f"--install needs root; or: sudo apt-get install {' '.join(wanted)}")
    say(f"installing {' '.join(wanted)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *wanted]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["it gives no reason"]
            raise LinuxError(f"apt-get {' '.join(command)} failed: {lines[-1]}")
