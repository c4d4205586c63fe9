"""Finds out which tests reach which changes, so that a change runs no others.

In Rust the changes are built all at once, each behind a switch: a function with two bodies runs the changed one in a
process whose environment says `CHANGE=NUMBER`. What does not compile like that, such as a `const fn`, is left to be
built alone. In Python the function around a change notes that it is called. Both write to the file of the test that
runs, which `CHANGE_REACHED` names, in processes that a test starts, too.
"""

import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draw import PYTHON_SOURCES, Change, ToolError
from run import TIMEOUT_SECONDS, end_within, environment

MOST_BYTES = 16 << 30
"""Address space of a test: a change can make it ask for all memory there is."""

SWITCH = """
pub(crate) mod change_switch {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();

    pub(crate) fn is(number: usize) -> bool {
        if !REACHED[number].load(Relaxed) && !REACHED[number].swap(true, Relaxed) {
            if let Some(path) = std::env::var_os("CHANGE_REACHED") {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                let _ = std::io::Write::write_all(&mut file.unwrap(), format!("{number}\\n").as_bytes());
            }
        }
        *CHOSEN.get_or_init(|| std::env::var("CHANGE").ok()?.parse().ok()) == Some(number)
    }
}
"""


@dataclass(frozen=True)
class Test:
    """A test in Rust, and how long it takes without a change."""

    name: str
    command: list[str]
    seconds: float
    reached: list[int]


def with_switches(text: str, changes: dict[int, Change]) -> str:
    """A file with all these changes, none of which is in a function within another's."""
    bodies: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, change in changes.items():
        assert change.body
        bodies[change.body].append(number)
    for (start, end), numbers in sorted(bodies.items(), reverse=True):
        ways = ""
        for number, one in ((number, changes[number]) for number in numbers):
            changed = one.made(text)[start : end + len(one.put) - (one.end - one.start)]
            # The brace is on a line of its own, since a comment may be the last line of a body.
            ways += f"if crate::change_switch::is({number}) {{{changed}\n}} else "
        text = f"{text[:start]} {ways}{{{text[start:end]}\n}} {text[end:]}"
    return text


def apart(changes: dict[int, Change]) -> dict[int, Change]:
    """Those that have a function around them, without those whose function is within another's, or around it."""
    kept: dict[int, Change] = {}
    for number, change in changes.items():
        if (body := change.body) and not any(
            other.body != body and other.body and body[0] < other.body[1] and other.body[0] < body[1]
            for other in kept.values()
            if other.file == change.file
        ):
            kept[number] = change
    return kept


def reached(tree: Path, changes: dict[int, Change], folder: Path, jobs: int) -> tuple[list[int], list[Test]]:
    """The changes in Rust that have a switch, and the tests with what they reach, the quickest first.

    `folder` gets programs and results, which are used again if nothing has changed. Errors: something does not compile
    without a change.
    """
    identity = digest(tree, changes, ("Cargo.lock", "crates", "presets", "capture"))
    results = folder / "tests.json"
    if results.exists() and (known := json.loads(results.read_text()))["digest"] == identity:
        return known["switched"], [Test(**one) for one in known["tests"]]
    switched, messages = build(tree, changes, folder, jobs)
    print(f"built {len(switched)} of {len(changes)} changes in Rust at once", flush=True)
    tests = rust_tests(messages, folder / "notes", jobs)
    print(f"ran {len(tests)} tests in Rust to see which they reach", flush=True)
    known = {"digest": identity, "switched": list(switched), "tests": [asdict(one) for one in tests]}
    results.write_text(json.dumps(known))
    return list(switched), tests


def digest(tree: Path, changes: dict[int, Change], parts: Sequence[str]) -> str:
    """A number for these changes and all files in these parts of a tree."""
    whole = hashlib.sha256(repr(changes).encode())
    for part in parts:
        for path in sorted(path for path in (tree / part, *(tree / part).rglob("*")) if path.is_file()):
            if path.suffix != ".pyc":
                whole.update(f"{path.relative_to(tree)}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def build(
    tree: Path, changes: dict[int, Change], folder: Path, jobs: int
) -> tuple[dict[int, Change], list[dict[str, Any]]]:
    """Builds all tests with switches: the changes that have one, and cargo's messages about programs."""
    originals = {one.file: (tree / one.file).read_text(encoding="utf-8") for one in changes.values()}
    kept = apart(changes)
    roots = {Path(one.file).parts[1] for one in kept.values()}
    for crate in roots:
        root = tree / "crates" / crate / "src/lib.rs"
        originals.setdefault(str(root.relative_to(tree)), root.read_text(encoding="utf-8"))
    count = max(changes, default=0) + 1
    try:
        while True:
            for file, text in originals.items():
                switched = with_switches(text, {n: one for n, one in kept.items() if one.file == file})
                is_root = file.endswith("/src/lib.rs") and Path(file).parts[1] in roots
                end = SWITCH.replace("COUNT", str(count)) if is_root else ""
                if (tree / file).read_text(encoding="utf-8") != switched + end:
                    (tree / file).write_text(switched + end, encoding="utf-8")
            wrong = _wrong(tree, kept, cargo(tree, folder, ["check", "--workspace", "--tests", "--keep-going"], jobs))
            if not wrong:
                messages = cargo(tree, folder, ["test", "--workspace", "--no-run"], jobs)
                if not messages or not messages[-1].get("success"):
                    raise ToolError(f"cargo test --no-run fails: {folder / 'cargo-says'} says why")
                return kept, messages
            kept = {number: one for number, one in kept.items() if number not in wrong}
    finally:
        for file, text in originals.items():
            (tree / file).write_text(text, encoding="utf-8")


