"""`pagelab calibrate`: measures what page faults cost here and writes a kernel preset."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pagelab import UsageError, _engine
from pagelab.cli import hardware as cli_hardware
from pagelab.cli import major_faults
from pagelab.cli.preset_file import check
from pagelab.cli.terminal import print_table, warn
from pagelab.hardware import names
from pagelab.host import calibrate, fio
from pagelab.major_faults.measurement import Plan
from pagelab.output import MISSING_FOLDERS, ensure_apart, write_atomically


def command(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.toml",
            help=f"The kernel preset to write; results show this name. {MISSING_FOLDERS}",
        ),
    ] = Path(f"{names.KERNEL}.toml"),
    machine: Annotated[
        str | None, typer.Option("--machine", "-m", help="The machine preset or TOML file to use it with.")
    ] = None,
    translation_cache: Annotated[
        str | None,
        typer.Option(
            metavar="FORM",
            help="Add a translation cache with costs measured on this machine: "
            f"{' or '.join(calibrate.TRANSLATION_CACHES)}.",
        ),
    ] = None,
    drive: Annotated[
        Path | None,
        typer.Option(
            "--fio",
            metavar="FILE.json",
            help="Measure nothing here: fit a drive preset to the output of `fio --output-format=json`.",
        ),
    ] = None,
    major: Annotated[
        bool,
        typer.Option(
            "--major-faults",
            help="Measure what a fault that reads a file costs in addition to the drive, stage by stage. Needs root "
            "and perf. With --output, write settings of kernel.block_io.",
        ),
    ] = False,
    hardware: Annotated[
        bool,
        typer.Option(
            "--hardware",
            help="Measure the processor and write a machine preset, this-machine.toml, for `-m`. What cannot be "
            "measured is taken from --machine, or from the preset with the same core.",
        ),
    ] = False,
    on: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for the file of --major-faults; default: the folder for temporary files."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of the file of --major-faults.")] = "256MiB",
    faults: Annotated[int, typer.Option(help="Number of faults per pass of --major-faults.")] = Plan.faults,
    runs: Annotated[int, typer.Option(help="Number of runs of --major-faults, with ten passes each.")] = Plan.runs,
    cpu: Annotated[
        int | None,
        typer.Option(help="The CPU for --major-faults. Default: of two CPUs, the one on which more faults sleep."),
    ] = None,
    memory: Annotated[
        bool,
        typer.Option("--memory/--no-memory", help="Whether --major-faults also measures a device in memory, zram0."),
    ] = True,
    footprint: Annotated[
        bool,
        typer.Option(
            "--footprint/--no-footprint",
            help="Whether --major-faults also measures what a fault evicts from the program's caches.",
        ),
    ] = True,
) -> None:
    """Measure what page faults cost on this machine and write a kernel preset: `-k this-host` uses it.

    With --hardware, measure the processor and write a machine preset: `-m this-machine` uses it.
    """
    if major:
        if drive is not None or machine is not None or translation_cache is not None or hardware:
            raise UsageError(
                "--major-faults cannot be combined with these: leave out --fio, --machine, --translation-cache, "
                "--hardware"
            )
        file = None if output == Path(f"{names.KERNEL}.toml") else output
        if file:
            check(file, "kernels")
        major_faults.run(on, Plan(_bytes(size), faults, runs, cpu, memory, footprint), file)
        return
    if hardware:
        if drive is not None or translation_cache is not None:
            raise UsageError("--hardware cannot be combined with these: leave out --fio and --translation-cache")
        cli_hardware.run(_named(output, names.MACHINE), machine)
        return
    if on is not None:
        raise UsageError("--on names the folder for the file of --major-faults: give both")
    if drive is not None:
        if machine is not None or translation_cache is not None:
            raise UsageError(
                "--fio fits a drive, for any machine and kernel: leave out --machine and --translation-cache"
            )
        _fit_drive(drive, output)
        return
    if translation_cache not in (None, *calibrate.TRANSLATION_CACHES):
        known = " or ".join(calibrate.TRANSLATION_CACHES)
        raise UsageError(
            f"--translation-cache {translation_cache}: costs of that form cannot be measured; give {known}"
        )
    check(output)
    print("measuring page faults, forks and switches on this machine", file=sys.stderr)
    host = calibrate.measure()
    for warning in host.clock.warnings:
        warn(warning)
    for benchmark, why in host.missing.items():
        warn(f"{benchmark} could not be measured well ({why}); the preset keeps its number, as an estimate")
    # A pipe or device has no name to call a preset by.
    name = output.stem if output.suffix else names.KERNEL
    calibration = calibrate.calibrate(host, machine, translation_cache, name=name)
    for solution in calibration.solutions:
        if solution.above:
            warn(
                f"{solution.group.benchmark}: its references alone cost {solution.above:,} cycles more on "
                f"{calibration.machine} than the whole measurement; {', '.join(solution.group.stages)} are set to 0"
            )
    write_atomically(output, calibration.to_toml(host))
    print(f"{host}; {host.clock.comparison}\nsimulated: {calibration.machine}, kernel like {calibration.base}\n")
    print_table(_table(host, calibration))
    if host.walks:
        print()
        print_table(_walks(host))
    print(f"{output}: use it with -k {output}", file=sys.stderr)


def _bytes(size: str) -> int:
    try:
        return _engine.parse_bytes(size)
    except UsageError as error:
        raise UsageError(f"--size: {error}") from None


def _named(output: Path, name: str) -> Path:
    """The output, or its default name."""
    return Path(f"{name}.toml") if output == Path(f"{names.KERNEL}.toml") else output


def _fit_drive(measured: Path, output: Path) -> None:
    output = _named(output, "this-drive")
    check(output, "drives")
    ensure_apart(measured, output)
    write_atomically(output, f"{names.FIRST_LINE}\n\n{fio.fit(measured, output.stem)}")
    print(f"{output}: use it with --set kernel.storage={output}", file=sys.stderr)


def _table(host: calibrate.Host, calibration: calibrate.Calibration) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("cycles")
    for title in ("measured", "±", "quartiles", calibration.base, calibration.preset["name"]):
        table.add_column(title, justify="right")
    for row in calibration.comparisons:
        simulated = (f"{row.preset_cycles:,.0f}", f"{row.calibrated_cycles:,.0f}")
        table.add_row(row.benchmark + ("" if row.fitted else " (not fitted)"), *_measured(row.measured), *simulated)
    table.add_section()
    faults = {row.benchmark for row in calibration.comparisons}
    for benchmark, cost in host.costs.items():
        if benchmark not in faults:
            table.add_row(benchmark, *_measured(cost), "", "")
    return table


def _walks(host: calibrate.Host) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("walks of faults")
    table.add_column("KiB between", justify="right")
    for title in ("cycles", "whole prefixes save", "as published"):
        table.add_column(title, justify="right")
    for walk in host.walks:
        cells = (f"{walk.plain.median_cycles:.1f}", str(walk.full_prefix_saves), str(walk.published_saves))
        table.add_row(walk.pattern, str(walk.between_bytes >> 10), *cells)
    return table


def _measured(cost: calibrate.Cost | None) -> tuple[str, str, str]:
    if cost is None:
        return "–", "", ""
    digits = 0 if cost.median_cycles >= 100 else 1
    quartiles = f"{cost.lower_quartile_cycles:,.{digits}f} – {cost.upper_quartile_cycles:,.{digits}f}"
    return f"{cost.median_cycles:,.{digits}f}", f"{cost.spread:.0%}", quartiles
