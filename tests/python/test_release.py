"""What a release rests on: one version everywhere, a script that refuses, names of older versions that are answered."""

import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, Pagelab, assert_fails

import pagelab as package
from pagelab.renamed import RENAMED, new_name
from pagelab.results import file_format

_FILES = (
    "CITATION.cff",
    "Cargo.lock",
    "Cargo.toml",
    "examples/continuous-integration/github-workflow.yml",
    "packages/linux/pyproject.toml",
    "packages/studies/pyproject.toml",
    "pyproject.toml",
    "setup/release.py",
    "setup/wheel/data/share/man/man1/pagelab.1",
)
_CHANGELOG = """# Changelog

## Unreleased

### New

## {version} — {date}

Text.

## 0.0.1 — 2020-01-01

Old.
"""
_SOURCE = {
    "pyproject.toml": """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
""",
    "backend.py": """import pathlib, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(folder) / "x-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("x-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: x\\nVersion: 1\\n")
        wheel.writestr("x-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("x-1.dist-info/RECORD", "")
    return "x-1-py3-none-any.whl"
""",
}
"""A source distribution that builds without anything else"""


def test_one_version_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "setup")
    versions = importlib.import_module("release").versions()
    assert set(versions.values()) == {package.__version__}
    assert {"Cargo.toml", "CITATION.cff", "packages/linux/pyproject.toml, dependency"} <= set(versions)


def test_no_crate_is_published() -> None:
    """As RELEASING.md and docs/interfaces.md say."""
    manifests = [ROOT / "fuzz" / "Cargo.toml", *sorted((ROOT / "crates").glob("*/Cargo.toml"))]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["publish"]
    for path in manifests:
        publish = tomllib.loads(path.read_text())["package"].get("publish", True)
        assert (workspace if publish == {"workspace": True} else publish) is False, path


def test_the_changelog_has_this_version_and_a_place_for_the_next() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(package.__version__)} — \d{{4}}-\d\d-\d\d", headings[1])


def test_the_page_on_upgrading_has_the_formats_of_this_version() -> None:
    def number(path: str, name: str) -> str:
        match = re.search(rf"\b{name}: u32 = (\d+);", (ROOT / "crates" / path).read_text())
        assert match
        return match[1]

    # A number may be in the next line.
    page = re.sub(r"(?<=[a-z])\n(?=[a-z0-9])", " ", (ROOT / "docs" / "upgrading.md").read_text())
    version, results = package.__version__, file_format.FORMAT
    trace = number("pagelab-trace/src/format/meta.rs", "FORMAT_VERSION")
    faults = number("pagelab-faults/src/info.rs", "FORMAT_VERSION")
    protocol = number("pagelab-trace/src/record/protocol.rs", "VERSION")
    for words in (
        f"| file | written by {version} | read by {version} |",
        f"`NAME.trace/` | format {trace} |",
        f"`NAME.faults` | format {faults} |",
        f"`NAME.json` | format {results} |",
        f"\n| {results} | {version} |",
    ):
        assert words in page
    # The protocol of a clone may be newer than that of the last release.
    assert f"version {protocol} in {version})" in page or f"version {protocol} since)" in page


class _Tree:
    """A repository with what the release script reads, a Makefile that notes what is made, and made-up wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        released = re.search(r"date-released: '(.*)'", (folder / "CITATION.cff").read_text())
        assert released
        (folder / "CHANGELOG.md").write_text(_CHANGELOG.format(version=package.__version__, date=released[1]))
        (folder / ".gitignore").write_text("dist\n*.log\n__pycache__\n")
        (folder / "Makefile").write_text("lint test wheel:\n\techo $@ >> made.log\n\t! test -e fail-$@.log\n")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "tree: change")

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))
        self.commit()

    def release(self, *options: str) -> subprocess.CompletedProcess[str]:
        identity = {f"GIT_COMMITTER_{what}": f"{what}@example.org" for what in ("NAME", "EMAIL")}
        command = [sys.executable, "setup/release.py", *options]
        environment = os.environ | identity
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    @property
    def made(self) -> list[str]:
        log = self.folder / "made.log"
        return log.read_text().split() if log.exists() else []

    def distributions(self, folder: str, printed: str = package.__version__) -> None:
        """Wheels of which pagelab's has a command that answers to what the release tries, and sources."""
        dist, version = self.folder / folder, package.__version__
        dist.mkdir()
        for name in ("pagelab", "pagelab_linux", "pagelab_studies"):
            with tarfile.open(dist / f"{name}-{version}.tar.gz", "w:gz") as archive:
                for file, text in _SOURCE.items():
                    entry = tarfile.TarInfo(f"{name}-{version}/{file}")
                    entry.size = len(text)
                    archive.addfile(entry, io.BytesIO(text.encode()))
            about = f"{name}-{version}.dist-info"
            with zipfile.ZipFile(dist / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{name}.py", f"def main():\n    print('pagelab {printed}')\n")
                wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                script = "[console_scripts]\npagelab = pagelab:main\n" if name == "pagelab" else ""
                wheel.writestr(f"{about}/entry_points.txt", script)
                wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def tree(tmp_path: Path) -> _Tree:
    return _Tree(tmp_path)


def _assert_refused(process: subprocess.CompletedProcess[str], tree: _Tree, *words: str) -> None:
    assert process.returncode == 1, process.stdout
    assert "Traceback" not in process.stderr
    for word in words:
        assert word in process.stderr
    assert tree.made == []
    assert tree.git("tag", "--list") in ("", f"v{package.__version__}\n")


def test_a_tree_with_changes_is_refused(tree: _Tree) -> None:
    (tree.folder / "new.txt").touch()
    _assert_refused(tree.release(), tree, "not clean: new.txt")


def test_a_version_that_is_tagged_is_refused(tree: _Tree) -> None:
    tree.git("tag", f"v{package.__version__}")
    _assert_refused(tree.release(), tree, "tagged already")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("CHANGELOG.md", "Text.", "", "no section"),
        ("CHANGELOG.md", f"## {package.__version__}", "## 9.9.9", "no section"),
        ("CHANGELOG.md", "### New\n", "### New\n\n- A thing.\n", "1 lines under Unreleased"),
        ("CITATION.cff", "date-released: '2", "date-released: '1", "date-released is 1"),
        ("CITATION.cff", f"version: {package.__version__}", "version: 9.9.9", "CITATION.cff names version 9.9.9"),
        ("packages/linux/pyproject.toml", "pagelab==", "pagelab==9.", "dependency names version 9."),
        (
            "Cargo.lock",
            f'name = "pagelab-mrc"\nversion = "{package.__version__}"',
            'name = "pagelab-mrc"\nversion = "9"',
            "Cargo.lock, pagelab-mrc names version 9",
        ),
    ],
)
def test_what_is_not_ready_is_refused(tree: _Tree, name: str, old: str, new: str, words: str) -> None:
    tree.replace(name, old, new)
    _assert_refused(tree.release("--dry-run"), tree, words)