def cargo(tree: Path, folder: Path, command: list[str], jobs: int) -> list[dict[str, Any]]:
    """What cargo says, message by message."""
    whole = ["cargo", *command, "--jobs", str(jobs), "--message-format", "json"]
    variables = {**os.environ, "CARGO_TARGET_DIR": str(folder / "build")}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cargo-says").open("w") as errors:
        process = subprocess.run(whole, cwd=tree, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True)
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def _wrong(tree: Path, kept: dict[int, Change], messages: list[dict[str, Any]]) -> set[int]:
    """The changes in whose functions an error is. Errors: there is one elsewhere."""
    wrong = set()
    for error in (one["message"] for one in messages if one["reason"] == "compiler-message"):
        if error["level"] != "error":
            continue
        lines = [(span["file_name"], span["line_start"]) for span in error["spans"] if span["is_primary"]]
        for file, line in lines:
            text = (tree / file).read_text(encoding="utf-8").splitlines(keepends=True)
            before = "".join(text[:line])
            begun = {n for n, one in kept.items() if one.file == file and f"change_switch::is({n})" in before}
            if not begun:
                raise ToolError(f"does not compile without a change: {error['rendered']}")
            last = max(begun, key=lambda n: before.rindex(f"change_switch::is({n})"))
            wrong |= {n for n, one in kept.items() if one.file == file and one.body == kept[last].body}
    return wrong


