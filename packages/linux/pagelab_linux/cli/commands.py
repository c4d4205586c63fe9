"""`pagelab linux`: a real kernel with the mechanisms, built, booted, tested and measured in a virtual machine."""

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pagelab import UsageError, _engine
from pagelab.cli.command import App
from pagelab.cli.terminal import Quiet, print_table, warn
from pagelab.output import MISSING_FOLDERS, ensure_apart, ensure_ending, ensure_writable, write_atomically
from pagelab.run_time import counters, host
from pagelab_linux import LinuxError, bench, guest, hardware_unit, others, suite, tools
from pagelab_linux.build import Variant, Workshop
from pagelab_linux.cli import bench_output
from pagelab_linux.initramfs import initramfs, programs
from pagelab_linux.layout import default_work, layout
from pagelab_linux.rounds import rows as summarise
from pagelab_linux.source import is_installed

app = App(
    help="Build a real Linux kernel with the published mechanisms, and test and measure it in a virtual machine.",
    no_args_is_help=True,
)

Plain = Annotated[bool, typer.Option("--plain", help="Debian's kernel, without pagelab's patches.")]
Debug = Annotated[bool, typer.Option("--debug", help="The kernel with self-checks: KASAN, lockdep, DEBUG_VM.")]
Work = Annotated[
    Path | None,
    typer.Option("--work", metavar="FOLDER", help="Folder for source and kernels, 2 to 4 GB; default: in ~/.cache."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Jobs that make runs in parallel; default: one per CPU.")
]
Install = Annotated[
    bool, typer.Option("--install", help="Install missing Debian packages first, and print which. Needs root.")
]
Levels = Annotated[int, typer.Option("--levels", help="Levels of page tables: 4, or 5.")]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help=f"Write all figures to this file. {MISSING_FOLDERS}")
]
WHAT_FAULTS = (
    "A workload that causes faults: a name, or a step such as touch,random,64; repeatable. Default: all named ones."
)
Accelerator = Annotated[
    str,
    typer.Option(
        "--accelerator",
        help="tcg: emulate. icount: emulate and count instructions, one CPU only. kvm: run on the host's processor.",
    ),
]


