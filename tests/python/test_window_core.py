"""Cores that overlap accesses: their presets, and what recordings tell them."""

import subprocess
from pathlib import Path

from conftest import Pagelab, assert_fails

import pagelab as module

_CHASE = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    size_t n = 1 << 16, i, j = 0;
    size_t (*a)[8] = calloc(n, sizeof *a), sum = 0;
    (void)argv;
    for (i = 0; i < n; i++)
        a[i][0] = (i * 40503 + 12345) & (n - 1);
    if (argc > 1)
        for (i = 0; i < 300000; i++)
            j = a[j][0];
    else
        for (i = 0; i < 300000; i++)
            sum += a[i * 40503 & (n - 1)][0];
    printf("%zu\\n", sum + j);
    return 0;
}
"""


def _stalls(trace: Path, core: str) -> float:
    stats = module.run(trace, systems=["radix"], set={"machine.core": core}).systems[0].stats
    return stats["cycles.data_stall"] + stats["cycles.translation"]


def test_recordings_tell_what_may_overlap(tmp_path: Path, pagelab: Pagelab) -> None:
    """A chase waits for each load; the same addresses from a counter do not."""
    source, program = tmp_path / "chase.c", tmp_path / "chase"
    source.write_text(_CHASE)
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    shares = {}
    for name, arguments in (("chase", ["x"]), ("counter", [])):
        trace = tmp_path / f"{name}.trace"
        assert pagelab("record", "-o", trace, "--", program, *arguments).returncode == 0
        in_order = '{"model":"in-order","cycles_per_instruction":0.25,"l1_hit_hidden":false}'
        shares[name] = _stalls(trace, "skylake") / _stalls(trace, in_order)
    assert shares["chase"] > 2 * shares["counter"], shares
    description = pagelab("trace", "info", tmp_path / "chase.trace")
    assert "which loads addresses come from" in description.stdout
    stats = pagelab("run", tmp_path / "chase.trace", "--set", "machine.core=skylake", "--json", tmp_path / "r.json")
    assert stats.returncode == 0
    assert "no dependencies" not in stats.stderr


def test_branches_come_where_they_stand_with_fast_code_and_without(tmp_path: Path, pagelab: Pagelab) -> None:
    trace = tmp_path / "sort.trace"
    script = "seq 1 3000 | sort -R --random-source=/bin/ls | sort"
    assert pagelab("record", "-o", trace, "--", "/bin/sh", "-c", script).returncode == 0
    core = {"machine.core": "skylake", "machine.core.branch_predictor": "tage"}
    fast, general = (
        module.run(trace, systems=["radix"], set={**core, "engine.fast_path": setting}).systems[0].stats
        for setting in ("on", "off")
    )
    assert fast["branches.mispredicted"] > 1000
    assert dict(fast) == dict(general)


def test_a_recording_without_dependencies_says_so(tmp_path: Path, pagelab: Pagelab) -> None:
    trace = tmp_path / "true.trace"
    assert pagelab("record", "--no-dependencies", "-o", trace, "--", "/bin/true").returncode == 0
    assert "not recorded" in pagelab("trace", "info", trace).stdout
    ran = pagelab("run", trace, "--set", "machine.core=skylake")
    assert ran.returncode == 0
    assert "contain no dependencies; the core treats them as independent of each other" in ran.stdout + ran.stderr
    assert "contains no branches" in ran.stdout + ran.stderr
    ran = pagelab("run", trace, "--set", "machine.core=skylake", "--set", "machine.core.unknown_dependencies=serial")
    assert "the core treats them as dependent, each on the load before" in ran.stdout + ran.stderr


def test_every_preset_of_a_core_runs_and_counts_branches(tmp_path: Path, pagelab: Pagelab) -> None:
    trace = tmp_path / "ls.trace"
    assert pagelab("record", "-o", trace, "--", "/bin/ls", "/").returncode == 0
    for core in module.available("windows"):
        stats = module.run(trace, systems=["radix"], set={"machine.core": core["name"]}).systems[0].stats
        assert 0 < stats["branches.mispredicted"] < stats["branches"] / 4, core
        classes = sum(value for name, value in stats.items() if name.startswith("cycles.") and name.count(".") == 1)
        assert classes == stats["cycles"]


def test_names_of_cores_are_checked(tmp_path: Path, pagelab: Pagelab) -> None:
    run = ("run", "seq:size=64KiB", "--set")
    assert_fails(pagelab(*run, "machine.core=skylark"), 2, "did you mean skylake", "pagelab list windows")
    (tmp_path / "bare.toml").write_text('name = "bare"\ndescription = ""\n')
    assert_fails(pagelab(*run, "machine.core=bare.toml"), 2, "machine.core", "has no table `core`")
    assert_fails(pagelab(*run, "machine.core=skylake", "--set", "machine.core.mispredict_penalty=1001"), 2, "0 to 1000")
