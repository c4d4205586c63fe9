"""What huge pages change for real programs: measured natively, and predicted by replays of recordings.

Twelve programs, their inputs made here. Four steps, each of which leaves what is done alone, so that it can be
interrupted:

    record   each program under Valgrind, in windows (the whole of it in first touches)
    replay   each recording with pages of 4 KiB and with huge pages, in all that `_REPLAYS` lists
    native   each program natively with both, alternately: best on a machine that does nothing else
    table    all of it, with every program, and how often each way is near

Both sides have the same allocator: recordings are made with the library that gives native runs their layouts, under
the layout `thp`, and its advice is followed (huge pages) or not (4 KiB). Native walks are nested in a virtual machine,
so the replays are, too, but for the column `bare`. What a replay predicts is never used to change it.

Cycles are CPU time by the clock of the machine preset, as most virtual machines count none. Instructions are perf's
where it counts, else Valgrind's: the table says which.
"""

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pagelab
from pagelab import _engine, native
from pagelab.confidence.sign_test import median_interval
from pagelab.confidence.students_t import students_t
from pagelab.replay import cores
from pagelab.replay.simulation import System
from pagelab.run_time import host, layouts
from pagelab.run_time.replaying import NESTED, NESTED_MADVISE

_PROGRAMS = Path(__file__).resolve().parents[1] / "examples" / "programs"
_BUILT = ("betweenness", "integer_sort", "lookups", "radix_sort")
_WINDOWS = "every=150M,length=5M,warm=5M,offset=random,seed=1"
_PAGELAB = (sys.executable, "-m", "pagelab")
_BARE: Mapping[str, System] = {"4k": "radix", "thp": "radix-thp-madvise"}
_NESTED: Mapping[str, System] = {"4k": NESTED, "thp": NESTED_MADVISE}
_PREFETCHERS = {"machine.prefetch.l1.ip_stride": "on", "machine.prefetch.l2.stream": "on"}
_OWN_KERNEL = "own kernel"
"""Its page faults cost what `pagelab calibrate` measured here; those of the others are a preset's."""
_REPLAYS: Mapping[str, tuple[str, Mapping[str, System], Mapping[str, str]]] = {
    "in-order": ("in-order", _NESTED, {}),
    "window": ("window", _NESTED, {}),
    "prefetching": ("window", _NESTED, _PREFETCHERS),
    "bare": ("window", _BARE, {}),
    _OWN_KERNEL: ("window", _NESTED, _PREFETCHERS),
}
"""What is replayed: the core, the systems by layout, other settings. `window` is the main one in a virtual machine,
`bare` elsewhere."""
_NEAR_POINTS, _NEAR_CYCLES = 0.05, 0.2
"""What the summary calls near: of a gain, and of cycles per instruction as a share"""
_COUNT = "{for(i=1;i<=NF;i++)c[$i]++}END{n=0;for(w in c)n++;print n}"
_DICT = """
d = {}
for i in range(600000):
    d[i * 7919 % 1000003] = str(i)
print(sum(len(d.get(i * 104729 % 1000003, "")) for i in range(600000)))
"""
_HASH = "$h{$_ * 7919 % 1000003} = $_ for 1..700000; $s += $h{$_ * 104729 % 1000003} // 0 for 1..700000; print $s"
_JOIN = """
create table a(id integer primary key, k integer, t text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000)
insert into a select i, i * 7919 % 400009, 'row ' || (i * 31 % 1000) from n;
create index ak on a(k);
select count(*), sum(length(x.t)) from a x join a y on y.k = x.k * 3 % 400009;
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """The programs with their arguments; inputs lie in `folder`."""
    text, blob = str(folder / "text"), str(folder / "blob")
    return {
        "xz": ["xz", "-6", "-T1", "-k", "-c", blob],
        "gzip": ["gzip", "-6", "-c", text],
        "zstd": ["zstd", "-q", "-9", "-c", text],
        "sort": ["sort", "--parallel=1", "-S", "512M", text],
        "gcc": ["gcc", "-O1", "-c", str(folder / "source.c"), "-o", "/dev/null"],
        "python": [str(Path(sys.executable).resolve()), str(folder / "dict.py")],
        "perl": ["perl", "-e", _HASH],
        "sqlite": ["sqlite3", ":memory:", _JOIN],
        "awk": ["mawk", _COUNT, text],
        "betweenness": [str(folder / "betweenness"), "1", "17", "8"],
        "lookups": [str(folder / "lookups"), "1"],
        "radix_sort": [str(folder / "radix_sort"), "1", "24000000"],
    }


def make_inputs(folder: Path) -> None:
    """The same bytes each time, and the C programs."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "radix_sort").exists():
        return
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(60_000)]
    lines = (" ".join(draw.choices(words, k=8)) for _ in range(700_000))
    (folder / "text").write_text("\n".join(lines) + "\n")
    numbers = (f"{draw.randrange(1 << 20)} {draw.choice(words)} " for _ in range(350_000))
    (folder / "blob").write_text("".join(numbers)[:5_000_000])
    body = "".join(
        f"int f{n}(int a, int b, int *c) {{ int s = 0; for (int i = 0; i < a; i++) {{ s += c[i % {n + 3}] * b;"
        f" if (s > {n * 7}) s ^= a << {n % 7}; switch (s % 5) {{ case 0: s += {n}; break; case 1: s -= b; break;"
        " case 2: s *= 3; break; default: s ^= c[b & 7]; } } return s; }\n"
        for n in range(600)
    )
    (folder / "source.c").write_text(body)
    (folder / "dict.py").write_text(_DICT)
    for name in _BUILT:
        program = folder / name
        subprocess.run(
            ["cc", "-O2", "-pthread", "-o", program, _PROGRAMS / f"{name}.c", "-lm"], check=True, cwd=_PROGRAMS
        )


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _keep(path: Path, make: Callable[[], object]) -> None:
    """Makes a JSON file unless it is there."""
    if not path.exists():
        value = make()
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(value))
        unfinished.rename(path)