@app.command("build")
def build_command(
    plain: Plain = False,
    debug: Debug = False,
    install: Install = False,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Build the kernel, unless it exists: about ten minutes of CPU time the first time."""
    workshop = _workshop(work, jobs, quiet)
    if install:
        _install(workshop)
    print(workshop.image(_variant(workshop, plain, debug)).kernel)


@app.command("boot")
def boot_command(
    steps: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STEP]…", help="Programs of kernel/tests to run: touch,random,64"),
    ] = None,
    plain: Plain = False,
    debug: Debug = False,
    accelerator: Accelerator = "tcg",
    cpus: Annotated[int, typer.Option("--cpus", help="CPUs of the guest.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="NUMA nodes of the guest.")] = 1,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of the guest.")] = "1GiB",
    levels: Levels = 4,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", help="An additional kernel command-line parameter; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Time after which the run counts as failed.")] = 300.0,
    console: Annotated[
        Path | None, typer.Option("--console", metavar="FILE", help="Where to save the guest's console output.")
    ] = None,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Boot the kernel, run programs in it, and print what they print."""
    machine = guest.Machine(
        accelerator,
        cpus,
        _mebibytes(memory),
        levels,
        nodes,
        seconds,
        parameters=tuple(parameter or ()),
        at_once=debug,
    )
    machine.check()
    suite.check_steps(steps or [], programs(layout()))
    workshop = _workshop(work, jobs, quiet)
    kept = console or workshop.work / "consoles" / "boot.log"
    ensure_writable(kept)
    archive = initramfs(workshop.layout, workshop.work)
    image = workshop.image(_variant(workshop, plain, debug))
    output = guest.run(machine, image.kernel, archive, steps or [], kept)
    print(f"kernel={output.release}")
    for step in output.steps:
        print(f"\n{step.command}")
        for line in (*(f"{key}={value}" for key, value in step.values), *step.output):
            print(line)
    for report in output.reports:
        print(f"\n{report}", file=sys.stderr)
    problems = output.problems()
    if problems:
        raise LinuxError(f"{'; '.join(problems)}; the guest's console output is in {kept}")


@app.command("test")
def suite_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]…", help="Names of test runs; default: all.")
    ] = None,
    debug: Debug = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only tests that take seconds once the kernel is built.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Skip the tests if nothing has changed since they passed on this machine.")
    ] = False,
    install: Install = False,
    listing: Annotated[bool, typer.Option("--list", help="List the test runs, and run nothing.")] = False,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Run the tests of the mechanisms in the kernel. Any warning that the kernel reports fails the test."""
    runs = suite.load(layout())
    if listing:
        _list(runs)
        return
    workshop = _workshop(work, jobs, quiet)
    why = suite.nothing_to_do(workshop, quick=quick) if changed else ""
    if why:
        print(why)
        return
    if install:
        _install(workshop)
    wanted = suite.cases(runs, names or [], has_changes=workshop.layout.has_changes, debug=debug, quick=quick)
    began, tested = time.monotonic(), suite.state(workshop.layout)
    verdicts = suite.carry_out(workshop, wanted, _show_verdict)
    failed = sum(bool(verdict.problems) for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} runs passed in {time.monotonic() - began:.0f} s")
    if failed:
        raise LinuxError(f"{failed} of {len(verdicts)} runs failed")
    if not names and not debug:
        suite.passed(workshop, tested, quick=quick)


@app.command("bench")
def bench_command(
    settings: Annotated[
        list[str] | None, typer.Option("--setting", "-s", help="A kernel with its settings; repeatable. Default: all.")
    ] = None,
    workloads: Annotated[list[str] | None, typer.Option("--workload", "-w", help=WHAT_FAULTS)] = None,
    levels: Annotated[
        list[int] | None, typer.Option("--levels", help="Levels of page tables; repeatable. Default: 4 and 5.")
    ] = None,
    accelerator: Accelerator = "icount",
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=1,
            help="Measure each figure this often, the settings alternately; six or more give 95 % intervals.",
        ),
    ] = 1,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Estimate hardware demand paging from the runs of its emulated unit, with a miss from these results "
            "of `pagelab run -s osdp -s hwdp --json`.",
        ),
    ] = None,
    json: Json = None,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Measure a page fault: instructions, which are reproducible, or processor cycles with kvm.

    With kvm, perf counts the guest's TLB misses and walk cycles, where the processor has such events.
    """
    if json:
        ensure_ending(json, "JSON")
        ensure_writable(json)
    ensure_apart(json, against)
    miss = hardware_unit.simulated_miss(against) if against else None
    known_settings, known_workloads = bench.load(layout())
    plan = bench.Plan(
        bench.chosen(known_settings, settings or [], "setting"),
        _workloads(known_workloads, workloads or [], lambda step: bench.Workload(step, step)),
        levels or [4, 5],
        accelerator,
        rounds=rounds,
    )
    if against:
        hardware_unit.ensure_settings([setting.name for setting in plan.settings])
    for depth in plan.levels:
        guest.Machine(accelerator, levels=depth).check()
    if accelerator == "tcg":
        raise UsageError("--accelerator tcg: emulated time means nothing; give icount or kvm")
    if accelerator == "kvm":
        plan = dataclasses.replace(plan, events=counters.find(host.machine().vendor, in_guests=True))
        if plan.events.missing:
            warn(f"events of the processor: {plan.events.missing}")
    workshop = _workshop(work, jobs, quiet)
    figures, failures = bench.measure(workshop, plan, lambda figure: workshop.say(bench_output.line(figure)))
    unit = "instructions" if accelerator == "icount" else "cycles"
    if rounds == 1:
        print_table(bench_output.table(figures, unit))
    else:
        print_table(bench_output.rounds_table(summarise(figures), unit))
    gains = bench_output.show_hardware(figures, miss) if miss else None
    if json:
        version = workshop.layout.series().version
        write_atomically(json, bench_output.as_json(version, unit, figures, failures, plan.events.missing, gains))
    if failures:
        raise LinuxError(f"{len(failures)} of {len(figures) + len(failures)} runs failed: {'; '.join(failures)}")


