"""The plugin of QEMU that traces faults, built from `kernel/plugin/fault_trace.c`.

Source: QEMU 7.2, docs/devel/tcg-plugins.rst. Its header is not ours, and only QEMU's source package has it. It is
fetched with apt, without a change of apt's configuration: lists of sources and packages are kept beside the kernels.
"""

import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pagelab_linux import LinuxError, tools
from pagelab_linux.layout import Layout, digest
from pagelab_linux.process import clean_environment, last_lines, logged
from pagelab_linux.source import Say

_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
_BINARY = "qemu-system-x86"
_HEADER = "include/qemu/qemu-plugin.h"
_NEEDED = (tools.Tool("gcc", "gcc"), tools.Tool("xz", "xz-utils"), tools.Tool("qemu-system-x86_64", _BINARY))


def plugin(layout: Layout, work: Path, say: Say) -> Path:
    """The plugin, built if it does not exist yet.

    Raises:
        LinuxError: a tool is missing, the header cannot be fetched, or the plugin does not compile.
    """
    tools.require(_NEEDED, "tracing faults")
    source = layout.folder / "plugin" / "fault_trace.c"
    version = _qemu_version()
    key = digest([source, version, " ".join(_FLAGS)])
    built = work / f"fault_trace-{key}.so"
    if built.is_file():
        return built
    header = _header(version, work, say)
    with tempfile.TemporaryDirectory(dir=work, prefix=".plugin-") as place:
        partial = Path(place) / "fault_trace.so"
        command = ["gcc", *_FLAGS, f"-I{header.parent}", "-o", str(partial), str(source)]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or ["gcc gives no reason"]
            raise LinuxError(f"{source.name} cannot be compiled against QEMU {version}: {lines[0]}")
        partial.replace(built)
    return built


def _qemu_version() -> str:
    """Version of the source package that QEMU was built from.

    Raises:
        LinuxError: QEMU is not Debian's.
    """
    command = ["dpkg-query", "-W", "-f=${source:Version}", _BINARY]
    if shutil.which("dpkg-query"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout:
            return done.stdout.strip()
    raise LinuxError(f"the plugin is built for Debian's QEMU, and the package {_BINARY} is not installed")


def _header(version: str, work: Path, say: Say) -> Path:
    folder = work / f"qemu-{version.replace(':', '_').replace('~', '-')}"
    header = folder / "qemu-plugin.h"
    if header.is_file():
        return header
    say(f"fetching the source package of QEMU {version}, for one header")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix=".qemu-") as temporary:
        place = Path(temporary)
        _fetch(version, place)
        content = header_of(place)
        partial = place / header.name
        partial.write_bytes(content)
        partial.replace(header)
    return header


def header_of(folder: Path) -> bytes:
    """The plugins' header in the tarball of QEMU's source package.

    Raises:
        LinuxError: there is none.
    """
    tarballs = sorted(folder.glob("qemu_*.orig.tar.*"))
    for tarball in tarballs:
        with tarfile.open(tarball) as archive:
            for member in archive:
                if member.name.endswith(f"/{_HEADER}"):
                    file = archive.extractfile(member)
                    if file is not None:
                        return file.read()
    names = ", ".join(path.name for path in tarballs) or "no tarball"
    raise LinuxError(f"QEMU's source package has no {_HEADER} ({names}); it needs QEMU of at least 4.2")


def _fetch(version: str, place: Path) -> None:
    """Downloads the source package with a configuration of its own, which names the archives that apt knows."""
    lists, log = place / "lists", place / "apt.log"
    (lists / "partial").mkdir(parents=True)
    sources = place / "sources.list"
    sources.write_text("".join(f"{line}\n" for line in _archives()), encoding="utf-8")
    # As root, apt would download as its own user, who may not write here.
    options = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Etc::sourcelist={sources}"]
    options += ["-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Sandbox::User="]
    options += ["-o", f"Dir::Cache::pkgcache={place}/pkgcache", "-o", f"Dir::Cache::srcpkgcache={place}/srcpkgcache"]
    wanted = f"qemu={version}"
    shell = 'cd "$0" && apt-get "$@"'
    for command in (["update"], ["source", "--download-only", wanted]):
        status = logged(["sh", "-c", shell, place, *options, *command], log, seconds=1800)
        if status != 0:
            raise LinuxError(
                f"the plugin needs a header of QEMU's source package {wanted}, and apt-get {command[0]} failed: "
                f"{last_lines(log)}; if the archive no longer has this version, install the one that it has"
            )


def _archives() -> Sequence[str]:
    command = ["apt-get", "indextargets", "Created-By: Packages", "Origin: Debian"]
    command += ["--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"]
    if not shutil.which("apt-get"):
        raise LinuxError("the plugin needs a header of QEMU's source package; there is no apt-get here to fetch it")
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    archives = sorted({line.strip() for line in done.stdout.splitlines() if re.fullmatch(r"\S+ \S+ \S+", line.strip())})
    if not archives:
        raise LinuxError("apt knows no archive of Debian; run apt-get update as root, or add one to its sources")
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed = f"[signed-by={keyring}] " if keyring.is_file() else ""
    return [f"deb-src {signed}{line}" for line in archives]
