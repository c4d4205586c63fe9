"""How much of the host's memory a replay takes under each system, and that it does not grow with the accesses.

    python benches/memory.py [SYSTEM…]

Peaks of whole processes (`ru_maxrss`), MiB, with the interpreter and the engine. The columns:

- nothing: 64 accesses, so what a system and its machine take before they do anything;
- small: 16 MiB touched at random;
- large: GUPS over 256 MiB, 2 M accesses;
- large, small pages: the same where the host backs nothing with huge pages. Sparse tables are asked for these, and how
  many it finds, and when, differs from run to run;
- longer, small pages: this with four times as many accesses.

Ends with status 1 if a system takes over 2 % and 4 MiB more for the longer run.
"""

import argparse
import json
import subprocess
import sys

from rich.table import Table

from pagelab import _engine
from pagelab.cli.terminal import print_table

LARGE, LONGER = "large, small pages", "longer, small pages"
WORKLOADS = {
    "nothing": "random:size=64KiB,accesses=64",
    "small": "random:size=16MiB,accesses=20K",
    "large": "gups:size=256MiB,updates=1M",
    LARGE: "gups:size=256MiB,updates=1M",
    LONGER: "gups:size=256MiB,updates=4M",
}
# The child of a small process: a peak includes that of the process that started it, until it executes.
MEASURE = """
import ctypes, resource, subprocess, sys
PR_SET_THP_DISABLE = 41
if sys.argv[1] == "small pages" and ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
    sys.exit("the host does not switch huge pages off for a process")
subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(workload: str, system: str, pages: str) -> float:
    """Peak memory of a replay. Errors: it fails, with what it printed."""
    command = [sys.executable, "-m", "pagelab", "run", "-q", workload, "-s", system]
    measure = [sys.executable, "-c", MEASURE, pages, *command]
    done = subprocess.run(measure, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{workload} under {system} failed:\n{done.stderr}")
    return int(done.stdout) / 1024


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="only these; all presets by default")
    chosen = parser.parse_args().systems or [one["name"] for one in json.loads(_engine.list_json("systems"))]
    table = Table("", *WORKLOADS, title="Peak memory of the host, MiB", title_justify="left")
    growing = []
    for system in chosen:
        peaks = {name: peak_mib(workload, system, name.rpartition(", ")[2]) for name, workload in WORKLOADS.items()}
        if peaks[LONGER] > 1.02 * peaks[LARGE] + 4:
            growing.append(system)
        table.add_row(system, *(f"{peak:.0f}" for peak in peaks.values()))
    print_table(table)
    if growing:
        print(f"memory grows with the accesses: {', '.join(growing)}")
    return int(bool(growing))


if __name__ == "__main__":
    sys.exit(main())
