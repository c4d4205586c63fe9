"""The scripts of reports are put together once, and kept."""

from pathlib import Path

import pytest

from pagelab.report import bundle


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An entry each time that the scripts are put together."""
    made: list[str] = []

    def put_together() -> str:
        made.append("scripts")
        return f"scripts\u2026{bundle._END}"

    monkeypatch.setattr(bundle, "_put_together", put_together)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def scripts() -> str:
    """As in a new process."""
    bundle.bundle.cache_clear()
    try:
        return bundle.bundle()
    finally:
        bundle.bundle.cache_clear()


def test_they_are_kept(times: list[str], tmp_path: Path) -> None:
    assert scripts() == scripts() == f"scripts\u2026{bundle._END}"
    assert len(times) == 1
    [kept] = (tmp_path / "cache" / "pagelab").iterdir()
    kept.write_bytes(kept.read_bytes()[:9])
    assert scripts().startswith("scripts\u2026")
    assert len(times) == 2
    assert kept.read_text(encoding="utf-8") == scripts()
    assert len(times) == 2


def test_another_version_of_the_library_makes_others(times: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scripts()
    monkeypatch.setattr(bundle, "version", lambda _: "99")
    scripts()
    assert len(times) == 2


def test_a_cache_folder_is_not_needed(times: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert scripts() == scripts()
    assert len(times) == 2
