"""`pagelab calibrate --hardware`: measures the processor and writes a machine preset."""

import sys
from pathlib import Path

from rich.table import Table

from pagelab.cli.preset_file import check
from pagelab.cli.terminal import print_table, warn
from pagelab.hardware import distances, measured, names, preset
from pagelab.output import write_atomically


def run(output: Path, base: str | None) -> None:
    """Measures, writes the preset and prints what was measured."""
    check(output, "machines")
    if base is not None:
        preset.ensure_known(base)
    facts = preset.facts()
    print("measuring caches, TLBs and memory of this machine: half a minute if it is idle", file=sys.stderr)
    made = preset.make(
        facts, measured.measure(distances.pairs(facts.cpus)), base, output.stem if output.suffix else names.MACHINE
    )
    write_atomically(output, made.to_toml())
    print(f"{made.preset['description']}, {made.preset['frequency_mhz']:,} MHz")
    for comment in made.comments:
        print(comment)
    print(f"the rest is as in {made.base}\n")
    print_table(_table(made))
    for warning in made.warnings:
        warn(warning)
    print(f"{output}: use it with -m {output}", file=sys.stderr)


def _table(made: preset.Hardware) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("cycles")
    for title in ("measured", "±", "quartiles"):
        table.add_column(title, justify="right")
    for row in made.rows:
        figure = row.cycles
        quartiles = f"{figure.lower_quartile:.1f} – {figure.upper_quartile:.1f}"
        table.add_row(row.what, f"{figure.value:.1f}", f"{figure.spread:.0%}", quartiles)
    return table
