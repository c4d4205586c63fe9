"""Kernel presets side by side."""

import pytest

import pagelab


def test_kernels_stand_side_by_side_and_their_stages_sum() -> None:
    systems = ["radix@linux-4.9", "radix@linux-4.19", "nested-radix@linux-6.12", "radix"]
    results = pagelab.run("random:size=8MiB,accesses=20K", systems=systems)
    assert [result.label for result in results.systems] == systems
    for result in results.systems:
        stages = [
            value
            for name, value in result.stats.items()
            if name.startswith("fault.stage.") and name.endswith(".cycles")
        ]
        assert len(stages) == 10
        assert sum(stages) == result.stats["fault.cycles"]
        assert 0 < result.stats["fault.preset.cycles"] < result.stats["fault.cycles"]
    entry = [result.stats["fault.stage.entry.cycles"] for result in results.systems]
    assert entry[1] > entry[0], "page-table isolation costs at entry"
    faults = {result.stats["fault.minor.count"] for result in results.systems}
    assert len(faults) == 1


def test_an_unknown_kernel_is_named_with_those_there_are() -> None:
    with pytest.raises(pagelab.PagelabError, match=r"plan-9.*linux-6\.12"):
        pagelab.run("seq:size=1MiB", systems="radix@plan-9")
