"""Finished runs of a study are kept: it goes on where it stopped, and only with what it was begun with."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import pagelab
from pagelab_studies import REPRODUCTIONS, kept, study

_NAME = "hash-dont-cache"
_SCALE = 0.05
_REQUEST = kept.StudyRequest(_NAME, pagelab.__version__, "a build", _SCALE, ())


def _only(run: study.Run) -> bool:
    return run.workload == "xalancbmk*" and run.system in ("radix", "hashed") and not run.label


def _measure(folder: Path) -> tuple[study.Measurements, list[str]]:
    made: list[str] = []
    store = kept.Kept(folder, _REQUEST)

    class RecordsRuns(study.Watch):
        def begins(self, run: study.Run) -> None:
            made.append(run.system)

    measured = study.measure(REPRODUCTIONS[_NAME], _SCALE, _only, RecordsRuns(), (), store)
    return measured, made


def test_what_is_finished_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    first, made = _measure(folder)
    assert sorted(made) == ["hashed", "radix"]
    again, made = _measure(folder)
    assert made == []
    for one, other in zip(first.all(), again.all(), strict=True):
        assert (one.run, one.window, one.stats, one.parts) == (other.run, other.window, other.stats, other.parts)
    # One that was cut off on its way to the disk is made again; so is one of other settings.
    hashed, radix = sorted((folder / "runs").iterdir(), key=lambda path: "hashed" not in path.name)
    radix.write_bytes(radix.read_bytes()[:100])
    document = json.loads(hashed.read_text())
    document["run"]["settings"] = []
    hashed.write_text(json.dumps(document))
    third, made = _measure(folder)
    assert sorted(made) == ["hashed", "radix"]
    assert [m.stats for m in third.all()] == [m.stats for m in first.all()]


def test_what_a_run_is_does_not_change(tmp_path: Path) -> None:
    """A field less, and no run that was kept before is found again. What a run costs is none."""
    run = REPRODUCTIONS[_NAME].runs()[0]
    store = kept.Kept(tmp_path / "study", _REQUEST)
    store.keep(study.Measurement(run, 1, {}))
    (path,) = (tmp_path / "study" / "runs").iterdir()
    fields = (
        "workload spec system preset accesses warm_up settling_accesses settings label beyond beside contiguity_map"
    )
    windows = "after_touches needs_walks least_accesses seed in_parts parts arrivals estimate more_estimates"
    document = json.loads(path.read_text())
    assert document["run"].keys() == {*fields.split(), *windows.split()}
    # A run that was kept before a field came is that with its default.
    del document["run"]["parts"]
    path.write_text(json.dumps(document))
    assert store.find(run, 1) is not None
    assert store.find(replace(run, parts=2), 1) is None


def test_another_study_is_refused_with_what_differs(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    # Without a run there is nothing to mix up.
    kept.Kept(folder, kept.StudyRequest(_NAME, pagelab.__version__, "a build", _SCALE, ("a mistake",)))
    store = kept.Kept(folder, _REQUEST)
    run = REPRODUCTIONS[_NAME].runs()[0]
    store.keep(study.Measurement(run, 1, {}))
    with pytest.raises(pagelab.UsageError, match="beside nothing, not this and that"):
        kept.Kept(folder, kept.StudyRequest(_NAME, pagelab.__version__, "a build", _SCALE, ("this", "that")))
    with pytest.raises(pagelab.UsageError, match=r"scale 0\.05, not 0\.5"):
        kept.Kept(folder, kept.StudyRequest(_NAME, pagelab.__version__, "a build", 0.5, ()))
    with pytest.raises(pagelab.UsageError, match="reproduction hash-dont-cache, not ptemagnet"):
        kept.Kept(folder, kept.StudyRequest("ptemagnet", pagelab.__version__, "a build", _SCALE, ()))
    kept.Kept(folder, _REQUEST)
    (folder / "study.json").write_text("{")
    with pytest.raises(pagelab.UsageError, match="does not describe its runs"):
        kept.Kept(folder, _REQUEST)


def test_a_folder_of_something_else_and_a_file_are_refused_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(pagelab.UsageError, match="holds other files"):
        kept.Kept(tmp_path, _REQUEST)
    with pytest.raises(OSError, match="Not a directory"):
        kept.Kept(tmp_path / "notes.txt", _REQUEST)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_ctrl_c_ends_soon_and_keeps_what_is_finished(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    command = [sys.executable, "-m", "pagelab", "reproduce", _NAME, "--scale", "0.02", "-o", str(folder)]
    # The longest runs are the first, with tables for 32 GiB; they are under way for seconds.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (folder / "study.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(2)
        begun = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        took = time.monotonic() - begun
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert "the same command continues from there" in errors
    assert took < 20, "runs under way are stopped, not waited for"
    assert "Not complete" in (folder / "REPORT.md").read_text()
