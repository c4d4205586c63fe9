"""`pagelab model`: models that run on the times of page faults, and models of run time."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pagelab import UsageError
from pagelab.cli import model_fit
from pagelab.cli.command import App
from pagelab.cli.run import Json
from pagelab.cli.terminal import print_table, warn
from pagelab.faults.models import BOUNDS, Estimate, FaultStudy, mfoe
from pagelab.output import ensure_apart, ensure_ending, ensure_writable, write_atomically

app = App(help="Models of page-fault handling and of run time.", no_args_is_help=True)
app.command("fit")(model_fit.command)


@app.command("mfoe")
def mfoe_command(
    faults: Annotated[
        str,
        typer.Argument(
            metavar="FAULTS",
            help="A fault trace of `pagelab record --faults`, text of perf script or ftrace, or a process of `pagelab "
            "list fault-processes`.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of `pagelab list fault-models`; repeatable."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="KEY=VALUE,VALUE…", help="A parameter with several values; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of a fault process; default: 1.")] = None,
    json: Json = None,
) -> None:
    """Estimate what the minor-fault offload engine would do for a program."""
    destination = Path(json) if json not in (None, "-") else None
    if destination:
        ensure_ending(destination, "JSON")
        ensure_writable(destination)
        ensure_apart(Path(faults), destination)
    for setting in settings or []:
        if "," in setting:
            raise UsageError(f"--set {setting}: it takes one value; for several, use --sweep {setting}")
    study = mfoe(faults, set=settings or [], sweep=_sweep(sweep or []), seed=seed)
    text = json_format.dumps(json_format.loads(study.json), indent=1, ensure_ascii=False) + "\n"
    if destination:
        write_atomically(destination, text)
    if json == "-":
        print(text, end="")
    else:
        _show(study)


def _sweep(texts: list[str]) -> dict[str, list[str]]:
    """The values of each parameter."""
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        name, parts = name.strip(), [part.strip() for part in listed.split(",")]
        if not equals or not name or not all(parts):
            raise UsageError(f"--sweep {text}: give KEY=VALUE,VALUE, such as ring_entries=128,256")
        if name in values:
            raise UsageError(f"--sweep {text}: {name} is swept twice")
        if twice := [part for number, part in enumerate(parts) if part in parts[:number]]:
            raise UsageError(f"--sweep {text}: {twice[0]} is given twice")
        values[name] = parts
    return values


def _show(study: FaultStudy) -> None:
    info, first = study.info, study.estimates[0]
    if info["lost"]:
        warn(f"{info['lost']:,} events were lost during recording, so rates and overheads are too low")
    print(" ".join(info["command"]))
    facts = {
        "faults": f"{info['faults']:,} on {_several(info['cores'], 'core')} in {_seconds(info['duration_ns'] / 1e9)} "
        f"({info['duration_origin']})",
        "latency": _latency(first.timeline["latency"]),
    }
    if first.timeline["recording_cost_ns"]:
        facts["recording"] = f"{first.timeline['recording_cost_ns']} ns per fault are subtracted"
    facts |= {f"note {number}": note for number, note in enumerate(info["notes"], 1)}
    for name, text in facts.items():
        print(f"  {name}: {text}")
    print()
    if len(study.estimates) == 1:
        print_table(_table(first))
        print(f"limited by {BOUNDS[first.bound]}\n")
        print_table(_cores(first))
    else:
        print_table(_sweep_table(study))


def _seconds(seconds: float) -> str:
    """With enough digits that short times are not 0."""
    return f"{seconds:.3f} s" if seconds >= 1 or seconds == 0 else f"{1e3 * seconds:.3g} ms"


def _latency(latency: dict[str, Any]) -> str:
    return f"{latency['ns']} ns each, {latency['how']}" if latency["origin"] == "constant" else str(latency["how"])


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _table(estimate: Estimate) -> Table:
    outcome, timeline = estimate.outcome, estimate.timeline
    rows = [
        ("faults looked at", f"{outcome['faults']:,}"),
        ("  excluded, other kinds", f"{timeline['left_out']:,}"),
        ("  latency cut by the next fault", f"{timeline['cut']:,}"),
        ("faults per second", f"{outcome['faults_per_second']:,.0f}"),
        ("cores kept busy", f"{timeline['parallelism']:.2f}"),
        ("% hits", f"{100 * outcome['hit_rate']:.2f}"),
        ("% of time in faults, before", f"{100 * outcome['overhead_before']:.2f}"),
        ("% of time in faults, after", f"{100 * outcome['overhead_after']:.2f}"),
        ("estimated speed-up", f"{outcome['speed_up']:.3f}"),
        ("background threads busy", _seconds(outcome["background_seconds"])),
        ("passes", f"{outcome['passes']:,}"),
        ("  longer than a period", f"{outcome['late_passes']:,}"),
    ]
    table = _plain_table()
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _cores(estimate: Estimate) -> Table:
    table = _plain_table(show_header=True)
    for title in ("core", "faults", "% hits", "ms in faults", "after"):
        table.add_column(title, justify="right")
    for number, core in enumerate(estimate.outcome["cores"]):
        if core["faults"]:
            times = (f"{core[key] / 1e9:.2f}" for key in ("before_ps", "after_ps"))
            table.add_row(str(number), f"{core['faults']:,}", f"{100 * core['hits'] / core['faults']:.2f}", *times)
    return table


def _sweep_table(study: FaultStudy) -> Table:
    table = _plain_table(show_header=True)
    for name in study.estimates[0].sweep:
        table.add_column(name, justify="right")
    for title in ("% hits", "% before", "% after", "speed-up"):
        table.add_column(title, justify="right")
    table.add_column("limited by")
    for estimate in study.estimates:
        outcome = estimate.outcome
        shares = (f"{100 * outcome[key]:.2f}" for key in ("hit_rate", "overhead_before", "overhead_after"))
        bound = BOUNDS[estimate.bound].split(":")[0]
        table.add_row(*estimate.sweep.values(), *shares, f"{outcome['speed_up']:.3f}", bound)
    return table


def _plain_table(*, show_header: bool = False) -> Table:
    return Table(box=None, pad_edge=False, show_header=show_header, header_style="bold", padding=(0, 2, 0, 0))