def rust_tests(messages: list[dict[str, Any]], folder: Path, jobs: int) -> list[Test]:
    """Runs each test alone, but for those that fail so, and notes what it reaches; the quickest test is first."""
    artifacts = [one for one in messages if one["reason"] == "compiler-artifact"]
    programs = [one for one in artifacts if one["executable"] and one["profile"]["test"]]
    commands = []
    for one in programs:
        crate, program = Path(one["manifest_path"]).parent, one["executable"]
        run = ["env", "-C", str(crate), f"CARGO_MANIFEST_DIR={crate}", "prlimit", f"--as={MOST_BYTES}", program]
        listed, ignored = (
            {line.removesuffix(": test") for line in output.splitlines() if line.endswith(": test")}
            for output in (
                subprocess.run([*run, "--list", *more], capture_output=True, text=True, check=True).stdout
                for more in ([], ["--ignored"])
            )
        )
        name = f"{crate.name} {one['target']['name']}"
        commands += [(f"{name} {test}", [*run, "--exact", test]) for test in sorted(listed - ignored)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = itertools.count()

    def attempt(named: tuple[str, list[str]]) -> Test | None:
        name, command = named
        notes, begin = folder / str(next(count)), time.monotonic()
        status, _ = end_within(TIMEOUT_SECONDS, command, folder, {**os.environ, "CHANGE_REACHED": str(notes)})
        seconds = time.monotonic() - begin
        if status == 0:
            return Test(name, command, seconds, _noted(notes))
        print(f"fails without any change, and is left out: {name}", flush=True)
        return None

    with ThreadPoolExecutor(jobs) as threads:
        tests = [test for test in threads.map(attempt, commands) if test]
    return sorted(tests, key=lambda test: test.seconds)


def _noted(path: Path) -> list[int]:
    return sorted({int(line) for line in path.read_text().split()}) if path.exists() else []


def first_to_notice(number: int, tests: Sequence[Test], folder: Path) -> Test | None:
    """Of the tests that reach a change, the first that fails or does not end with it."""
    for test in tests:
        if number in test.reached:
            scratch = folder / f"tmp-{number}"
            scratch.mkdir(exist_ok=True)
            variables = {**os.environ, "CHANGE": str(number), "TMPDIR": str(scratch)}
            status, _ = end_within(60 + 10 * test.seconds, test.command, folder, variables)
            shutil.rmtree(scratch, ignore_errors=True)
            if status != 0:
                return test
    return None


NOTES = '''"""Notes by tests: the functions with a change that they call, how long they take, and whether they fail."""

import hashlib
import os
import time

import pytest

_known = set()


def note(number):
    path = os.environ.get("CHANGE_REACHED")
    if path and (path, number) not in _known:
        _known.add((path, number))
        with open(path, "a") as file:
            file.write(f"{number}\\n")


def _notes_of(name):
    path = os.path.join(os.environ["CHANGE_NOTES"], hashlib.sha256(name.encode()).hexdigest())
    if not os.path.exists(path):
        with open(path, "a") as file:
            file.write(f"{name}\\n")
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    failures, begin = item.session.testsfailed, time.monotonic()
    path = os.environ["CHANGE_REACHED"] = _notes_of(item.nodeid)
    result = yield
    with open(path, "a") as file:
        file.write(f"{time.monotonic() - begin} seconds\\n")
        if item.session.testsfailed > failures:
            file.write("fails\\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    before = os.environ["CHANGE_REACHED"]
    if fixturedef.scope != "function":
        os.environ["CHANGE_REACHED"] = _notes_of(request._pyfuncitem.nodeid.partition("::")[0])
    try:
        return (yield)
    finally:
        os.environ["CHANGE_REACHED"] = before
'''
IMPORTS = "imports"
"""The notes of what is called before the first test."""
RECORDER = 0
"""The number of all changes in the recorder's C."""


@dataclass(frozen=True)
class PythonTests:
    """The tests of a change in Python or C: those that reach it, the quickest first, and files to run as a whole.

    A file is run as a whole if something that its tests share reaches the change: a fixture, or an import.
    """

    tests: list[str]
    files: list[str]
    left_out: list[str]
    """Tests that fail without any change."""


def python_tests(tree: Path, changes: dict[int, Change], pytest: list[str], folder: Path) -> dict[int, PythonTests]:
    """Runs all tests in Python that are not slow once: for each change in Python, and for `RECORDER`, its tests.

    `folder` gets the notes, which are used again if nothing has changed.
    """
    identity = digest(tree, changes, ("python", "packages", "tests/python", "capture"))
    results = folder / "tests.json"
    if not results.exists() or (known := json.loads(results.read_text()))["digest"] != identity:
        known = {"digest": identity, "notes": take_notes(tree, changes, pytest, folder)}
        results.write_text(json.dumps(known))
    notes = [line.splitlines() for line in known["notes"] if line]
    imports = {int(line) for lines in notes if lines[0] == IMPORTS for line in lines[1:]}
    every = sorted(f"tests/python/{path.name}" for path in (tree / "tests/python").glob("test_*.py"))
    seconds = {lines[0]: float(line.split()[0]) for lines in notes for line in lines if line.endswith(" seconds")}
    failing = [lines[0] for lines in notes if "fails" in lines]
    reaching = {}
    for number in (RECORDER, *changes):
        names = [lines[0] for lines in notes if str(number) in lines[1:] and lines[0] not in failing]
        everywhere = number in imports or (number != RECORDER and not changes[number].body)
        reaching[number] = PythonTests(
            tests=sorted((name for name in names if name in seconds), key=lambda name: seconds[name]),
            files=every if everywhere else sorted(name for name in names if name in every),
            left_out=failing,
        )
    return reaching


def take_notes(tree: Path, changes: dict[int, Change], pytest: list[str], folder: Path) -> list[str]:
    """Runs all tests in Python that are not slow: the notes of each."""
    originals = {one.file: (tree / one.file).read_text(encoding="utf-8") for one in changes.values()}
    shutil.rmtree(folder, ignore_errors=True)
    tools, notes = folder / "bin", folder / "notes"
    tools.mkdir(parents=True)
    notes.mkdir()
    (notes / IMPORTS).write_text(f"{IMPORTS}\n")
    (tools / "change_notes.py").write_text(NOTES)
    if valgrind := shutil.which("valgrind"):
        wrapper = f'#!/bin/sh\necho {RECORDER} >> "$CHANGE_REACHED"\nexec {shlex.quote(valgrind)} "$@"\n'
        (tools / "valgrind").write_text(wrapper)
        (tools / "valgrind").chmod(0o755)
    variables = {
        **environment(),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tools), *python_path(tree)]),
        "CHANGE_NOTES": str(notes),
        "CHANGE_REACHED": str(notes / IMPORTS),
    }
    try:
        for file, text in originals.items():
            (tree / file).write_text(with_notes(text, {n: one for n, one in changes.items() if one.file == file}))
        status, output = end_within(
            12 * TIMEOUT_SECONDS, [*pytest, "-p", "change_notes", "tests/python"], tree, variables
        )
    finally:
        for file, text in originals.items():
            (tree / file).write_text(text, encoding="utf-8")
    if status not in {0, 1}:
        raise ToolError(f"the tests in Python do not run: {output[-2000:]}")
    return [path.read_text() for path in sorted(notes.iterdir())]


def with_notes(text: str, changes: dict[int, Change]) -> str:
    """A file in Python whose functions with a change note that they are called."""
    for number, change in sorted(changes.items(), key=lambda pair: pair[1].body or (0, 0), reverse=True):
        if change.body:
            start = change.body[0]
            indent = text[start : len(text) - len(text[start:].lstrip(" "))]
            text = f'{text[:start]}{indent}__import__("change_notes").note({number})\n{text[start:]}'
    return text


def python_path(tree: Path) -> list[str]:
    """Where the copy has its packages."""
    return [str(tree / Path(folder).parent) for folder in PYTHON_SOURCES]
