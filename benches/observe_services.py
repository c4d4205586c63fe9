"""What `pagelab observe` costs ten services and programs, and whether what it predicts of huge pages comes true.

    python benches/observe_services.py FOLDER [ROUNDS [SERVICE…]]

Needs root, for control groups and the mode of huge pages, and the servers with their load generators: PostgreSQL,
redis, nginx, memcached, `ab` and `memcslap`, Java, Node.js and a C compiler. Run it on a machine that does nothing
else. Each round runs a service three times, in an order that changes from round to round: without huge pages
(`PR_SET_THP_DISABLE`), the same while observed, and with huge pages (`always`). Each time it does the same work, and
its CPU time is that of its processes, load generators not included. FOLDER keeps a line of JSON per finished run, so
an interrupted measurement goes on where it stopped. Memory is touched and freed before each run, as hosts of virtual
machines take free memory back.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab.confidence.sign_test import median_interval

ROOT = Path(__file__).resolve().parents[1]
_POSTGRES = Path("/usr/lib/postgresql")
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_THP_DISABLE = 41
"""PR_SET_THP_DISABLE of prctl(2)"""
_TICK = os.sysconf("SC_CLK_TCK")
_TOUCH = "bytearray(b'x') * (1500 << 20)"
_GAIN = 0.01
"""A saving that the verdict of `pagelab observe` calls worth a recording"""
PLAIN, OBSERVED, HUGE = KINDS = ("4k", "observed", "huge")
_PORT = 17811

_JAVA = """
import java.util.*;
public class Work {
    public static void main(String[] a) {
        Random r = new Random(1);
        Map<Integer, byte[]> kept = new HashMap<>();
        long sum = 0;
        for (int i = 0; i < 5_000_000; i++) {
            kept.put(r.nextInt(400_000), new byte[200 + r.nextInt(400)]);
            byte[] one = kept.get(r.nextInt(400_000));
            if (one != null) sum += one.length;
        }
        System.out.println(sum);
    }
}
"""
_NODE = """
let kept = new Map(), seed = 1, sum = 0;
const draw = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
for (let i = 0; i < 2e7; i++) {
    kept.set(draw(300000), { id: i, name: 'row ' + i, more: [i, i + 1] });
    const one = kept.get(draw(300000));
    if (one) sum += one.more[1] % 7;
}
for (let i = 0; i < 12; i++) sum += JSON.parse(JSON.stringify([...kept.values()])).length;
console.log(sum);
"""
_NUMPY = """
import numpy as np
draw = np.random.default_rng(1)
table, sums = draw.random(40_000_000), 0.0
for _ in range(4):
    sums += table[draw.integers(0, len(table), 10_000_000)].sum()
    sums += np.sort(draw.random(5_000_000))[::1000].sum()
    sums += (table * 2.0 + 1.0).sum()
print(sums)
"""
# 100 MiB in 1,600 runs of 64 KiB, of 64 GiB that are reserved.
_RESERVED = """
import mmap, numpy as np
whole = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
view = np.frombuffer(whole, dtype=np.uint64).reshape(-1, 8192)
rows = np.random.default_rng(1).choice(len(view), 1600, replace=False)
for row in rows:
    view[row] = row
total = 0
for _ in range(250):
    total += int(view[rows, ::16].sum() & 0xFFFF)
