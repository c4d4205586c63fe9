"""Commands of packages that are installed beside this one: `pagelab reproduce` and `pagelab linux`.

A package offers its command as an entry point of the group `pagelab.commands`: a function, or a `typer.Typer` with
commands of its own.
"""

import typer

from pagelab import UsageError
from pagelab.cli.command import App

GROUP = "pagelab.commands"
EXTRAS = {"linux": "linux", "reproduce": "studies"}
"""The extra of pagelab that provides each command, with the package `pagelab-EXTRA`"""

_TAKES_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add(app: App, name: str) -> None:
    """Adds the command of that name; without its package, a command that says what to install."""
    # It imports a part of the standard library that other commands do without.
    from importlib.metadata import entry_points

    extra = EXTRAS[name]
    entry_point = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry_point is None:
        _add_error(app, name, f"it is in the package pagelab-{extra}, which is not installed")
        return
    try:
        command = entry_point.load()
    except ImportError as error:
        _add_error(app, name, f"the package pagelab-{extra} does not fit this version of pagelab ({error})")
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _add_error(app: App, name: str, reason: str) -> None:
    def fail() -> None:
        raise UsageError(f"pagelab {name}: {reason}: pip install 'pagelab[{EXTRAS[name]}]'")

    app.command(name, hidden=True, context_settings=_TAKES_ANYTHING)(fail)