def record(folder: Path, name: str, command: Sequence[str]) -> None:
    trace = folder / f"{name}.trace"
    if trace.exists():
        return
    unfinished = folder / f"{name}.unfinished.trace"
    shutil.rmtree(unfinished, ignore_errors=True)
    # For the program alone: the recorder keeps its own allocator.
    wanted = layouts.parse("thp").environment(native.layout_library(), host.pool_bytes(), 0)
    settings = [f"{key}={value}" for key, value in wanted.items()]
    words = ["record", "-q", "--windows", _WINDOWS, "-o", str(unfinished), "--", "env", *settings, *command]
    subprocess.run([*_PAGELAB, *words], check=True, stdout=subprocess.DEVNULL, env=_environment())
    unfinished.rename(trace)


def replay(folder: Path, name: str, machine: str, kernel: str) -> None:
    core = json.loads(_engine.machine_json(machine))["core"]
    both = {"in-order": cores.in_order(core), "window": cores.overlapping(core)}
    for label, (kind, systems, settings) in _REPLAYS.items():

        def stats(
            kind: str = kind,
            systems: Mapping[str, System] = systems,
            settings: Mapping[str, str] = settings,
            own_kernel: str | None = kernel if label == _OWN_KERNEL else None,
        ) -> dict[str, Any]:
            results = pagelab.run(
                folder / f"{name}.trace",
                systems=list(systems.values()),
                machine=machine,
                kernel=own_kernel,
                set={"machine.core": both[kind], **settings},
            )
            return {
                layout: {"stats": dict(result.stats), "windows": [dict(window) for window in result.windows]}
                for layout, result in zip(systems, results.systems, strict=True)
            }

        _keep(folder / f"{name}.{label}.json", stats)


