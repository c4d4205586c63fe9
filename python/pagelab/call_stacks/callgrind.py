"""Profiles of Callgrind, format 1, as callgrind_annotate and KCachegrind read them.

All stacks begin in one function, so that each other function has callers. Readers sum the costs of a function's calls,
which would count a recursive one once per level. So each function of a stack gets the stack's cost by one call, its
outermost one; further calls of it are written, too, and cost nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from pagelab.call_stacks.cost import NOTHING, Cost, total
from pagelab.call_stacks.stacks import Frame, Stack

_EVENTS = {
    "cycles": ("PagingCycles", "cycles of translation and page faults"),
    "walks": ("Walks", "page walks"),
    "translation-cycles": ("TranslationCycles", "cycles of waiting for translation"),
    "faults": ("Faults", "page faults"),
    "fault-cycles": ("FaultCycles", "cycles of page faults"),
}
"""Name and meaning of each metric"""
_UNKNOWN = "???"
"""How Callgrind calls a file that it does not know"""
_ROOT = Frame("[all stacks]")
"""What calls the outermost functions"""
_NUMBER = re.compile(r"\(\d+\)")
"""A name that begins so would be read as the number of another name"""

_Function: TypeAlias = tuple[str, str, str]
"""Program or library, source file, name"""


@dataclass
class _Call:
    """Calls of one function at one line."""

    cost: Cost = NOTHING
    contexts: set[int] = field(default_factory=set)
    """Numbers of the stacks in which it is made; how often is not recorded"""


@dataclass
class _Costs:
    """What is written of a function."""

    own: dict[int, Cost] = field(default_factory=dict)
    """By line"""
    calls: dict[tuple[int, _Function], _Call] = field(default_factory=dict)
    """By line and called function"""

    @property
    def first_line(self) -> int:
        """The first line that costs something or calls; where the function begins is not known."""
        return min((*self.own, *(line for line, _ in self.calls)))


def render(stacks: Sequence[Stack], metric: str, comment: str) -> str:
    """The stacks with all metrics, `metric` first, by which readers sort.

    The number of a call's calls is that of its contexts: recordings do not say how often it was made.
    """
    functions: dict[_Function, _Costs] = {}
    contexts: dict[tuple[int, Frame], int] = {}
    for stack in stacks:
        if stack.cost:
            _add(functions, contexts, (_ROOT, *stack.frames), stack.cost)
    order = [metric, *(of for of in _EVENTS if of != metric)]
    lines = ["# callgrind format", "version: 1", "creator: pagelab", f"cmd: {_one_line(comment)}", "positions: line"]
    lines += [f"event: {name} : {meaning}" for name, meaning in (_EVENTS[of] for of in order)]
    lines.append(f"events: {' '.join(_EVENTS[of][0] for of in order)}")
    whole = total(stack.cost for stack in stacks)
    lines.append(f"summary: {_counts(whole, order)}")
    for function in sorted(functions):
        lines += _lines(function, functions, order)
    lines += ["", f"totals: {_counts(whole, order)}"]
    return "\n".join(lines) + "\n"


def _add(
    functions: dict[_Function, _Costs], contexts: dict[tuple[int, Frame], int], frames: Sequence[Frame], cost: Cost
) -> None:
    leaf = frames[-1]
    own = functions.setdefault(_function(leaf), _Costs()).own
    own[leaf.line] = own.get(leaf.line, NOTHING) + cost
    context, charged = 0, set()
    for caller, callee in pairwise(frames):
        context = contexts.setdefault((context, caller), len(contexts) + 1)
        called = _function(callee)
        calls = functions.setdefault(_function(caller), _Costs()).calls
        call = calls.setdefault((caller.line, called), _Call())
        call.contexts.add(context)
        if called not in charged:
            charged.add(called)
            call.cost += cost


def _lines(function: _Function, functions: Mapping[_Function, _Costs], order: Sequence[str]) -> Iterable[str]:
    costs = functions[function]
    file, source, name = function
    yield ""
    yield f"ob={file}"
    yield f"fl={source}"
    yield f"fn={name}"
    for line, cost in sorted(costs.own.items()):
        yield f"{line} {_counts(cost, order)}"
    for line, called in sorted(costs.calls):
        call = costs.calls[line, called]
        file, source, name = called
        yield f"cob={file}"
        yield f"cfi={source}"
        yield f"cfn={name}"
        yield f"calls={len(call.contexts)} {functions[called].first_line}"
        yield f"{line} {_counts(call.cost, order)}"


def _function(frame: Frame) -> _Function:
    return frame.file or _UNKNOWN, _one_line(frame.source) or _UNKNOWN, _one_line(frame.function)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return f"_{line}" if _NUMBER.match(line) else line


def _counts(cost: Cost, order: Sequence[str]) -> str:
    return " ".join(str(cost.get(of)) for of in order)
