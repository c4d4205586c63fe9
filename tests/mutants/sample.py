"""Draws small wrong changes by a seed, makes one after the other, and reports which no test notices.

    python tests/mutants/sample.py SEED [--rust N] [--python N] [--c N] [--jobs N]

`run.py` has a list of changes that stays. This draws others: in Rust of all that `cargo mutants --list` knows, in
Python of all that mutmut can make, but for changes of texts, and in the recorder's C of all operators between blanks.
So it needs `cargo install cargo-mutants` and `pip install mutmut`. The crate of the Python module is left out, since no
test in Rust runs it.

Changes are made in a copy of the tree in `target/mutants`. In Rust all tests of the crate run, then those of crates
that depend on it; in Python and C first the test files that name the module, then all others that are not slow. The
first failure ends a change. What is known is kept in `target/mutants/sample-SEED.jsonl`, a line of JSON per change, and
not made again by the same command. In the end the tests that noticed run without any change: what one that fails then,
too, has noticed is forgotten. Ends with status 1 if a change was not noticed, or if such a test is to be mended first.
"""

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from run import ROOT, SCRATCH, TIMEOUT_SECONDS, copy_tree, end_within, environment, failed_tests

LEFT_OUT = "pagelab-py"
PYTHON_SOURCES = ("python/pagelab", "packages/studies/pagelab_studies", "packages/linux/pagelab_linux")


class ToolError(Exception):
    """A tool is missing, or the tests fail without a change."""


@dataclass(frozen=True)
class Change:
    """A file with one thing changed."""

    language: str
    file: str
    what: str
    """A line that says what is changed: the operator and its function, or the code before and after."""
    text: str
    """The whole file after the change."""


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


