"""The script of `make mutants` refuses a list that does not fit the tree."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

from run import ROOT, ListError, Mutant, load, package, run_mutant

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


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("while n < 10 {\n", "while n < 9 {\n"),
        ("while n\n    < 10 // n < 10\n", "while n < 9 // n < 10\n"),
        ('log("n < 10", n<10)', 'log("n < 10", n < 9)'),
    ],
)
def test_a_change_is_made_where_its_tokens_are(tmp_path: Path, text: str, changed: str) -> None:
    assert MUTANT.apply(tree(tmp_path, text)) == changed


def test_a_function_limits_where_an_expression_is_sought(tmp_path: Path) -> None:
    text = "fn a(of: [u8; 4]) -> bool { n < 10 }\nfn b() { if x { y } n < 10 }\nfn bc() { n < 10 }\n"
    mutant = dataclasses.replace(MUTANT, within="fn b")
    assert mutant.apply(tree(tmp_path, text)) == text.replace("} n < 10", "} n < 9")
    with pytest.raises(ListError, match=r"off-by-one: .*a\.rs, fn d: found 0 times"):
        dataclasses.replace(MUTANT, within="fn d").apply(tmp_path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ListError, match=r"off-by-one: there is no file crates/pagelab-engine/src/a\.rs"):
        MUTANT.apply(tmp_path)


def test_a_suite_is_in_one_crate(tmp_path: Path) -> None:
    for name in (
        "one/tests/a.rs",
        "two/tests/b/main.rs",
        "two/tests/b/c.rs",
        "two/tests/b/d/mod.rs",
        "one/tests/b/main.rs",
    ):
        path = tmp_path / "crates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    suites = {"lib": "pagelab-engine", "a": "one", "b::c": "two", "b::d": "two"}
    assert {suite: package(tmp_path, MUTANT.file, suite) for suite in suites} == suites
    for suite, times in {"b": 2, "b::x": 0}.items():
        with pytest.raises(ListError, match=rf"a\.rs: the suite {suite} is in {times} crates, not in one"):
            package(tmp_path, MUTANT.file, suite)
    with pytest.raises(ListError, match=r"edges\.c: the suite lib is in 0 crates"):
        package(tmp_path, "capture/valgrind/edges.c", "lib")


@pytest.mark.parametrize(("text", "times"), [("while n < 11 {\n", 0), ("n < 10 && n < 10\n", 2)])
def test_an_expression_that_is_not_there_once_is_refused(tmp_path: Path, text: str, times: int) -> None:
    with pytest.raises(ListError, match=f"off-by-one: .*a.rs: found {times} times, not once: 'n < 10'"):
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
    ("output", "why"),
    [("warning: a\nerror: b\n", "error: b"), ("Killed\n", "cargo ended with 101 and named no error")],
)
def test_what_does_not_compile_has_not_survived(
    output: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cargo(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 101, "", output)

    monkeypatch.setattr(subprocess, "run", cargo)
    text = "while n < 10 {\n"
    result = run_mutant(tree(tmp_path, text), MUTANT, 1)
    assert str(result) == f"off-by-one: DOES NOT COMPILE: {why} (0 s)"
    assert not result.failed
    assert (tmp_path / MUTANT.file).read_text() == text, "the change is taken back"


def test_the_list_fits_the_tree() -> None:
    for mutant in load():
        mutant.apply(ROOT)
        for suite in mutant.suites:
            package(ROOT, mutant.file, suite)
