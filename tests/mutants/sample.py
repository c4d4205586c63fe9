"""Draws small wrong changes by a seed, makes one after the other, and reports which no test notices.

    python tests/mutants/sample.py SEED [--rust N] [--python N] [--c N] [--jobs N]

`run.py` has a list of changes that stays. This draws others: in Rust of all that `cargo mutants --list` knows, in
Python of all that mutmut can make, but for changes of texts, and in the recorder's C of all operators between blanks.
So it needs `cargo install cargo-mutants` and `pip install mutmut`. The crate of the Python module is left out, since no
test in Rust runs it, and so are the examples in Rust's documentation.

Changes are made in a copy of the tree in `target/mutants`. All tests run once without a change, to see which reach
which; `reach.py` says how. Then each change runs the tests that reach it, the quickest first. The first failure ends a
change. What is known is kept in
`target/mutants/sample-SEED.jsonl`, a line of JSON per change, and not made again by the same command. In the end the
tests that noticed run without any change: what one that fails then, too, has noticed is forgotten. Ends with status 1
if a change was not noticed, or if such a test is to be mended first.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import reach
from draw import PYTHON_MODULE, Change, ToolError, draw_c, draw_python, draw_rust
from run import ROOT, SCRATCH, TIMEOUT_SECONDS, copy_tree, end_within, environment, failed_tests


@dataclass(frozen=True)
class Outcome:
    """A line of the log."""

    language: str
    file: str
    what: str
    noticed_by: str
    """The first test that failed; empty if none did. `compiler` if the change does not compile."""
    again: list[str]
    """The command that runs this test alone."""
    seconds: float


def dependents(crate: str) -> list[str]:
    """The crate, and those that depend on it, nearest first."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packages = json.loads(listed.stdout)["packages"]
    needs = {one["name"]: {need["name"] for need in one["dependencies"]} for one in packages}
    order = [crate]
    for known in order:
        order += [name for name in needs if known in needs[name] and name not in (*order, PYTHON_MODULE)]
    return order


def rust_commands(change: Change, jobs: int) -> Iterable[list[str]]:
    """What tests a change in Rust, in order."""
    crate = Path(change.file).parts[1]
    yield ["cargo", "build", "--quiet", "--jobs", str(jobs), "--package", crate]
    for name in dependents(crate):
        yield ["cargo", "test", "--quiet", "--jobs", str(jobs), "--package", name]


def python_commands(change: Change, known: reach.PythonTests, jobs: int) -> Iterable[list[str]]:
    """What tests a change in Python or C, in order: the tests that reach it, then whole files, those of its name first.

    A change in C is tested in Rust first, where recordings are compared access by access.
    """
    if change.language == "c":
        yield ["cargo", "test", "--quiet", "--jobs", str(jobs), "--package", "pagelab-trace", "--test", "record"]
    stem = Path(change.file).stem
    near = [name for name in known.files if stem in (SCRATCH / "tree" / name).read_text(encoding="utf-8")]
    for part in (known.tests, near, [name for name in known.files if name not in near]):
        if part:
            left_out = [f"--deselect={name}" for name in known.left_out]
            yield [*PYTEST, "-x", "-n", str(jobs), *left_out, *part]


PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--dist", "loadfile"]
NO_TESTS = 5
"""pytest's status if all tests of some files are slow."""


def attempt(command: Sequence[str]) -> tuple[int | None, str]:
    """Runs a command in the copy of the tree: its status, or none if it did not end, and what it prints."""
    tree = SCRATCH / "tree"
    variables = {**environment(), "PYTHONPATH": os.pathsep.join(reach.python_path(tree))}
    return end_within(3 * TIMEOUT_SECONDS, command, tree, variables)


def failed_test(command: list[str], output: str) -> tuple[str, list[str]]:
    """The first test that failed, and the command that runs it alone; the whole command if it names none."""
    if named := re.search(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE):
        return named[1], [*PYTEST, named[1]]
    names, which = failed_tests(output), re.search(r"to rerun pass `(.*)`", output)
    if names and which:
        return f"{which[1]} {names[0]}", ["cargo", "test", "--quiet", *which[1].split(), "--", "--exact", names[0]]
    return " ".join(command), command


def noticed_by(commands: Iterable[list[str]]) -> tuple[str, list[str]]:
    """The first test that fails, or the command that does not end, and how to run it again; empty if there is none."""
    for command in commands:
        status, output = attempt(command)
        if status is None:
            return f"no end: {' '.join(command)}", command
        if status and not (status == NO_TESTS and command[1:3] == PYTEST[1:3]):
            return ("compiler", []) if command[1] == "build" else failed_test(command, output)
    return "", []


def make(change: Change, commands: Iterable[list[str]]) -> Outcome:
    """Makes a change in the copy, runs these commands until one fails, and takes it back."""
    path = SCRATCH / "tree" / change.file
    before, begin = path.read_text(encoding="utf-8"), time.monotonic()
    path.write_text(change.made(before), encoding="utf-8")
    try:
        test, again = noticed_by(commands)
    finally:
        path.write_text(before, encoding="utf-8")
    return Outcome(change.language, change.file, change.what, test, again, round(time.monotonic() - begin, 1))


