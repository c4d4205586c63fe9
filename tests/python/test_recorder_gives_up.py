"""The recorder ends although processes of the recording are silent: a stand-in for Valgrind lets them be so."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Pagelab, needs_recorder

pytestmark = needs_recorder

STAND_IN = r"""#!PYTHON
import array, os, socket, struct, sys, time

if sys.argv[1] == "--version":
    print("VERSION")
    sys.exit()

def message(descriptors):
    packed = array.array("i", descriptors)
    return [struct.pack("<4I", 0x626C6770, PROTOCOL, 1, 4096)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]

def record(kind, payload):
    return struct.pack("<2I", 0x80000000 | kind, len(payload)) + payload

class Stream:
    '''What a process tells the recorder. The first one comes by the socket, others by the door.'''
    lines = []
    def __init__(self, how, key, door=None):
        self.memory = os.memfd_create("slots")
        os.ftruncate(self.memory, 4096)
        line, other_line = socket.socketpair()
        Stream.lines.append(line)
        if door is None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(next(word[9:] for word in sys.argv if word.startswith("--socket=")))
            self.door, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.sendmsg(*message([self.memory, other_line.fileno(), other.fileno()]))
        else:
            self.socket, other = socket.socketpair()
            door.sendmsg(*message([self.memory, other_line.fileno(), other.fileno()]))
        other.close()
        name = b"stand-in"
        self.send(record(1, struct.pack("<2IQ2I", PROTOCOL, how, key, os.getpid(), len(name)) + name))
    def send(self, frame):
        os.pwrite(self.memory, frame, 0)
        self.socket.sendall(struct.pack("<2I", 0, len(frame)))
        return self.socket.recv(1)

IMAGE, FORK = 0, 1
first = Stream(IMAGE, 1)
SCRIPT
"""

EXECUTES = r"""
first.send(record(15, struct.pack("<I", 4) + b"next"))
second = Stream(IMAGE, 1, first.door)
assert first.socket.recv(1) == b"", "the recorder closes it"
"""

WAITS_FOR_ITS_PARENT = r"""
child = Stream(FORK, 2, first.door)
time.sleep(1000)
"""

FAILS = "sys.exit(1)"


def with_stand_in(folder: Path, script: str) -> str:
    """The `PATH` with a `valgrind` in front that runs `script` instead of a program."""
    header = (ROOT / "capture/valgrind/stream.h").read_text()
    (protocol,) = re.findall(r"PL_PROTOCOL_VERSION (\d+)", header)
    valgrind = shutil.which("valgrind")
    assert valgrind
    version = subprocess.run([valgrind, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    text = STAND_IN.replace("SCRIPT", script).replace("PYTHON", sys.executable)
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / "valgrind"
    stand_in.write_text(text.replace("PROTOCOL", protocol).replace("VERSION", version))
    stand_in.chmod(0o755)
    return f"{stand_in.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("script", "status", "loss"),
    [
        pytest.param(EXECUTES, 0, "was silent after its end was reported; it is cut off", id="a silent old image"),
        pytest.param(
            WAITS_FOR_ITS_PARENT,
            1,
            "wait for others that sent nothing for 0.5 s; the program was ended",
            id="a child whose parent tells nothing",
        ),
        pytest.param(FAILS, 1, "Valgrind failed, and ended it with status 1", id="a tool that fails"),
    ],
)
def test_silent_processes_do_not_hold_the_recorder(
    pagelab: Pagelab, tmp_path: Path, script: str, status: int, loss: str
) -> None:
    """The status is the program's, unless the recorder has ended it."""
    path = with_stand_in(tmp_path, script)
    recorded = pagelab("record", "-q", "--max-idle", "0.5", "-o", "t.trace", "--", "true", PATH=path)
    assert recorded.returncode == status, recorded.stderr
    about = json.loads(pagelab("trace", "info", "t.trace", "--json").stdout)
    assert not about["complete"]
    assert any(loss in recorded_loss for recorded_loss in about["meta"]["losses"]), about["meta"]
