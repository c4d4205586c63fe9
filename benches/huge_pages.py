"""What huge pages change for real programs: measured natively, and predicted by replays of recordings.

Twelve programs, their inputs made here. Four steps, each of which leaves what is done alone, so that it can be
interrupted:

    record   each program under Valgrind, in windows (the whole of it in first touches)
    replay   each recording with pages of 4 KiB and with huge pages, by the in-order core and by the window core
    native   each program natively with both, by turns: best on a machine that does nothing else
    table    all of it, with every program

Cycles are CPU time by the clock of the machine preset, as most virtual machines count none.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pagelab

_PROGRAMS = Path(__file__).resolve().parents[1] / "examples" / "programs"
_BUILT = ("betweenness", "integer_sort", "lookups", "radix_sort")
_WINDOWS = "every=150M,length=5M,warm=5M"
_PAGELAB = (sys.executable, "-m", "pagelab")
_SYSTEMS = {"4k": "radix", "thp": "radix-thp"}
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
        "python": ["python3", str(folder / "dict.py")],
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
    words = ["record", "-q", "--windows", _WINDOWS, "-o", str(unfinished), "--", *command]
    subprocess.run([*_PAGELAB, *words], check=True, stdout=subprocess.DEVNULL, env=_environment())
    unfinished.rename(trace)


def replay(folder: Path, name: str, machine: str) -> None:
    window = tomllib.loads(Path(machine).read_text())["core"]
    in_order = {"model": "in-order", "cycles_per_instruction": window["cycles_per_instruction"], "l1_hit_hidden": True}
    cores = {"in-order": in_order, "window": window | {"branch_predictor": "tage"}}

    def stats() -> dict[str, dict[str, dict[str, int]]]:
        found: dict[str, dict[str, dict[str, int]]] = {}
        for core, keys in cores.items():
            results = pagelab.run(
                folder / f"{name}.trace",
                systems=list(_SYSTEMS.values()),
                machine=machine,
                set={"machine.core": keys},
            )
            found[core] = {layout: dict(system.stats) for layout, system in zip(_SYSTEMS, results.systems, strict=True)}
        return found

    _keep(folder / f"{name}.replayed.json", stats)


def native(folder: Path, name: str, command: Sequence[str], repeat: int) -> None:
    result = folder / f"{name}.measured.json"
    if result.exists():
        return
    words = ["measure", "-l", "4k", "-l", "thp", "-n", str(repeat), "-o", str(result), "--", *command]
    subprocess.run([*_PAGELAB, *words], check=True, stdout=subprocess.DEVNULL, env=_environment())


def row(folder: Path, name: str, mhz: float) -> list[str]:
    replayed = json.loads((folder / f"{name}.replayed.json").read_text())
    layouts = {of["layout"]: of["runs"] for of in json.loads((folder / f"{name}.measured.json").read_text())["layouts"]}
    info = pagelab.trace_info(folder / f"{name}.trace")
    stretches = info["meta"]["stretches"]
    instructions = sum(stretches[f"{part}_instructions"] for part in ("measured", "warming", "skipped"))
    seconds = {
        layout: [run["user_seconds"] + run["system_seconds"] for run in runs] for layout, runs in layouts.items()
    }
    medians = {layout: statistics.median(of) for layout, of in seconds.items()}
    cycles = medians["4k"] * mhz * 1e6 / instructions
    cells = [name, f"{instructions / 1e9:.2f}", f"{cycles:.2f}"]
    gain = 100 * (1 - medians["thp"] / medians["4k"])
    gains = [f"{gain:.1f}"]
    for core in ("in-order", "window"):
        per = {
            layout: (of["cycles"] - of.get("cycles.idle", 0)) / of["instructions"]
            for layout, of in replayed[core].items()
        }
        cells.append(f"{per['4k']:.2f}")
        gains.append(f"{100 * (1 - per['thp'] / per['4k']):.1f}")
    spread = 100 * (max(seconds["4k"]) - min(seconds["4k"])) / medians["4k"]
    return [*cells, *gains, f"{spread:.0f}"]


def table(folder: Path, names: Sequence[str], machine: str) -> str:
    mhz = tomllib.loads(Path(machine).read_text())["frequency_mhz"]
    head = ["program", "G instr.", "CPI", "in-order", "window", "gain %", "in-order", "window", "spread %"]
    rows = [head, ["---"] * len(head), *(row(folder, name, mhz) for name in names)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["record", "replay", "native", "table"])
    parser.add_argument("--folder", type=Path, default=Path("huge-pages"), help="inputs, recordings and results")
    parser.add_argument("--machine", default="this-machine.toml", help="from `pagelab calibrate --hardware`")
    parser.add_argument("--repeat", type=int, default=7, help="native runs of each layout")
    parser.add_argument("--only", nargs="+", help="programs; all unless given")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    make_inputs(folder)
    chosen = {name: of for name, of in commands(folder).items() if name in (arguments.only or commands(folder))}
    for step in arguments.steps:
        if step == "table":
            print(table(folder, list(chosen), arguments.machine))
            continue
        for name, command in chosen.items():
            print(f"{step} {name}", file=sys.stderr)
            if step == "record":
                record(folder, name, command)
            elif step == "replay":
                replay(folder, name, arguments.machine)
            else:
                native(folder, name, command, arguments.repeat)


if __name__ == "__main__":
    main()
