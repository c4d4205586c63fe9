"""Draws small wrong changes by a seed: in Rust, in Python and in the recorder's C."""

import ast
import itertools
import json
import random
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from run import ROOT, tokenize

PYTHON_MODULE = "pagelab-py"
"""The crate that is left out: no test in Rust runs it."""
PYTHON_SOURCES = ("python/pagelab", "packages/studies/pagelab_studies", "packages/linux/pagelab_linux")


class ToolError(Exception):
    """A tool is missing, or the tests do not compile without a change."""


@dataclass(frozen=True)
class Change:
    """A file with one thing changed. Places count characters of the file before the change."""

    language: str
    file: str
    what: str
    """A line that says what is changed: the operator and its function, or the code before and after."""
    start: int
    end: int
    put: str
    """What takes the place of the text from `start` to `end`."""
    body: tuple[int, int] | None = None
    """The body of the function around it: in Rust between its braces, in Python from its first statement on."""

    def made(self, before: str) -> str:
        """The file after the change."""
        return before[: self.start] + self.put + before[self.end :]


def draw_rust(seed: int, count: int) -> list[Change]:
    """Changes of all crates but that of the Python module. Errors: there is no cargo-mutants."""
    command = ["cargo", "mutants", "--list", "--json", "--workspace"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ToolError(f"cargo mutants does not run; `cargo install cargo-mutants` installs it\n{listed.stderr}")
    known = [one for one in json.loads(listed.stdout) if one["package"] != PYTHON_MODULE]
    return [rust_change(one) for one in random.Random(f"{seed} rust").sample(known, count)]


def rust_change(mutant: dict[str, Any]) -> Change:
    """A change as cargo-mutants lists it."""
    text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    start, end = _places(text, mutant["span"])
    body = rust_body(text, *_places(text, mutant["function"]["span"])) if mutant.get("function") else None
    inside = body is not None and body[0] <= start and end <= body[1]
    return Change("rust", mutant["file"], mutant["name"], start, end, mutant["replacement"], body if inside else None)


def _places(text: str, span: dict[str, dict[str, int]]) -> tuple[int, int]:
    begins = list(itertools.accumulate((len(line) for line in text.splitlines(keepends=True)), initial=0))
    start, end = (begins[span[edge]["line"] - 1] + span[edge]["column"] - 1 for edge in ("start", "end"))
    return start, end


def rust_body(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Of the function in this place, what is between the braces of its body; none if it has no body."""
    tokens = tokenize(text[start:end])
    names = itertools.dropwhile(lambda token: token.text != "fn", tokens)
    depth = 0
    for token in names:
        if token.text == "{" and depth == 0:
            return start + token.end, start + tokens[-1].start
        depth += (token.text in {"(", "["}) - (token.text in {")", "]"})
    return None


def draw_python(seed: int, count: int) -> list[Change]:
    """Changes of the Python packages: a file by its length, then a change in it. Errors: there is no mutmut."""
    try:
        import libcst
        from mutmut.mutation.file_mutation import create_mutations, deep_replace
    except ImportError as error:
        raise ToolError(f"{error}; `pip install mutmut` installs it") from error
    files = sorted(path for folder in PYTHON_SOURCES for path in (ROOT / folder).rglob("*.py"))
    sizes = [path.stat().st_size for path in files]
    generator = random.Random(f"{seed} python")
    drawn: dict[str, Change] = {}
    while len(drawn) < count:
        (path,) = generator.choices(files, sizes)
        text = path.read_text(encoding="utf-8")
        module, mutations, *_ = create_mutations(str(path), text)
        texts = (libcst.SimpleString, libcst.FormattedString, libcst.ConcatenatedString)
        mutations = [one for one in mutations if not isinstance(one.original_node, texts)]
        if not mutations:
            continue
        one = generator.choice(mutations)
        changed = deep_replace(module, one.original_node, one.mutated_node)
        assert isinstance(changed, libcst.Module)
        before, after = (module.code_for_node(node).strip() for node in (one.original_node, one.mutated_node))
        what = f"{before} -> {after}"
        drawn[f"{path} {what}"] = python_change(str(path.relative_to(ROOT)), what, text, changed.code)
    return list(drawn.values())


def python_change(file: str, what: str, before: str, after: str) -> Change:
    """A change of Python, by the texts of the file before and after it."""
    start = _equal(before, after)
    behind = min(_equal(before[::-1], after[::-1]), min(len(before), len(after)) - start)
    end = len(before) - behind
    return Change("python", file, what, start, end, after[start : len(after) - behind], python_body(before, start))


def _equal(one: str, other: str) -> int:
    """How many characters are equal at the begin."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def python_body(text: str, place: int) -> tuple[int, int] | None:
    """Of the innermost function around a place, from the line of its first statement but a text to its end."""
    lines = text.splitlines(keepends=True)
    begins = list(itertools.accumulate(map(len, lines), initial=0))
    bodies = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            top = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
            body = begins[top - 1], begins[node.end_lineno]
            if top > node.lineno and body[0] <= place < body[1]:
                bodies.append(body)
    return max(bodies, default=None)


PAIRS = ("== !=", "< <=", "> >=", "&& ||", "+ -", "* /", "<< >>", "& |", "+= -=", "True False")
OPPOSITES = {one: other for pair in PAIRS for one, other in itertools.permutations(pair.split())}
OPERATOR = re.compile(r"(?<= )(?:" + "|".join(map(re.escape, OPPOSITES)) + r")(?=[ ;])")


def draw_c(seed: int, count: int) -> list[Change]:
    """Changes of the recorder's tool: a file by its length, then an operator outside of comments and directives."""
    files = sorted((ROOT / "capture/valgrind").glob("*.c"))
    generator = random.Random(f"{seed} c")
    drawn: dict[str, Change] = {}
    while len(drawn) < count:
        (path,) = generator.choices(files, [path.stat().st_size for path in files])
        text = path.read_text(encoding="utf-8")
        code = re.sub(
            r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|^#[^\n]*", lambda part: "\0" * len(part[0]), text, flags=re.S | re.M
        )
        if places := list(OPERATOR.finditer(code)):
            one = generator.choice(places)
            number, line = code.count("\n", 0, one.start()) + 1, code[: one.end()].rpartition("\n")[2].strip()
            file, other = str(path.relative_to(ROOT)), OPPOSITES[one[0]]
            what = f"line {number}: {line} -> {other}"
            drawn[f"{file} {one.start()}"] = Change("c", file, what, one.start(), one.end(), other)
    return list(drawn.values())
