"""Folded stacks: a line per stack with its functions and one count, as flamegraph.pl and speedscope read them."""

from collections.abc import Iterable

from pagelab.call_stacks.stacks import Stack
from pagelab.call_stacks.tree import build


def render(stacks: Iterable[Stack], metric: str) -> str:
    """The stacks as lines `outermost;…;innermost COUNT`, in the order of their names; those that cost nothing are
    left out."""
    counts: dict[str, int] = {}
    open_nodes = [("", build(stacks, lambda frame: _name(frame.function)))]
    while open_nodes:
        name, node = open_nodes.pop()
        if count := node.own.get(metric):
            counts[name] = count
        open_nodes += [(f"{name};{own}" if name else str(own), child) for own, child in node.children.items()]
    return "".join(f"{name} {count}\n" for name, count in sorted(counts.items()))


def _name(function: str) -> str:
    """The name without what divides functions and lines."""
    return " ".join(function.replace(";", ":").split())
