"""Applies single-line changes that are wrong, one after the other, and reports which test notices each.

    python tests/mutants/run.py [NAME…] [--jobs N]

The changes are listed in `mutants.toml`. They are made in a copy of the tree in `target/mutants`, never in the tree
itself. A change is *killed* if a test of its suites fails or does not end; it *survives* if none does. Ends with status
1 if one survived or did not compile. Ends with status 2, before any change is made, if a text to be changed is not in
its file exactly once, or if a suite fails without any change.
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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
SCRATCH = ROOT / "target" / "mutants"
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Mutant:
    """A line to be changed, and the suites that are to notice.

    A suite is `lib` for unit tests, the name of a test binary, or `BINARY::MODULE` for the tests of one module of it.
    The suites are those of the crate that the file belongs to. A file of none, such as one in C, needs `crate`, whose
    tests build it.
    """

    name: str
    stands_for: str
    file: str
    find: str
    replace: str
    suites: list[str]
    crate: str = ""

    def package(self) -> str:
        """The crate whose suites are run. Errors: none is named, and the file belongs to none."""
        folder, name, *_ = Path(self.file).parts
        if not self.crate and folder != "crates":
            raise ListError(f"{self.name}: {self.file} is of no crate, so `crate` has to name the one that tests it")
        return self.crate or name

    def apply(self, tree: Path) -> str:
        """The file's text with the change made. Errors: the text to find is not there exactly once."""
        text = (tree / self.file).read_text(encoding="utf-8")
        found = text.count(self.find)
        if found != 1:
            what = f"the text to be changed is there {found} times, not once: {self.find!r}"
            raise ListError(f"{self.name}: {self.file}: {what}")
        return text.replace(self.find, self.replace)


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


def run_suite(tree: Path, package: str, suite: str, jobs: int) -> list[str]:
    """The tests of a suite that fail. Errors: it does not compile."""
    binary, _, module = suite.partition("::")
    which = ["--lib"] if binary == "lib" else ["--test", binary]
    cargo = ["cargo", "test", "--quiet", "--jobs", str(jobs), "--package", package, *which]
    built = subprocess.run([*cargo, "--no-run"], cwd=tree, capture_output=True, text=True, env=environment())
    if built.returncode != 0:
        errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
        raise BuildError("; ".join(errors[:2]) or f"cargo ended with {built.returncode} and named no error")
    command = [*cargo, "--", "--test-threads", str(jobs), *([f"{module}::"] if module else [])]
    # A group of its own, so that a test that does not end is ended with what it has started.
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return [f"{suite} (no end after {TIMEOUT_SECONDS} s)"]
    if process.returncode == 0:
        return []
    failed = re.search(r"^failures:\n((?:    \S+\n)+)", output, re.MULTILINE)
    return failed.group(1).split() if failed else [f"{suite} (ended with {process.returncode})"]


def environment() -> dict[str, str]:
    """Of cargo: a folder of its own to build in."""
    return {**os.environ, "CARGO_TARGET_DIR": str(SCRATCH / "build")}


def check_unchanged(tree: Path, mutants: list[Mutant], jobs: int) -> None:
    """Runs each suite of some mutants without a change. Errors: one fails, and would seem to notice anything."""
    for package, suite in sorted({(mutant.package(), suite) for mutant in mutants for suite in mutant.suites}):
        failed = run_suite(tree, package, suite, jobs)
        if failed:
            raise ListError(f"{package}, {suite} fails without any change: {', '.join(failed)}")


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
            failed = run_suite(tree, mutant.package(), suite, jobs)
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
            mutant.package()
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
