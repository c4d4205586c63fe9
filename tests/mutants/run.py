"""Makes small changes that are wrong, one after the other, and reports which test notices each.

    python tests/mutants/run.py [NAME…] [--jobs N]

The changes are listed in `mutants.toml`. They are made in a copy of the tree in `target/mutants`, never in the tree
itself. A change is *killed* if a test of its suites fails or does not end; it *survives* if none does. Ends with status
1 if one survived or did not compile. Ends with status 2, before any change is made, if an expression to be changed is
not in its place exactly once, or if a suite fails without any change.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
SCRATCH = ROOT / "target" / "mutants"
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Mutant:
    """An expression to be changed, and the suites that are to notice.

    Only the tokens of the expression count, not how they are spaced or broken into lines. With `within`, such as
    `fn walk`, it is looked for in the functions that begin so.

    A suite is `lib` for unit tests of the file's crate, the name of a test binary, or `BINARY::MODULE` for the tests of
    one module of it.
    """

    name: str
    stands_for: str
    file: str
    find: str
    replace: str
    suites: list[str]
    within: str = ""

    def apply(self, tree: Path) -> str:
        """The file's text with the change made. Errors: there is no such file, or not exactly one such expression."""
        path = tree / self.file
        if not path.is_file():
            raise ListError(f"{self.name}: there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        tokens = tokenize(text)
        wanted = [token.text for token in tokenize(self.find)]
        places = functions(tokens, self.within) if self.within else [range(len(tokens))]
        matches = [
            n for place in places for n in place if [token.text for token in tokens[n : n + len(wanted)]] == wanted
        ]
        if len(matches) != 1:
            where = f"{self.file}, {self.within}" if self.within else self.file
            raise ListError(f"{self.name}: {where}: found {len(matches)} times, not once: {self.find!r}")
        first, last = tokens[matches[0]], tokens[matches[0] + len(wanted) - 1]
        return text[: first.start] + self.replace + text[last.end :]


@dataclass(frozen=True)
class Token:
    """A word, a string, or another single character of source code, and where it stands."""

    text: str
    start: int
    end: int


TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|\w+|\S""", re.DOTALL)


def tokenize(text: str) -> list[Token]:
    """The tokens of Rust or C code, without comments."""
    tokens = (Token(match.group(), *match.span()) for match in TOKEN.finditer(text))
    return [token for token in tokens if not token.text.startswith(("//", "/*"))]


def functions(tokens: list[Token], begin: str) -> list[range]:
    """The functions whose tokens begin so, up to the brace that closes the body."""
    head = [token.text for token in tokenize(begin)]
    bodies = []
    for first in range(len(tokens)):
        if [token.text for token in tokens[first : first + len(head)]] == head:
            depth = 0
            for last in range(first, len(tokens)):
                text = tokens[last].text
                depth += (text in {"{", "(", "["}) - (text in {"}", ")", "]"})
                if depth == 0 and text in {"}", ";"}:
                    bodies.append(range(first, last + 1))
                    break
    return bodies


@dataclass(frozen=True)
class Result:
    """What became of a mutant: the tests that failed, none if it survived; or why it does not compile."""

    mutant: Mutant
    failed: list[str]
    broken: str | None
    seconds: float

    def __str__(self) -> str:
        if self.broken:
            what = f"DOES NOT COMPILE: {self.broken}"
        else:
            what = f"killed by {', '.join(self.failed[:3])}" if self.failed else "SURVIVED"
        return f"{self.mutant.name}: {what} ({self.seconds:.0f} s)"


class ListError(Exception):
    """The list of mutants does not fit the tree, or the tree's tests fail as it is."""


class BuildError(Exception):
    """A suite does not compile."""


def load(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list. Errors: two have the same name."""
    mutants = [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ListError(f"two mutants have the same name: {', '.join(twice)}")
    return mutants


def copy_tree(source: Path, target: Path) -> None:
    """Brings the copy up to date, file by file: cargo builds again what was written."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True).stdout
    names = {name for name in listing.split("\0") if name and (source / name).is_file()}
    for name in names:
        old, new = target / name, (source / name).read_bytes()
        if not old.is_file() or old.read_bytes() != new:
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_bytes(new)
            shutil.copymode(source / name, old)
    for folder in ["capture", "crates", "presets"]:
        for path in (target / folder).rglob("*"):
            if path.is_file() and str(path.relative_to(target)) not in names:
                path.unlink()


def package(tree: Path, file: str, suite: str) -> str:
    """The crate that has a suite; for unit tests, the one that has the file. Errors: it is not exactly one."""
    binary, _, module = suite.partition("::")
    if suite == "lib":
        packages = [name for folder, name, *_ in [Path(file).parts] if folder == "crates"]
    else:
        names = (
            [f"{binary}/{module}.rs", f"{binary}/{module}/mod.rs"] if module else [f"{binary}.rs", f"{binary}/main.rs"]
        )
        packages = [
            path.name for path in (tree / "crates").iterdir() if any((path / "tests" / name).exists() for name in names)
        ]
    if len(packages) != 1:
        raise ListError(f"{file}: the suite {suite} is in {len(packages)} crates, not in one")
    return packages[0]


def run_suite(tree: Path, crate: str, suite: str, jobs: int) -> list[str]:
    """The tests of a suite that fail. Errors: it does not compile."""
    binary, _, module = suite.partition("::")
    which = ["--lib"] if binary == "lib" else ["--test", binary]
    cargo = ["cargo", "test", "--quiet", "--jobs", str(jobs), "--package", crate, *which]
    built = subprocess.run([*cargo, "--no-run"], cwd=tree, capture_output=True, text=True, env=environment())
    if built.returncode != 0:
        errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
        raise BuildError("; ".join(errors[:2]) or f"cargo ended with {built.returncode} and named no error")
    command = [*cargo, "--", "--test-threads", str(jobs), *([f"{module}::"] if module else [])]
    status, output = end_within(TIMEOUT_SECONDS, command, tree, environment())
    if status is None:
        return [f"{suite} (no end after {TIMEOUT_SECONDS} s)"]
    return (failed_tests(output) or [f"{suite} (ended with {status})"]) if status else []


def end_within(
    seconds: float, command: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> tuple[int | None, str]:
    """A command's status and what it prints; no status if it has not ended by then.

    It has a group of its own, so that a test that does not end is killed with what it has started.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, ""


def failed_tests(output: str) -> list[str]:
    """The names of tests that failed, by what a test program in Rust printed."""
    failed = re.search(r"^failures:\n((?:    \S+\n)+)", output, re.MULTILINE)
    return failed.group(1).split() if failed else []


def environment() -> dict[str, str]:
    """Of cargo: a folder of its own to build in."""
    return {**os.environ, "CARGO_TARGET_DIR": str(SCRATCH / "build")}


def check_unchanged(tree: Path, mutants: list[Mutant], jobs: int) -> None:
    """Runs each suite of some mutants without a change. Errors: one fails, and would seem to notice anything."""
    suites = {(package(tree, mutant.file, suite), suite) for mutant in mutants for suite in mutant.suites}
    for crate, suite in sorted(suites):
        failed = run_suite(tree, crate, suite, jobs)
        if failed:
            raise ListError(f"{crate}, {suite} fails without any change: {', '.join(failed)}")


def run_mutant(tree: Path, mutant: Mutant, jobs: int) -> Result:
    """Makes the change in the copy, runs the suites until one notices, and takes it back."""
    start = time.monotonic()
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(tree), encoding="utf-8")
    failed: list[str] = []
    broken = None
    try:
        for suite in mutant.suites:
            failed = run_suite(tree, package(tree, mutant.file, suite), suite, jobs)
            if failed:
                break
    except BuildError as error:
        broken = str(error)
    finally:
        path.write_text(before, encoding="utf-8")
    return Result(mutant, failed, broken, time.monotonic() - start)


def main() -> int:
    """Runs the mutants that were asked for, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; all if none is named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to build and threads to test")
    arguments = parser.parse_args()
    results = []
    try:
        mutants = load()
        unknown = set(arguments.names) - {mutant.name for mutant in mutants}
        if unknown:
            raise ListError(f"no mutant is named {', '.join(sorted(unknown))}")
        for mutant in mutants:
            mutant.apply(ROOT)
            for suite in mutant.suites:
                package(ROOT, mutant.file, suite)
        tree = SCRATCH / "tree"
        copy_tree(ROOT, tree)
        chosen = [mutant for mutant in mutants if not arguments.names or mutant.name in arguments.names]
        check_unchanged(tree, chosen, arguments.jobs)
        for mutant in chosen:
            results.append(run_mutant(tree, mutant, arguments.jobs))
            print(results[-1], flush=True)
    except (ListError, BuildError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    left = [result for result in results if not result.failed]
    print(f"killed {len(results) - len(left)} of {len(results)}")
    for result in left:
        print(f"  {result.mutant.name}: {result.mutant.stands_for} ({result.mutant.file})")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
