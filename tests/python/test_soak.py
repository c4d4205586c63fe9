"""The script of `make soak`: its log, its turns, the commands that it disturbs, and the seeds that failed once."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))

import disturbed
import suites
from soak import ROOT, Log, LogError, read, soak, totals
from suites import SUITES, Outcome, Suite


def _suite(name: str, share: float, outcome: Outcome) -> Suite:
    return Suite(name, name, share, lambda: None, lambda _: outcome)


def test_suites_take_turns_by_their_shares_and_the_log_tells_all(tmp_path: Path) -> None:
    log = Log(tmp_path / "deep" / "soak.jsonl")
    some = [_suite("often", 3, Outcome(operations=1000)), _suite("seldom", 1, Outcome(cases=5))]
    soak(some, 1, log)
    assert not any(made.failed for made in log.rounds)
    names = [made.suite for made in log.rounds]
    assert names[:2] == ["often", "seldom"]
    assert 2 * names.count("seldom") < names.count("often") <= 3 * names.count("seldom") + 3
    seeds = [made.seed for made in log.rounds]
    assert len(set(seeds)) == len(seeds)
    # The file has what the object has, and a later run goes on with it.
    assert read(log.path) == log.rounds
    again = Log(log.path)
    soak([_suite("bad", 1, Outcome(failed="it broke"))], 0.05, again)
    assert again.rounds[-1].failed == "it broke"
    assert read(log.path)[: len(names)] == log.rounds
    assert len(read(log.path)) > len(names)
    table = totals(read(log.path)).splitlines()
    row = next(line for line in table if line.startswith("often"))
    assert f"{1000 * names.count('often'):,}" in row
    assert table[-1].split()[-1] == str(len(again.rounds) - len(names))


def test_a_log_that_cannot_be_written_ends_it_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, message in ((tmp_path, "is a directory"), (Path("/proc/soak.jsonl"), "cannot be written")):
        with pytest.raises(LogError, match=r"(?i)" + message):
            Log(path)
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"some": "line"}\n')
    with pytest.raises(LogError, match="line 1: not a round of a soak"):
        Log(foreign)
    monkeypatch.setattr("soak.LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(LogError, match="MiB left"):
        Log(tmp_path / "full.jsonl")


def test_a_disk_that_fills_up_ends_it(tmp_path: Path) -> None:
    """In a process of its own: files of more than 100 bytes are refused there."""
    code = (
        "import resource, sys; from soak import *; from suites import *; from pathlib import Path\n"
        "log = Log(Path(sys.argv[1])); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "soak([Suite('one', 'one', 1, lambda: None, lambda _: Outcome(1))], 5, log)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "soak")}
    command = [sys.executable, "-c", code, str(tmp_path / "soak.jsonl")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "cannot be written: File too large" in ended.stderr


def test_usage(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "tests" / "soak" / "soak.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for arguments, message in (
        (("--seed", "1"), "--seed needs one --suite"),
        (("--keep", "nothing", "1"), "--keep takes a suite"),
        (("--suite", "nothing"), "invalid choice"),
        (("--suite", "killed", "--log", str(tmp_path)), "cannot be written"),
    ):
        ended = run(*arguments)
        assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_failing_seed_becomes_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_of_seeds = tmp_path / "kept.toml"
    list_of_seeds.write_text(suites.KEPT.read_text())
    monkeypatch.setattr(suites, "KEPT", list_of_seeds)
    before = suites.kept()
    assert suites.keep("programs", 1 << 62)
    assert not suites.keep("programs", 1 << 62)
    assert suites.kept() == [*before, ("programs", 1 << 62)]


def test_every_suite_names_tests_that_exist() -> None:
    """The filters are parts of names of functions or modules; a renamed test would leave a suite empty."""
    sources = [path for path in (ROOT / "crates").rglob("*.rs") if "target" not in path.relative_to(ROOT).parts]
    text = "\n".join(path.read_text() + path.stem for path in sources)
    for suite in SUITES.values():
        if isinstance(run := getattr(suite.run, "args", None), tuple):
            package, target, filters = run[:3]
            assert (ROOT / "crates" / package).is_dir(), suite.name
            assert (
                target == "lib"
                or (ROOT / "crates" / package / "tests" / target).exists()
                or (ROOT / "crates" / package / "tests" / f"{target}.rs").exists()
            ), suite.name
            for part in (part for one in filters for part in one.split("::") if part):
                assert part in text, f"{suite.name}: {part}"


@pytest.mark.parametrize(("name", "seed"), suites.kept())
def test_seeds_that_failed_once(name: str, seed: int) -> None:
    SUITES[name].prepare()
    assert not SUITES[name].run(seed).failed


needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("strace", "valgrind", "gcc"))), reason="needs strace, valgrind and gcc"
)
# A stand-in for pagelab: it writes a file in two parts, as its arguments say.
WRITER = """
import os, sys, time
how, name = sys.argv[1:3]
begun = name if how == "in-place" else name + ".part"
try:
    with open(begun, "w") as file:
        file.write("{" + "x" * 5000)
        file.flush()
        time.sleep(0.2)
        file.write("}")
    if begun != name:
        os.rename(begun, name)
except OSError as error:
    if how == "traceback":
        raise
    if how == "silent":
        sys.exit(0)
    sys.exit(f"pagelab: error: {error}")
"""


@needs_tools
@pytest.mark.parametrize(
    ("how", "disturb", "wrong"),
    [
        ("good", "killed", ""),
        ("good", "refused", ""),
        ("in-place", "killed", "is there, but not whole"),
        ("in-place", "refused", "is there, but not whole"),
        ("traceback", "refused", "Traceback"),
        ("silent", "refused", "status 0, but the result is not whole"),
    ],
)
def test_what_is_wrong_with_a_disturbed_command_is_noticed(
    how: str, disturb: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    monkeypatch.setattr(disturbed, "PAGELAB", (sys.executable, str(script)))
    monkeypatch.setattr(disturbed, "prepare", lambda: tmp_path)
    monkeypatch.setattr(disturbed, "INPUTS", ("writer.py",))
    monkeypatch.setattr(disturbed, "CALLS", ("rename",))
    command = disturbed.Command((how, "made.json"), "made.json", disturbed._ends_with(b"}"))
    disturbed._undisturbed.cache_clear()
    draws = random.Random(5)
    complaints = {getattr(disturbed, f"_{disturb}")(command, draws) for _ in range(12)} - {""}
    assert bool(complaints) == bool(wrong)
    assert all(wrong in one for one in complaints), complaints


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("name", ["killed", "refused"])
def test_commands_bear_a_round(name: str) -> None:
    SUITES[name].prepare()
    outcome = SUITES[name].run(1)
    assert (outcome.cases, outcome.failed) == (disturbed.CASES, "")