print(total)
"""


@dataclass(frozen=True)
class Service:
    """A server with its load, or a program that ends by itself."""

    command: Sequence[str]
    filling: Sequence[Sequence[str]] = ()
    """Commands that fill a server before its load"""
    load: Sequence[Sequence[str]] = ()
    """Commands that are the load; none if the program ends by itself"""
    group: bool = False
    """Whether it runs, and is observed, as a control group"""


def services(folder: Path) -> dict[str, Service]:
    """The ten, whose inputs lie in the folder."""
    port = str(_PORT)
    bench = ["redis-benchmark", "-p", port, "-q", "-r", "1000000", "-d", "100", "-P", "16"]
    pgbench = ["pgbench", "-h", "127.0.0.1", "-p", port, "-U", "postgres"]
    contained = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    slap = ["memcslap", f"--servers=127.0.0.1:{port}", "--concurrency=4"]
    postgres = [str(_postgres() / "postgres"), "-D", str(folder / "database"), "-p", port, "-k", str(folder)]
    return {
        "PostgreSQL, `pgbench -S`": Service(
            [
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--clear-groups",
                *postgres,
                "-c",
                "shared_buffers=512MB",
            ],
            [[*pgbench, "-q", "-i", "-s", "30", "postgres"]],
            [[*pgbench, "-n", "-S", "-c", "2", "-t", "50000", "postgres"]],
        ),
        "redis, gets and sets": Service(
            ["redis-server", "--port", port, "--save", "", "--appendonly", "no", "--disable-thp", "no"],
            [[*bench, "-t", "set", "-n", "1500000"]],
            [[*bench, "-t", "set,get", "-n", "1500000"]],
        ),
        "nginx, files of 16 KiB": Service(
            ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)],
            [],
            [["ab", "-q", "-k", "-c", "16", "-n", "200000", f"http://127.0.0.1:{port}/file"]],
        ),
        "Java, objects in a hash map": Service(["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", str(folder), "Work"]),
        "Node.js, objects and JSON": Service(["node", str(folder / "work.js")]),
        "Python, NumPy arrays": Service([sys.executable, str(folder / "arrays.py")]),
        "GCC": Service(["gcc", "-O2", "-c", str(folder / "source.c"), "-o", "/dev/null"]),
        "betweenness of a graph": Service([str(folder / "betweenness"), "1", "17", "12"]),
        "64 GiB reserved, 100 MiB used": Service([sys.executable, str(folder / "reserved.py")]),
        "memcached in a container": Service(
            [*contained, "memcached", "-u", "nobody", "-m", "1500", "-p", port, "-U", "0"],
            [[*slap, "--test=set", "--execute-number=100000"]],
            [[*slap, "--test=get", "--execute-number=150000"]],
            group=True,
        ),
    }


def _postgres() -> Path:
    return max(_POSTGRES.glob("*/bin"), default=_POSTGRES)


def make_inputs(folder: Path) -> None:
    """The files of all services, unless they are there."""
    if (folder / "made").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    (folder / "file").write_bytes(b"x" * 16384)
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log /dev/null; events {{}}\n"
        f"http {{ access_log off; keepalive_requests 1000000;\n"
        f"server {{ listen 127.0.0.1:{_PORT}; root {folder}; }} }}\n"
    )
    (folder / "Work.java").write_text(_JAVA)
    (folder / "work.js").write_text(_NODE)
    (folder / "arrays.py").write_text(_NUMPY)
    (folder / "reserved.py").write_text(_RESERVED)
    body = (
        f"int f{n}(int a, int b, int *c) {{ int s = 0; for (int i = 0; i < a; i++) {{ s += c[i % {n + 3}] * b;"
        f" if (s > {n * 7}) s ^= a << {n % 7}; switch (s % 5) {{ case 0: s += {n}; break; case 1: s -= b; break;"
        " case 2: s *= 3; break; default: s ^= c[b & 7]; } } return s; }\n"
        for n in range(1200)
    )
    (folder / "source.c").write_text("".join(body))
    examples = ROOT / "examples" / "programs"
    subprocess.run(["javac", "-d", folder, folder / "Work.java"], check=True)
    built = ["cc", "-O2", "-pthread", "-o", str(folder / "betweenness"), "betweenness.c", "-lm"]
    subprocess.run(built, check=True, cwd=examples)
    shutil.rmtree(folder / "database", ignore_errors=True)
    (folder / "database").mkdir()
    shutil.chown(folder / "database", "postgres", "postgres")
    owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    initialise = [*owner, str(_postgres() / "initdb"), "-A", "trust", "-D", str(folder / "database")]
    subprocess.run(initialise, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    (folder / "made").touch()


def _without_huge_pages() -> None:
    ctypes.CDLL(None).prctl(_THP_DISABLE, 1, 0, 0, 0)


@contextmanager
def huge_pages_always() -> Iterator[None]:
    """Huge pages for all that does not refuse them, until the end."""
    before = _MODE.read_text().split("[")[1].split("]")[0]
    _MODE.write_text("always")
    try:
        yield
    finally:
        _MODE.write_text(before)


def tree(pid: int) -> list[int]:
    """A process with its children, and theirs."""
    listed = [pid]
    for one in listed:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                listed += [int(child) for child in task.read_text().split()]
    return listed


def _texts(pid: int, name: str) -> Iterator[str]:
    """A file of /proc of each process of a tree; none of those that end meanwhile."""
    for one in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield Path(f"/proc/{one}/{name}").read_text()


def cpu_seconds(pid: int) -> float:
    """CPU time of the processes of a tree, those that have ended included."""
    fields = (text.rpartition(")")[2].split() for text in _texts(pid, "stat"))
    return sum(sum(map(int, one[11:15])) for one in fields) / _TICK


def memory(pid: int) -> int:
    """Bytes of the processes of a tree, shared ones once."""
    lines = (line.split() for text in _texts(pid, "smaps_rollup") for line in text.splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words[0] == "Pss:")


@contextmanager
def control_group() -> Iterator[Path]:
    """A control group of our own, of version 2 if there is one."""
    tops = [top for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")) if (top / "cgroup.procs").exists()]
    group = tops[0] / "pagelab-services"
    group.mkdir(exist_ok=True)
    try:
        yield group
    finally:
        for _ in range(100):
            with suppress(OSError):  # What was in it has yet to end.
                group.rmdir()
                break
            time.sleep(0.1)


def wait_for_port() -> None:
    """Until a server answers."""
    for _ in range(300):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", _PORT)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the server does not answer after 30 seconds")


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _take_interrupts() -> None:
    # Jobs in the background of a shell ignore them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def observe(target: Sequence[str], seen: Path) -> "subprocess.Popen[bytes]":
    """Begins an observation, which ends with the program or at an interrupt."""
    line = [sys.executable, "-m", "pagelab", "observe", "-t", "3600", "--json", str(seen), *target]
    null = subprocess.DEVNULL
    return subprocess.Popen(line, preexec_fn=_take_interrupts, stdout=null, stderr=null)


def run(service: Service, kind: str, folder: Path) -> dict[str, Any]:
    """One run: CPU seconds, bytes of memory, and what the observation says."""
    subprocess.run([sys.executable, "-c", _TOUCH], check=True)
    with tempfile.TemporaryDirectory() as name, control_group() as group:

        def prepare() -> None:
            if kind != HUGE:
                _without_huge_pages()
            if service.group:
                (group / "cgroup.procs").write_text("0")
            _take_interrupts()

        null = subprocess.DEVNULL
        process = subprocess.Popen(service.command, cwd=folder, preexec_fn=prepare, stdout=null, stderr=null)
        target = ["--cgroup", str(group)] if service.group else [str(process.pid)]
        seen = Path(name) / "seen.json"
        result = _serve(service, process, target, seen if kind == OBSERVED else None)
        if kind == OBSERVED:
            result["seen"] = summary(json.loads(seen.read_text()))
    return result


def _serve(
    service: Service, process: "subprocess.Popen[bytes]", target: Sequence[str], seen: Path | None
) -> dict[str, Any]:
    if not service.load:
        observing = observe(target, seen) if seen else None
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, service.command
        if observing:
            observing.wait()
        return {"cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss * 1024}
    try:
        wait_for_port()
        for command in service.filling:
            _quietly(command)
        observing = observe(target, seen) if seen else None
        if observing:
            time.sleep(2)  # Its start is not a part of the load.
        before = cpu_seconds(process.pid)
        for command in service.load:
            _quietly(command)
        time.sleep(0.5)  # The server's processes for clients end.
        result = {"cpu": cpu_seconds(process.pid) - before, "memory": memory(process.pid)}
        if observing:
            observing.send_signal(signal.SIGINT)
            observing.wait()
        return result
    finally:
        # `unshare` ignores signals, and what it started no longer dies with it once it is another user's.
        for one in reversed(tree(process.pid)) if service.group else [process.pid]:
            os.kill(one, signal.SIGKILL if service.group else signal.SIGINT)
        process.wait()


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed of an observation."""
    huge = [one for one in document["projections"] if one["change"].startswith("pages of 2 MiB")]
    cost = document["cost"]
    return {
        "verdict": document["verdict"]["kind"],
        "reason": document["verdict"]["reason"],
        "stated": (cost["own_seconds"] + cost["in_program_seconds_estimated"]) / document["cpu_seconds"],
        "own": cost["own_seconds"] / document["cpu_seconds"],
        "first_look": cost["first_look_seconds"] / document["cpu_seconds"],
        "faults": document["faults"]["seconds"],
        "by_faults": sum(one["saving_at_most"]["high"] for one in huge if one["saving_at_most"]),
        "growth": sum(one["growth_at_most"] or 0 for one in huge),
    }


