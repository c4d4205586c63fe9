"""What all pages of HTML share: where their templates are, their head, their charts, the style and the scripts."""

from functools import partial
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from pagelab import _engine
from pagelab.report import glossary
from pagelab.report.bundle import bundle

_PACKAGE = "pagelab.report"


def text(name: str, package: str = _PACKAGE) -> str | None:
    """The text of a file of a package; none if there is no such file."""
    file = files(package).joinpath(name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def environment(package: str = _PACKAGE) -> jinja2.Environment:
    """The templates of a package, and those that all pages share."""
    packages = dict.fromkeys((package, _PACKAGE))
    loaders = [jinja2.FunctionLoader(partial(text, package=one)) for one in packages]
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["explained"] = glossary.explained
    return made


def shared() -> dict[str, Any]:
    """What every template takes."""
    return {
        "version": _engine.__version__,
        "style": Markup(text("style.css") or ""),
        "script": Markup(text("script.js") or ""),
        "bundle": Markup(bundle()),
    }
