"""Headline figures that tables and pages share, from the engine's counts.

Models: `user_cycles` is what counters of user mode would count: instructions, data, translation, fetches of
    instructions, mispredicted branches and waits for the core's other hardware threads, without page faults, devices
    and what a fault engine does beside the walker.
Deviations: those of the core model. The default one is in order, waits for each access and predicts every branch, so
    `user_cycles` has not the size of a real core's; use it to compare systems.
"""

from collections.abc import Mapping

_CLASSES = ("cycles.base", "cycles.data_stall", "cycles.translation", "cycles.fetch", "cycles.branch", "cycles.sibling")
_STEPS = ".fault_engine.step."


def busy_cycles(stats: Mapping[str, int]) -> int:
    """Cycles of all CPUs, without idle ones."""
    return stats.get("cycles", 0) - stats.get("cycles.idle", 0)


def faults(stats: Mapping[str, int]) -> int:
    """Page faults of the programs that their own kernels handled."""
    return sum(stats.get(f"fault.{kind}.count", 0) for kind in ("minor", "major"))


def user_cycles(stats: Mapping[str, int]) -> int:
    """The program's own cycles."""
    # The steps of a fault engine are among what translation costs.
    steps = sum(count for name, count in stats.items() if _STEPS in name and name.endswith(".cycles"))
    return sum(stats.get(name, 0) for name in _CLASSES) - steps


def user_ipc(stats: Mapping[str, int]) -> float | None:
    """Instructions per cycle of the program; none if it took no cycles."""
    cycles = user_cycles(stats)
    return stats.get("instructions", 0) / cycles if cycles > 0 else None
