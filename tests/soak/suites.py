"""What a soak runs: random tests of the crates, and commands that are killed or cannot write."""

import functools
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import disturbed

ROOT = Path(__file__).resolve().parents[2]
# Seeds that once failed: `tests/python/test_soak.py` runs them.
KEPT = Path(__file__).with_name("kept.toml")
TIMEOUT_SECONDS = 3600


class SuiteError(Exception):
    """A suite cannot run at all."""


@dataclass(frozen=True)
class Outcome:
    """What a round did."""

    operations: int = 0
    """Calls and accesses of random programs, each checked against the kernels' records."""
    cases: int = 0
    """Tests, or commands, for suites without random programs."""
    failed: str = ""
    """What failed, on one line; empty if nothing did."""


@dataclass(frozen=True)
class Suite:
    """A part of the soak. It gets its `share` of the time; what `prepare` does is done once, before the first round."""

    name: str
    what: str
    share: float
    prepare: Callable[[], object]
    run: Callable[[int], Outcome]


@functools.cache
def _binaries(package: str, target: str) -> Path:
    """The test binary of a crate, compiled with optimisation and debug assertions.

    Raises:
        SuiteError: it does not compile.
    """
    which = ["--lib"] if target == "lib" else ["--test", target]
    command = ["cargo", "test", "--no-run", "--message-format=json", "--package", package, *which]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise SuiteError(f"{' '.join(command)} failed with status {ended.returncode}")
    messages = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    paths = [message["executable"] for message in messages if message.get("executable")]
    if not paths:
        raise SuiteError(f"{package} has no tests in {target}")
    return Path(paths[-1])


def _tests(package: str, target: str, filters: tuple[str, ...], factor: int, ignored: bool, seed: int) -> Outcome:
    """Runs those of a crate's tests whose names contain a filter, with a seed."""
    seeds = {"PROPTEST_RNG_SEED": str(seed), "PAGELAB_CASES_SEED": str(seed), "PAGELAB_CASES_FACTOR": str(factor)}
    command = [str(_binaries(package, target)), *filters, "--nocapture"]
    if ignored:
        command.append("--ignored")
    folder = ROOT / "crates" / package
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | seeds | {"CARGO_MANIFEST_DIR": str(folder)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(failed=f"did not end within {TIMEOUT_SECONDS} s")
    text = ended.stdout + ended.stderr
    counts = [int(number) for number in re.findall(r"(\d+) operations of random programs checked", text)]
    passed = sum(int(number) for number in re.findall(r"(\d+) passed", text))
    if ended.returncode == 0 and passed == 0:
        return Outcome(failed=f"no test has a name with {' or '.join(filters)}")
    if ended.returncode == 0:
        return Outcome(max(counts, default=0), passed)
    # With `--nocapture`, what a test prints may stand before its result. Only the list at the end is by itself.
    names = re.findall(r"^    (\S+)$", text.rpartition("\nfailures:\n")[2], re.MULTILINE)
    names = names or [f"status {ended.returncode}: {' '.join(text.split()[-20:])}"]
    return Outcome(max(counts, default=0), passed, ", ".join(names))


def _of_crate(
    name: str,
    what: str,
    share: float,
    package: str,
    target: str,
    *filters: str,
    factor: int = 1,
    ignored: bool = False,
) -> Suite:
    prepare = functools.partial(_binaries, package, target)
    run = functools.partial(_tests, package, target, filters, factor, ignored)
    return Suite(name, what, share, prepare, run)


def _of_commands(name: str, what: str, share: float, run: Callable[[int], tuple[int, str]]) -> Suite:
    def made(seed: int) -> Outcome:
        cases, failed = run(seed)
        return Outcome(cases=cases, failed=failed)

    def prepare() -> None:
        try:
            disturbed.prepare()
        except disturbed.MissingError as error:
            raise SuiteError(str(error)) from None

    return Suite(name, what, share, prepare, made)


_ENGINE = "pagelab-engine"
SUITES = {
    suite.name: suite
    for suite in (
        _of_crate(
            "programs",
            "random programs on all systems, each translation checked",
            8,
            _ENGINE,
            "simulation",
            "properties::millions_of_operations",
            ignored=True,
        ),
        _of_crate(
            "ways",
            "random programs in six ways that must count the same",
            3,
            _ENGINE,
            "simulation",
            "properties::any_program",
        ),
        _of_crate("copies", "random programs beside copies of themselves", 2, _ENGINE, "simulation", "two_copies"),
        _of_crate("conformance", "all registered designs under random programs", 3, _ENGINE, "conformance"),
        _of_crate(
            "engine",
            "caches, machines and kernels against plain models",
            2,
            _ENGINE,
            "simulation",
            "reference::",
            "fast_path::",
            "sample::",
        ),
        _of_crate("words", "words in entries of page tables", 1, _ENGINE, "kernel", "words::"),
        _of_crate(
            "edges", "orders of threads, and shared segments", 1, _ENGINE, "machine", "edges::", "shared_segments::"
        ),
        _of_crate("tables", "page tables against maps", 1, "pagelab-tables", "lib"),
        _of_crate("allocator", "frames and mappings against plain models", 1, "pagelab-kernel", "lib"),
        _of_crate("caches", "caches against plain models", 1, "pagelab-hardware", "lib"),
        _of_crate("arrays", "set-associative arrays against plain models", 0.5, "pagelab-base", "lib"),
        _of_crate("traces", "damaged traces, and damaged inputs of importers", 2, "pagelab-trace", "formats", factor=4),
        _of_crate("lines", "lines of foreign formats", 0.5, "pagelab-trace", "lib", factor=4),
        _of_crate("faults", "fault traces and their models", 0.5, "pagelab-faults", "faults"),
        _of_crate("curves", "miss-ratio curves against plain models", 0.5, "pagelab-mrc", "brute_force"),
        _of_commands("killed", "commands that are killed at random moments", 2, disturbed.killed),
        _of_commands("refused", "commands whose writing system calls fail", 2, disturbed.refused),
    )
}


def kept() -> list[tuple[str, int]]:
    """The seeds that are tests."""
    entries = tomllib.loads(KEPT.read_text(encoding="utf-8")).get("round", [])
    return [(entry["suite"], entry["seed"]) for entry in entries]


def keep(suite: str, seed: int) -> bool:
    """Adds a seed to those; false if it is one already."""
    if (suite, seed) in kept():
        return False
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(f'\n[[round]]\nsuite = "{suite}"\nseed = {seed}\n')
    return True
