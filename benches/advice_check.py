"""What advice predicts of huge pages beside what native runs measure, for twelve short programs.

    python benches/advice_check.py FOLDER [-n PAIRS] [PROGRAM…]

makes inputs in FOLDER, runs `pagelab advise --check` for each program and prints a table in Markdown. What is done is
left alone, so that it can be interrupted. Best on a machine that does nothing else: predictions do not depend on that,
and measurements do. `this-machine.toml` and `this-host.toml` of FOLDER are used if they are there.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huge_pages import make_inputs

_JOIN = """
create table a(id integer primary key, k integer, t text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 80000)
insert into a select i, i * 7919 % 80021, 'row ' || (i * 31 % 1000) from n;
create index ak on a(k);
select count(*), sum(length(x.t)) from a x join a y on y.k = x.k * 3 % 80021;
"""
_HASH = "$h{$_ * 7919 % 1000003} = $_ for 1..60000; $s += $h{$_ * 104729 % 1000003} // 0 for 1..60000; print $s"
_DICT = "d = {i * 7919 % 1000003: str(i) for i in range(60000)}; print(sum(len(d.get(i, '')) for i in range(60000)))"
_COUNT = "{for(i=1;i<=NF;i++)c[$i]++}END{n=0;for(w in c)n++;print n}"
_PARTS = {"text": 4_000_000, "blob": 150_000}
"""Bytes of the inputs of `huge_pages.py` that are taken"""


def commands(folder: Path) -> dict[str, list[str]]:
    """The programs with their arguments; each takes from 30 ms to a second, but lookups, which fills 1 GiB."""
    text, blob = str(folder / "text.part"), str(folder / "blob.part")
    return {
        "xz": ["xz", "-6", "-T1", "-k", "-c", blob],
        "bzip2": ["bzip2", "-9", "-c", text],
        "zstd": ["zstd", "-q", "-9", "-c", text],
        "sort": ["sort", "--parallel=1", "-S", "512M", text],
        "gcc": ["gcc", "-O1", "-c", str(folder / "part.c"), "-o", "/dev/null"],
        "python": ["python3", "-c", _DICT],
        "perl": ["perl", "-e", _HASH],
        "sqlite": ["sqlite3", ":memory:", _JOIN],
        "awk": ["mawk", _COUNT, text],
        "betweenness": [str(folder / "betweenness"), "1", "13", "4"],
        "lookups": [str(folder / "lookups"), "1", "68000"],
        "radix_sort": [str(folder / "radix_sort"), "1", "2000000"],
    }


def _make_parts(folder: Path) -> None:
    make_inputs(folder)
    for name, bytes_ in _PARTS.items():
        whole = (folder / name).read_bytes()[:bytes_]
        (folder / f"{name}.part").write_bytes(whole[: whole.rindex(b" ") + 1] + b"\n")
    functions = (folder / "source.c").read_text().splitlines(keepends=True)[:40]
    (folder / "part.c").write_text("".join(functions))


def _check(folder: Path, name: str, command: list[str], pairs: int) -> dict[str, Any]:
    """The advice of a program as a document; what was made before is read."""
    document, advice = (folder / f"{name}.{ending}" for ending in ("advice.json", "advice.txt"))
    if not document.exists():
        words = [sys.executable, "-m", "pagelab", "advise", "-q", "--check", "-n", str(pairs)]
        words += ["--stdout", "/dev/null", "--json", document.name, "--", *command]
        done = subprocess.run(
            words, cwd=folder, env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.PIPE, text=True, check=True
        )
        advice.write_text(done.stdout)
    report: dict[str, Any] = json.loads(document.read_text())
    return report | {"first": " ".join(advice.read_text().split("\n\n")[0].split())}


def _row(name: str, document: Mapping[str, Any]) -> str:
    measured = document["measured"]
    if not measured:
        why = document["not_checked"].partition(". ")[0]
        return f"| {name} | | | not measured: {why} | | | |"
    interval = measured["interval"]
    between = f" ({_change(*interval)})" if interval else ""
    ends = (measured["predicted"][end] for end in ("low", "high"))
    missed = measured["verdict"] != "within"
    remark = "says so" if missed and "prediction" in document["first"] else "does not say so" if missed else "–"
    return (
        f"| {name} | {100 * document['paging']['low']:.1f} to {100 * document['paging']['high']:.1f} % "
        f"| {_change(*ends)} | {-100 * measured['median']:+.1f} %{between} | {measured['verdict']} | {remark} "
        f"| {1000 * measured['small_seconds']:.0f} ms |"
    )


def _change(low: float, high: float) -> str:
    return f"{-100 * high:+.1f} to {-100 * low:+.1f} %"


def main() -> None:
    """Runs what is asked for and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", dest="pairs", type=int, default=21, help="pairs of runs; default 21")
    parser.add_argument("programs", nargs="*", help="some of the programs; default all")
    options = parser.parse_args()
    folder = options.folder.resolve()
    _make_parts(folder)
    print("| program | paging takes | predicted | measured | verdict | first line | CPU time without |")
    print("|---|---|---|---|---|---|---|")
    for name, command in commands(folder).items():
        if not options.programs or name in options.programs:
            print(_row(name, _check(folder, name, command, options.pairs)), flush=True)


if __name__ == "__main__":
    main()
