"""Headline figures that tables and pages share, from the engine's counts."""

from collections.abc import Mapping


def busy_cycles(stats: Mapping[str, int]) -> int:
    """Cycles of all CPUs in which they were not idle."""
    return stats.get("cycles", 0) - stats.get("cycles.idle", 0)


def faults(stats: Mapping[str, int]) -> int:
    """Page faults of the programs that their own kernels handled."""
    return sum(stats.get(f"fault.{kind}.count", 0) for kind in ("minor", "major"))
