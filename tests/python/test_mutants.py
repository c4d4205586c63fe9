"""The script of `make mutants` refuses a list that does not fit the tree."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

from run import ROOT, ListError, Mutant, load, run_mutant

MUTANT = Mutant(
    name="off-by-one",
    stands_for="a bound is one too low",
    file="crates/pagelab-engine/src/a.rs",
    find="n < 10",
    replace="n < 9",
    suites=["lib"],
)


def tree(folder: Path, text: str) -> Path:
    path = folder / MUTANT.file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return folder


def test_a_change_is_made_where_its_text_is_found(tmp_path: Path) -> None:
    assert MUTANT.apply(tree(tmp_path, "while n < 10 {\n")) == "while n < 9 {\n"
    assert MUTANT.package() == "pagelab-engine"


def test_a_file_of_no_crate_says_whose_tests_build_it() -> None:
    of_the_tool = dataclasses.replace(MUTANT, file="capture/valgrind/edges.c")
    assert dataclasses.replace(of_the_tool, crate="pagelab-trace").package() == "pagelab-trace"
    with pytest.raises(
        ListError, match=r"off-by-one: capture/valgrind/edges\.c is of no crate, so `crate` has to name"
    ):
        of_the_tool.package()


@pytest.mark.parametrize(("text", "times"), [("while n < 11 {\n", 0), ("n < 10 && n < 10\n", 2)])
def test_a_text_that_is_not_there_once_is_refused(tmp_path: Path, text: str, times: int) -> None:
    with pytest.raises(ListError, match=f"off-by-one: .*a.rs: .* {times} times, not once: 'n < 10'"):
        MUTANT.apply(tree(tmp_path, text))


def test_a_name_is_given_once(tmp_path: Path) -> None:
    fields = dataclasses.asdict(MUTANT).items()
    entry = "[[mutant]]\n" + "".join(f"{key} = {value!r}\n" for key, value in fields)
    path = tmp_path / "mutants.toml"
    path.write_text(entry)
    assert load(path) == [MUTANT]
    path.write_text(entry + entry)
    with pytest.raises(ListError, match="two mutants have the same name: off-by-one"):
        load(path)


@pytest.mark.parametrize(
    ("said", "why"),
    [("warning: a\nerror: b\n", "error: b"), ("Killed\n", "cargo ended with 101 and named no error")],
)
def test_what_does_not_compile_has_not_survived(
    said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cargo(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 101, "", said)

    monkeypatch.setattr(subprocess, "run", cargo)
    text = "while n < 10 {\n"
    result = run_mutant(tree(tmp_path, text), MUTANT, 1)
    assert str(result) == f"off-by-one: DOES NOT COMPILE: {why} (0 s)"
    assert not result.failed
    assert (tmp_path / MUTANT.file).read_text() == text, "the change is taken back"


def test_the_list_fits_the_tree() -> None:
    for mutant in load():
        mutant.apply(ROOT)
        tests = ROOT / "crates" / mutant.package() / "tests"
        for suite in mutant.suites:
            binary, _, module = suite.partition("::")
            names = (
                [f"{binary}/{module}.rs", f"{binary}/{module}/mod.rs"]
                if module
                else [f"{binary}.rs", f"{binary}/main.rs"]
            )
            assert suite == "lib" or any((tests / name).exists() for name in names), f"{mutant.name}: no suite {suite}"
