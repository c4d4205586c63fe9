"""Profiles of Callgrind, format 1, as callgrind_annotate and KCachegrind read them.

All stacks begin in one function, so that each other function has callers. Readers sum the costs of a function's calls,
which would count a recursive one once per level. So each function of a stack gets the stack's cost by one call, its
outermost one; further calls of it are written, too, and cost nothing.

callgrind_annotate distinguishes functions by source file and name only, so a name that occurs in several programs and
libraries is written with theirs. In a source file that it finds, it expects a cost for at least one line. So lines that
only call get a cost of zero, and a source file without known lines is written as part of the name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TypeAlias

from pagelab.call_stacks.cost import NOTHING, Cost, total
from pagelab.call_stacks.stacks import Frame, Stack
from pagelab.call_stacks.tree import FrameNode, build, walk

_MEANINGS = {
    "cycles": "cycles of translation and page faults",
    "walks": "page walks",
    "translation_cycles": "cycles of waiting for translation",
    "faults": "page faults",
    "fault_cycles": "cycles of page faults",
}
"""What each metric is"""
_UNKNOWN = "???"
"""Callgrind's name for an unknown file"""
_ROOT = Frame("[all stacks]")
"""What calls the outermost functions"""
_NUMBER = re.compile(r"\(\d+\)")
"""A name with this start would be read as the number of another name"""

_Function: TypeAlias = tuple[str, str, str]
"""Program or library, source file, name"""


@dataclass
class _Call:
    """Calls of one function at one line."""

    cost: Cost = NOTHING
    contexts: set[FrameNode] = field(default_factory=set)
    """Callers that make it; how often is not recorded"""


@dataclass
class _Costs:
    """The output for a function."""

    own: dict[int, Cost] = field(default_factory=dict)
    """By line"""
    calls: dict[tuple[int, _Function], _Call] = field(default_factory=dict)
    """By line and called function"""

    @cached_property
    def lines(self) -> set[int]:
        """Lines that cost something or call, once all are known; 0 is an unknown one."""
        return {*self.own, *(line for line, _ in self.calls)}

    @property
    def first_line(self) -> int:
        """The first one; where the function begins is not known."""
        return min(self.lines)


def render(stacks: Sequence[Stack], metric: str, comment: str) -> str:
    """The stacks with all metrics, `metric` first, by which readers sort.

    The number of a call's calls is that of its contexts: recordings do not say how often it was made.
    """
    functions = _functions(stacks)
    order = [metric, *(event for event in _MEANINGS if event != metric)]
    lines = ["# callgrind format", "version: 1", "creator: pagelab", f"cmd: {_one_line(comment)}", "positions: line"]
    lines += [f"event: {event} : {_MEANINGS[event]}" for event in order]
    lines.append(f"events: {' '.join(order)}")
    whole = total(stack.cost for stack in stacks)
    lines.append(f"summary: {_counts(whole, order)}")
    names = _names(functions)
    for function in sorted(functions):
        lines += _lines(function, functions, names, order)
    lines += ["", f"totals: {_counts(whole, order)}"]
    return "\n".join(lines) + "\n"


def _functions(stacks: Sequence[Stack]) -> dict[_Function, _Costs]:
    """Costs by function, including the function that stands for all stacks."""
    functions: dict[_Function, _Costs] = {}
    named: dict[Frame, _Function] = {}

    def name(frame: Frame) -> _Function:
        return named.get(frame) or named.setdefault(frame, _function(frame))

    root = build(stacks, lambda frame: frame)
    root.frame = _ROOT
    for caller, node, is_outermost in walk(root, name):
        called, line = name(node.frame), node.frame.line
        costs = functions.setdefault(called, _Costs())
        if node.own:
            costs.own[line] = costs.own.get(line, NOTHING) + node.own
        calls = functions.setdefault(name(caller.frame), _Costs()).calls
        call = calls.setdefault((caller.frame.line, called), _Call())
        call.contexts.add(caller)
        if is_outermost:
            call.cost += node.cost
    return functions


def _names(functions: Mapping[_Function, _Costs]) -> dict[_Function, _Function]:
    """How each function is written: no two functions have the same source file and name."""
    with_lines = {source for (_, source, _), costs in functions.items() if max(costs.lines) > 0}
    candidates = {function: list(_candidates(function, with_lines)) for function in sorted(functions)}
    shared = Counter(first for first, *_ in candidates.values())
    names: dict[_Function, _Function] = {}
    taken: set[tuple[str, str]] = set()
    for function, [first, *others] in candidates.items():
        chosen = next(name for name in (others if shared[first] > 1 else (first, *others)) if name not in taken)
        taken.add(chosen)
        names[function] = (function[0], *chosen)
    return names


def _candidates(function: _Function, with_lines: Set[str]) -> Iterable[tuple[str, str]]:
    """Candidates of source file and name for a function; the last one is unique."""
    file, source, name = function
    if source not in with_lines:
        name, source = (name if source == _UNKNOWN else f"{name} [{PurePath(source).name}]"), _UNKNOWN
    yield source, name
    yield source, f"{name} [{PurePath(file).name}]"
    yield source, f"{name} [{file}]"
    yield source, " ".join((name, *(f"[{part}]" for part in function)))


def _lines(
    function: _Function,
    functions: Mapping[_Function, _Costs],
    names: Mapping[_Function, _Function],
    order: Sequence[str],
) -> Iterable[str]:
    costs = functions[function]
    file, source, name = names[function]
    yield ""
    yield f"ob={file}"
    yield f"fl={source}"
    yield f"fn={name}"
    for line in sorted(costs.lines):
        if line in costs.own or line > 0:
            yield f"{line} {_counts(costs.own.get(line, NOTHING), order)}"
    for line, called in sorted(costs.calls):
        call = costs.calls[line, called]
        file, source, name = names[called]
        yield f"cob={file}"
        yield f"cfi={source}"
        yield f"cfn={name}"
        yield f"calls={len(call.contexts)} {functions[called].first_line}"
        yield f"{line} {_counts(call.cost, order)}"


def _function(frame: Frame) -> _Function:
    return _one_line(frame.file) or _UNKNOWN, _one_line(frame.source) or _UNKNOWN, _one_line(frame.function)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return f"_{line}" if _NUMBER.match(line) else line


def _counts(cost: Cost, order: Sequence[str]) -> str:
    return " ".join(str(cost.get(event)) for event in order)
