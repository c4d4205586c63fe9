"""What goes into the package."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import COMMAND, ROOT

from pagelab.cli import installed

MANUAL = ROOT / "setup" / "wheel" / "data" / "share" / "man" / "man1" / "pagelab.1"


def test_make_says_what_takes_minutes_before_it_begins() -> None:
    dry = ["make", "--dry-run", "--always-make", "demo"]
    recipe = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for slow, words in (("pip install --quiet --constraint", "packages"), ("--editable .", "engine")):
        begins = next(at for at, line in enumerate(recipe) if slow in line)
        assert any("echo" in line and words in line for line in recipe[begins - 3 : begins])


def test_the_recorders_sources_are_in_the_package() -> None:
    # Links to single files: maturin packs what they point at, but follows no link to a folder.
    sources = {path.name for path in (ROOT / "capture/valgrind").iterdir() if path.is_file()}
    packed = ROOT / "python/pagelab/capture/valgrind"
    assert {path.name for path in packed.iterdir()} == sources
    for path in packed.iterdir():
        assert path.resolve() == ROOT / "capture/valgrind" / path.name


def test_the_manual_page_is_that_of_the_command_line() -> None:
    path = os.pathsep.join([str(ROOT / "site"), os.environ.get("PYTHONPATH", "")])
    program = "import commands, sys; sys.stdout.write(commands.manual())"
    made = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pagelab run" in made
    assert MANUAL.read_text() == made, "run: make man"


def test_no_manual_page_is_made_without_the_packages() -> None:
    program = "import importlib.metadata as m; m.entry_points = lambda **_: (); import commands; commands.manual()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "site")}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "the package pagelab-linux is not installed: make setup" in made.stderr


def test_source_distributions_have_what_the_package_is_made_of() -> None:
    """maturin packs crates and Python files; what else they need is named."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    packed = {path for entry in settings["include"] for path in ROOT.glob(entry["path"]) if path.is_file()}
    assert MANUAL in packed
    assert MANUAL.is_relative_to(ROOT / settings["data"] / "data")
    assert packed >= set((ROOT / "presets").rglob("*.toml"))
    outside = re.compile(r'include_(?:str|bytes)!\((?:concat!\()?\s*"((?:\.\./){3,}[^"]*)"')
    sources = list((ROOT / "crates").glob("*/src/**/*.rs"))
    included = {(path.parent / name).resolve() for path in sources for name in outside.findall(path.read_text())}
    assert ROOT / "presets" in included
    for path in included - {ROOT / "presets"}:
        assert path in packed or path.is_relative_to(ROOT / "crates"), path


WITHOUT_PACKAGES = """
import importlib.metadata
importlib.metadata.entry_points = lambda **_: ()
from pagelab.cli.application import main
main()
"""
PACKAGES = {"linux": ROOT / "packages/linux", "studies": ROOT / "packages/studies"}


