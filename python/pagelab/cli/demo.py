"""`pagelab demo`: records a program, replays it under several systems, and shows the comparison."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pagelab
from pagelab.cli.record import Bounds, record_to
from pagelab.cli.run import show
from pagelab.cli.terminal import progress_bars, warn

SYSTEMS = ("radix", "radix-no-mmu-cache", "radix-2m", "nested-radix")
_MAX_ACCESSES = 100_000_000
# xz uses a dictionary and a hash table of tens of megabytes, more than a TLB covers.
_INPUT_BYTES = 8 << 20


def command() -> None:
    """Record xz compressing a real file, replay it under four systems and print the comparison."""
    xz = shutil.which("xz")
    if xz is None:
        raise pagelab.UsageError("the demonstration needs xz; install the package xz-utils")
    with tempfile.TemporaryDirectory(prefix="pagelab-demo-") as folder:
        sample = Path(folder) / "sample"
        _fill(sample)
        trace = Path(folder) / "xz.trace"
        print(f"$ pagelab record -o xz.trace -- xz -9 --keep {sample.name}", file=sys.stderr)
        record_to(trace, [xz, "-9", "--keep", str(sample)], Bounds(_MAX_ACCESSES))
        print(f"$ pagelab run xz.trace {' '.join(f'-s {system}' for system in SYSTEMS)}", file=sys.stderr)
        with progress_bars() as progress:
            results = pagelab.run(trace, SYSTEMS, progress=progress)
    for warning in results.warnings:
        warn(warning)
    show(results)


def _fill(sample: Path) -> None:
    """Gathers real files, programs and shared libraries of this machine, up to the size of the sample."""
    with sample.open("wb") as file:
        for source in [Path(os.path.realpath(sys.executable)), *sorted(Path("/usr/bin").iterdir())]:
            if source.is_file() and os.access(source, os.R_OK):
                file.write(source.read_bytes()[: _INPUT_BYTES - file.tell()])
            if file.tell() >= _INPUT_BYTES:
                return
