"""Are results the same as before? For refactorings: every statistic of every system preset.

    python benches/same_results.py save before.json [TRACE…]
    python benches/same_results.py compare before.json [TRACE…]

`save` runs all presets on six workloads, and on the traces that are given, and keeps the statistics. `compare` runs
them again and lists what differs; statistics that are new are named, not counted as differences.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pagelab

WORKLOADS = (
    "gups:size=64MiB,updates=100K",
    "random:size=256MiB,accesses=300K",
    "seq:size=32MiB,accesses=300K@0-1",
    "zipf:size=64MiB,accesses=300K",
    "bfs:vertices=64K",
    "matmul:n=200,accesses=400K",
)
ACCESSES = 600_000
DEVICE = '{"read_cycles":250000,"write_cycles":60000,"queue_depth":4}'
SWAP = 'kernel.swap={"size_bytes":"512MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}'
# Beside the presets as they are: kernels, translation caches and memory that runs short.
VARIANTS: dict[str, list[str]] = {
    "radix": [SWAP, "kernel.cgroup_limit_bytes=16MiB"],
    "nested-radix": [SWAP, f"kernel.storage={DEVICE}", "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=16MiB"],
    "radix-ptemagnet": [SWAP, "kernel.cgroup_limit_bytes=16MiB"],
    "radix-ca-paging": ['system.layers.native.frame_allocator={"kind":"buddy"}'],
    "radix-5level": ['kernel.translation_cache={"form":"full-prefix","per":"cpu","entries":4}'],
}
KERNELS = ("linux-4.9", "linux-4.19", "linux-4.19-stc", "linux-4.19-stc-as-published")

Counts = dict[str, dict[str, int]]


def _runs(traces: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Source, system and overrides of each run."""
    for source in (*traces, *WORKLOADS):
        for system in pagelab.available("systems"):
            yield source, system["name"], []
        for kernel in KERNELS:
            yield source, f"radix@{kernel}", []
        for system_name, overrides in VARIANTS.items():
            yield source, system_name, overrides


def _measure(traces: list[str]) -> Counts:
    counts: Counts = {}
    for source, system, overrides in _runs(traces):
        results = pagelab.run(source, systems=[system], max_accesses=ACCESSES, set=overrides)
        counts[" ".join((source, system, *overrides))] = dict(results.systems[0].stats)
    return counts


def _differences(before: Counts, after: Counts) -> int:
    differing = 0
    new: set[str] = set()
    for run, old in before.items():
        now = after.get(run, {})
        new |= now.keys() - old.keys()
        changed = [f"{name}: {value} is {now.get(name)}" for name, value in old.items() if now.get(name) != value]
        if changed:
            differing += 1
            print(f"{run}\n  " + "\n  ".join(changed[:8]))
    print(f"{differing} of {len(before)} runs differ; new statistics: {', '.join(sorted(new)) or 'none'}")
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("save", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("traces", nargs="*")
    arguments = parser.parse_args()
    counts = _measure(arguments.traces)
    if arguments.what == "save":
        arguments.file.write_text(json.dumps(counts))
        print(f"{len(counts)} runs kept in {arguments.file}")
    else:
        sys.exit(_differences(json.loads(arguments.file.read_text()), counts) > 0)


if __name__ == "__main__":
    main()