@pytest.mark.parametrize("extra", PACKAGES)
def test_a_package_has_pagelabs_version_and_needs_the_same(extra: str) -> None:
    project = tomllib.loads((PACKAGES[extra] / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert (project["name"], project["version"]) == (f"pagelab-{extra}", version)
    assert f"pagelab=={version}" in project["dependencies"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras[extra] == [f"pagelab-{extra}"]
    (command,) = project["entry-points"]["pagelab.commands"]
    assert installed.EXTRAS[command] == extra
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        assert (PACKAGES[extra] / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_wheel_of_a_package_has_all_its_files(extra: str, tmp_path: Path) -> None:
    program = "import sys; from flit_core.buildapi import build_sdist, build_wheel; build_sdist('.'); build_wheel('.')"
    shutil.copytree(PACKAGES[extra], tmp_path / extra)
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path / extra, check=True)
    (wheel,) = (tmp_path / extra).glob("*.whl")
    name = f"pagelab_{extra}"
    tracked = subprocess.run(["git", "ls-files", name], cwd=PACKAGES[extra], capture_output=True, text=True, check=True)
    with zipfile.ZipFile(wheel) as packed:
        assert {path for path in packed.namelist() if path.startswith(f"{name}/")} == set(tracked.stdout.split())
    (archive,) = (tmp_path / extra).glob("*.tar.gz")
    with tarfile.open(archive) as files:
        paths = {path.partition("/")[2] for path in files.getnames()}
    assert paths >= {*tracked.stdout.split(), "pyproject.toml", "README.md", "LICENSE-MIT"}


@pytest.mark.parametrize(("command", "extra"), installed.EXTRAS.items())
@pytest.mark.parametrize("arguments", [[], ["--help"], ["test", "--quick", "name"]])
def test_a_command_without_its_package_says_what_to_install(command: str, extra: str, arguments: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, command, *arguments], capture_output=True, text=True, check=False
    )
    what = f"pagelab {command}: it is in the package pagelab-{extra}, which is not installed"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"pagelab: error: {what}: pip install 'pagelab[{extra}]'\n"


def test_without_packages_the_help_does_not_list_their_commands() -> None:
    shown = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(re.search(rf"^│ {command} ", shown, re.MULTILINE) for command in installed.EXTRAS)
    alone = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search("^│ record ", alone, re.MULTILINE)
    assert not any(re.search(rf"^│ {command} ", alone, re.MULTILINE) for command in installed.EXTRAS)


def test_a_package_that_does_not_fit_is_an_error_of_its_command_alone() -> None:
    program = """
import importlib.metadata
from importlib.metadata import EntryPoint
importlib.metadata.entry_points = lambda group, name: [EntryPoint(name, "pagelab.no_such_module:app", group)]
from pagelab.cli.application import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", program, "linux", "test"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "the package pagelab-linux does not fit this version of pagelab" in ran.stderr
    ran = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_presets(shell: str, tmp_path: Path) -> None:
    """What the shell's own script calls; in bash the script itself."""
    command = tmp_path / "pagelab"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)

    def ask(*asked: str, **variables: str) -> str:
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path} | variables
        return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout

    script = ask("pagelab", _PAGELAB_COMPLETE=f"source_{shell}")
    assert f"_PAGELAB_COMPLETE=complete_{shell}" in script
    if shell == "bash":
        line = "COMP_WORDS=(pagelab run -s nested-radix-sh); COMP_CWORD=3; _pagelab_completion pagelab"
        answer = ask("bash", "-c", f'{script}\n{line}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    else:
        words = {"_TYPER_COMPLETE_ARGS": "pagelab run -s nested-radix-sh", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        answer = ask("pagelab", _PAGELAB_COMPLETE=f"complete_{shell}", **words)
    warm = ("nested-radix-shared-page-walk-cache", "nested-radix-shadow")
    assert re.findall(r"[\w-]*radix[\w-]*", answer) == [f"{name}{form}" for name in warm for form in ("", "-cold")]


@pytest.mark.slow
def test_a_source_distribution_makes_a_wheel_that_needs_no_checkout(tmp_path: Path) -> None:
    """Builds a wheel from the source distribution alone, and records and replays with nothing but that wheel."""
    maturin = Path(sys.executable).with_name("maturin")
    subprocess.run([maturin, "sdist", "--out", tmp_path], cwd=ROOT, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    # The code need not be fast.
    quick = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}
    builds: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    environment = os.environ | quick | {"PATH": f"{maturin.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*builds, "-w", tmp_path, archive], env=environment, cwd=tmp_path, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name

    environment = {"PATH": os.defpath, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], env=environment, check=True)
    pip: list[str | Path] = [tmp_path / "clean" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wheel], cwd=tmp_path, check=True)
    command = tmp_path / "clean" / "bin" / "pagelab"
    assert (tmp_path / "clean" / "share" / "man" / "man1" / "pagelab.1").is_file()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [command, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    assert "1 process" in run("record", "-o", "true.trace", "--", "true")
    assert (tmp_path / ".cache" / "pagelab").is_dir()
    assert re.search(r"^nested-radix +\d", run("run", "true.trace", "-s", "nested-radix"), re.MULTILINE)