def native_runs(folder: Path, name: str, command: Sequence[str], repeat: int) -> None:
    result = folder / f"{name}.measured.json"
    if result.exists():
        return
    words = ["measure", "-l", "4k", "-l", "thp", "-n", str(repeat), "-o", str(result), "--", *command]
    subprocess.run([*_PAGELAB, *words], check=True, stdout=subprocess.DEVNULL, env=_environment())


@dataclass(frozen=True)
class Gain:
    """What huge pages take off, as a share of the cycles with 4 KiB."""

    value: float
    interval: tuple[float, float] | None
    """Of 95 %; none of a single run or window."""

    def __str__(self) -> str:
        ends = "" if self.interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in self.interval))
        return f"{100 * self.value:.1f}{ends}"

    def within(self, other: "Gain") -> bool:
        """Whether both are near each other."""
        return abs(self.value - other.value) <= _NEAR_POINTS


def paired_gain(small: Sequence[float], huge: Sequence[float]) -> Gain:
    """The median gain of pairs of native runs, with the sign test's interval: other guests slow single runs."""
    gains = [1 - after / before for before, after in zip(small, huge, strict=True)]
    return Gain(statistics.median(gains), median_interval(gains) if len(gains) > 1 else None)


def whole_cycles(stats: Mapping[str, int], windows: Sequence[Mapping[str, int]], instructions: int) -> float:
    """Cycles of the whole program: its instructions as those of the windows, and all of its own faults.

    A fault costs what the faults of the windows do on average. A program without any there has them at no cost.
    """
    inside = {name: sum(window.get(name, 0) for window in windows) for name in _NAMES}
    busy = inside["cycles"] - inside["cycles.idle"] - inside["cycles.fault"]
    faults = sum(inside[f"fault.{kind}.count"] for kind in _FAULTS)
    cost = inside["cycles.fault"] / faults if faults else 0.0
    return instructions * busy / inside["instructions"] + cost * sum(
        stats.get(f"program.fault.{kind}.count", 0) for kind in _FAULTS
    )


_FAULTS = ("minor", "major")
_NAMES = ("cycles", "cycles.idle", "cycles.fault", "instructions", *(f"fault.{kind}.count" for kind in _FAULTS))


def replayed_gain(replayed: Mapping[str, Any], instructions: int) -> Gain:
    """The gain over all windows, with the interval of leaving each window out once (jackknife)."""

    def gain(left_out: int | None = None) -> float:
        small, huge = (
            whole_cycles(
                replayed[layout]["stats"],
                [window for number, window in enumerate(replayed[layout]["windows"]) if number != left_out],
                instructions,
            )
            for layout in ("4k", "thp")
        )
        return 1 - huge / small

    count = len(replayed["4k"]["windows"])
    if count < 2:
        return Gain(gain(), None)
    without = [gain(number) for number in range(count)]
    mean = statistics.fmean(without)
    error = math.sqrt((count - 1) / count * sum((value - mean) ** 2 for value in without))
    whole, half = gain(), students_t(count - 1) * error
    return Gain(whole, (whole - half, whole + half))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's; none if either has the same value throughout."""

    def ranks(values: Sequence[float]) -> list[float]:
        # Equal values share the mean of their ranks.
        return [
            sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
            for value in values
        ]

    first, second = ranks(one), ranks(other)
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(first, second)


@dataclass(frozen=True)
class Row:
    """A program: what was measured, and each replay."""

    name: str
    instructions: int
    counted_by: str
    cycles_per_instruction: float
    gain: Gain
    replayed: Mapping[str, tuple[float, Gain]]
    """Cycles per instruction with 4 KiB, and the gain."""


