"""What ends with `pagelab linux`, whatever ends it: real processes, with stand-ins for make and QEMU."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pagelab_linux import process, source
from pagelab_linux.build import Workshop
from pagelab_linux.layout import layout

ENDINGS = [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up"), (signal.SIGINT, 130, "interrupted")]
MAKE = """#!/bin/sh
here=$(dirname "$0")
for word; do case $word in O=*) place=${word#O=} ;; esac; done
for word; do
    if [ "$word" = bzImage ]; then
        echo once >> "$here/makes"
        if [ -e "$here/hang" ]; then sleep 60 & echo $! > "$here/child"; wait; fi
        while [ -e "$here/slow" ]; do sleep 0.1; done
        mkdir -p "$place/arch/x86/boot"
        for file in arch/x86/boot/bzImage System.map vmlinux; do echo whole > "$place/$file"; done
    fi
done
"""
QEMU = """#!/bin/sh
here=$(dirname "$0")
echo PAGELAB kernel 6
sleep 60 & echo $! > "$here/child"
wait
"""
MERGE = '#!/bin/sh\nplace=$3\nshift 4\ncat "$@" > "$place/.config"\n'
BUILD = (
    "from pagelab.cli.application import main; from pagelab_linux import tools; tools.require = lambda *_: None; main()"
)
"""The command, for which no tool is missing"""
BOOT = (
    "from pathlib import Path; from pagelab.cli.application import main; from pagelab_linux.build import *; "
    "from pagelab_linux.cli import commands; "
    "commands.initramfs = lambda *_: Path('archive'); "
    "Workshop.image = lambda *_: Image(Path('image'), Variant()); main()"
)
"""The command, which finds kernel and archive"""


@dataclass
class CommandsInFolder:
    """A folder of work with the stand-ins, and commands that run in it."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def script(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, "linux", *arguments, "--work", str(self.work)]
        environment = os.environ | {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        begun = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )
        self.started.append(begun)
        return begun

    def child(self) -> int:
        """The process that the stand-in has started."""
        pid_file = self.bin / "child"
        wait_until(lambda: pid_file.is_file() and pid_file.read_text().endswith("\n"))
        return int(pid_file.read_text())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CommandsInFolder]:
    made = CommandsInFolder(tmp_path)
    made.script(made.bin / "make", MAKE)
    made.script(made.bin / "qemu-system-x86_64", QEMU)
    home = made.work / layout().series().version.replace("~", "-")
    made.script(home / "tree" / "scripts" / "kconfig" / "merge_config.sh", MERGE)
    yield made
    for each in made.started:
        each.kill()
        each.communicate()


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.1)
    pytest.fail("nothing happened in 20 s")


def has_ended(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("number", "status", "word"), ENDINGS)
def test_a_signal_ends_the_guest_too(place: CommandsInFolder, number: signal.Signals, status: int, word: str) -> None:
    console = place.folder / "console.log"
    console.write_text("of an earlier run\n")
    command = place.start(BOOT, "boot", "--plain", "--console", str(console))
    child = place.child()
    command.send_signal(number)
    _, errors = command.communicate(timeout=20)
    assert (command.returncode, errors) == (status, f"pagelab: error: {word}\n")
    wait_until(lambda: has_ended(child))
    assert console.read_text() == "of an earlier run\n"
    assert sorted(path.name for path in place.folder.iterdir()) == ["bin", "console.log", "work"]


@pytest.mark.parametrize(("number", "status", "word"), ENDINGS)
def test_a_signal_ends_the_build_too_and_another_one_goes_on(
    place: CommandsInFolder, number: signal.Signals, status: int, word: str
) -> None:
    (place.bin / "hang").touch()
    command = place.start(BUILD, "build", "--plain", "--quiet")
    child = place.child()
    command.send_signal(number)
    _, errors = command.communicate(timeout=20)
    assert (command.returncode, errors) == (status, f"pagelab: error: {word}\n")
    wait_until(lambda: has_ended(child))
    assert not list(place.work.rglob("bzImage"))
    (place.bin / "hang").unlink()
    kernel, errors = place.start(BUILD, "build", "--plain", "--quiet").communicate(timeout=60)
    assert not errors
    assert Path(kernel.strip()).read_text() == "whole\n"


@pytest.mark.parametrize(("code", "arguments"), [(BOOT, ("boot", "--plain")), (BUILD, ("build", "--plain"))])
def test_what_kills_the_command_ends_what_it_started(
    place: CommandsInFolder, code: str, arguments: tuple[str, ...]
) -> None:
    (place.bin / "hang").touch()
    command = place.start(code, *arguments)
    child = place.child()
    assert not has_ended(child)
    command.kill()
    wait_until(lambda: has_ended(child))


def test_what_was_killed_leaves_nothing_for_good(place: CommandsInFolder) -> None:
    left = place.work / layout().series().version.replace("~", "-") / "images" / ".new-killed"
    left.mkdir(parents=True)
    console = place.work / "consoles" / ".boot.log.0"
    console.parent.mkdir()
    console.touch()
    assert place.start(BUILD, "build", "--plain").wait(60) == 0
    assert not left.exists()
    command = place.start(BOOT, "boot", "--plain")
    place.child()
    command.terminate()
    command.communicate(timeout=20)
    assert not list(console.parent.iterdir())


def test_of_two_builds_one_waits_and_builds_nothing(place: CommandsInFolder) -> None:
    (place.bin / "slow").touch()
    first = place.start(BUILD, "build", "--plain")
    wait_until(lambda: (place.bin / "makes").exists())
    second = place.start(BUILD, "build", "--plain")
    assert second.stderr is not None
    assert "waiting for another build" in second.stderr.readline()
    (place.bin / "slow").unlink()
    (one, _), (other, _) = first.communicate(timeout=60), second.communicate(timeout=60)
    assert one == other != ""
    assert (place.bin / "makes").read_text() == "once\n"


def test_nohup_is_left_as_it_is(place: CommandsInFolder) -> None:
    ignore = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {BOOT}"
    command = place.start(ignore, "boot", "--plain")
    child = place.child()
    command.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert command.poll() is None
    assert not has_ended(child)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    (tmp_path / "log").write_text("")
    assert process.last_lines(tmp_path / "log") == f"no space is left for {tmp_path}; it says nothing"
    work = Workshop.from_layout(layout(), tmp_path / "work", lambda _: None)
    work.work.mkdir()
    with pytest.raises(Exception, match=r"has 0\.0 GB free, and the kernel's source takes 1\.7 GB; make room"):
        source.unpack(layout().series(), work.work, print)
