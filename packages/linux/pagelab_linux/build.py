"""Building a kernel. Source: Documentation/kbuild/kbuild.rst and kconfig.rst of Linux 6.12.

Images are stored under a hash of their inputs: the source's version, patches, our files, fragments of the configuration
and the compiler. So none is built twice. All share one source tree.
"""

import fcntl
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab._engine import UsageError
from pagelab_linux import LinuxError, tools
from pagelab_linux.layout import Layout, Series, digest, prune
from pagelab_linux.process import clean_environment, last_lines, logged
from pagelab_linux.source import Say, Tree, unpack

_FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "pagelab",
    "KBUILD_BUILD_HOST": "pagelab",
}
_KEPT = {"arch/x86/boot/bzImage": "bzImage", "System.map": "System.map", ".config": "config", "vmlinux": "vmlinux"}
_MOST_IMAGES = 12
_PARTIAL = ".new-"


@dataclass(frozen=True)
class Variant:
    """Which of the kernels."""

    plain: bool = False
    """Without our patches and files"""
    debug: bool = False
    """With self-checks: KASAN, lockdep and others"""
    locks: bool = False
    """With counts of acquisitions (`/proc/lock_stat`); instead of self-checks"""

    @property
    def name(self) -> str:
        return ("plain" if self.plain else "patched") + self.suffix

    @property
    def suffix(self) -> str:
        """Of the folder in which it is built. Without one, few files differ from the others' there."""
        return "-debug" if self.debug else "-locks" if self.locks else ""


@dataclass(frozen=True)
class Image:
    """A kernel that has been built."""

    folder: Path
    variant: Variant

    @property
    def kernel(self) -> Path:
        return self.folder / "bzImage"

    @property
    def symbols(self) -> Path:
        return self.folder / "System.map"


@dataclass(frozen=True)
class Workshop:
    """Where kernels are built and kept."""

    layout: Layout
    work: Path
    jobs: int
    say: Say

    @classmethod
    def from_layout(cls, layout: Layout, work: Path, say: Say, jobs: int | None = None) -> "Workshop":
        """Checks what can be checked beforehand.

        Raises:
            UsageError: the number of jobs is below 1, or the machine is of another kind.
        """
        if platform.machine() != "x86_64":
            raise UsageError(f"kernels are built on x86_64, for x86_64; this machine is {platform.machine()}")
        if jobs is not None and jobs < 1:
            raise UsageError(f"--jobs {jobs}: give at least 1")
        return cls(layout, work, jobs or len(os.sched_getaffinity(0)), say)

    def image(self, variant: Variant) -> Image:
        """The kernel, built if it does not exist yet.

        Raises:
            LinuxError: it cannot be built.
        """
        series = self.layout.series()
        home = self._home(series)
        image = Image(home / "images" / f"{variant.name}-{self.key(series, variant)}", variant)
        if not image.folder.is_dir():
            tools.require(tools.BUILD, "building a kernel")
            with self._alone(home):
                if not image.folder.is_dir():
                    self._build(series, variant, home, image)
        image.folder.touch()
        return image

    def source(self) -> Path:
        """The kernel's tree, unpacked if it does not exist yet. It may have our patches.

        Raises:
            LinuxError: it cannot be had.
        """
        series = self.layout.series()
        home = self._home(series)
        with self._alone(home):
            return unpack(series, home, self.say).folder

    def _home(self, series: Series) -> Path:
        return self.work / series.version.replace("~", "-")

    def key(self, series: Series, variant: Variant) -> str:
        """The identity of the kernel: a short hash of all its inputs."""
        ours: list[str | Path] = []
        if not variant.plain:
            ours += self.layout.patches
            for name, path in self.layout.added().items():
                # A change that does not affect the compiler needs no new kernel.
                ours += [name, path] if path.suffix != ".rst" else []
        fragments = self._fragments(variant)
        return digest([series.version, series.sha256, tools.compiler(), *ours, *fragments])

    def _fragments(self, variant: Variant) -> list[Path]:
        return self.layout.fragments(plain=variant.plain, debug=variant.debug, locks=variant.locks)

    @contextmanager
    def _alone(self, home: Path) -> Iterator[None]:
        """One build at a time changes the tree."""
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say(f"waiting for another build in {home}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _build(self, series: Series, variant: Variant, home: Path, image: Image) -> None:
        tree = unpack(series, home, self.say)
        patches, added = ([], {}) if variant.plain else (self.layout.patches, self.layout.added())
        tree.become(patches, added)
        # The plain and the patched kernel share a folder: when one follows the other, only what the patches touch is
        # rebuilt.
        place = home / f"build{variant.suffix}"
        place.mkdir(exist_ok=True)
        make: list[str | Path] = ["make", "-C", tree.folder, f"O={place}", f"-j{self.jobs}"]
        self._configure(make, tree, place, self._fragments(variant))
        self.say(f"building the {variant.name} kernel with {self.jobs} jobs; {place}/build.log says how far it is")
        log = place / "build.log"
        if logged([*make, "bzImage"], log, environment=clean_environment(**_FIXED)) != 0:
            raise LinuxError(f"the kernel cannot be built: {_first_error(log)}; all that make said is in {log}")
        _publish(place, image.folder)
        prune(image.folder.parent.glob("[!.]*"), _MOST_IMAGES)

    def _configure(self, make: list[str | Path], tree: Tree, place: Path, fragments: Sequence[Path]) -> None:
        log = place / "configure.log"
        merge: list[str | Path] = [
            tree.folder / "scripts/kconfig/merge_config.sh",
            "-m",
            "-O",
            place,
            place / ".config",
            *fragments,
        ]
        for number, command in enumerate(([*make, "tinyconfig"], merge, [*make, "olddefconfig"])):
            if logged(command, log, append=number > 0) != 0:
                raise LinuxError(f"the kernel cannot be configured: {last_lines(log)}; all is in {log}")
        ensure_configured((place / ".config").read_text(encoding="utf-8"), fragments)


def ensure_configured(config: str, fragments: Sequence[Path]) -> None:
    """Checks that the configuration has what the fragments ask for. If several name a symbol, the last one counts.

    Raises:
        LinuxError: naming the difference.
    """
    has, asked = _symbols(config), {}
    for fragment in fragments:
        for symbol, value in _symbols(fragment.read_text(encoding="utf-8")).items():
            asked[symbol] = (value, fragment)
    for symbol, (value, fragment) in asked.items():
        configured = has.get(symbol, "n")
        if configured != value:
            raise LinuxError(
                f"{fragment}: asks for {symbol}={value}, and the kernel's configuration has {configured}; add what the "
                "symbol depends on, or leave it out"
            )


def _symbols(config: str) -> dict[str, str]:
    values = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))
    return values | dict.fromkeys(re.findall(r"^# (CONFIG_\w+) is not set$", config, re.MULTILINE), "n")


def _first_error(log: Path) -> str:
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if re.search(r"\berror:|undefined reference|No rule to make|No space left|fatal", line):
            return line.strip()
    return last_lines(log)


def _publish(place: Path, target: Path) -> None:
    """Moves the results of a build to their name, completely or not at all. Only one build at a time does so."""
    target.parent.mkdir(exist_ok=True)
    for killed in target.parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(killed, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_PARTIAL) as partial:
        whole = Path(partial) / "image"
        whole.mkdir()
        for source, name in _KEPT.items():
            shutil.copyfile(place / source, whole / name)
        whole.rename(target)