@pytest.mark.parametrize(("failing", "made"), [("lint", ["lint"]), ("test", ["lint", "test"])])
def test_a_step_that_fails_ends_it_without_a_tag(tree: _Tree, failing: str, made: list[str]) -> None:
    (tree.folder / f"fail-{failing}.log").touch()
    process = tree.release()
    assert process.returncode == 1
    assert f"`make {failing}` failed; there is no tag" in process.stderr
    assert tree.made == made
    assert tree.git("tag", "--list") == ""


def test_distributions_that_were_not_built_end_it_without_a_tag(tree: _Tree) -> None:
    process = tree.release()
    assert process.returncode == 1
    assert f"dist holds 0 of pagelab_studies-{package.__version__}-*.whl" in process.stderr
    assert tree.made == ["lint", "test", "wheel"]
    assert tree.git("tag", "--list") == ""


def test_a_dry_run_tries_wheels_and_makes_nothing(tree: _Tree) -> None:
    tree.distributions("dist")
    process = tree.release("--dry-run")
    assert process.returncode == 0, process.stderr
    assert "the wheels install and run" in process.stdout
    assert tree.made == []
    assert tree.git("tag", "--list") == ""


def test_the_tag_comes_last_and_holds_the_changelog(tree: _Tree) -> None:
    tree.distributions("built.log")
    (tree.folder / "dist").mkdir()
    (tree.folder / "dist" / f"pagelab-{package.__version__}-old.whl").touch()
    tree.replace("Makefile", "\t! test", "\t[ $@ != wheel ] || cp built.log/* dist/\n\t! test")
    process = tree.release()
    assert process.returncode == 0, process.stderr
    assert tree.made == ["lint", "test", "wheel"]
    assert tree.git("cat-file", "-t", f"v{package.__version__}") == "tag\n"
    assert tree.git("tag", "--list", "--format=%(contents)") == f"pagelab {package.__version__}\n\nText.\n\n"
    for word in ("git push origin HEAD", f"dist/pagelab_linux-{package.__version__}.tar.gz", "git tag --delete"):
        assert word in process.stdout
    again = tree.release()
    assert again.returncode == 1
    assert "tagged already" in again.stderr


def test_wheels_of_another_version_are_refused(tree: _Tree) -> None:
    tree.distributions("dist", printed="9.9.9")
    process = tree.release("--dry-run")
    assert process.returncode == 1
    assert "says 'pagelab 9.9.9', expected version" in process.stderr


def test_a_build_that_changes_the_tree_ends_it_without_a_tag(tree: _Tree) -> None:
    tree.distributions("built.log")
    tree.replace("Makefile", "\t! test", "\t[ $@ != wheel ] || cp -r built.log dist\n\ttouch left\n\t! test")
    process = tree.release()
    assert process.returncode == 1
    assert "not clean: left" in process.stderr
    assert tree.git("tag", "--list") == ""


def test_an_old_key_names_the_new_one(pagelab: Pagelab) -> None:
    for arguments in (["--set", "kernel.kswapd.low=3"], ["-s", "radix{engine.seed=3,kernel.kswapd.low=3}"]):
        process = pagelab("run", "seq:size=64KiB", *arguments)
        assert_fails(process, 2, "kernel.kswapd.low is now kernel.threads.kswapd.low")


def test_an_old_name_of_the_package_names_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RENAMED, "pagelab.simulate", "pagelab.run")
    for name, words in (("simulate", r"^pagelab\.simulate is now pagelab\.run$"), ("simulat", "has no attribute")):
        with pytest.raises(AttributeError, match=words):
            getattr(package, name)


def test_names_that_only_begin_alike_are_not_renamed() -> None:
    assert new_name("kernel.kswapd") == "kernel.threads.kswapd"
    assert new_name("kernel.kswapd2") is None
    assert new_name("kernel") is None


def test_new_names_are_not_old_ones_too() -> None:
    assert not [new for new in RENAMED.values() if new_name(new)]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("core: document default dependencies\n\nBody.\n", 0),
        ("\n# comment\nMerge branch 'x'\n", 0),
        ("Document default dependencies\n", 1),
        ("core: Document default dependencies\n", 1),
        (f"core: {'x' * 67}\n", 1),
        (f"core: {'x' * 66}\n\n{'y' * 90}\n", 0),
    ],
)
def test_the_hook_reads_the_subject_of_a_message(message: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(message)
    command = [ROOT / "setup" / "check-commits", tmp_path / "message"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == status
