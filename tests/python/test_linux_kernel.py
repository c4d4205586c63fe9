"""The kernel itself: built, booted and tested by `pagelab linux test`, as a user would.

It takes a quarter of an hour the first time. What it builds stays in the cache, by what it is made of.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import COMMAND, ROOT

from pagelab_linux import others, tools
from pagelab_linux.layout import layout
from pagelab_linux.source import is_installed

pytestmark = pytest.mark.slow


def run(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    ensure_kernels(others.load(layout()).packages if "--debug" in arguments else ())
    return subprocess.run([*COMMAND, "linux", *arguments], capture_output=True, text=True, timeout=seconds, check=False)


def ensure_kernels(more: Sequence[tools.Tool] = ()) -> None:
    """Skips the test where no kernel can be built or run."""
    missing = tools.missing((*tools.BUILD, *tools.GUEST, *more))
    if missing:
        packages = " ".join(sorted({tool.package for tool in missing}))
        pytest.skip(f"a kernel cannot be built or run here; install {packages}")
    if not is_installed(layout().series()) and not shutil.which("apt-get"):
        pytest.skip("the kernel's source is Debian's, and there is no apt-get here to fetch it")


@pytest.mark.parametrize("options", [(), ("--debug",)], ids=["lean", "debug"])
def test_the_suite_passes(options: tuple[str, ...]) -> None:
    process = run("test", *options, seconds=7200)
    assert process.returncode == 0, process.stdout + process.stderr
    passed = re.search(r"^(\d+) of (\d+) runs passed", process.stdout, re.MULTILINE)
    assert passed
    assert passed[1] == passed[2] != "0"


def test_a_fault_takes_what_the_documentation_says() -> None:
    """Within a tenth: another compiler makes other instructions."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "linux.md").read_text()
    documented = re.search(r"^\| sequential \| 4 \| ([\d,.]+) ", text, re.MULTILINE)
    assert documented
    process = run("bench", "-s", "plain", "-w", "sequential", "--levels", "4", seconds=3600)
    assert process.returncode == 0, process.stderr
    measured = re.search(r"^plain +sequential +4 +262,144 +([\d,.]+)", process.stdout, re.MULTILINE)
    assert measured, process.stdout
    assert float(measured[1].replace(",", "")) == pytest.approx(float(documented[1].replace(",", "")), rel=0.1)


def test_a_trace_counts_what_the_guest_counts() -> None:
    process = run("trace", "--plain", "-w", "zero-page", "-w", "copy", seconds=3600)
    assert process.returncode == 0, process.stderr
    for name, kind in (("zero-page", "zero page mapped"), ("copy", "copy of a page")):
        assert re.search(rf"^{name}: {kind}, 4,0\d\d faults", process.stdout, re.MULTILINE), process.stdout
        assert re.search(rf"^{name} +4,096 +4,0\d\d .* \+0 \(\+0.0000 %\)$", process.stdout, re.MULTILINE)


def test_major_faults_are_in_named_stages(tmp_path: Path) -> None:
    """With the block device's mapping and without, set side by side."""
    file = tmp_path / "trace.json"
    process = run(
        "trace", "-s", "off", "-s", "block-mapping", "-w", "storage,random,8", "--json", str(file), seconds=3600
    )
    assert process.returncode == 0, process.stderr
    document = json.loads(file.read_text())
    kinds = [each["measured"][0]["kind"] for each in document["settings"]]
    assert kinds == ["major, page cache", "major, block mapping"]
    assert [each["checks"][0]["gap"] for each in document["settings"]] == [0.0, 0.0]
    rows = {(row["what"], row["stage"]): row["values"] for row in document["side_by_side"]["storage,random,8"]}
    unnamed, whole = (rows.get(("instructions", stage), {}) for stage in ("other", "all"))
    for name, instructions in whole.items():
        assert unnamed.get(name, 0.0) < 0.03 * instructions
    assert whole["block-mapping"] < whole["off"] / 2


def test_a_cgroup_other_than_the_root_is_charged() -> None:
    process = run("boot", "cgroup,a", "touch,random,8", "read,/sys/fs/cgroup/a/memory.peak,peak", seconds=3600)
    assert process.returncode == 0, process.stderr
    peak = re.search(r"^peak=(\d+)$", process.stdout, re.MULTILINE)
    assert peak
    assert 8 << 20 <= int(peak[1]) < 16 << 20


def test_boot_prints_what_programs_print() -> None:
    process = run("boot", "--plain", "touch,random,8", "read,/proc/sys/vm/overcommit_memory,overcommit", seconds=3600)
    assert process.returncode == 0, process.stderr
    assert "faults=2048" in process.stdout
    assert "overcommit=0" in process.stdout


def test_a_failing_program_fails_the_boot() -> None:
    process = run("boot", "--plain", "touch,sideways,8", seconds=3600)
    assert process.returncode == 1
    assert "touch,sideways,8: status 2, no pattern sideways: sequential, random or semi-random" in process.stderr


def test_first_touches_take_the_locks_that_the_documentation_says() -> None:
    """Those of two threads in mappings apart: acquisitions per fault, and locks that are never contended."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two emulated CPUs take two of the host's")
    ensure_kernels()
    command = [sys.executable, str(ROOT / "benches" / "fault_loops.py"), "--guest", "--loops", "apart"]
    command += ["--tasks", "2", "--repeat", "1", "--rounds", "4"]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=3600, env=os.environ | {"COLUMNS": "200"}, check=False
    )
    assert process.returncode == 0, process.stderr
    lines = [line.split() for line in process.stdout.splitlines() if line.startswith("apart, threads ")]
    # Loop, kind, tasks, lock, acquisitions per fault in guest and simulation, contended ones in the guest.
    rows = {words[3]: (float(words[4]), words[6]) for words in lines}
    assert rows.keys() >= {"vma", "page_table", "lru", "rss"}
    assert "mmap_read" not in rows
    assert "mmap_write" not in rows
    assert rows["vma"] == rows["page_table"] == (1.0, "0.00")
    assert rows["lru"][0] == pytest.approx(1 / 31, rel=0.02)
    assert rows["rss"][0] == pytest.approx(1 / 32, rel=0.02)
    assert rows.get("zone", (0.0, ""))[0] < 0.01