@app.command("trace")
def trace_command(
    workloads: Annotated[list[str] | None, typer.Option("--workload", "-w", help=WHAT_FAULTS)] = None,
    before: Annotated[
        list[str] | None,
        typer.Option("--before", metavar="STEP", help="A step that runs before the workload; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", "-s", help="A kernel with its settings, as for bench; repeat it to compare several."),
    ] = None,
    plain: Plain = False,
    levels: Levels = 4,
    json: Json = None,
    preset_file: Annotated[
        Path | None,
        typer.Option(
            "--preset",
            metavar="FILE",
            help=f"Write the preset linux-6.12 with the counted instructions to this file. {MISSING_FOLDERS}",
        ),
    ] = None,
    accesses: Annotated[
        Path | None,
        typer.Option(
            "--accesses",
            metavar="NAME.trace",
            help="Write the accesses of program and kernel to this trace; for one workload.",
        ),
    ] = None,
    caches: Annotated[
        str | None,
        typer.Option(
            "--caches", metavar="MACHINE", help="Show in which cache of this machine preset the lines are found."
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", help="Number of faults per workload for --accesses and --caches.")
    ] = 1024,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Count what the kernel executes for a page fault, stage by stage: instructions, loads, stores, lines."""
    # They take numpy, which takes longer to import than the command line to answer.
    from pagelab_linux import kinds, preset, side_by_side, trace, whole
    from pagelab_linux.cli import trace_output

    if json:
        ensure_ending(json, "JSON")
    if preset_file:
        ensure_ending(preset_file, "TOML")
    if accesses:
        ensure_ending(accesses, "a trace")
    for file in filter(None, (json, preset_file, accesses)):
        ensure_writable(file)
    ensure_apart(json, preset_file, accesses)
    wanted = _workloads(trace.workloads(layout()), workloads or [], lambda step: trace.Workload(step, step))
    guest.Machine("icount", levels=levels).check()
    trace_output.check_machine(caches)
    suite.check_steps(before or [], programs(layout()))
    workshop = _workshop(work, jobs, quiet)
    named = _settings(workshop, settings or [], before or [], plain)
    trace_output.check_accesses(wanted, named, accesses, preset_file, most)
    tracer = trace.Tracer.from_workshop(workshop, levels, named)
    names, logged = [each.name for each in wanted], most if accesses or caches or preset_file else 0
    traces, places = {}, {}
    for setting in named:
        result = tracer.measure(setting, wanted, logged)
        places[setting.name] = trace_output.show(setting.name, result, names, caches)
        if accesses:
            whole.write(result.references[0], accesses, ["pagelab", "linux", "trace", wanted[0].step])
        if preset_file:
            base = workshop.layout.folder.parent / "presets" / "kernels" / "linux-6.12.toml"
            measured, rows = preset.chosen(result, names)
            text = preset.preset(
                base,
                measured,
                preset.lines(base, rows),
                workshop.layout.series().version,
                kinds.costs(result.measured, wanted),
            )
            write_atomically(preset_file, text)
        # What was logged is large, and no longer needed.
        traces[setting.name] = dataclasses.replace(result, references=())
    beside = {}
    for number, name in enumerate(names):
        beside[name] = side_by_side.rows(name, list(traces.values()), [each[number] for each in places.values()])
        if len(named) > 1:
            print_table(trace_output.beside_table(name, list(traces), beside[name]))
    if json:
        facts = {"kernel": workshop.layout.series().version, "levels": levels, "machine": caches}
        write_atomically(json, trace_output.as_json(traces, places, wanted, beside, facts))


def _workloads(known: Sequence[Any], names: Sequence[str], make: Callable[[str], Any]) -> list[Any]:
    """Those with these names; a name with commas is a step of the guest, of which `make` makes one."""
    steps = [name for name in names if "," in name]
    suite.check_steps(steps, programs(layout()))
    return bench.chosen([*known, *map(make, dict.fromkeys(steps))] if names else known, names, "workload")


def _settings(workshop: Workshop, names: Sequence[str], before: Sequence[str], plain: bool) -> list[bench.Setting]:
    """Those with these names, else the kernel as it is. Steps of --before follow those of a setting."""
    if names and plain:
        raise UsageError("--plain: a setting names its kernel; there is a setting plain, too")
    known = bench.chosen(bench.load(workshop.layout)[0], names, "setting") if names else []
    variant = _variant(workshop, plain, debug=False).name
    return [
        dataclasses.replace(each, before=[*each.before, *before]) for each in known or [bench.Setting(variant, variant)]
    ]


@app.command("compare")
def compare_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMPARISON]…", help="Names in kernel/tests/compare.toml; default: all."),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option("--machine", "-m", help="The machine whose caches both use; default: the first preset."),
    ] = None,
    levels: Levels = 4,
    json: Json = None,
    jobs: Jobs = None,
    work: Work = None,
    quiet: Quiet = False,
) -> None:
    """Compare the real kernel with the simulator for the same accesses. Exit status 1: an unexplained difference."""
    from pagelab_linux import compare
    from pagelab_linux.cli import compare_output, trace_output

    if json:
        ensure_ending(json, "JSON")
        ensure_writable(json)
    wanted = bench.chosen(compare.load(layout()), names or [], "comparison")
    guest.Machine("icount", levels=levels).check()
    trace_output.check_machine(machine)
    workshop = _workshop(work, jobs, quiet)
    by_comparison = {}
    for each in wanted:
        by_comparison[each.name] = rows = compare.measure(workshop, each, machine, levels)
        print_table(compare_output.table(each, rows))
        for line in compare_output.explanations(rows):
            print(line)
    if json:
        write_atomically(json, compare_output.as_json(workshop.layout.series().version, levels, by_comparison))
    differ = [f"{name}: {row.what}" for name, rows in by_comparison.items() for row in rows if not row.settled]
    if differ:
        whole = sum(map(len, by_comparison.values()))
        raise LinuxError(f"{len(differ)} of {whole} numbers differ without an explanation: {', '.join(differ)}")


def _workshop(work: Path | None, jobs: int | None, quiet: bool) -> Workshop:
    return Workshop.from_layout(layout(), (work or default_work()).resolve(), _silent if quiet else _say(), jobs)


def _install(workshop: Workshop) -> None:
    wanted = (*tools.BUILD, *tools.GUEST, *others.load(workshop.layout).packages)
    packages = [tool.package for tool in tools.missing(wanted)]
    series = workshop.layout.series()
    if not is_installed(series):
        packages.append(f"{series.package}={series.version}")
    tools.install(packages, workshop.say)


def _silent(_: str) -> None:
    pass


def _say() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)


def _variant(workshop: Workshop, plain: bool, debug: bool) -> Variant:
    return Variant(plain or not workshop.layout.has_changes, debug)


def _mebibytes(size: str) -> int:
    try:
        return _engine.parse_bytes(size) >> 20
    except UsageError as error:
        raise UsageError(f"--memory: {error}") from None


def _list(runs: Sequence[suite.Run]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("run", "kernels", "CPUs", "levels", "what it shows"):
        table.add_column(title)
    for run in runs:
        levels = ", ".join(map(str, run.levels))
        table.add_row(run.name, ", ".join(run.kernels), str(run.cpus), levels, run.what)
    print_table(table)


def _show_verdict(verdict: suite.Verdict) -> None:
    state = "FAIL" if verdict.problems else "skip" if verdict.skipped else "ok"
    print(f"{state:4}  {verdict.seconds:6.1f} s  {verdict.case.label}", flush=True)
    for problem in verdict.problems:
        print(f"      {problem}")
    if verdict.problems:
        print(f"      console: {verdict.console}", flush=True)
