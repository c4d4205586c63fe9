"""Samples of changes: each is made once, taken back, and what nobody notices is reported."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

import draw
import reach
import sample
from draw import Change
from run import ROOT
from sample import Known, Outcome

FILE = "crates/pagelab-base/src/a.rs"
SUM = Change("rust", FILE, "replace + with -", 2, 3, "-")
PRODUCT = Change("rust", FILE, "replace + with *", 2, 3, "*")
BROKEN = Change("rust", FILE, "replace + with ?", 2, 3, "?")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose only test fails if there is a minus, and which does not compile with a question mark."""
    path = tmp_path / "tree" / FILE
    path.parent.mkdir(parents=True)
    path.write_text("a + b\n")
    monkeypatch.setattr(sample, "SCRATCH", tmp_path)

    def try_rust(drawn: list[Change], known: Known, jobs: int) -> Iterable[Outcome]:
        assert jobs == 3
        for change in drawn:
            if (change.file, change.what) not in known:
                build = ["sh", "build"] if change is BROKEN else ["true"]
                yield sample.make(change, [build, ["sh", "-c", f"! grep -q -- - {path}"]])

    monkeypatch.setattr(sample, "try_rust", try_rust)
    return path


def test_changes_are_made_once_and_taken_back(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tree.parents[4] / "sample-1.jsonl"
    outcomes = sample.run([SUM], log, 3)
    assert outcomes[0].noticed_by.startswith("sh -c ! grep")
    assert not sample.failing_anyway(outcomes)
    assert tree.read_text() == "a + b\n"
    # As if it had been another outcome, which shows that the log is believed.
    log.write_text(json.dumps({**json.loads(log.read_text()), "noticed_by": "an earlier run"}) + "\n")
    outcomes = sample.run([SUM, PRODUCT, BROKEN], log, 3)
    assert [one.noticed_by for one in outcomes] == ["an earlier run", "", "compiler"]
    assert tree.read_text() == "a + b\n"
    assert [Outcome(**json.loads(line)) for line in log.read_text().splitlines()] == outcomes
    assert "a.rs: replace + with *: NOT NOTICED" in capsys.readouterr().out


def test_what_fails_without_a_change_has_noticed_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tree.parents[4] / "sample-1.jsonl"
    outcomes = sample.run([SUM, BROKEN], log, 3)
    assert sample.report(outcomes, log) == 0
    assert "noticed 1 of 1; 1 did not compile" in capsys.readouterr().out
    tree.write_text("a - b\n")
    assert sample.report(outcomes, log) == 1
    assert f"fails without any change, too: {outcomes[0].noticed_by}" in capsys.readouterr().out
    assert list(sample.known_outcomes(log).values()) == [outcomes[1]]


PYTEST_SAYS = """
FAILED tests/python/test_a.py::test_b[x - y] - AssertionError: assert 1 == 2
!!!! stopping after 1 failures !!!!
"""
CARGO_SAYS = """
failures:
    ring::is_empty

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p pagelab-base --lib`
"""


def test_the_test_that_failed_is_found() -> None:
    name, again = sample.failed_test(["pytest"], PYTEST_SAYS)
    assert name == "tests/python/test_a.py::test_b[x - y]"
    assert again[-1] == name
    name, again = sample.failed_test(["cargo"], CARGO_SAYS)
    assert name == "-p pagelab-base --lib ring::is_empty"
    assert again[2:] == ["--quiet", "-p", "pagelab-base", "--lib", "--", "--exact", "ring::is_empty"]
    assert sample.failed_test(["make", "it"], "Killed") == ("make it", ["make", "it"])


def test_the_tests_of_crates_that_depend_on_it_run_as_well() -> None:
    order = sample.dependents("pagelab-hardware")
    assert order[0] == "pagelab-hardware"
    assert order.index("pagelab-translate") < order.index("pagelab-simulation")
    assert "pagelab-py" not in order
    assert "pagelab-trace" not in order


def test_a_change_in_c_is_one_operator_of_its_code() -> None:
    changes = draw.draw_c(7, 20)
    assert changes == draw.draw_c(7, 20) != draw.draw_c(8, 20)
    assert len({(one.file, one.what) for one in changes}) == 20
    for one in changes:
        text = (ROOT / one.file).read_text()
        before, after = text.splitlines(), one.made(text).splitlines()
        ((old, new),) = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert not old.lstrip().startswith(("/*", "*", "//", "#"))
        words = [pair for pair in zip(old.split(), new.split(), strict=True) if pair[0] != pair[1]]
        assert len(words) == 1
        assert draw.OPPOSITES[words[0][0].rstrip(";")] == words[0][1].rstrip(";")


def test_a_change_replaces_just_its_span() -> None:
    place = {"start": {"line": 2, "column": 3}, "end": {"line": 2, "column": 4}}
    mutant = {"file": "rustfmt.toml", "name": "", "span": place, "replacement": "XYZ"}
    before = (ROOT / "rustfmt.toml").read_text()
    first, second, *rest = before.splitlines(keepends=True)
    change = draw.rust_change(mutant)
    assert change.made(before) == first + second[:2] + "XYZ" + second[3:] + "".join(rest)
    assert change.body is None


PROGRAM = """
fn larger(a: [u8; { 1 + 1 }], b: impl Fn(u8) -> u8) -> u8 {
    a[0] + b(a[1]) // The sum.
}

/// Is not { what it } looks like.
const fn constant() -> u8 {
    2 * 3
}

fn main() {
    println!("{} {}", larger([1, 2], |x| x * 5), constant());
}
"""


def change_in(program: str, number: int, old: str, new: str) -> Change:
    """The change of the only such text in a function."""
    start = program.index(old)
    top = program.rindex("fn ", 0, start)
    body = draw.rust_body(program, top, program.index("\n}\n", start) + 2)
    return Change("rust", FILE, str(number), start, start + len(old), new, body)


def test_changes_behind_switches_are_made_one_by_one(tmp_path: Path) -> None:
    changes = {
        3: change_in(PROGRAM, 3, "a[0] + b", "a[0] - b"),
        1: change_in(PROGRAM, 1, "a[1])", "a[0])"),
        2: change_in(PROGRAM, 2, "x * 5", "x * 7"),
    }
    assert reach.apart(changes) == changes
    root, program = tmp_path / "main.rs", tmp_path / "program"
    root.write_text(reach.with_switches(PROGRAM, changes) + reach.SWITCH.replace("COUNT", "4"))
    subprocess.run(["rustc", "--edition", "2024", "-A", "warnings", "-o", program, root], check=True)

    def output(**variables: str) -> str:
        environment = {**os.environ, "CHANGE_REACHED": str(tmp_path / "reached"), **variables}
        done = subprocess.run([program], env=environment, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else "it panics"

    assert output() == "11 6\n"
    assert output(CHANGE="1") == "6 6\n"
    assert output(CHANGE="2") == "15 6\n"
    assert output(CHANGE="3") == "it panics"
    assert sorted((tmp_path / "reached").read_text().split()) == sorted("123" * 3 + "32")


def test_functions_within_others_get_no_switch_of_their_own() -> None:
    inner = "fn outer() -> u8 {\n    fn inner() -> u8 {\n        1 + 2\n    }\n    inner() * 3\n}\n"
    product = change_in(inner, 1, "inner() *", "inner() +")
    around = (inner.index("{") + 1, len(inner) - 2)
    changes = {1: replace(product, body=around), 2: change_in(inner, 2, "1 + 2", "1 - 2"), 3: replace(SUM, body=None)}
    assert list(reach.apart(changes)) == [1]


def test_a_change_in_python_has_the_function_around_it() -> None:
    before = (
        "def outer(a):\n"
        '    """Text."""\n'
        "    # Adds.\n"
        "    @cache\n"
        "    def inner(b):\n"
        "        return a + b\n"
        "    return inner\n"
        "X = 1 + 2\n"
        "def short(): return 5 - 4\n"
    )
    changes = []
    for old, new in (
        ("a + b", "a - b"),
        ("return inner", "return None"),
        ("1 + 2", "1 - 2"),
        ("5 - 4", "5 + 4"),
        ("@cache", "@once"),
    ):
        after = before.replace(old, new)
        changes.append(draw.python_change("a.py", new, before, after))
        assert changes[-1].made(before) == after
    assert [before[one.body[0] :].split("\n")[0] if one.body else None for one in changes] == [
        "        return a + b",
        "    @cache",
        None,
        None,
        "    @cache",
    ]
    noted = reach.with_notes(before, dict(enumerate(changes)))
    assert noted.count("note(0)") == noted.count("note(1)") == noted.count("note(4)") == 1
    assert "note(2)" not in noted
    assert "note(3)" not in noted
    assert '        __import__("change_notes").note(0)\n        return a + b\n' in noted
    compile(noted, "a.py", "exec")


MODULE = "def double(n):\n    return n * 2\n\n\ndef triple(n):\n    return n * 3\n\n\nSIZE = double(4)\n"
TESTS = """
import subprocess, sys, pytest, numbers_of

@pytest.fixture(scope="module")
def six():
    return numbers_of.triple(2)

@pytest.fixture
def nine():
    return numbers_of.triple(3)

def test_alone(): assert numbers_of.triple(1) == 3
def test_shared(six): assert six == 6
def test_own(nine): assert nine == 9
def test_process(): subprocess.run([sys.executable, "-c", "import numbers_of; numbers_of.triple(1)"], check=True)
def test_failing(): assert numbers_of.triple(1) == 4
def test_elsewhere(): pass
"""


def test_each_test_in_python_says_what_it_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    monkeypatch.setattr(sample, "SCRATCH", tmp_path)
    source, folder = "python/numbers_of.py", tree / "tests/python"
    for path, text in {source: MODULE, "tests/python/test_a.py": TESTS, "tests/python/test_b.py": ""}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    changes = {
        number: draw.python_change(source, old, MODULE, MODULE.replace(old, new))
        for number, (old, new) in enumerate([("n * 2", "n * 4"), ("n * 3", "n * 9"), ("(4)", "(5)")], 1)
    }
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    reaching = reach.python_tests(tree, changes, pytest_command, tmp_path / "called")
    assert (tree / source).read_text() == MODULE
    every = ["tests/python/test_a.py", "tests/python/test_b.py"]
    assert [reaching[number].files for number in (0, 1, 2, 3)] == [[], every, every[:1], every]
    assert sorted(reaching[2].tests) == [f"{every[0]}::test_{name}" for name in ("alone", "own", "process")]
    assert reaching[2].tests[-1].endswith("process"), "it takes longest"
    assert reaching[2].left_out == [f"{every[0]}::test_failing"]
    commands = [*sample.python_commands(changes[2], reaching[2], 1)]
    assert commands[0][-3:] == reaching[2].tests
    assert commands[1][-2:] == [f"--deselect={every[0]}::test_failing", every[0]]
    assert reach.python_tests(tree, changes, ["sh", "-c", "exit 3"], tmp_path / "called") == reaching, "it is kept"
    (folder / "test_b.py").write_text("# Another tree.\n")
    with pytest.raises(draw.ToolError, match="the tests in Python do not run"):
        reach.python_tests(tree, changes, ["sh", "-c", "exit 3"], tmp_path / "called")
