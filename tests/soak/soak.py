"""Runs random tests with fresh seeds, as long as one lets it, and keeps a log of what it did.

    python tests/soak/soak.py --seconds 3600                     # all suites, alternately
    python tests/soak/soak.py --suite programs --seed 17         # one suite once, with the seed of the log
    python tests/soak/soak.py --keep programs 17                 # adds a failing seed to the tests, in kept.toml

Each round takes the suite that has had the least time for its share, draws a seed, and prints both. The log, by default
`target/soak.jsonl`, gets a line of JSON per round: when it began and the commit, suite, seed, seconds, operations of
random programs that were checked, cases of the other kinds, and what failed. It is appended to, never rewritten.

Ends with status 1 if a round failed, with status 2 before the first round if the log cannot be written, its disk is
nearly full, or a suite does not compile. Ctrl-C ends it after the line of the last whole round.
"""

import argparse
import contextlib
import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from suites import SUITES, Suite, SuiteError, keep

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "target" / "soak.jsonl"
# Far more than the log of a year; with less, whatever else writes to this disk fails first.
LEAST_FREE_BYTES = 64 << 20


class LogError(Exception):
    """The log cannot be written."""


@dataclass(frozen=True)
class Round:
    """A line of the log."""

    began: str
    commit: str
    suite: str
    seed: int
    seconds: float
    operations: int
    cases: int
    failed: str


class Log:
    """A file of lines of JSON, open for as long as the soak runs."""

    def __init__(self, path: Path) -> None:
        """Opens it and looks whether there is room.

        Raises:
            LogError: it cannot be written, its disk is nearly full, or it ends within a line.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+", encoding="utf-8")
            free = shutil.disk_usage(path.parent).free
            self.rounds = read(path)
        except OSError as error:
            raise LogError(f"the log {path} cannot be written: {error.strerror}") from None
        if free < LEAST_FREE_BYTES:
            raise LogError(f"the disk of the log {path} has {free >> 20} MiB left; {LEAST_FREE_BYTES >> 20} are needed")

    def add(self, made: Round) -> None:
        """Appends a line and waits until it is on the disk."""
        try:
            self._file.write(json.dumps(asdict(made)) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise LogError(f"the log {self.path} cannot be written: {error.strerror}") from None
        self.rounds.append(made)


def read(path: Path) -> list[Round]:
    """The rounds of a log.

    Raises:
        LogError: a line is none of a soak's.
    """
    rounds = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rounds.append(Round(**json.loads(line)))
        except (TypeError, ValueError):
            raise LogError(f"{path}, line {number}: not a round of a soak; choose another file with --log") from None
    return rounds


@functools.cache
def commit() -> str:
    """The commit that is tested, with `+` if files differ from it."""
    run = ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def make(suite: Suite, seed: int) -> Round:
    """Runs a suite once."""
    began, start = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    outcome = suite.run(seed)
    seconds = round(time.monotonic() - start, 1)
    return Round(began, commit(), suite.name, seed, seconds, outcome.operations, outcome.cases, outcome.failed)


def show(made: Round) -> str:
    what = f"{made.operations:,} operations" if made.operations else f"{made.cases:,} cases"
    if made.failed:
        again = f"python tests/soak/soak.py --suite {made.suite} --seed {made.seed}"
        return f"{made.suite} seed {made.seed}: FAILED: {made.failed}\n  again: {again}"
    return f"{made.suite} seed {made.seed}: {what}, {made.seconds:.0f} s"


def totals(rounds: Iterable[Round]) -> str:
    """What all rounds of a log did, by suite."""
    by_suite: dict[str, list[Round]] = {}
    for made in rounds:
        by_suite.setdefault(made.suite, []).append(made)
    lines = [f"{'suite':14} {'rounds':>7} {'seconds':>9} {'operations':>14} {'cases':>10} {'failed':>7}"]
    everything = [made for suite in by_suite.values() for made in suite]
    for name, some in (*by_suite.items(), ("all", everything)):
        sums = (sum(one.seconds for one in some), sum(one.operations for one in some), sum(one.cases for one in some))
        failed = sum(bool(one.failed) for one in some)
        lines.append(f"{name:14} {len(some):7} {sums[0]:9.0f} {sums[1]:14,} {sums[2]:10,} {failed:7}")
    return "\n".join(lines)


def soak(suites: list[Suite], seconds: float, log: Log) -> None:
    """Runs suites alternately for so long; the log tells which rounds failed."""
    end = time.monotonic() + seconds
    taken = {suite.name: 0.0 for suite in suites}
    while time.monotonic() < end:
        suite = min(suites, key=lambda suite: taken[suite.name] / suite.share)
        made = make(suite, secrets.randbits(63))
        # A round without time would be taken again and again.
        taken[suite.name] += max(made.seconds, 0.1)
        log.add(made)
        print(show(made), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long, in seconds; 3600 by default")
    parser.add_argument("--suite", action="append", choices=sorted(SUITES), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--log", type=Path, default=LOG, help="where the log is")
    parser.add_argument("--keep", nargs=2, metavar=("SUITE", "SEED"), help="add a seed to the tests")
    chosen = parser.parse_args()
    if chosen.seed is not None and len(chosen.suite or []) != 1:
        parser.error("--seed needs one --suite")
    if chosen.keep and (chosen.keep[0] not in SUITES or not chosen.keep[1].isdecimal()):
        parser.error(f"--keep takes a suite ({', '.join(sorted(SUITES))}) and a seed, a whole number")
    return chosen


def main() -> int:
    chosen = arguments()
    if chosen.keep:
        name, seed = chosen.keep[0], int(chosen.keep[1])
        new = keep(name, seed)
        print(f"{name} seed {seed} " + ("is one of the tests now" if new else "is one of the tests already"))
        return 0
    suites = [SUITES[name] for name in chosen.suite or SUITES]
    try:
        log = Log(chosen.log)
        before = len(log.rounds)
        for suite in suites:
            suite.prepare()
        if chosen.seed is not None:
            made = make(suites[0], chosen.seed)
            log.add(made)
            print(show(made))
            return 1 if made.failed else 0
        with contextlib.suppress(KeyboardInterrupt):
            soak(suites, chosen.seconds, log)
        print(f"\nnow:\n{totals(log.rounds[before:])}\n\nin {log.path}:\n{totals(log.rounds)}")
        return int(any(made.failed for made in log.rounds[before:]))
    except (LogError, SuiteError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
