"""Live runs: a program is replayed while it runs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import COMMAND, Pagelab, assert_fails

import pagelab as package
from pagelab.results.results import Results

pytestmark = pytest.mark.skipif(not shutil.which("valgrind") or not shutil.which("gcc"), reason="needs valgrind, gcc")

_PROGRAM = r"""
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Touches ARGV[1] pages ARGV[2] times; then goes on for ever if there is a third argument. */
int main(int argc, char **argv) {
    long pages = atol(argv[1]), rounds = atol(argv[2]);
    volatile char *memory = malloc(pages * 4096);
    for (long round = 0; round < rounds; round++)
        for (long page = 0; page < pages; page++)
            memory[page * 4096 + round % 4096]++;
    puts("touched");
    fflush(stdout);
    while (argc > 3)
        if (strcmp(argv[3], "sleep") == 0)
            sleep(1);
        else
            memory[0]++;
    return 3;
}
"""


@pytest.fixture(scope="module")
def touch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that touches pages, and ends with status 3."""
    folder = tmp_path_factory.mktemp("touch")
    (folder / "touch.c").write_text(_PROGRAM)
    subprocess.run(["gcc", "-O1", "-o", folder / "touch", folder / "touch.c"], check=True)
    return folder / "touch"


def test_a_live_run_counts_what_a_recording_of_the_same_program_counts(touch: Path, tmp_path: Path) -> None:
    systems = ["radix", "nested-radix"]
    live = package.run_live([touch, "2000", "20"], systems, windows=8)
    package.record([touch, "2000", "20"], tmp_path / "touch.trace")
    recorded = package.run(tmp_path / "touch.trace", systems)
    assert live.program.exit_code == 3
    assert live.program.accesses == live.results.systems[0].stats["accesses"]
    for name in ("accesses", "instructions", "fault.minor.count", "walk.count", "walk.refs", "cycles"):
        for system in systems:
            # The loader does not do quite the same in every run.
            assert live.results[system].stats[name] == pytest.approx(recorded[system].stats[name], rel=0.01), name
    source = live.results.systems[0].sources[0]
    assert (source.name, source.live, source.content_hash) == ("touch", True, None)
    windows = live.results.systems[0].windows
    assert sum(part["accesses"] for part in windows) == live.program.accesses
    assert len(windows) <= 8


def test_the_command_shows_the_comparison_and_ends_as_the_program(
    touch: Path, pagelab: Pagelab, tmp_path: Path
) -> None:
    asked = ("-s", "radix", "-s", "radix-2m", "--report", "page.html", "--json", "r.json")
    run = pagelab("run", "--live", *asked, "--", touch, "500", "5")
    assert run.returncode == 3, run.stderr
    assert run.stdout.startswith("touched\ntouch on ")
    assert "the program ended with status 3" in run.stderr
    assert list((tmp_path).glob("*.trace")) == []
    assert len(Results.load(tmp_path / "r.json").systems) == 2
    command = f"pagelab run --live -s radix -s radix-2m --profile --cpus 1 -- {touch} 500 5"
    assert command in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("what", ["sleep", "run"])
def test_ctrl_c_gives_the_results_so_far(touch: Path, tmp_path: Path, what: str) -> None:
    command = [*COMMAND, "run", "--live", "-s", "radix", "--json", "r.json", "--", str(touch), "500", "5", what]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout
    assert process.stdout.readline() == "touched\n"
    # As a terminal does: to all of them.
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors
    assert "radix" in output
    assert Results.load(tmp_path / "r.json").systems[0].stats["accesses"] > 2500


def test_enough_accesses_end_the_program(touch: Path, pagelab: Pagelab) -> None:
    begun = time.monotonic()
    run = pagelab("run", "--live", "--max-accesses", "200K", "-s", "radix", "--", touch, "500", "5", "run")
    assert run.returncode == 0, run.stderr
    assert "radix" in run.stdout
    assert time.monotonic() - begun < 60


def test_mistakes_are_told_before_the_program_starts(pagelab: Pagelab, tmp_path: Path) -> None:
    started = (sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')")
    assert_fails(pagelab("run", "--live", "-s", "radx", "--", *started), 2, "radx", "did you mean radix")
    assert_fails(pagelab("run", "--live", "--set", "machine.x=1", "--", *started), 2, "machine.x")
    assert_fails(pagelab("run", "--live", "--faults", "a.faults", "--", *started), 2, "--faults")
    assert_fails(pagelab("run", "--cpus", "2", "seq:size=64KiB"), 2, "--cpus", "--live")
    assert_fails(pagelab("run", "--live"), 2, "takes a program")
    assert not (tmp_path / "started").exists()
    assert_fails(pagelab("run", "--live", "--", "no-such-program"), 2, "no-such-program")


def test_a_simulation_that_fails_ends_the_program(touch: Path, pagelab: Pagelab) -> None:
    # It waits for ever, so nothing it does would tell that nobody reads any more.
    small = ("--set", "machine.memory_bytes=64MiB")
    assert_fails(pagelab("run", "--live", *small, "-q", "--", touch, "40000", "1", "sleep"), 1, "memory")
    # Nor does the other system hear of it from the program.
    systems = ("-s", "radix", "-s", "radix{machine.memory_bytes=130MiB}")
    assert_fails(pagelab("run", "--live", *systems, "-q", "--", touch, "40000", "1", "sleep"), 1, "memory")
