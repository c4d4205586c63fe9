"""`pagelab list` and `pagelab schema`."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import pagelab
from pagelab import UsageError
from pagelab.catalogue import ensure_name, preset_toml
from pagelab.cli.completion import names_of
from pagelab.cli.terminal import print_table

_COLD_FORMS = "Each nested-NAME just booted, as nested-radix-cold: its first touches fault in the host, too"


def list_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="workloads, systems, machines, kernels, drives, windows, page-tables, mmu-caches, fault-engines, "
            "placements, cores, prefetchers, tlb-organisations, speculations, translation-units, devices, "
            "kernel-threads, fault-processes, fault-models.",
            autocompletion=names_of("kinds"),
        ),
    ] = "kinds",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show only this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_toml: Annotated[
        bool,
        typer.Option(
            "--toml", help="Print the preset NAME as a TOML file with all origins, to copy or to extend (`base`)."
        ),
    ] = False,
) -> None:
    """List everything of one kind, with its documentation; without KIND, list the kinds."""
    if as_toml:
        if name is None:
            raise UsageError(f"--toml prints one preset: pagelab list {kind} NAME --toml")
        if as_json:
            raise UsageError("--json and --toml are alternatives: leave one out")
        print(preset_toml(kind, name), end="")
        return
    if name is not None:
        ensure_name(kind, name)
    entries = [entry for entry in pagelab.available(kind) if name in (None, entry["name"])]
    if as_json:
        print(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for entry in entries:
        if "cold_form_of" in entry:
            continue
        table.add_row(Text(entry["name"], style="bold"), Text(_description(entry)))
        for parameter in entry.get("parameters", []):
            table.add_row("", Text(_parameter(parameter), style="dim"))
    if any("cold_form_of" in entry for entry in entries):
        table.add_row(Text("nested-NAME-cold", style="bold"), Text(_COLD_FORMS))
    print_table(table)


def schema_command() -> None:
    """Print the JSON schema of the configuration: every key of --set with its meaning."""
    print(json.dumps(pagelab.schema(), indent=1, ensure_ascii=False))


def _description(entry: dict[str, Any]) -> str:
    """What an entry is; of a machine, first its year and what it was made for."""
    description = str(entry.get("description") or entry.get("summary") or "")
    made = [str(entry[key]) for key in ("year", "class") if key in entry]
    return f"{', '.join(made)}: {description}" if made else description


def _parameter(parameter: dict[str, Any]) -> str:
    origin = f"; {parameter['origin']}" if "origin" in parameter else ""
    return "{name}: {meaning} [{unit}, default {default}{origin}]".format(**{**parameter, "origin": origin})
