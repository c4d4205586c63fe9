"""Builds the documentation as a site, in target/docs/site: complete in itself, nothing is fetched when it is read.

Pages are the files of docs and some others of the repository, pages that are made of the code (`reference.py`), and the
notebook. They are laid out in target/docs/pages first. Any broken link or anchor ends the build.

    python site/build.py
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import reference

ROOT = Path(__file__).resolve().parents[1]
_CONFIGURATION = Path(__file__).with_name("zensical.toml")
_ELSEWHERE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "examples/programs/README.md",
    "examples/stores/README.md",
    "packages/linux/pagelab_linux/kernel/README.md",
)
"""Pages that are not in docs, by their paths in the repository, which are those in the site too"""
_NOTEBOOK = "examples/page-walks.ipynb"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")


def build(folder: Path) -> Path:
    """Builds the site in `folder` and returns where its first page is.

    Raises:
        ValueError: a link or an anchor leads nowhere, a page is not in the navigation, or one of it does not exist.
    """
    shutil.rmtree(folder, ignore_errors=True)
    texts = pages()
    _check_navigation(set(texts))
    for path, text in texts.items():
        _write(folder / "pages" / path, text)
    for path in attachments():
        target = folder / "pages" / PurePosixPath(path).relative_to("docs" if path.startswith("docs/") else "")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    shutil.copy(Path(__file__).with_name("site.css"), folder / "pages" / "site.css")
    shutil.copy(_CONFIGURATION, folder / "zensical.toml")
    generator = Path(sys.executable).with_name("zensical")
    built = subprocess.run([generator, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        output = _COLOUR.sub("", built.stdout + built.stderr).split("Traceback")[0]
        raise ValueError(f"the site is not built:\n{output}")
    return folder / "site" / "index.html"


def pages() -> dict[str, str]:
    """All pages in Markdown by their paths in the site."""
    sources = {f"docs/{path.relative_to(ROOT / 'docs')}": path for path in (ROOT / "docs").rglob("*.md")}
    sources |= {path: ROOT / path for path in _ELSEWHERE}
    known = {*sources, *attachments()}
    made = {"notebook.md": _notebook(ROOT / _NOTEBOOK), **reference.pages()}
    written = {_place(path): _linked(file.read_text(), path, known) for path, file in sources.items()}
    return dict(sorted((written | made).items()))


def attachments() -> list[str]:
    """Files that pages link to, by their paths in the repository."""
    reports = sorted(path for folder in ("pictures", "reproductions") for path in (ROOT / "docs" / folder).rglob("*"))
    kept = [str(path.relative_to(ROOT)) for path in reports if path.suffix in (".json", ".png", ".svg")]
    return [_NOTEBOOK, *kept]


def _place(path: str) -> str:
    """Where a file of the repository is in the site. A README would be the first page of its section there."""
    return path.removeprefix("docs/").replace("/README.md", "/about.md")


def _linked(text: str, path: str, known: set[str]) -> str:
    """The text of a file with links as they are in the site. What is in the repository alone is not linked to."""
    here = PurePosixPath(path).parent

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        if "://" in target:
            return match[0]
        there = os.path.normpath(here / target)
        if there in known or there.startswith("docs/reference/") or there == "docs/notebook.md":
            return f"[{words}]({os.path.relpath(_place(there), PurePosixPath(_place(path)).parent)}{anchor})"
        # README is for the repository; its place is taken by the first page.
        if there == "README.md":
            return f"[{words}]({os.path.relpath('index.md', PurePosixPath(_place(path)).parent)})"
        return words if (ROOT / there).exists() else match[0]

    return _LINK.sub(link, text)


def _notebook(path: Path) -> str:
    """The cells of a notebook one after the other, with a link to the notebook itself."""
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    shown = [_cell("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    shown.insert(1, f"[Download it as a notebook]({_NOTEBOOK}) and open it with Jupyter.")
    return "\n\n".join(shown) + "\n"


def _cell(text: str, kind: str) -> str:
    return f"```python\n{text}\n```" if kind == "code" else text


def _check_navigation(there: set[str]) -> None:
    named = list(_leaves(tomllib.loads(_CONFIGURATION.read_text())["project"]["nav"]))
    if missing := sorted(there - set(named)):
        raise ValueError(f"not in the navigation of site/zensical.toml: {', '.join(missing)}")
    if gone := sorted(set(named) - there):
        raise ValueError(f"named by the navigation of site/zensical.toml, but no page: {', '.join(gone)}")


def _leaves(navigation: Any) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [leaf for part in parts for leaf in _leaves(part)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        print(build(ROOT / "target" / "docs"))
    except ValueError as error:
        sys.exit(f"site/build.py: {error}")
