"""What goes into the package."""

import subprocess

from conftest import ROOT


def test_make_says_what_takes_minutes_before_it_begins() -> None:
    dry = ["make", "--dry-run", "--always-make", "demo"]
    recipe = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for slow, words in (("pip install --quiet --constraint", "packages"), ("--editable .", "engine")):
        begins = next(at for at, line in enumerate(recipe) if slow in line)
        assert any("echo" in line and words in line for line in recipe[begins - 3 : begins])


def test_the_recorders_sources_are_in_the_package() -> None:
    # Links to single files: maturin packs what they point at, but follows no link to a folder.
    sources = {path.name for path in (ROOT / "capture/valgrind").iterdir() if path.is_file()}
    packed = ROOT / "python/pagelab/valgrind"
    assert {path.name for path in packed.iterdir()} == sources
    for path in packed.iterdir():
        assert path.resolve() == ROOT / "capture/valgrind" / path.name
