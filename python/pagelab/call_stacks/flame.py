"""Flame graphs as SVG without scripts: a bar per function as wide as its share, below the function that called it.

Widths are percentages, so a picture fills the place that it is put into.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import PurePath

from pagelab.call_stacks.cost import METRICS, NOTHING, Cost
from pagelab.call_stacks.stacks import Stack
from pagelab.call_stacks.tree import FrameNode, build
from pagelab.quantities import counted
from pagelab.results.table import short

_LEAST_SHARE = 0.001
"""A function with less is not drawn"""
_MOST_LEVELS = 100
_LEAST_LABELLED = 0.025
_LABEL_LENGTH = 160
_ROW = 18
_WIDTH = 1200
"""Of a picture by itself; pixels"""
_HEADER = 46
_TRANSLATION, _FAULTS, _GROUND = (0xD1, 0x49, 0x5B), (0xF0, 0xA0, 0x3C), (0xFF, 0xFF, 0xFF)
"""Colours of both kinds of costs in the report's charts"""
_PALENESS = 0.38
_STEPS = 8
"""Of colours between translation and page faults"""
_STYLE = (
    "svg{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "rect{stroke:#fff;stroke-width:.7}text{fill:#1d2430}"
)


@dataclass(frozen=True)
class FlameGraph:
    """A picture, and what it omits."""

    svg: str
    """An element `svg` for a page of HTML."""
    height: int
    note: str
    """What is not drawn; empty if everything is."""


def draw(stacks: Iterable[Stack], metric: str, label: str) -> FlameGraph:
    """The stacks' flame graph, the outermost functions at the top and the most expensive at the left.

    Args:
        stacks: What is drawn.
        metric: What widths mean, one of `METRICS`.
        label: Text for readers who cannot see pictures.
    """
    root = build(stacks)
    bars, levels, small = _bars(root, metric)
    height = _ROW * max(levels, 1)
    svg = (
        f'<svg class="flame" width="100%" height="{height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(bars)}</svg>"
    )
    return FlameGraph(svg, height, _note(small, root, metric))


def render(stacks: Iterable[Stack], metric: str, title: str) -> str:
    """The same as an SVG file by itself."""
    graph = draw(stacks, metric, title)
    height = graph.height + _HEADER
    colours = " Red: translation, orange: page faults." if metric == "cycles" else ""
    legend = f"Width: {METRICS[metric]}.{colours} {graph.note}".strip()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}">\n<style>{_STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="4" y="16" font-weight="bold">{escape(title)}</text>\n'
        f'<text x="4" y="34">{escape(legend)}</text>\n<svg y="{_HEADER}" width="100%" height="{graph.height}">\n'
        f"{graph.svg}\n</svg>\n</svg>\n"
    )


@dataclass
class _Small:
    """What is not drawn."""

    narrow: int = 0
    narrow_cost: Cost = NOTHING
    deep: int = 0


def _bars(root: FrameNode, metric: str) -> tuple[list[str], int, _Small]:
    """All bars, the number of levels, and what is omitted."""
    whole, bars, levels, small = root.cost.get(metric), list[str](), 0, _Small()
    # Contexts may be deeper than Python's own stack.
    open_nodes = [(root, 0, 0.0)]
    while open_nodes:
        node, level, begin = open_nodes.pop()
        at = begin
        for child in node.most_expensive_first(metric):
            part = child.cost.get(metric) / whole if whole else 0
            if part < _LEAST_SHARE:
                small.narrow += 1
                small.narrow_cost += child.cost
            elif level == _MOST_LEVELS:
                small.deep += 1
            else:
                bars.append(_bar(child, metric, part, level, at))
                levels = max(levels, level + 1)
                open_nodes.append((child, level + 1, at))
            at += part
    return bars, levels, small


def _bar(node: FrameNode, metric: str, part: float, level: int, begin: float) -> str:
    text = ""
    if part >= _LEAST_LABELLED:
        text = f'<text x="3" y="13">{escape(node.frame.function[:_LABEL_LENGTH])}</text>'
    # An inner svg cuts off what is wider than it.
    return (
        f'<svg x="{_percent(begin)}" y="{level * _ROW}" width="{_percent(part)}" height="{_ROW}">'
        f"<title>{escape(_describe(node, metric, part))}</title>"
        f'<rect width="100%" height="100%" fill="{_colour(node.cost, metric)}"/>{text}</svg>\n'
    )


def _describe(node: FrameNode, metric: str, part: float) -> str:
    where = f" in {PurePath(node.frame.file).name}" if node.frame.file else ""
    cost = node.cost
    share = f"{node.frame.function}{where}: {100 * part:.1f} % of {METRICS[metric]}\n"
    if not cost.cycles and not cost.walks:
        # Of a program that ran natively, faults are counted and their cycles are not.
        return f"{share}{counted(cost.faults, 'page fault', 'page faults')}"
    return (
        f"{share}"
        f"{counted(cost.walks, 'walk', 'walks')}, {short(cost.translation_cycles)} cycles of translation\n"
        f"{counted(cost.faults, 'page fault', 'page faults')}, {short(cost.fault_cycles)} cycles"
    )


def _percent(part: float) -> str:
    return f"{100 * part:.3f}".rstrip("0").rstrip(".") + "%"


def _colour(cost: Cost, metric: str) -> str:
    """The colour of translation or of page faults; for the sum of both cycles, a colour in between."""
    if metric == "cycles":
        part = round(_STEPS * cost.translation_cycles / cost.cycles) / _STEPS if cost.cycles else 0
    else:
        part = metric in ("walks", "translation_cycles")
    mixed = _mix(_mix(_FAULTS, _TRANSLATION, part), _GROUND, _PALENESS)
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _mix(one: tuple[int, int, int], other: tuple[int, int, int], part: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _note(small: _Small, root: FrameNode, metric: str) -> str:
    return " ".join(_sentences(small, root, metric))


def _sentences(small: _Small, root: FrameNode, metric: str) -> Iterator[str]:
    whole = root.cost.get(metric)
    if small.narrow and whole:
        share = f"{100 * small.narrow_cost.get(metric) / whole:.1f} %"
        functions = counted(small.narrow, "function", "functions")
        yield f"{functions} below {100 * _LEAST_SHARE:g} % each, {share} together, and what they call are not drawn."
    if small.deep:
        yield f"Calls deeper than {_MOST_LEVELS} levels are not drawn."
