"""The OCI image's definition: complete, consistent, and without the address of any registry."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "packaging/oci"
PACKAGES = (FOLDER / "packages").read_text().split()
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
INSTALL = (FOLDER / "install-wheel").read_text()


def test_the_image_has_the_packages_that_pagelab_needs() -> None:
    needed = set(re.findall(r"need ([a-z0-9-]+)$", (REPOSITORY / "setup/require").read_text(), re.MULTILINE))
    assert {"gcc", "valgrind", "python3"} < needed, "setup/require is written differently now"
    assert needed - {"make"} <= set(PACKAGES), "make is only for building"
    documented = re.search(r"`apt-get install ([^`]*)` on Debian", (REPOSITORY / "docs/install.md").read_text())
    assert documented
    assert set(documented[1].split()) <= set(PACKAGES)
    assert sorted(set(PACKAGES)) == PACKAGES


def test_the_parts_of_the_definition_agree() -> None:
    assert re.findall(r"^FROM (.*)$", CONTAINERFILE, re.MULTILINE) == ["scratch"]
    assert "PATH=/opt/pagelab/bin:" in CONTAINERFILE
    assert "python3 -m venv /opt/pagelab" in INSTALL
    assert "XDG_CACHE_HOME=/var/cache" in CONTAINERFILE
    assert "XDG_CACHE_HOME=/var/cache" in INSTALL


def test_no_file_names_a_registry() -> None:
    for file in FOLDER.iterdir():
        assert "://" not in file.read_text(), file.name


def run_build(tmp_path: Path, *arguments: str | Path, suite: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the script with programs that only write down how they were called."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("mmdebstrap", "buildah", "python"):
        script = programs / name
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >> {tmp_path}/calls\n')
        script.chmod(stat.S_IRWXU)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHON": "python",
        "BUILDER": "buildah",
        "WORK": str(tmp_path / "work"),
        "NAME": "paging",
        "SUITE": suite,
    }
    command = [FOLDER / "build", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_image_is_built_of_packages_and_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "pagelab-1.0-cp311-abi3-linux_x86_64.whl"
    packages = [tmp_path / f"pagelab_{name}-1.0-py3-none-any.whl" for name in ("studies", "linux")]
    wheel.write_bytes(b"")
    packages[0].write_bytes(b"")
    ran = run_build(tmp_path, wheel, "/a/mirror", suite="bookworm")
    assert (ran.returncode, ran.stderr) == (
        1,
        f"pagelab image: {packages[1]}: there is no such file; 'make wheel' makes it\n",
    )
    packages[1].write_bytes(b"")
    ran = run_build(tmp_path, wheel, "/a/mirror", suite="bookworm")
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert {path.name for path in (tmp_path / "work/wheels").iterdir()} == {path.name for path in [wheel, *packages]}
    bootstrap = calls[calls.index("mmdebstrap") : calls.index("buildah")]
    rootfs = tmp_path / "work/context/rootfs.tar"
    assert f"--include={','.join(PACKAGES)}" in bootstrap
    assert bootstrap[-3:] == ["bookworm", str(rootfs), "/a/mirror"]
    image = calls[calls.index("buildah") + 1 :]
    assert image == ["build", "--file", str(FOLDER / "Containerfile"), "--tag", "paging", str(rootfs.parent)]


@pytest.mark.parametrize("wheel", ["no-such.whl", "/"])
def test_a_wheel_that_is_not_there_is_an_error_of_one_line(tmp_path: Path, wheel: str) -> None:
    ran = run_build(tmp_path, wheel)
    assert ran.returncode == 1
    assert ran.stderr == f"pagelab image: {wheel}: there is no such file\n"
