"""Bounds of recordings, what they cost, and how their programs ended."""

import getpass
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, Pagelab, assert_fails

from pagelab.capture.program_exit import failure
from pagelab.capture.stretches import Stretches
from pagelab.cli.recording_cost import estimate


def _info(pagelab: Pagelab, trace: str) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(pagelab("trace", "info", trace, "--json").stdout)
    return about


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("exit 1", 1, "failed: exit status 1\n"),
        ("kill -SEGV $$", 139, "failed: it was ended by signal 11 (SIGSEGV)"),
        ("sh -c 'kill -ABRT $$'; exit 134", 134, "signal 6 (SIGABRT)"),
        ("exit 159", 159, "signal 31 (SIGSYS)"),
        ("true", 0, "ended with exit status 0"),
    ],
)
def test_a_trace_keeps_how_its_program_ended(pagelab: Pagelab, script: str, status: int, words: str) -> None:
    recorded = pagelab("record", "-o", "t.trace", "--", "sh", "-c", script)
    assert recorded.returncode == status, recorded.stderr
    assert _info(pagelab, "t.trace")["meta"]["exit"]["status"] == status
    assert words in pagelab("trace", "info", "t.trace").stdout
    replayed = pagelab("run", "t.trace")
    assert replayed.returncode == 0
    assert ("the recorded program failed" in replayed.stderr) == (status != 0)


def test_advice_of_a_failed_program_says_so(pagelab: Pagelab) -> None:
    pagelab("record", "-o", "t.trace", "--", "sh", "-c", "exit 3")
    advised = pagelab("advise", "t.trace")
    assert advised.returncode == 0, advised.stderr
    assert "the recorded program failed: exit status 3" in advised.stderr


def test_what_is_not_known_of_an_end_is_no_failure() -> None:
    assert failure(None) is None
    assert failure({"status": 0}) is None
    assert failure({"status": 127}) == "exit status 127: of a shell, this means a command that was not found"
    assert failure({"status": 192 + 20}) == "exit status 212"


@pytest.mark.parametrize(
    ("option", "value", "script"),
    [("--max-bytes", "3MB", "seq 1 9000000 | sort -R | tail -1"), ("--max-seconds", "2", "sleep 1000")],
)
def test_a_bound_ends_the_recording_and_is_named(pagelab: Pagelab, option: str, value: str, script: str) -> None:
    recorded = pagelab("record", "-o", "t.trace", option, value, "--", "sh", "-c", script)
    assert recorded.returncode == 0, recorded.stderr
    assert f"{option} stopped the program" in recorded.stderr
    about = _info(pagelab, "t.trace")
    assert about["complete"]
    assert about["accesses"] > 10_000
    assert "exit" not in about["meta"], "the recorder ended the program"
    assert any("stopped after" in note and option in note for note in about["meta"]["notes"])
    assert "of a part of the program" in pagelab("trace", "info", "t.trace").stdout
    if option == "--max-bytes":
        assert 1_000_000 < about["size_bytes"] < 6_000_000


@pytest.mark.parametrize(("option", "value"), [("--max-bytes", "0"), ("--max-bytes", "many"), ("--max-seconds", "0")])
def test_a_bound_that_makes_no_sense_is_refused(pagelab: Pagelab, tmp_path: Path, option: str, value: str) -> None:
    assert_fails(pagelab("record", option, value, "--", "true"), 2, option.strip("-").replace("-", "_").split("_")[1])
    assert not (tmp_path / "true.trace").exists()


def test_what_a_recording_will_cost_and_has_cost_is_said(pagelab: Pagelab) -> None:
    errors = pagelab("record", "-o", "true.trace", "--", "sh", "-c", "seq 1 20000 | sort -R | tail -1").stderr
    assert "estimate" in errors
    assert "30 to 150 times" in errors
    assert "are free" in errors
    assert " s of CPU time" in errors
    assert "written" in errors
    quiet = pagelab("record", "--quiet", "--force", "--", "true").stderr
    assert "estimate" not in quiet
    assert "of CPU time" not in quiet


def test_the_estimate_takes_what_is_known(tmp_path: Path) -> None:
    trace = tmp_path / "missing" / "t.trace"
    assert "1.5 GB (0.5 to 3) per second" in estimate(trace, None, None)
    windows = estimate(trace, Stretches(windows="every=1G,length=20M,warm=5M"), None)
    assert "2.5 % of 1.5 GB" in windows
    assert "at most 1.5 GB" in estimate(trace, Stretches(start_at="main"), None)
    assert "--max-bytes allows 3 MB, enough for about 0.002 s" in estimate(trace, None, 3_000_000)


