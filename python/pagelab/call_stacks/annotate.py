"""Source lines with what paging cost in each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path, PurePath

from pagelab._engine import UsageError
from pagelab.call_stacks.cost import NOTHING, Cost, total
from pagelab.call_stacks.listing import share_text
from pagelab.call_stacks.stacks import Frame, Stack, frames_of, without_arguments
from pagelab.call_stacks.tree import build, walk
from pagelab.results.table import short

_CONTEXT = 3
"""Lines shown before and after one that costs something"""
_COLUMN = 9


@dataclass
class _Source:
    """Lines of a source file."""

    own: dict[int, Cost] = field(default_factory=dict)
    """Cost of the line's own accesses"""
    calls: dict[int, Cost] = field(default_factory=dict)
    """Cost of the calls at the line"""
    files: set[str] = field(default_factory=set)
    """Programs and libraries compiled from it"""


def annotate(stacks: Sequence[Stack], wanted: str, metric: str, whole: Cost, folders: Sequence[Path] = ()) -> list[str]:
    """The lines of a function, or of a source file, as text.

    Args:
        stacks: What paging cost.
        wanted: Name of a function, or of a source file or the end of its path.
        metric: One of `METRICS`.
        whole: The whole that shares refer to.
        folders: Additional folders to search for source files.

    Raises:
        UsageError: nothing with a cost has this name, or its lines are unknown.
    """
    frames = set(frames_of(stack for stack in stacks if stack.cost))
    chosen = {frame for frame in frames if _is_called(frame, wanted)}
    if not chosen:
        raise UsageError(
            f"no stack with any cost contains a function or source file {wanted}{_similar(frames, wanted)}"
        )
    if not any(frame.line for frame in chosen):
        raise UsageError(f"the source lines of {wanted} are unknown: compile it with -g, or install its debug symbols")
    sources = _gather(stacks, chosen)
    lines: list[str] = []
    for name, source in sorted(sources.items()):
        lines += [*([""] if lines else []), *_render(name, source, whole, metric, folders)]
    return lines


def _is_called(frame: Frame, wanted: str) -> bool:
    if wanted in _names(frame):
        return True
    parts = PurePath(wanted).parts
    return bool(frame.source) and PurePath(frame.source).parts[-len(parts) :] == parts


def _names(frame: Frame) -> set[str]:
    """A function's name, the same without arguments, and the last part of that: `find` of `Table::find(int)`."""
    plain = without_arguments(frame.function).replace("<…>", "")
    return {frame.function, frame.function.split("(")[0], plain, plain.rsplit("::", 1)[-1]}


def _similar(frames: Iterable[Frame], wanted: str) -> str:
    names = {name for frame in frames for name in (*_names(frame), PurePath(frame.source).name) if name}
    close = get_close_matches(wanted, sorted(names), 3)
    return f"; there is {', '.join(close)}" if close else ""


def _gather(stacks: Sequence[Stack], chosen: set[Frame]) -> dict[str, _Source]:
    sources: dict[str, _Source] = {}
    tree = build(stacks, lambda frame: frame)
    # A line of a recursive function counts once, by its outermost call.
    for _, node, is_outermost in walk(tree, lambda frame: (frame.source, frame.line, frame in chosen)):
        if node.frame.line and node.frame in chosen:
            _add(sources, node.frame, node.own, own=True)
            if is_outermost:
                _add(sources, node.frame, total(child.cost for child in node.children.values()), own=False)
    return sources


def _add(sources: dict[str, _Source], frame: Frame, cost: Cost, *, own: bool) -> None:
    if not cost:
        return
    source = sources.setdefault(frame.source, _Source())
    source.files.add(frame.file)
    costs = source.own if own else source.calls
    costs[frame.line] = costs.get(frame.line, NOTHING) + cost


def _render(name: str, source: _Source, whole: Cost, metric: str, folders: Sequence[Path]) -> Iterable[str]:
    path = _find(name, folders)
    text = _text(path) if path else None
    yield name
    if path and path != Path(name):
        yield f"read from {path}"
    if text is None:
        yield "The source file was not found, so lines have no text; name its folder with --sources."
    elif path and (newer := [file for file in sorted(source.files) if _is_newer(path, file)]):
        yield f"The source file is newer than {', '.join(newer)}, so lines may have moved."
    yield ""
    yield "".join(cell.rjust(_COLUMN) for cell in ("share", "cycles", "walks", "faults", "in calls", "line"))
    last, numbers = 0, sorted(_shown(source, len(text) if text else 0))
    if text and numbers and numbers[-1] > len(text):
        numbers = [number for number in numbers if number <= len(text) or _costs(source, number)]
    for number in numbers:
        if text and last and number > last + 1:
            yield "…".rjust(6 * _COLUMN)
        last = number
        own, calls = source.own.get(number, NOTHING), source.calls.get(number, NOTHING)
        cells = [
            share_text(own, whole, metric),
            *(short(count) if count else "" for count in (own.cycles, own.walks, own.faults, calls.get(metric))),
            str(number),
        ]
        line = text[number - 1] if text and number <= len(text) else ""
        yield ("".join(cell.rjust(_COLUMN) for cell in cells) + f"  {line}").rstrip()


def _costs(source: _Source, number: int) -> bool:
    return number in source.own or number in source.calls


def _shown(source: _Source, length: int) -> set[int]:
    """Lines with costs, and some around each if the text is known."""
    around = _CONTEXT if length else 0
    costly: Mapping[int, Cost] = source.own | source.calls
    return {near for number in costly for near in range(max(number - around, 1), number + around + 1)}


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The source file: at its own path, or at the end of that path in one of the folders."""
    own = Path(name)
    if own.is_absolute() and own.is_file():
        return own
    parts = [part for part in own.parts if part not in ("/", ".", "..")]
    for folder in folders:
        for at in range(len(parts)):
            path = folder.joinpath(*parts[at:])
            if path.is_file():
                return path
    return None


def _text(path: Path) -> list[str] | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").expandtabs(4).splitlines()
    except OSError:
        return None


def _is_newer(path: Path, file: str) -> bool:
    try:
        return bool(file) and path.stat().st_mtime > Path(file).stat().st_mtime
    except OSError:
        return False
