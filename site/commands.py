"""The command line as documentation: a page of the site and the manual page `pagelab(1)`.

Typer writes all commands and options as Markdown; docutils makes a manual page of that.

    python site/commands.py --write     write the manual page that goes into wheels
"""

import html
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from docutils import core, nodes

import pagelab
from pagelab.cli import installed
from pagelab.cli.application import application

MANUAL = Path(__file__).resolve().parents[1] / "setup" / "wheel" / "data" / "share" / "man" / "man1" / "pagelab.1"
"""maturin puts this folder into wheels, as `setup/wheel` is the `data` of pyproject.toml"""

app = application()
"""All commands, where Typer looks for them"""

_SUMMARY = "a laboratory for paging: record a program, replay it under many virtual-memory systems"


def markdown() -> str:
    """All commands with their arguments and options, in Markdown.

    Raises:
        ModuleNotFoundError: a package is not installed whose command belongs there, too.
    """
    for command, extra in installed.EXTRAS.items():
        if not entry_points(group=installed.GROUP, name=command):
            raise ModuleNotFoundError(f"the package pagelab-{extra} is not installed: make setup")
    docs = [sys.executable, "-m", "typer", __file__, "utils", "docs", "--name", "pagelab"]
    text = subprocess.run(docs, check=True, stdout=subprocess.PIPE, text=True).stdout
    # Typer writes entities, which code spans show as they are.
    return re.sub(r"`[^`\n]*`", lambda code: html.unescape(code[0]), text)


def manual() -> str:
    """The manual page pagelab(1), in roff."""
    settings = {"output_encoding": "unicode", "report_level": 3}
    tree = core.publish_doctree(markdown(), parser="myst", settings_overrides=settings)
    facts = nodes.docinfo("", nodes.version("", pagelab.__version__), _field("manual_section", "1"))
    at = tree.index(next(tree.findall(nodes.title))) + 1
    tree.insert(at, [nodes.subtitle("", _SUMMARY), facts])
    return str(core.publish_from_doctree(tree, writer="manpage", settings_overrides=settings))


def _field(name: str, value: str) -> nodes.field:
    return nodes.field("", nodes.field_name("", name), nodes.field_body("", nodes.paragraph("", value)))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    MANUAL.write_text(manual(), encoding="utf-8")
