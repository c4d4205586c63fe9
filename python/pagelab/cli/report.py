"""`pagelab report`: saved results as one page of HTML."""

from pathlib import Path
from typing import Annotated

import typer

from pagelab.cli.terminal import warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable
from pagelab.results.results import Results


def command(
    files: Annotated[list[Path], typer.Argument(metavar="RESULT…", help="A result file of `pagelab run --json FILE`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help=f"The page to write. {MISSING_FOLDERS}")
    ] = Path("report.html"),
) -> None:
    """Write a page about saved results: what paging costs, where, and what each system changes."""
    ensure_apart(output, *files)
    ensure_ending(output, "HTML")
    ensure_writable(output)
    runs = [Results.load(file) for file in files]
    for file, run in zip(files, runs, strict=True):
        if not all(result.profile for result in run.systems):
            warn(
                f"{file} has no profile, so the page lacks costs over time, by memory and by code: use `pagelab run "
                "--profile`"
            )
    # Its libraries take longer to import than the command line takes to answer.
    from pagelab.report import write

    write(output, runs)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")
