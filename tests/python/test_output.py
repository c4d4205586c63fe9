"""Files of results are whole or not there."""

import os
from pathlib import Path

import pytest

from pagelab import UsageError
from pagelab.output import ensure_ending, ensure_writable, write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(Path("/dev/full"), "x" * 100_000)
    assert caught.value.filename == "/dev/full"


def test_what_cannot_be_written_fails_early(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        ensure_writable(tmp_path)
    ensure_writable(tmp_path / "new" / "folder" / "results.json")
    assert list(tmp_path.iterdir()) == []
    # Where permissions say yes to root, and nothing can be made.
    with pytest.raises(OSError, match=r"/proc/results\.json"):
        ensure_writable(Path("/proc/results.json"))
    ensure_writable(Path("/dev/null"))
    assert not any(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        ensure_writable(tmp_path / "file" / "results.json")


def test_folders_that_are_missing_are_made(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "results.json"
    write_atomically(target, "text")
    assert target.read_text() == "text"


def test_a_write_that_fails_names_the_file_that_was_asked_for() -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        write_atomically(Path("/proc/results.json"), "new")
    assert caught.value.filename == "/proc/results.json"


def test_a_name_says_nothing_else_than_its_content(tmp_path: Path) -> None:
    for name in ("r.json", "R.JSON", "r", "r.v2", "r.old", "r.json.gz"):
        ensure_ending(tmp_path / name, "JSON")
    for name in ("r.html", "r.pdf", "r.gz", "r.csv.gz", "r.PDF"):
        with pytest.raises(UsageError, match="name it"):
            ensure_ending(tmp_path / name, "JSON")
    os.mkfifo(tmp_path / "pipe.txt")
    ensure_ending(tmp_path / "pipe.txt", "JSON")
