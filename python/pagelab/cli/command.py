"""Base of all commands."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType, TyperPath

from pagelab import UsageError
from pagelab.cli.groups import group_of


class Command(TyperCommand):
    """A command whose options are grouped, and refuse another option as their value."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        for option in self.params:
            if isinstance(option, TyperOption) and option.rich_help_panel is None:
                option.rich_help_panel = group_of(name or "", option.name or "")

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        rest = super().parse_args(ctx, args)
        for option in self.params:
            if isinstance(option, TyperOption):
                _ensure_values(option, ctx.params.get(option.name or ""))
        return rest


class App(typer.Typer):
    """A group of such commands."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Registers a command, as `typer.Typer.command`."""
        return super().command(name, cls=cls or Command, **settings)


def _ensure_values(option: TyperOption, values: object) -> None:
    """Refuses a value that is the next option: `-o -- CMD` would write to a folder named `--`."""
    for value in values if isinstance(values, list | tuple) else [values]:
        if not isinstance(value, str):
            continue
        if value == "-" and isinstance(option.type, TyperPath):
            raise UsageError(f"{option.opts[0]} takes the name of a file or folder, not `-`")
        if value.startswith("-") and value != "-":
            raise UsageError(
                f"{option.opts[0]} takes a value, and `{value}` follows: write {option.opts[0]} {_value_name(option)}"
            )


def _value_name(option: TyperOption) -> str:
    return option.metavar or "VALUE"
