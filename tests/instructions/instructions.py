"""Compares how many instructions replay, import and recording execute with the counts in `counts.toml`.

    python tests/instructions/instructions.py [CASE…] [--update | --if-comparable] [--jobs N]

Each case runs a shorter and a longer piece of work under Valgrind, which counts instructions, and divides the
difference, so that start-up does not count. A case with more than 3 % above its committed count fails (status 1). No
clock is read, so a busy machine gives the same figures.

Counts hold for one compiler, profile, Valgrind and C library. With others they are not compared: the status is 2, or 0
with `--if-comparable`. `--update` writes the counts of the cases that are run, and what they hold for.

What is covered:

- replays, imports and the recorder's encoder, by Cachegrind, in the examples of the crates, built as CI builds them;
- code that the recorder's Valgrind tool generates, and its translation of new code, by single steps of its process
  (`steps.c`), since Valgrind does not run under Valgrind;
- not: the Python package, the kernel's work for system calls, cache misses, and waiting for each other.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
COUNTS = HERE / "counts.toml"
ALLOWED_PERCENT = 3.0
CPU_FLAGS = ("avx2", "bmi1", "bmi2", "abm")
"""What the engine asks the processor for. Valgrind passes these on and hides all that is newer."""
COUNTER = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


class RefusalError(Exception):
    """The counts cannot be compared here."""


class MeasurementError(Exception):
    """A case did not run."""


@dataclass(frozen=True)
class Bench:
    """What cases run: the examples, by name, and a folder for their files."""

    examples: dict[str, Path]
    folder: Path

    def counted(self, example: str, *arguments: str | Path, **environment: str) -> int:
        """Instructions that an example executes; not those of its children."""
        command = [*COUNTER, str(self.examples[example]), *map(str, arguments)]
        errors = run(command, environment).stderr
        match = re.search(r"I +refs: +([\d,]+)", errors)
        if not match:
            raise MeasurementError(f"{' '.join(command)} printed no count: {errors[-500:]}")
        return int(match[1].replace(",", ""))

    def scratch(self) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))


@dataclass(frozen=True)
class Case:
    """Work whose amount can be chosen, and the instructions that a shorter and a longer amount execute."""

    name: str
    unit: str
    amounts: tuple[int, int]
    instructions: Callable[[Bench, int], int]


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command in an environment that is the same everywhere, as its size moves the stack. Errors: it fails."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "RUSTUP_HOME", "CARGO_HOME") if name in os.environ}
    ran = subprocess.run(
        command, env=kept | {"LC_ALL": "C"} | (environment or {}), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise MeasurementError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stderr[-1000:]}")
    return ran


def replay(system: str, source: str, *settings: str) -> Callable[[Bench, int], int]:
    """Replays so many accesses of a source."""
    return lambda bench, accesses: bench.counted("replay", system, source, *settings, f"max={accesses}")


def replay_recording(*settings: str) -> Callable[[Bench, int], int]:
    """Replays a recording of `accesses.S` that has N accesses. All of it: how much is decoded ahead of an earlier end
    depends on the threads."""

    def count(bench: Bench, accesses: int) -> int:
        trace = bench.scratch() / "recording.trace"
        rounds = accesses * 2 // 15
        run([*recorder(bench), str(trace), str(bench.folder / "accesses"), str(rounds), "0"])
        return bench.counted("replay", "radix", trace, *settings)

    return count


def import_text(form: str) -> Callable[[Bench, int], int]:
    """Imports so many lines of text of another tool."""

    def count(bench: Bench, lines: int) -> int:
        folder = bench.scratch()
        with (folder / "text").open("w", encoding="ascii") as file:
            file.writelines(TEXTS[form](lines))
        return bench.counted("import", folder / "text", folder / "imported.trace")

    return count


def lackey_lines(count: int) -> Iterator[str]:
    """Three instructions in five; accesses half on a stack of a page, half at random in 8 MiB."""
    yield "==1== Lackey\n"
    for number, place, kind in accesses(count):
        yield f"I  {0x400000 + number * 4 % 65536:08x},4\n" if kind < 0.6 else f" {'LSM'[number % 3]} {place:08x},8\n"


def perf_lines(count: int) -> Iterator[str]:
    """Samples of loads."""
    for number, place, _ in accesses(count):
        when, pc = f"7.{number % 10**6:06}", 0x400000 + number * 4 % 65536
        yield f"  sort 812/814 {when}: cpu/mem-loads,ldlat=30/P: {place:16x} {pc:16x}\n"


def accesses(count: int) -> Iterator[tuple[int, int, float]]:
    """Number, address and a fraction that decides on the kind of each."""
    random = Random(1).random
    for number in range(count):
        at_random = random()
        place = (
            0x7FFC_0000_0000 + int(random() * 512) * 8
            if at_random < 0.5
            else 0x7F00_0000_0000 + int(random() * 2**20) * 8
        )
        yield number, place, random()


TEXTS: dict[str, Callable[[int], Iterator[str]]] = {"lackey": lackey_lines, "perf": perf_lines}


def recorder(bench: Bench) -> list[str]:
    """The recorder's command, up to its output."""
    return [str(bench.examples["record"]), str(ROOT / "capture" / "valgrind"), str(bench.folder / "tool")]


