"""`pagelab model fit`: fits models of run time to measured points."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pagelab.cli.terminal import complain, print_table, warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically

if TYPE_CHECKING:
    from pagelab.run_time import fitting

NO_BEST = 3
"""The exit status if no model is reliable"""


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Results of `pagelab measure` for one program, or CSV with the columns layout, runtime_cycles, "
            "tlb_hits, tlb_misses, walk_cycles.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help=f"Where to write the models, for `pagelab predict`. {MISSING_FOLDERS}",
        ),
    ] = None,
    time: Annotated[
        str, typer.Option(metavar="user|cpu", help="Which run time: user time alone, or with kernel time.")
    ] = "user",
) -> None:
    """Fit run-time models to a program's layouts, and show the error of each.

    The exit status is 3 if no model is reliable; the output gives the reason.
    """
    # It takes numpy, which takes longer to import than the command line to answer.
    from pagelab.run_time import fitting, points

    if output:
        ensure_ending(output, "JSON")
        ensure_writable(output)
        ensure_apart(*files, output)
    models = fitting.fit(points.read(files, time))
    if output:
        write_atomically(output, models.to_json())
    print_table(error_table(models.models, models.compared_on))
    for name, why in models.refused.items():
        print(f"not {name}: {why}")
    shared = models.no_best
    for assessed in models.models:
        if assessed.objection and assessed.objection != shared:
            print(f"excluded, {assessed.fitted.name}: {assessed.objection}")
    if models.best:
        print(f"\nbest: {models.best.fitted.name}, {models.best.fitted}")
        print(f"compared on the layouts that all models were tested on: {', '.join(models.compared_on)}")
    for note in models.points.notes:
        warn(note)
    if models.doubt:
        warn(models.doubt)
    if not models.best:
        complain(f"there is no best model: {shared}")
        raise typer.Exit(NO_BEST)


def error_table(models: "Sequence[fitting.Assessed]", compared_on: Sequence[str]) -> Table:
    """Each model with its errors for layouts left out of its fit, and for those that all models are compared on."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("model")
    compared = ("as compared",) if compared_on else ()
    for title in ("layouts left out", "largest error", *compared, "geometric mean"):
        table.add_column(title, justify="right")
    table.add_column("form")
    for model in models:
        of_compared = [percent(model.largest_on(compared_on))] if compared_on else []
        errors = (percent(model.largest), *of_compared, percent(model.geometric_mean))
        table.add_row(model.fitted.name, str(len(model.errors)), *errors, model.form)
    return table


def percent(share: float | None) -> str:
    """A share in per cent; a dash if there is none."""
    return "–" if share is None else f"{100 * share:.2f} %"
