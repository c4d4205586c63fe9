"""Third-party programs that the guest runs: Debian's stress-ng, and the kernel's own selftests of memory.

Source: kernel/tests/suite.toml says which; ldd(1); tools/testing/selftests/mm of the kernel's source.
"""

import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab_linux import LinuxError
from pagelab_linux.initramfs import Entry
from pagelab_linux.layout import Layout, read_toml
from pagelab_linux.process import clean_environment
from pagelab_linux.tools import Tool

_FLAGS = ("-std=gnu11", "-O2", "-static", "-pthread", "-s", "-w", "-D_GNU_SOURCE=", "-include", "kselftest.h")
_SHARED = ("vm_util.c", "thp_settings.c")
"""Files shared by the selftests; a program whose name starts with uffd also needs uffd-common.c"""
_PROGRAM, _FOLDER = stat.S_IFREG | 0o755, stat.S_IFDIR | 0o755


@dataclass(frozen=True)
class Others:
    """What `[programs]` of the suite names."""

    packages: Sequence[Tool]
    selftests: Sequence[str]


def load(layout: Layout) -> Others:
    """The programs.

    Raises:
        LinuxError: the table is wrong.
    """
    path = layout.tests / "suite.toml"
    document = read_toml(path).get("programs", {})
    packages, selftests = document.get("packages", {}), document.get("selftests", [])
    texts = [*packages.values(), *selftests] if isinstance(packages, dict) and isinstance(selftests, list) else [None]
    unknown = sorted(set(document) - {"packages", "selftests"})
    if unknown or not all(isinstance(each, str) for each in texts):
        raise LinuxError(
            f"{path}: [programs] has packages, a table of programs with their Debian packages, and selftests, a list "
            "of programs of tools/testing/selftests/mm" + f", and no {', '.join(unknown)}" * bool(unknown)
        )
    return Others([Tool(name, package) for name, package in packages.items()], selftests)


def entries(others: Others, source: Path) -> list[Entry]:
    """The programs in the guest's folder tests, and the libraries that they need.

    Args:
        source: The kernel's tree.

    Raises:
        LinuxError: one is missing or cannot be compiled.
    """
    listed = []
    libraries: set[Path] = set()
    for tool in others.packages:
        program = shutil.which(tool.name)
        if program is None:
            raise LinuxError(f"{tool.name} is missing; install the Debian package {tool.package}")
        listed.append(Entry(f"tests/{tool.name}", _PROGRAM, Path(program).read_bytes()))
        libraries |= _libraries(Path(program))
    with tempfile.TemporaryDirectory(prefix="pagelab-") as place:
        # The kernel's Makefile writes it; an empty one says that liburing is missing.
        (Path(place) / "local_config.h").touch()
        listed += [Entry(f"tests/{name}", _PROGRAM, _compiled(name, source, Path(place))) for name in others.selftests]
    folders = {parent for library in libraries for parent in library.parents if parent != Path("/")}
    listed += [Entry(str(folder)[1:], _FOLDER) for folder in sorted(folders)]
    return listed + [Entry(str(library)[1:], _PROGRAM, library.read_bytes()) for library in sorted(libraries)]


def _libraries(program: Path) -> set[Path]:
    """The libraries that the dynamic loader needs, itself included, under the names by which they are requested."""
    done = subprocess.run(["ldd", str(program)], env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode or "not found" in done.stdout:
        missing = re.findall(r"(\S+) => not found", done.stdout)
        raise LinuxError(
            f"{program}: {', '.join(missing) or 'its libraries'} cannot be found; install its package again"
        )
    return {Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(", done.stdout, re.MULTILINE)}


def _compiled(name: str, source: Path, place: Path) -> bytes:
    tests = source / "tools/testing/selftests"
    shared = [*_SHARED, *["uffd-common.c"] * name.startswith("uffd")]
    command: list[Any] = ["gcc", *_FLAGS, f"-I{tests}", f"-I{place}", f"-isystem{source}/tools/include/uapi"]
    command += ["-o", place / name, *(tests / "mm" / file for file in (f"{name}.c", *shared)), "-lrt"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line] or ["no word why"]
        raise LinuxError(f"the kernel's selftest {name} cannot be compiled: {lines[0]}")
    return (place / name).read_bytes()