def draw_rust(seed: int, count: int) -> list[Change]:
    """Changes of all crates but that of the Python module. Errors: there is no cargo-mutants."""
    command = ["cargo", "mutants", "--list", "--json", "--workspace"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ToolError(f"cargo mutants does not run; `cargo install cargo-mutants` installs it\n{listed.stderr}")
    known = [one for one in json.loads(listed.stdout) if one["package"] != LEFT_OUT]
    drawn = random.Random(f"{seed} rust").sample(known, count)
    return [Change("rust", one["file"], one["name"], _patched(one)) for one in drawn]


def _patched(mutant: dict[str, Any]) -> str:
    text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    begin, end = (mutant["span"][edge] for edge in ("start", "end"))
    first, last = lines[begin["line"] - 1], lines[end["line"] - 1]
    before = "".join(lines[: begin["line"] - 1]) + first[: begin["column"] - 1]
    after = last[end["column"] - 1 :] + "".join(lines[end["line"] :])
    return f"{before}{mutant['replacement']}{after}"


def draw_python(seed: int, count: int) -> list[Change]:
    """Changes of the Python packages: a file by its length, then a change in it. Errors: there is no mutmut."""
    try:
        import libcst
        from mutmut.mutation.file_mutation import create_mutations, deep_replace
    except ImportError as error:
        raise ToolError(f"{error}; `pip install mutmut` installs it") from error
    files = sorted(path for folder in PYTHON_SOURCES for path in (ROOT / folder).rglob("*.py"))
    sizes = [path.stat().st_size for path in files]
    generator = random.Random(f"{seed} python")
    drawn: dict[str, Change] = {}
    while len(drawn) < count:
        (path,) = generator.choices(files, sizes)
        module, mutations, *_ = create_mutations(str(path), path.read_text(encoding="utf-8"))
        texts = (libcst.SimpleString, libcst.FormattedString, libcst.ConcatenatedString)
        mutations = [one for one in mutations if not isinstance(one.original_node, texts)]
        if not mutations:
            continue
        one = generator.choice(mutations)
        changed = deep_replace(module, one.original_node, one.mutated_node)
        assert isinstance(changed, libcst.Module)
        before, after = (module.code_for_node(node).strip() for node in (one.original_node, one.mutated_node))
        what = f"{before} -> {after}"
        drawn[f"{path} {what}"] = Change("python", str(path.relative_to(ROOT)), what, changed.code)
    return list(drawn.values())


PAIRS = ("== !=", "< <=", "> >=", "&& ||", "+ -", "* /", "<< >>", "& |", "+= -=", "True False")
OPPOSITES = {one: other for pair in PAIRS for one, other in itertools.permutations(pair.split())}
OPERATOR = re.compile(r"(?<= )(?:" + "|".join(map(re.escape, OPPOSITES)) + r")(?=[ ;])")


def draw_c(seed: int, count: int) -> list[Change]:
    """Changes of the recorder's tool: a file by its length, then an operator outside of comments and directives."""
    files = sorted((ROOT / "capture/valgrind").glob("*.c"))
    generator = random.Random(f"{seed} c")
    drawn: dict[str, Change] = {}
    while len(drawn) < count:
        (path,) = generator.choices(files, [path.stat().st_size for path in files])
        text = path.read_text(encoding="utf-8")
        code = re.sub(
            r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|^#[^\n]*", lambda part: "\0" * len(part[0]), text, flags=re.S | re.M
        )
        if places := list(OPERATOR.finditer(code)):
            one = generator.choice(places)
            number, line = code.count("\n", 0, one.start()) + 1, code[: one.end()].rpartition("\n")[2].strip()
            file, other = str(path.relative_to(ROOT)), OPPOSITES[one[0]]
            changed = f"{text[: one.start()]}{other}{text[one.end() :]}"
            drawn[f"{file} {one.start()}"] = Change("c", file, f"line {number}: {line} -> {other}", changed)
    return list(drawn.values())


def dependents(crate: str) -> list[str]:
    """The crate, and those that depend on it, nearest first."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    packages = json.loads(listed.stdout)["packages"]
    needs = {one["name"]: {need["name"] for need in one["dependencies"]} for one in packages}
    order = [crate]
    for known in order:
        order += [name for name in needs if known in needs[name] and name not in (*order, LEFT_OUT)]
    return order


def rust_commands(change: Change, jobs: int) -> Iterable[list[str]]:
    """What tests a change in Rust, in order."""
    crate = Path(change.file).parts[1]
    yield ["cargo", "build", "--quiet", "--jobs", str(jobs), "--package", crate]
    for name in dependents(crate):
        yield ["cargo", "test", "--quiet", "--jobs", str(jobs), "--package", name]


def python_commands(change: Change, jobs: int) -> Iterable[list[str]]:
    """What tests a change in Python or C, in order."""
    stem = Path(change.file).stem
    tests = sorted((SCRATCH / "tree/tests/python").glob("test_*.py"))
    near = [path for path in tests if stem in path.read_text(encoding="utf-8")]
    for part in (near, [path for path in tests if path not in near]):
        if part:
            yield [*PYTEST, "-x", "-m", "not slow", "-n", str(jobs), "--dist", "loadfile", *map(str, part)]


PYTEST = [sys.executable, "-m", "pytest", "-q"]
COMMANDS: dict[str, Callable[[Change, int], Iterable[list[str]]]] = {
    "rust": rust_commands,
    "python": python_commands,
    "c": python_commands,
}


def attempt(command: Sequence[str]) -> tuple[int | None, str]:
    """Runs a command in the copy of the tree: its status, or none if it did not end, and what it prints."""
    tree = SCRATCH / "tree"
    folders = (str(tree / Path(folder).parent) for folder in PYTHON_SOURCES)
    return end_within(3 * TIMEOUT_SECONDS, command, tree, {**environment(), "PYTHONPATH": os.pathsep.join(folders)})


def failed_test(command: list[str], output: str) -> tuple[str, list[str]]:
    """The first test that failed, and the command that runs it alone; the whole command if it names none."""
    if named := re.search(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE):
        return named[1], [*PYTEST, named[1]]
    names, which = failed_tests(output), re.search(r"to rerun pass `(.*)`", output)
    if names and which:
        return f"{which[1]} {names[0]}", ["cargo", "test", "--quiet", *which[1].split(), "--", "--exact", names[0]]
    return " ".join(command), command


def noticed_by(change: Change, jobs: int) -> tuple[str, list[str]]:
    """The first test that fails, or the command that does not end, and how to run it again; empty if there is none."""
    for command in COMMANDS[change.language](change, jobs):
        status, output = attempt(command)
        if status is None:
            return f"no end: {' '.join(command)}", command
        if status:
            return ("compiler", []) if command[1] == "build" else failed_test(command, output)
    return "", []


def make(change: Change, jobs: int) -> Outcome:
    """Makes a change in the copy, runs the tests, and takes it back."""
    path = SCRATCH / "tree" / change.file
    before, begin = path.read_text(encoding="utf-8"), time.monotonic()
    path.write_text(change.text, encoding="utf-8")
    try:
        test, again = noticed_by(change, jobs)
    finally:
        path.write_text(before, encoding="utf-8")
    return Outcome(change.language, change.file, change.what, test, again, round(time.monotonic() - begin, 1))


def failing_anyway(outcomes: Iterable[Outcome]) -> set[str]:
    """Of the tests that noticed a change, those that fail without one, too."""
    commands = {one.noticed_by: one.again for one in outcomes if one.again}
    return {test for test, command in commands.items() if attempt(command)[0] != 0}


def known_outcomes(log: Path) -> dict[tuple[str, str], Outcome]:
    """What earlier runs with this seed have found out."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    return {(one.file, one.what): one for one in outcomes}


def run(changes: list[Change], log: Path, jobs: int) -> list[Outcome]:
    """Makes those that the log does not have yet, and returns what became of all."""
    known = known_outcomes(log)
    for number, change in enumerate(changes, 1):
        if (change.file, change.what) in known:
            continue
        outcome = make(change, jobs)
        known[change.file, change.what] = outcome
        with log.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(outcome)) + "\n")
        word = f"noticed by {outcome.noticed_by}" if outcome.noticed_by else "NOT NOTICED"
        print(f"{number} of {len(changes)}: {change.file}: {change.what}: {word} ({outcome.seconds} s)", flush=True)
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
    except ToolError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    tree = SCRATCH / "tree"
    copy_tree(ROOT, tree)
    for built in (ROOT / "python/pagelab").glob("*.so"):
        shutil.copy2(built, tree / "python/pagelab")
    log = SCRATCH / f"sample-{arguments.seed}.jsonl"
    outcomes = run(changes, log, arguments.jobs)
    return report(outcomes, log)


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