def encode(bench: Bench, rounds: int) -> int:
    """Instructions of the encoder that records a program, which runs under its own Valgrind."""
    program = bench.folder / "accesses"
    trace = bench.scratch() / "recording.trace"
    return bench.counted("record", *recorder(bench)[1:], trace, program, str(rounds), "0")


def step_recorded(bench: Bench, rounds: int, blocks: int) -> int:
    """Instructions that the recorded process executes, Valgrind's and those of code that it generates."""
    folder = bench.scratch()
    launcher = shutil.which("valgrind.bin") or shutil.which("valgrind")
    defined = [f'-DLAUNCHER="{launcher}"', f'-DCOUNT="{folder}/count"']
    run(["gcc", "-O1", *defined, "-o", str(folder / "valgrind"), str(HERE / "steps.c")])
    command = [
        *recorder(bench),
        str(folder / "recording.trace"),
        str(bench.folder / "accesses"),
        str(rounds),
        str(blocks),
    ]
    run(command, {"PATH": f"{folder}:{os.environ['PATH']}"})
    return int((folder / "count").read_text())


def step_rounds(bench: Bench, rounds: int) -> int:
    """The loop of `accesses.S`, whose code is translated before."""
    return step_recorded(bench, rounds, 0)


def step_blocks(bench: Bench, blocks: int) -> int:
    """Code of `accesses.S` that is translated and executed once."""
    return step_recorded(bench, 0, blocks)


GUPS = "gups:size=64MiB,updates=1G"
EAGER = 'placement={"kind":"eager","largest_block":"2MiB","stop_above_percent":90}'
"""Memory is mapped when it is asked for: the replays but those of faults have a single one."""
PAGES = "stride:size=16GiB,stride=4096"
PREFETCH = ("machine.prefetch.l1.ip_stride=on", "machine.prefetch.l2.stream=on", "machine.memory.bytes_per_cycle=4")
CASES = (
    Case("replay-random", "access", (50_000, 150_000), replay("radix-eager", "random:size=64MiB,accesses=1G")),
    Case("replay-gups", "access", (50_000, 150_000), replay("radix-eager", GUPS)),
    Case("replay-nested", "access", (50_000, 150_000), replay("nested-radix-eager", GUPS)),
    Case("replay-hashed", "access", (50_000, 150_000), replay("hashed-compact", GUPS, f"system.layers.native.{EAGER}")),
    Case(
        "replay-nested-hashed",
        "access",
        (50_000, 150_000),
        replay("nested-hashed-compact", GUPS, f"system.layers.guest.{EAGER}"),
    ),
    Case("replay-window", "access", (60_000, 180_000), replay_recording("machine.core.model=window")),
    Case("replay-prefetch", "access", (50_000, 150_000), replay("radix-eager", GUPS, *PREFETCH)),
    Case("replay-first-touches", "fault", (2_000, 6_000), replay("radix", PAGES)),
    Case("replay-mfoe", "fault", (2_000, 6_000), replay("mfoe", PAGES)),
    Case("import-lackey", "line", (30_000, 90_000), import_text("lackey")),
    Case("import-perf", "line", (20_000, 60_000), import_text("perf")),
    Case("record-encode", "round of 7.5 accesses", (10_000, 30_000), encode),
    Case("record-loop", "round of 7.5 accesses", (100, 400), step_rounds),
    Case("record-new-code", "block of five instructions", (0, 1), step_blocks),
)


