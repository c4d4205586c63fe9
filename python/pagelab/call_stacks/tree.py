"""Functions under their callers, with the cost of paging in each and below it.

Stacks share their callers, so each call is looked up once, and costs are added up from the innermost calls outwards.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from pagelab.call_stacks.cost import NOTHING, Cost
from pagelab.call_stacks.stacks import Call, Frame, Stack


@dataclass(eq=False)
class FrameNode:
    """A function in one context."""

    frame: Frame
    """The first of several that count as the same"""
    own: Cost = NOTHING
    """What its own accesses cost"""
    cost: Cost = NOTHING
    """What it and all that it called cost"""
    children: dict[Hashable, "FrameNode"] = field(default_factory=dict)

    def most_expensive_first(self, metric: str) -> list["FrameNode"]:
        """What it called."""
        return sorted(
            self.children.values(), key=lambda node: (-node.cost.get(metric), node.frame.function, node.frame.file)
        )


def function_and_file(frame: Frame) -> tuple[str, str]:
    """The identity of a function."""
    return frame.function, frame.file


def build(stacks: Iterable[Stack], key: Callable[[Frame], Hashable] = function_and_file) -> FrameNode:
    """The tree of all stacks that cost anything, below a node that stands for the whole.

    Args:
        stacks: What is added up.
        key: Frames below one caller with the same key become one node.
    """
    root = FrameNode(Frame(""))
    callers_first: list[tuple[FrameNode, FrameNode]] = []
    known: dict[Call, FrameNode] = {}
    for stack in stacks:
        if not stack.cost:
            continue
        missing: list[Call] = []
        node = root
        for call in stack.innermost.outwards():
            if call in known:
                node = known[call]
                break
            missing.append(call)
        for call in reversed(missing):
            for frame in call.location.frames:
                name = key(frame)
                child = node.children.get(name)
                if child is None:
                    child = node.children[name] = FrameNode(frame)
                    callers_first.append((node, child))
                node = child
            known[call] = node
        node.own += stack.cost
    for caller, node in reversed(callers_first):
        node.cost += node.own
        caller.cost += node.cost
    return root


def walk(root: FrameNode, identity: Callable[[Frame], Hashable]) -> Iterator[tuple[FrameNode, FrameNode, bool]]:
    """All nodes below the root: the caller, the node, and whether it is the outermost one of its identity there.

    The sum over the outermost ones of an identity counts recursive functions once.
    """
    under_way: Counter[Hashable] = Counter()
    # Contexts may be deeper than Python's own stack. A node comes again after all that it called.
    open_nodes: list[tuple[FrameNode, FrameNode | None]] = [(child, root) for child in root.children.values()]
    while open_nodes:
        node, caller = open_nodes.pop()
        name = identity(node.frame)
        if caller is None:
            under_way[name] -= 1
            continue
        yield caller, node, under_way[name] == 0
        under_way[name] += 1
        open_nodes.append((node, None))
        open_nodes += [(child, node) for child in node.children.values()]