@dataclass(frozen=True)
class Row:
    """What was measured of a service."""

    title: str
    runs: Sequence[Mapping[str, Mapping[str, Any]]]
    """By round, and by kind"""

    def changes(self, kind: str) -> list[float]:
        return [one[kind]["cpu"] / one[PLAIN]["cpu"] - 1 for one in self.runs]

    @property
    def verdict(self) -> str:
        """The verdict of most rounds."""
        return str(statistics.mode(one[OBSERVED]["seen"]["verdict"] for one in self.runs))

    @property
    def miss(self) -> str:
        """A prediction that did not come true; empty if it did, or if there was none."""
        low, high = median_interval([-change for change in self.changes(HUGE)])
        if self.verdict == "nothing to gain" and low > _GAIN:
            return f"{self.title}: nothing to gain, and huge pages save {low:.1%} to {high:.1%}"
        if self.verdict == "worth a recording" and high < _GAIN:
            return f"{self.title}: worth a recording, and huge pages save {low:.1%} to {high:.1%}"
        return ""

    def line(self) -> str:
        """A row of the table."""

        def middle(figure: Callable[[Mapping[str, Mapping[str, Any]]], float]) -> float:
            return statistics.median(map(figure, self.runs))

        seen = [one[OBSERVED]["seen"] for one in self.runs]
        grown = middle(lambda one: one[HUGE]["memory"] - one[PLAIN]["memory"])
        cells = (
            self.title,
            f"{middle(lambda one: one[PLAIN]['cpu']):.2f} s",
            _interval(self.changes(OBSERVED)),
            f"{statistics.median(one['stated'] for one in seen):.1%}",
            self.verdict,
            f"0 to {statistics.median(one['by_faults'] for one in seen):.1%}",
            _interval([-change for change in self.changes(HUGE)]),
            f"{max(one['growth'] for one in seen) / 2**20:,.0f} MiB",
            f"{grown / 2**20:,.0f} MiB",
        )
        return f"| {' | '.join(cells)} |"


