"""Texts of the code as cells of Markdown tables."""

import re
from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """A text on one line, in which only its own `code` is markup."""
    words = " ".join(str(text).split())
    parts = re.split(r"(`[^`]*`)", words)
    plain = (part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts)
    return "".join(plain).replace("|", r"\|")


def code(text: object) -> str:
    """A text as code; nothing for none."""
    words = " ".join(str(text).split()).replace("|", r"\|")
    return f"`{words}`" if words else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are Markdown already."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"