def failing_anyway(outcomes: Iterable[Outcome]) -> set[str]:
    """Of the tests that noticed a change, those that fail without one, too."""
    commands = {one.noticed_by: one.again for one in outcomes if one.again}
    return {test for test, command in commands.items() if attempt(command)[0] != 0}


Known = dict[tuple[str, str], Outcome]
"""By file and change."""


def known_outcomes(log: Path) -> Known:
    """What earlier runs with this seed have found out."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    return {(one.file, one.what): one for one in outcomes}


def try_rust(drawn: Sequence[Change], known: Known, jobs: int) -> Iterator[Outcome]:
    """What becomes of those in Rust that are not known: all with a switch at once, then the others one by one."""
    changes = dict(enumerate(drawn, 1))
    if all((one.file, one.what) in known for one in drawn):
        return
    switched, tests = reach.reached(SCRATCH / "tree", changes, SCRATCH / "switched", jobs)

    def try_switched(number: int) -> Outcome:
        begin, one = time.monotonic(), changes[number]
        test = reach.first_to_notice(number, tests, SCRATCH)
        name, again = (test.name, test.command) if test else ("", [])
        return Outcome("rust", one.file, one.what, name, again, round(time.monotonic() - begin, 1))

    left = [number for number, one in changes.items() if (one.file, one.what) not in known]
    with ThreadPoolExecutor(jobs) as threads:
        trials = [threads.submit(try_switched, number) for number in left if number in switched]
        yield from (trial.result() for trial in as_completed(trials))
    yield from (make(changes[n], rust_commands(changes[n], jobs)) for n in left if n not in switched)


def try_python(drawn: Sequence[Change], known: Known, jobs: int) -> Iterator[Outcome]:
    """What becomes of those in Python and C that are not known; those that few tests reach come first."""
    if all((one.file, one.what) in known for one in drawn):
        return
    in_python = {number: one for number, one in enumerate(drawn, 1) if one.language == "python"}
    tests = reach.python_tests(SCRATCH / "tree", in_python, [*PYTEST, "-n", str(jobs)], SCRATCH / "called")
    left = [(number, one) for number, one in enumerate(drawn, 1) if (one.file, one.what) not in known]
    reaching = {number: tests.get(number, tests[reach.RECORDER]) for number, _ in left}
    for number, one in sorted(left, key=lambda each: (len(reaching[each[0]].files), len(reaching[each[0]].tests))):
        yield make(one, python_commands(one, reaching[number], jobs))


def run(changes: list[Change], log: Path, jobs: int) -> list[Outcome]:
    """Makes those that the log does not have yet, and returns what became of all."""
    known = known_outcomes(log)
    rust = [one for one in changes if one.language == "rust"]
    others = [one for one in changes if one.language != "rust"]
    for outcomes in (try_rust(rust, known, jobs), try_python(others, known, jobs)):
        for outcome in outcomes:
            known[outcome.file, outcome.what] = outcome
            with log.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(outcome)) + "\n")
            word = f"noticed by {outcome.noticed_by}" if outcome.noticed_by else "NOT NOTICED"
            print(f"{outcome.file}: {outcome.what}: {word} ({outcome.seconds} s)", flush=True)
    return [known[change.file, change.what] for change in changes]


def main() -> int:
    """Draws and makes the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--rust", type=int, default=60, metavar="N", help="changes in Rust; 60 by default")
    parser.add_argument("--python", type=int, default=30, metavar="N", help="changes in Python; 30 by default")
    parser.add_argument("--c", type=int, default=10, metavar="N", help="changes in C; 10 by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to build and to test")
    arguments = parser.parse_args()
    try:
        changes = draw_python(arguments.seed, arguments.python) if arguments.python else []
        changes += draw_c(arguments.seed, arguments.c)
        changes += draw_rust(arguments.seed, arguments.rust) if arguments.rust else []
        tree = SCRATCH / "tree"
        copy_tree(ROOT, tree)
        for built in (ROOT / "python/pagelab").glob("*.so"):
            shutil.copy2(built, tree / "python/pagelab")
        log = SCRATCH / f"sample-{arguments.seed}.jsonl"
        return report(run(changes, log, arguments.jobs), log)
    except ToolError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


def report(outcomes: list[Outcome], log: Path) -> int:
    """Prints what was noticed, and takes out of the log what only seems so; the command's status."""
    anyway = failing_anyway(outcomes)
    real = [one for one in outcomes if one.noticed_by not in anyway]
    log.write_text("".join(json.dumps(asdict(one)) + "\n" for one in real), encoding="utf-8")
    for test in sorted(anyway):
        print(f"fails without any change, too: {test}; mend it, and repeat the command")
    tested = [one for one in real if one.noticed_by != "compiler"]
    missed = [one for one in tested if not one.noticed_by]
    print(f"noticed {len(tested) - len(missed)} of {len(tested)}; {len(real) - len(tested)} did not compile")
    for one in missed:
        print(f"  {one.file}: {one.what}")
    return 1 if missed or anyway else 0


if __name__ == "__main__":
    sys.exit(main())