def _interval(values: Sequence[float]) -> str:
    low, high = median_interval(values)
    return f"{statistics.median(values):+.1%} ({low:+.1%} to {high:+.1%})"


def rows(path: Path) -> list[Row]:
    """What is on file: rounds of which all three runs are there."""
    by_service: dict[str, dict[int, dict[str, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        one = json.loads(line)
        by_service.setdefault(one["service"], {}).setdefault(one["round"], {})[one["kind"]] = one
    return [
        Row(title, whole)
        for title, rounds in by_service.items()
        if (whole := [kinds for kinds in rounds.values() if len(kinds) == len(KINDS)])
    ]


def measure(folder: Path, rounds: int, chosen: Sequence[str]) -> None:
    """Makes the runs that are not on file."""
    path = folder / "runs.jsonl"
    done = {tuple(json.loads(line)[key] for key in ("service", "round", "kind")) for line in _lines(path)}
    known = services(folder)
    titles = [title for title in known if not chosen or any(word in title for word in chosen)]
    for number in range(rounds):
        for title in titles:
            for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
                if (title, number, kind) not in done:
                    result = {"service": title, "round": number, "kind": kind, **run(known[title], kind, folder)}
                    with path.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                    print(f"{title}, round {number + 1}, {kind}: {result['cpu']:.2f} s", file=sys.stderr, flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal; finished runs are on file"))
    make_inputs(folder)
    with huge_pages_always():
        measure(folder, int(sys.argv[2]) if len(sys.argv) > 2 else 7, sys.argv[3:])
    measured = rows(folder / "runs.jsonl")
    misses = [row.miss for row in measured if row.miss]
    print("Misses: " + ("; ".join(misses) or "none"))
    print("\n".join(row.line() for row in measured))


if __name__ == "__main__":
    main()