def test_a_trace_is_replaced_on_demand_alone(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-o", "t.trace", "--", "true").returncode == 0
    assert_fails(pagelab("record", "-o", "t.trace", "--", "true"), 2, "t.trace", "exists", "--force")
    assert pagelab("record", "-o", "t.trace", "--force", "--", "sh", "-c", "exit 4").returncode == 4
    assert _info(pagelab, "t.trace")["meta"]["exit"]["status"] == 4
    # A program that cannot be recorded leaves the old one.
    assert_fails(pagelab("record", "-o", "t.trace", "--force", "--", "./missing"), 2, "missing")
    assert _info(pagelab, "t.trace")["meta"]["exit"]["status"] == 4
    (tmp_path / "letters.trace").mkdir()
    (tmp_path / "letters.trace" / "letter").write_text("text")
    assert_fails(pagelab("record", "-o", "letters.trace", "--force", "--", "true"), 2, "is not a trace")
    assert sorted(file.name for file in tmp_path.glob("*.trace")) == ["letters.trace", "t.trace"]


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_old_trace_survives_a_recorder_that_is_killed(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-o", "t.trace", "--", "sh", "-c", "exit 4").returncode == 4
    old = _info(pagelab, "t.trace")
    command = [*COMMAND, "record", "-q", "-o", "t.trace", "--force", "--", "sh", "-c", "echo > ready; exec sleep 1000"]
    recorder = subprocess.Popen(command, cwd=tmp_path)
    try:
        _wait_for((tmp_path / "ready").exists)
        assert _info(pagelab, "t.trace") == old, "it stays while another one is recorded"
    finally:
        recorder.kill()
        recorder.wait()
    assert _info(pagelab, "t.trace") == old
    (rest,) = tmp_path.glob("t.new-*.trace")
    assert not _info(pagelab, rest.name)["complete"]
    # What is left of the other one is in nobody's way.
    assert pagelab("record", "-o", "t.trace", "--force", "--", "true").returncode == 0
    assert _info(pagelab, "t.trace")["meta"]["exit"]["status"] == 0


def test_a_bound_that_ends_the_new_recording_replaces_the_old_trace(pagelab: Pagelab, tmp_path: Path) -> None:
    assert pagelab("record", "-o", "t.trace", "--", "sh", "-c", "exit 4").returncode == 4
    replaced = pagelab("record", "-o", "t.trace", "--force", "--max-seconds", "1", "--", "sleep", "1000")
    assert replaced.returncode == 0, replaced.stderr
    about = _info(pagelab, "t.trace")
    assert about["complete"]
    assert "exit" not in about["meta"]
    assert [folder.name for folder in tmp_path.glob("*.trace")] == ["t.trace"]


def _tells(folder: Path, *, words: list[str]) -> list[str]:
    import polars as pl

    text = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
    events = pl.read_parquet(folder / "events-*.parquet")
    text += "\n".join(events["file"].drop_nulls().unique().to_list()).encode()
    return [word for word in words if word.encode() in text]


def test_an_anonymous_trace_says_nothing_of_its_owner(pagelab: Pagelab, tmp_path: Path) -> None:
    program = tmp_path / "secret-program"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    private = tmp_path / "secret-data"
    private.write_text("hello\n")
    command = ["sh", "-c", f"{program} {private}; exit 7", "secret-argument"]
    assert pagelab("record", "-o", "plain.trace", "--", *command).returncode == 7
    assert pagelab("record", "-o", "hidden.trace", "--anonymous", "--", *command).returncode == 7
    assert pagelab("trace", "anonymize", "plain.trace", "-o", "later.trace").returncode == 0
    own = [str(tmp_path), "secret-program", "secret-data", "secret-argument", platform.release()]
    # A name such as "root" or "a" stands in many places that are not its owner's.
    own += [word for word in (str(Path.home()), f"/{getpass.getuser()}/", platform.node()) if len(word) > 4]
    assert _tells(tmp_path / "plain.trace", words=own[:2]) == own[:2]
    for name in ("hidden.trace", "later.trace"):
        assert _tells(tmp_path / name, words=own) == []
        about = _info(pagelab, name)
        assert about["complete"]
        assert about["meta"]["exit"]["status"] == 7
        assert pagelab("run", name, "--check").returncode == 0
    plain, later = _info(pagelab, "plain.trace"), _info(pagelab, "later.trace")
    assert plain["access_counts"] == later["access_counts"]
    assert plain["event_counts"] == later["event_counts"]
    assert plain["content_hash"] != later["content_hash"]
    figures = [json.loads(pagelab("run", name, "--json", "-").stdout) for name in ("plain.trace", "later.trace")]
    assert figures[0]["results"][0]["stats"] == figures[1]["results"][0]["stats"]
    assert_fails(pagelab("trace", "anonymize", "plain.trace", "-o", "later.trace"), 2, "exists")
    damaged = next((tmp_path / "plain.trace").glob("accesses-*.parquet"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 0xFF
    damaged.write_bytes(content)
    assert_fails(pagelab("trace", "anonymize", "plain.trace", "-o", "other.trace"), 1, damaged.name)
    assert not os.path.lexists(tmp_path / "other.trace")
