"""Synthetic workloads as the command line sees them."""

import pytest

import pagelab
from pagelab import _engine

# What the slowest of the workloads replay in ten seconds or so; most stay far below.
MOST_ACCESSES = 300_000_000


@pytest.mark.parametrize("workload", [entry["name"] for entry in pagelab.available("workloads")])
def test_a_default_takes_seconds(workload: str) -> None:
    assert _engine.drain(workload, 10 * MOST_ACCESSES) <= MOST_ACCESSES


@pytest.mark.parametrize("size", ["1GiB", "1TiB"])
def test_a_large_table_of_gups_has_no_more_updates_than_are_asked_for(size: str) -> None:
    assert _engine.drain(f"gups:size={size}", MOST_ACCESSES) == 10_000_000
    assert _engine.drain(f"gups:size={size},updates=10M", MOST_ACCESSES) == 20_000_000
