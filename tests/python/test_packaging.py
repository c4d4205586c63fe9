"""What goes into the package."""

from conftest import ROOT


def test_the_recorders_sources_are_in_the_package() -> None:
    # Links to single files: maturin packs what they point at, but follows no link to a folder.
    sources = {path.name for path in (ROOT / "capture/valgrind").iterdir() if path.is_file()}
    packed = ROOT / "python/pagelab/valgrind"
    assert {path.name for path in packed.iterdir()} == sources
    for path in packed.iterdir():
        assert path.resolve() == ROOT / "capture/valgrind" / path.name
