"""`pagelab reproduce`: measures a paper's results again."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import pagelab
from pagelab.cli.terminal import print_table, warn
from pagelab.output import MISSING_FOLDERS
from pagelab.reproduce import REPRODUCTIONS, kept, report, study


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(REPRODUCTIONS)}.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help=f"Where the report goes; default NAME. {MISSING_FOLDERS}"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="MINUTES", min=0.1, help="Time that the runs may take, about.")
    ] = 20.0,
    scale: Annotated[
        float | None,
        typer.Option(min=0.001, max=10.0, help="Length of the windows beside the nominal ones, in place of a budget."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="SPEC[@CPUS]",
            help="Run this, such as a recorded program, beside where the paper has co-runners; repeatable.",
        ),
    ] = None,
    beyond: Annotated[bool, typer.Option(help="Run designs as well that the paper does not measure.")] = False,
) -> None:
    """Measure a paper's figures again and write them beside the paper's: report, pictures, JSON."""
    if name not in REPRODUCTIONS:
        raise pagelab.UsageError(f"nothing is known of {name!r}; there is {', '.join(REPRODUCTIONS)}")
    reproduction = REPRODUCTIONS[name]
    if with_ and not any(run.beside for run in reproduction.runs()):
        raise pagelab.UsageError(f"{name} has no co-runners, so --with has nothing to run beside")
    folder = output or Path(name)
    before = kept.asked_before(folder)
    if scale is None:
        scale = before.scale if before else study.choose_scale(reproduction, budget)
    store = kept.Kept(folder, kept.Asked(name, pagelab.__version__, kept.build(), scale, tuple(with_ or ())))
    print(f"{reproduction.title}: windows at scale {scale:g}", file=sys.stderr)
    if store.count:
        print(f"{folder}: {store.count} finished runs are there and need not be made again", file=sys.stderr)

    def done(run: study.Run, so_far: int, of: int) -> None:
        label = f" ({run.label})" if run.label else ""
        print(f"[{so_far}/{of}] {run.workload} on {run.system}{label}, seed {run.seed}", file=sys.stderr)

    try:
        measured = study.measure(reproduction, scale, lambda run: beyond or not run.beyond, done, with_ or (), store)
    except study.InterruptedStudyError as interrupted:
        measured = interrupted.measured
        report.write(folder, reproduction, scale, measured, reproduction.evaluate(measured), pictures=False)
        print(
            f"{folder}: {len(measured.all())} runs are kept, and the report of what they show; "
            "the same command goes on from there",
            file=sys.stderr,
        )
        raise
    findings = reproduction.evaluate(measured)
    files = report.write(folder, reproduction, scale, measured, findings)
    print_table(_claims(findings))
    if not any(path.suffix == ".svg" for path in files):
        warn("no pictures: matplotlib is not installed (pip install 'pagelab[pictures]')")
    print(f"{folder}: {', '.join(path.name for path in files)}", file=sys.stderr)


def _claims(findings: study.Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("figure", "the paper says", "here", "measured"):
        table.add_column(title)
    for claim in findings.claims:
        table.add_row(claim.figure, claim.text, report.VERDICTS[claim.holds].strip("*"), claim.detail)
    return table