def row(folder: Path, name: str, mhz: float) -> Row:
    by_layout = {
        entry["layout"]: entry["runs"]
        for entry in json.loads((folder / f"{name}.measured.json").read_text())["layouts"]
    }
    stretches = pagelab.trace_info(folder / f"{name}.trace")["meta"]["stretches"]
    recorded = sum(stretches[f"{part}_instructions"] for part in ("measured", "warming", "skipped"))
    counts = [run["counters"].get("instructions") for run in by_layout["4k"]]
    counted = all(counts)
    instructions = int(statistics.median(counts)) if counted else recorded
    seconds = {
        layout: [run["user_seconds"] + run["system_seconds"] for run in runs] for layout, runs in by_layout.items()
    }
    replayed = {}
    for label in _REPLAYS:
        layouts = json.loads((folder / f"{name}.{label}.json").read_text())
        cycles = whole_cycles(layouts["4k"]["stats"], layouts["4k"]["windows"], recorded)
        replayed[label] = (cycles / recorded, replayed_gain(layouts, recorded))
    return Row(
        name,
        instructions,
        "perf" if counted else "Valgrind",
        statistics.median(seconds["4k"]) * mhz * 1e6 / instructions,
        paired_gain(seconds["4k"], seconds["thp"]),
        replayed,
    )


def summary(rows: Sequence[Row]) -> list[str]:
    """How often each way is near, compared with predicting no gain at all, and whether the order of programs holds."""
    gains = [row.gain for row in rows]
    nothing = sum(gain.within(Gain(0.0, None)) for gain in gains)
    lines = [f"no gain predicted: within {100 * _NEAR_POINTS:.0f} points for {nothing} of {len(rows)}"]
    for label in _REPLAYS:
        predicted = [row.replayed[label] for row in rows]
        near = sum(gain.within(other) for (_, gain), other in zip(predicted, gains, strict=True))
        cycles = sum(
            abs(own / row.cycles_per_instruction - 1) <= _NEAR_CYCLES
            for (own, _), row in zip(predicted, rows, strict=True)
        )
        order = rank_correlation([gain.value for _, gain in predicted], [gain.value for gain in gains])
        lines.append(
            f"{label}: gain within {100 * _NEAR_POINTS:.0f} points for {near}, "
            f"cycles within {100 * _NEAR_CYCLES:.0f} % "
            f"for {cycles} of {len(rows)}; rank correlation of gains {'–' if order is None else f'{order:.2f}'}"
        )
    return lines


def table(rows: Sequence[Row]) -> str:
    head = ["program", "G instr.", "by", "CPI", *_REPLAYS, "gain %", *_REPLAYS]
    cells = [
        [
            row.name,
            f"{row.instructions / 1e9:.2f}",
            row.counted_by,
            f"{row.cycles_per_instruction:.2f}",
            *(f"{cycles:.2f}" for cycles, _ in row.replayed.values()),
            str(row.gain),
            *(str(gain) for _, gain in row.replayed.values()),
        ]
        for row in rows
    ]
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *cells)]
    return "\n".join([*lines, "", *summary(rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["record", "replay", "native", "table"])
    parser.add_argument("--folder", type=Path, default=Path("huge-pages"), help="inputs, recordings and results")
    parser.add_argument("--machine", default="this-machine.toml", help="from `pagelab calibrate --hardware`")
    parser.add_argument("--kernel", default="this-host.toml", help="from `pagelab calibrate`")
    parser.add_argument("--repeat", type=int, default=7, help="native runs of each layout")
    parser.add_argument("--only", nargs="+", help="programs; all unless given")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    make_inputs(folder)
    chosen = {
        name: command for name, command in commands(folder).items() if name in (arguments.only or commands(folder))
    }
    for step in arguments.steps:
        if step == "table":
            mhz = tomllib.loads(Path(arguments.machine).read_text())["frequency_mhz"]
            print(table([row(folder, name, mhz) for name in chosen]))
            continue
        for name, command in chosen.items():
            print(f"{step} {name}", file=sys.stderr)
            if step == "record":
                record(folder, name, command)
            elif step == "replay":
                replay(folder, name, arguments.machine, arguments.kernel)
            else:
                native_runs(folder, name, command, arguments.repeat)


if __name__ == "__main__":
    main()
