"""`pagelab calibrate --major-faults`: the kernel's cost of a major fault, in addition to the device."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from pagelab.cli.terminal import print_table, warn
from pagelab.hardware import names
from pagelab.host import calibrate
from pagelab.major_faults.measurement import Device, Measured, Plan, TracepointPasses, measure
from pagelab.major_faults.settings import kibibytes, lost, settings, to_toml
from pagelab.major_faults.stages import STAGES, Spread
from pagelab.output import write_atomically


def run(folder: Path | None, plan: Plan, output: Path | None) -> None:
    """Measures, shows a table, and writes settings if there is an output."""
    measured = measure(folder or Path(tempfile.gettempdir()), plan, lambda text: print(text, file=sys.stderr))
    if measured.no_memory and plan.ram_disk:
        warn(f"no device in memory was measured: {measured.no_memory}")
    if plan.footprint and measured.drive.no_footprint:
        warn(f"what faults push out of the caches was not measured: {measured.drive.no_footprint}")
    print(f"{measured}\n")
    for device in (measured.drive, measured.memory):
        if device:
            _show(device, measured)
    if measured.memory:
        print(f"{measured.memory.name}, {measured.without_sleep}")
    if output is None:
        return
    switch = None
    if not measured.drive.always_sleeps:
        warn(f"too few faults slept on {measured.drive.name}: the cost of switching is taken from other measurements")
        cost = calibrate.measure().costs.get("context-switch")
        switch = cost.median_cycles / measured.cycles_per_nanosecond if cost else None
    write_atomically(output, to_toml(measured, settings(measured, switch), names.FIRST_LINE))
    print(f"{output}: settings of kernel.block_io", file=sys.stderr)


def _show(device: Device, measured: Measured) -> None:
    irq = f"interrupt {device.irq}" if device.irq else "no interrupt of its own"
    print(
        f"{device.name} ({device.file_system}), CPU {device.cpu}, {irq}: {device.faults:,} faults followed; "
        f"{device.slept:,} slept, {device.awake:,} found the answer there, {device.incomplete:,} left out"
    )
    print_table(_stages(device, measured))
    print()
    print_table(_steps(device))
    print(f"\nrecording an event costs {device.event_ns:,.0f} ns; each stage includes one\n")


def _stages(device: Device, measured: Measured) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("stage")
    for title in ("ns", "quartiles", "medians of runs", "cycles", "faults"):
        table.add_column(title, justify="right")
    table.add_column("what")
    for stage in STAGES:
        if stage.name in device.stages:
            table.add_row(stage.name, *_cells(device.stages[stage.name], measured), stage.what)
    table.add_section()
    table.add_row("touch", *_cells(device.plain, measured), "without recording")
    if device.direct:
        table.add_row("direct read", *_cells(device.direct, measured), "of a page past the page cache (O_DIRECT)")
    if device.footprint:
        for loss in device.footprint.losses:
            nanoseconds = loss.cycles.times(1 / measured.cycles_per_nanosecond)
            table.add_row(f"reload {loss.name}", *_cells(nanoseconds, measured), f"{kibibytes(loss)}: {lost(loss)}")
    return table


def _cells(spread: Spread, measured: Measured) -> tuple[str, ...]:
    return (
        f"{spread.median:,.0f}",
        f"{spread.lower:,.0f} – {spread.upper:,.0f}",
        _runs(spread.runs),
        f"{spread.median * measured.cycles_per_nanosecond:,.0f}",
        f"{spread.count:,}",
    )


def _steps(device: Device) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("tracepoints")
    for title in ("touch in ns", "beside the device", "more"):
        table.add_column(title, justify="right")
    before: TracepointPasses | None = None
    for step in device.steps:
        name = f"and {step.tracepoint}" if step.tracepoint else "around the device" if step.beside else "none"
        more = f"{min(step.beside) - min(before.beside):+,.0f}" if before and before.beside else ""
        table.add_row(name, _runs(step.touch), _runs(step.beside), more)
        before = step
    return table


def _runs(times: Sequence[float]) -> str:
    return f"{min(times):,.0f} – {max(times):,.0f}" if times else ""
