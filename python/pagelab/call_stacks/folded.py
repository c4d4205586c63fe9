"""Folded stacks: a line per stack with its functions and one count, as flamegraph.pl and speedscope read them."""

from collections.abc import Iterable

from pagelab.call_stacks.stacks import Stack


def render(stacks: Iterable[Stack], metric: str) -> str:
    """The stacks as lines `outermost;…;innermost COUNT`, in the order of their names; those that cost nothing are
    left out."""
    counts: dict[str, int] = {}
    for stack in stacks:
        if count := stack.cost.get(metric):
            name = ";".join(_name(frame.function) for frame in stack.frames)
            counts[name] = counts.get(name, 0) + count
    return "".join(f"{name} {count}\n" for name, count in sorted(counts.items()))


def _name(function: str) -> str:
    """The name without what divides functions and lines."""
    return " ".join(function.replace(";", ":").split())
