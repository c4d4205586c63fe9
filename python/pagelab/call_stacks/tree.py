"""Functions under the functions that called them, with what paging cost in each and below it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pagelab.call_stacks.cost import NOTHING, Cost
from pagelab.call_stacks.stacks import Stack


@dataclass
class FrameNode:
    """A function in one context."""

    function: str
    file: str
    """The program or library; empty if unknown."""
    cost: Cost = NOTHING
    """What it and all that it called cost."""
    children: dict[tuple[str, str], "FrameNode"] = field(default_factory=dict)

    def dearest_first(self, metric: str) -> list["FrameNode"]:
        """What it called."""
        return sorted(self.children.values(), key=lambda node: (-node.cost.get(metric), node.function, node.file))


def build(stacks: Iterable[Stack]) -> FrameNode:
    """The tree of all stacks below a node that stands for the whole."""
    root = FrameNode("", "")
    for stack in stacks:
        node = root
        node.cost += stack.cost
        for frame in stack.frames:
            key = (frame.function, frame.file)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = FrameNode(*key)
            child.cost += stack.cost
            node = child
    return root
