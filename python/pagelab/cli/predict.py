"""`pagelab predict`: run time under systems that do not exist in hardware."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pagelab import UsageError
from pagelab.cli.completion import names_of
from pagelab.cli.model_fit import percent
from pagelab.cli.run import Json
from pagelab.cli.terminal import Quiet, print_table, progress_bars, warn
from pagelab.output import ensure_apart, ensure_ending, ensure_writable, write_atomically

if TYPE_CHECKING:
    from pagelab.run_time.predicting import Prediction, Validation


def command(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A recording of the measured program.")],
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="FILE.json|NAME",
            help="The file of `pagelab model fit`. Repeat it with a model's name, such as yaniv, to use that model "
            "only, even if no model is the best.",
        ),
    ],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            "-s",
            metavar="SYSTEM[@KERNEL][{KEY=VALUE,…}]",
            help="A system preset or TOML file; repeatable. Default radix-thp.",
            autocompletion=names_of("systems"),
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            "-m",
            help="The machine for replays; default: that of the models.",
            autocompletion=names_of("machines"),
        ),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Predict layouts that were left out of the fit, and show each model's errors."),
    ] = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Predict a program's run time under other systems, with models fitted to its measured run times."""
    # It takes numpy, which takes longer to import than the command line to answer.
    from pagelab.run_time import fitting, predicting

    file, name = _file_and_name(model)
    destination = Path(json) if json not in (None, "-") else None
    if destination:
        ensure_ending(destination, "JSON")
        ensure_writable(destination)
        ensure_apart(file, destination)
    models = fitting.load(file)
    with progress_bars(quiet=quiet) as progress:
        prediction = predicting.predict(trace, system or ["radix-thp"], models, machine, progress, name)
        validation = predicting.validate(trace, models, machine, progress) if validate else None
    document = prediction.to_dict()
    if validation:
        document["errors"] = {"by_layout": validation.by_layout, "thp_by_trace": validation.by_trace}
    text = json_format.dumps(document, indent=1) + "\n"
    if destination:
        write_atomically(destination, text)
    if json == "-":
        print(text, end="")
    else:
        _show(prediction)
        if validation:
            print("\nerrors for layouts that were left out of the fit\n")
            print_table(_errors(validation))
    for warning in prediction.warnings:
        warn(warning)


def _file_and_name(values: list[str]) -> tuple[Path, str | None]:
    """The model file and the name of a model, from the values of --model."""
    # It takes numpy, as above.
    from pagelab.run_time.models import MODELS

    known = [model.name for model in MODELS]
    names = [value for value in values if value in known]
    files = [value for value in values if value not in known]
    if len(files) != 1 or len(names) > 1:
        raise UsageError(
            f"--model: give one file of `pagelab model fit`, and at most one name of a model ({', '.join(known)}), "
            f"not {', '.join(values)}"
        )
    return Path(files[0]), next(iter(names), None)


def _show(prediction: "Prediction") -> None:
    print(f"replayed on {prediction.machine}; 4k, measured, takes {_time(prediction, prediction.base.runtime_cycles)}")
    if prediction.system_seconds is not None:
        print(f"the kernel's part, {prediction.system_seconds:.3f} s with 4k, is not predicted")
    print()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("system")
    table.add_column("model")
    for title in ("run time", "by 4k", "95 %"):
        table.add_column(title, justify="right")
    for predicted in prediction.systems:
        for number, estimate in enumerate(predicted.estimates):
            notes = ["best"] * (estimate.model == prediction.best) + ["misses alone"] * estimate.blind
            notes += ["untested"] * (not estimate.tested)
            name = f"{estimate.model} ({', '.join(notes)})" if notes else estimate.model
            cells = ["–"] * 3
            if estimate.cycles is not None:
                cells[:2] = (
                    _time(prediction, estimate.cycles),
                    f"×{estimate.cycles / prediction.base.runtime_cycles:.3f}",
                )
                cells[2] = "–" if estimate.half_interval is None else f"±{100 * estimate.half_interval:.1f} %"
            table.add_row("" if number else predicted.system, name, *cells)
    print_table(table)
    if prediction.best:
        print("\nbest: judged by run times relative to 4k; `pagelab model fit` judges by absolute run times")
    if any(estimate.half_interval is None for predicted in prediction.systems for estimate in predicted.estimates):
        print("\n–: the model was tested on fewer than two layouts, or does not apply to the system")


def _time(prediction: "Prediction", cycles: float) -> str:
    """Seconds if the clock is known, else cycles."""
    return f"{cycles / prediction.mhz / 1e6:.3f} s" if prediction.mhz else f"{cycles:,.0f} cycles"


def _errors(validation: "Validation") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    layouts = list(dict.fromkeys(layout for errors in validation.by_layout.values() for layout in errors))
    table.add_column("model")
    for title in (*layouts, "thp, by the trace"):
        table.add_column(title, justify="right")
    for model, errors in validation.by_layout.items():
        cells = [percent(errors.get(layout)) for layout in layouts]
        table.add_row(model, *cells, percent(validation.by_trace.get(model)))
    return table
