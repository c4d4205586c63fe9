"""`pagelab linux test` without a kernel: programs of others in the guest, and whether the suite need run again."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from pagelab_linux import LinuxError, others, suite, tools
from pagelab_linux.build import Workshop
from pagelab_linux.initramfs import initramfs
from pagelab_linux.layout import Layout, layout
from pagelab_linux.others import Others
from pagelab_linux.tools import Tool

WRONG = "[programs] has packages, a table of programs with their Debian packages, and selftests"


@pytest.fixture
def folder(tmp_path: Path) -> Layout:
    shutil.copytree(ROOT / "packages/linux/pagelab_linux/kernel", tmp_path / "linux")
    return Layout(tmp_path / "linux")


def test_the_suite_names_the_programs_that_its_runs_take() -> None:
    wanted = others.load(layout())
    known = {tool.name for tool in wanted.packages} | set(wanted.selftests)
    steps = [step.split(",") for run in suite.load(layout()) for step in run.steps]
    used = {step[2] for step in steps if step[0] == "off_and_on"}
    assert used
    assert used == known


def test_programs_of_others_are_in_the_archive_for_their_runs_alone() -> None:
    for run in suite.load(layout()):
        assert run.others == any(step.startswith("off_and_on,") for step in run.steps), run.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('packages = { stress-ng = "stress-ng" }', 'packages = ["stress-ng"]'),
        ('packages = { stress-ng = "stress-ng" }', "packages = { stress-ng = 1 }"),
        ('packages = { stress-ng = "stress-ng" }', 'packets = { stress-ng = "stress-ng" }'),
        ("selftests = [", "selftests = [1,"),
    ],
)
def test_a_wrong_table_of_programs_is_refused(folder: Layout, old: str, new: str) -> None:
    path = folder.tests / "suite.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LinuxError) as error:
        others.load(folder)
    assert WRONG in str(error.value)


@pytest.mark.skipif(not shutil.which("ldd"), reason="ldd is not installed")
def test_a_program_comes_with_its_libraries(tmp_path: Path) -> None:
    by_name = {entry.name: entry for entry in others.entries(Others([Tool("true", "coreutils")], []), tmp_path)}
    names = list(by_name)
    assert by_name["tests/true"].content == Path(str(shutil.which("true"))).read_bytes()
    libraries = [name for name in names if "/ld-linux" in name or "/libc.so" in name]
    assert len(libraries) == 2
    for name in libraries:
        assert names.index(str(Path(name).parent)) < names.index(name), "folders come before what is in them"
    # The guest has them where they are here: the loader finds them from another root.
    (tmp_path / "root" / "tests").mkdir(parents=True)
    for name, entry in by_name.items():
        path = tmp_path / "root" / name
        if entry.content:
            path.write_bytes(entry.content)
            path.chmod(0o755)
        else:
            path.mkdir(parents=True, exist_ok=True)
    loader = next(tmp_path / "root" / name for name in libraries if "/ld-linux" in name)
    place = next(path.parent for path in (tmp_path / "root").rglob("libc.so.*"))
    subprocess.run([loader, "--library-path", place, tmp_path / "root" / "tests" / "true"], check=True)


def test_a_missing_program_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(LinuxError, match="no-such-program is missing; install the Debian package no-such-package"):
        others.entries(Others([Tool("no-such-program", "no-such-package")], []), tmp_path)


def test_a_selftest_is_compiled_with_what_they_share(tmp_path: Path) -> None:
    tests = tmp_path / "tools/testing/selftests"
    (tests / "mm").mkdir(parents=True)
    (tests / "kselftest.h").write_text("#define PASSED 0\n")
    (tests / "mm" / "vm_util.c").write_text("int shared(void) { return PASSED; }\n")
    (tests / "mm" / "thp_settings.c").write_text("")
    source = '#include "local_config.h"\nint shared(void);\nint main(void) { return shared(); }\n'
    (tests / "mm" / "one.c").write_text(source)
    (entry,) = others.entries(Others([], ["one"]), tmp_path)
    (tmp_path / "one").write_bytes(entry.content)
    (tmp_path / "one").chmod(0o755)
    assert entry.name == "tests/one"
    subprocess.run([tmp_path / "one"], check=True)
    (tests / "mm" / "one.c").write_text("int main(void) { return missing; }\n")
    with pytest.raises(LinuxError, match=r"the kernel's selftest one cannot be compiled: .*missing"):
        others.entries(Others([], ["one"]), tmp_path)


@pytest.mark.skipif(bool(tools.missing(tools.GUEST)), reason="a guest's files cannot be made here")
def test_the_archive_with_more_is_another(folder: Layout, tmp_path: Path) -> None:
    for path in folder.tests.glob("*.c"):
        path.unlink()
    small = initramfs(folder, tmp_path)
    large = initramfs(
        folder, tmp_path, lambda: others.entries(Others([Tool("true", "coreutils")], []), tmp_path), ["1"]
    )
    assert small != large
    assert small.stat().st_size < large.stat().st_size


def test_the_suite_runs_again_if_something_changed(folder: Layout, tmp_path: Path) -> None:
    workshop = Workshop(folder, tmp_path / "work", 1, print)
    workshop.work.mkdir()
    assert suite.nothing_to_do(workshop, quick=True) == ""
    nothing = "nothing has changed since these runs passed here"
    tested = suite.state(folder)
    suite.passed(workshop, tested, quick=True)
    assert [suite.nothing_to_do(workshop, quick=quick) for quick in (True, False)] == [nothing, ""]
    suite.passed(workshop, tested, quick=False)
    assert suite.nothing_to_do(workshop, quick=False) == nothing
    (folder.folder / "src" / "walk_cache.c").write_text("")
    # What was edited while the runs went on was not tested by them.
    suite.passed(workshop, tested, quick=False)
    assert [suite.nothing_to_do(workshop, quick=quick) for quick in (True, False)] == ["", ""]