def build() -> tuple[dict[str, Path], dict[str, object]]:
    """The examples as CI builds them, by name, and their profile as cargo reports it.

    The whole workspace, so that crates have the features that they have in `cargo test --workspace`: nothing is
    compiled a second time.
    """
    command = ["cargo", "build", "--workspace", "--examples", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        raise MeasurementError(f"{' '.join(command)} ended with {built.returncode}")
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    artifacts = [each for each in messages if each.get("executable") and each["target"]["kind"] == ["example"]]
    return {each["target"]["name"]: Path(each["executable"]) for each in artifacts}, artifacts[0]["profile"]


def conditions(profile: Mapping[str, object]) -> dict[str, str]:
    """What the counts hold for."""
    return {
        "rustc": run(["rustc", "--version"]).stdout.strip(),
        "opt_level": str(profile["opt_level"]),
        "debug_assertions": str(profile["debug_assertions"]),
        "rustflags": os.environ.get("RUSTFLAGS", ""),
        "valgrind": run(["valgrind", "--version"]).stdout.strip(),
        "libc": " ".join(platform.libc_ver()),
    }


def refusal(held: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Why counts that hold for `held` say nothing about `here`; empty if they do."""
    other = [
        f"{name} {here.get(name)!r} instead of {value!r}" for name, value in held.items() if here.get(name) != value
    ]
    return f"the counts are not compared: {', '.join(other)}; --update counts anew" if other else ""


def build_refusal() -> str:
    """Why the examples are not built as CI builds them; empty if they are."""
    if os.environ.get("CARGO_INCREMENTAL") != "0":
        return "the counts are not compared: incremental builds have other code; set CARGO_INCREMENTAL=0"
    flags = re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    missing = sorted(set(CPU_FLAGS) - set(flags[1].split() if flags else ()))
    return f"the counts are not compared: this processor lacks {', '.join(missing)}" if missing else ""


def per_unit(case: Case, shorter: int, longer: int) -> float:
    """Instructions per unit of a case."""
    few, many = case.amounts
    return (longer - shorter) / (many - few)


def verdict(case: Case, count: float, held: float | None) -> tuple[str, bool]:
    """A line about a case, and whether it passes."""
    line = f"{case.name:21} {count:12,.1f} instructions per {case.unit}"
    if held is None:
        return f"{line}: no committed count; --update adds it", False
    change = 100 * (count / held - 1)
    line = f"{line}, {change:+.2f} % of {held:,.1f}"
    if change > ALLOWED_PERCENT:
        return f"{line}: SLOWER by more than {ALLOWED_PERCENT:.0f} %", False
    if change < -ALLOWED_PERCENT:
        return f"{line}: faster; --update keeps it so", True
    return line, True


def measure(cases: Sequence[Case], bench: Bench, jobs: int) -> dict[str, float]:
    """Instructions per unit of each case."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {case: [pool.submit(case.instructions, bench, amount) for amount in case.amounts] for case in cases}
        return {case.name: per_unit(case, *(run.result() for run in runs)) for case, runs in running.items()}


def document(held_for: Mapping[str, str], counts: Mapping[str, float]) -> str:
    """The text of `counts.toml`."""
    text = (
        "# Instructions per unit of each case. `python tests/instructions/instructions.py --update` writes this file.\n"
    )
    text += "\n[conditions]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in held_for.items())
    return text + "\n[counts]\n" + "".join(f"{name} = {count:.1f}\n" for name, count in counts.items())


def check(names: Sequence[str], jobs: int, *, update: bool) -> bool:
    """Runs cases, all if none is named, and prints what became of them. Errors: refusals and failures."""
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        raise RefusalError(f"no case is named {', '.join(sorted(unknown))}")
    if reason := build_refusal():
        raise RefusalError(reason)
    examples, profile = build()
    kept = tomllib.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {"conditions": {}, "counts": {}}
    here = conditions(profile)
    reason = refusal(kept["conditions"], here)
    if reason and (not update or names):
        raise RefusalError(reason)
    cases = [case for case in CASES if not names or case.name in names]
    with tempfile.TemporaryDirectory(prefix="instructions-") as folder:
        bench = Bench(examples, Path(folder))
        prepare(bench)
        counts = measure(cases, bench, jobs)
    verdicts = [verdict(case, counts[case.name], kept["counts"].get(case.name)) for case in cases]
    print(*(line.partition(":")[0] if update else line for line, _ in verdicts), sep="\n")
    if update:
        all_counts = kept["counts"] | counts
        COUNTS.write_text(document(here, {c.name: all_counts[c.name] for c in CASES if c.name in all_counts}))
    return update or all(passes for _, passes in verdicts)


def prepare(bench: Bench) -> None:
    """Makes what several cases run: the recorded program, the recorder's tool, and a launcher that counts steps."""
    run(["gcc", "-nostdlib", "-static", "-o", str(bench.folder / "accesses"), str(HERE / "accesses.S")])
    # The first recording compiles the tool.
    run([*recorder(bench), str(bench.folder / "first.trace"), str(bench.folder / "accesses"), "0", "0"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help="cases to run; all if none is named")
    parser.add_argument("--update", action="store_true", help="write the counts instead of comparing them")
    parser.add_argument("--if-comparable", action="store_true", help="end with status 0 where counts do not hold")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    arguments = parser.parse_args()
    try:
        return 0 if check(arguments.names, arguments.jobs, update=arguments.update) else 1
    except RefusalError as refused:
        print(f"instructions: {refused}", file=sys.stderr)
        return 0 if arguments.if_comparable else 2
    except MeasurementError as failed:
        print(f"instructions: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
