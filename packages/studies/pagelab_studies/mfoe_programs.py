"""The same paper's programs: its Table 5 and Fig 1.

The paper measures the times of programs' page faults on a real machine, and gives them to a model of the engine
(section 5.1). Neither is published. So each row of Table 5 is measured three ways, with programs of the same kind
(`examples/programs`): from a fault process at the rate of Table 1, from a native fault trace, and from a recording that
the engine itself replays, with the model beside it on the faults of that replay. Replays are on the paper's real
machine, as its programs were. Fig 1's functions are processes that arrive at a rate; each touches as many pages, and
takes as long, as a function in Python did natively.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import geometric_mean

from pagelab_studies import mfoe, mfoe_averages, mfoe_rates
from pagelab_studies.estimates import Estimate
from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import BURSTS, HANDLER_NS, PROGRAMS, SYSTEMS
from pagelab_studies.study import (
    Comparison,
    Cost,
    Findings,
    Measurement,
    Measurements,
    MissingRunError,
    Reproduction,
    Run,
    Series,
    by_sections,
)

RECORDINGS = {
    "GCC compiler": "gcc",
    "FaaS": "faas",
    "Parsec-dedup": "dedup",
    "YCSB-memcached": "memcached",
    "Splash2X-radix": "radix",
    "Splash2X-fft": "fft",
    "XSBench": "xsbench",
    "GAP-BC": "bc",
    "Integer Sort": "is",
}
"""Of a program of the same kind, by the paper's row; `examples/programs/record.py` makes them."""
NATIVE, PROCESS = "native faults", "fault process"
REPLAYS = {"kernel": "replay under the kernel", "engine": "replay with the engine"}
RECORDED_ACCESSES = 100_000_000
ACCESS_NS = 120.0
"""Measured as `study.Cost` says, of an access of such a recording."""
ESTIMATE_NS = 1.5e9
"""The same, of an estimate."""
MODEL = ("initial_fill=done",)
"""What differs from the paper's parameters: its programs run for minutes, and tables are full then."""
GHZ, INSTRUCTIONS_PER_CYCLE = 3.3, 2
"""Of the machine `xeon-e-2136`."""
PERIOD_CYCLES = 6_000_000
"""Of `presets/systems/mfoe.toml`."""
MODEL_OF_ENGINE = (
    f"period_us={round(PERIOD_CYCLES / GHZ / 1000)}",
    f"clock_ghz={GHZ:g}",
    "hit_cycles=79",
    "miss_penalty_cycles=10",
    "refill_pages_per_second=1400000",
    "fill_pages_per_second=1825000",
)
"""With what the engine takes on the same machine: measured in replays of `memcached` and `is`."""

FUNCTION_PAGES = 2166
FUNCTION_MS = 100
"""Measured: first writes and CPU time of an invocation of `examples/programs/faas.py`, natively on an AMD EPYC."""
RATES = (10, 25, 50, 75, 100, 150, 200)
CPUS = 10
"""Of twelve hardware threads; those of the sixth core are the background thread's."""
SECONDS = 1.5
"""How long functions arrive."""
PASSES = 4
"""Times that a function goes through its pages; the first one touches them."""
CAPACITY = CPUS * 1000 / FUNCTION_MS
"""Functions per second that the machine could serve if faults took no time."""
OPEN, CONFINED = "memory for all", "128 MiB for all"
SWAP = 'kernel.swap={"size_bytes":"4GiB","read_cycles":300000,"write_cycles":60000,"queue_depth":32}'
"""Estimated: of a solid-state drive, 100 µs per read."""


def cost(run: Run) -> Cost:
    """What an access takes, or an estimate all in all."""
    if not run.preset:
        return Cost(window=ESTIMATE_NS)
    return Cost(window=mfoe.FAULT_NS if run.arrivals else ACCESS_NS)


def runs() -> list[Run]:
    """All runs; those of programs need recordings."""
    return [*_processes(), *_natives(), *replays(), *_functions()]


def _estimate(row: str, label: str, spec: str) -> Run:
    return Run(row, spec, label, "", 1, estimate=MODEL, least_accesses=1, in_parts=False)


def _process_label(burst: int, latency_ns: int) -> str:
    return f"{PROCESS}, " + ("by chance" if burst == 1 else f"bursts of {burst}") + f", {latency_ns} ns per fault"


FEW_CORES = (1, 2)
"""Cores that fault, instead of all: the paper does not say how many threads of its programs fault at a time."""


def _on_cores(cores: int) -> str:
    return f"{PROCESS} on {_cores(cores)}, by chance, {HANDLER_NS} ns per fault"


def _cores(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"


def _processes() -> Iterator[Run]:
    for row, program in PROGRAMS.items():
        for latency_ns in (program.latency_ns, HANDLER_NS):
            for burst in BURSTS:
                spec = mfoe.process(program, burst, latency_ns)
                yield _estimate(row, _process_label(burst, latency_ns), spec)
        yield from (
            _estimate(row, _on_cores(cores), mfoe.process(replace(program, cores=cores), 1, HANDLER_NS))
            for cores in FEW_CORES
        )


def _natives() -> Iterator[Run]:
    for row, name in RECORDINGS.items():
        yield _estimate(row, NATIVE, f"{{programs}}/{name}.faults")


def replays() -> Iterator[Run]:
    """Of recordings, under the kernel and with the engine."""
    for row, name in RECORDINGS.items():
        for system, label in REPLAYS.items():
            yield Run(
                row,
                # A thread per core; the background thread has the sixth.
                f"{{programs}}/{name}.trace@0,2,4,6,8",
                label,
                SYSTEMS[system],
                RECORDED_ACCESSES,
                estimate=MODEL_OF_ENGINE if system == "kernel" else None,
                least_accesses=RECORDED_ACCESSES,
                in_parts=False,
            )


def function_spec() -> str:
    """A function: a program that goes through its pages."""
    gap = round(FUNCTION_MS * GHZ * 1e6 * INSTRUCTIONS_PER_CYCLE / FUNCTION_PAGES / PASSES)
    return f"seq:size={FUNCTION_PAGES * 4}KiB,step=4096,passes={PASSES},write=1,gap={gap}"


def _functions() -> Iterator[Run]:
    function = function_spec()
    for memory in (OPEN, CONFINED):
        for system in ("kernel", "engine"):
            for rate in RATES:
                count = round(rate * SECONDS)
                pace = f"per_second={rate},count={count}"
                limit = ",memory_limit=128MiB" if memory == CONFINED else ""
                yield Run(
                    "functions",
                    "",
                    system,
                    SYSTEMS[system],
                    count * FUNCTION_PAGES * PASSES,
                    arrivals=(f"{function}@0-{CPUS - 1},{pace}{limit}",),
                    # A memory limit needs swap; both variants have it.
                    settings=(SWAP,),
                    label=f"{rate} per second, {memory}",
                    least_accesses=count * FUNCTION_PAGES * PASSES,
                    in_parts=False,
                )


def evaluate(measured: Measurements) -> Findings:
    """What the runs say of Table 5 and Fig 1."""
    programs = (partial(_section_program, row) for row in PROGRAMS)
    sections: tuple[Callable[[Measurements, Findings], None], ...] = (
        _section_averages,
        _section_ways,
        _section_cores,
        *programs,
        _section_rates,
        _section_by_model,
        _section_data,
        _section_functions,
    )
    return by_sections(measured, sections)


def anonymous(measurement: Measurement) -> int:
    """Pages that the kernel gave a frame for memory which nobody had written: what is read before counts once."""
    others = ("fault.cached.count", "fault.copy.count", "fault.reuse.count", "fault.zero_page.count")
    return measurement.stats["fault.minor.count"] - sum(measurement.stats[name] for name in others)


def hit_rate(measurement: Measurement) -> float:
    """Per cent of the pages of new memory that got their frame from the engine."""
    hits = measurement.stats["layer.native.fault_engine.hits"]
    return 100 * hits / (hits + anonymous(measurement))


def busy(measurement: Measurement) -> int:
    """Cycles that its threads took, without those in which they waited for each other."""
    return measurement.stats["cycles"] - measurement.stats["cycles.idle"] - measurement.stats["cycles.blocked"]


def cpu_time_saved(kernel: Measurement, engine: Measurement) -> Interval:
    """In per cent: as simulated, and if the core had hidden what the program waits for its data beyond before.

    A page that the kernel has zeroed is in the core's caches, a page of the engine is not. The core model waits for
    each access; a core that overlaps or prefetches would not wait for all of that.
    """
    more = max(engine.stats["cycles.data_stall"] - kernel.stats["cycles.data_stall"], 0)
    simulated, hidden = (100 * (1 - cycles / busy(kernel)) for cycles in (busy(engine), busy(engine) - more))
    return Interval.from_values((simulated, hidden), simulated)


def waits_per_hit(kernel: Measurement, engine: Measurement) -> float:
    """Cycles that the program waits more for its data with the engine, per page that hits."""
    more = engine.stats["cycles.data_stall"] - kernel.stats["cycles.data_stall"]
    return more / engine.stats["layer.native.fault_engine.hits"]


def fault_share(measurement: Measurement) -> float:
    """Per cent of its threads' time in the kernel's handlers of page faults."""
    return 100 * measurement.stats["cycles.fault"] / busy(measurement)


def _milliseconds(measurement: Measurement) -> float:
    """Mean time of a function from its arrival to its exit."""
    return measurement.stats["arrivals.sojourn.cycles"] / measurement.stats["arrivals.count"] / (GHZ * 1e6)


def _section_ways(measured: Measurements, findings: Findings) -> None:
    """Hit rates of the rows that are complete, each way."""
    cells: dict[tuple[str, str], float] = {}
    for row in PROGRAMS:
        try:
            processes = [
                Estimate(measured[row, _process_label(burst, latency_ns)].stats).hit_rate
                for latency_ns in (HANDLER_NS, PROGRAMS[row].latency_ns)
                for burst in BURSTS
            ]
            ways = {
                "process, most": max(processes),
                "process, least": min(processes),
                "native first writes, model": Estimate(measured[row, NATIVE].stats).hit_rate,
                "replay, engine": hit_rate(measured[row, REPLAYS["engine"]]),
                "replay's first writes, model": Estimate(measured[row, REPLAYS["kernel"]].stats).hit_rate,
            }
        except MissingRunError:
            continue
        cells |= {(row, method): value for method, value in ways.items()}
    if cells:
        findings.series.append(Series.from_values("Table 5", "Hit rate of first touches, three ways", "%", cells))


AT_HANDLER = mfoe_averages.AT_HANDLER
HITS, OVERHEAD, SPEED_UP = OF_PROCESSES = tuple(
    f"{quantity}, {AT_HANDLER}" for quantity in ("hit rate", "fault overhead with MFOE", "speed-up")
)
ALL_CORES = "all cores"
ON_CORES = f"Fault processes at the paper's rate by cores that fault, by chance, {HANDLER_NS} ns per fault"


def _section_cores(measured: Measurements, findings: Findings) -> None:
    """How much of the processes' figures is a question of the cores that fault."""
    cells: dict[tuple[str, str], float] = {}
    for row in PROGRAMS:
        labels = {ALL_CORES: _process_label(1, HANDLER_NS), **{_cores(cores): _on_cores(cores) for cores in FEW_CORES}}
        for cores, label in labels.items():
            one = Estimate(measured[row, label].stats)
            for quantity, value in zip(OF_PROCESSES, (one.hit_rate, one.share_after, one.speed_up), strict=True):
                cells[f"{row}, {cores}", quantity] = value
    findings.series.append(Series.from_values("Table 5", ON_CORES, "%, times", cells))


BY_MODEL = "Replays by the model, on their first writes"
WITHOUT_WAITS = "the model, in which no program waits for pages that were zeroed elsewhere"


def _section_by_model(measured: Measurements, findings: Findings) -> None:
    """What the engine's replays would gain without the waits that the paper's model ignores, too."""
    cells: dict[tuple[str, str], float] = {}
    for row in PROGRAMS:
        if (row, REPLAYS["kernel"]) in measured:
            model = Estimate(measured[row, REPLAYS["kernel"]].stats)
            cells[row, "hit rate"], cells[row, "overhead"] = model.hit_rate, model.share_after
            cells[row, "speed-up"] = model.speed_up
    speed_ups = [value for (_, quantity), value in cells.items() if quantity == "speed-up"]
    if len(speed_ups) == len(PROGRAMS):
        cells[mfoe_averages.MEAN, "speed-up"] = geometric_mean(speed_ups)
    if cells:
        findings.series.append(Series.from_values("Table 5", BY_MODEL, "%, %, times", cells))


def _section_averages(measured: Measurements, findings: Findings) -> None:
    """Table 5's geometric mean, each way."""
    handler, repeated = zip(*(_by_latency(measured, row) for row in PROGRAMS), strict=True)
    by_kind = (zip(*estimates, strict=True) for estimates in (handler, repeated))
    mfoe_averages.add_processes(findings, *([[one.speed_up for one in kind] for kind in kinds] for kinds in by_kind))
    replays = pairs(measured)
    mfoe_averages.add_programs(
        findings,
        {
            "native first writes, model": {row: Estimate(measured[row, NATIVE].stats).speed_up for row in PROGRAMS},
            "replay's first writes, model": {
                row: Estimate(kernel.stats).speed_up for row, (kernel, _) in replays.items()
            },
        },
    )
    add_replays_mean(findings, replays, "a core that waits for each line of a page that was zeroed elsewhere")


def pairs(measured: Measurements) -> dict[str, tuple[Measurement, Measurement]]:
    """Each program's replays, under the kernel and with the engine."""
    return {row: (measured[row, REPLAYS["kernel"]], measured[row, REPLAYS["engine"]]) for row in PROGRAMS}


def add_replays_mean(findings: Findings, replays: Mapping[str, tuple[Measurement, Measurement]], core: str) -> None:
    """Table 5's mean by replays with the engine."""
    speed_ups = {row: mfoe_averages.elapsed_speed_up(*pair) for row, pair in replays.items()}
    mfoe_averages.add_programs(findings, {"replay, engine": speed_ups}, core)


def _by_latency(measured: Measurements, row: str) -> tuple[list[Estimate], list[Estimate]]:
    """Fault processes, the usual one first: with the handler's mean per fault, and with the time that Table 1's share
    of the program implies.
    """

    def known(*labels: str) -> list[Estimate]:
        return [Estimate(measured[row, label].stats) for label in labels]

    handler = known(*(_process_label(burst, HANDLER_NS) for burst in BURSTS), *map(_on_cores, FEW_CORES))
    return handler, known(*(_process_label(burst, PROGRAMS[row].latency_ns) for burst in BURSTS))


def _compare(
    findings: Findings,
    row: str,
    quantity: str,
    unit: str,
    paper: float | None,
    ours: float | Interval,
    reason: str,
    without: str = "not in the paper",
) -> None:
    value, band = (ours.value, ours) if isinstance(ours, Interval) else (ours, None)
    findings.comparisons.append(
        Comparison(
            "Table 5",
            row,
            quantity,
            unit,
            paper,
            value,
            reason,
            band,
            without,
            neutral=1.0 if unit == "times" else None,
            ranked=quantity,
        )
    )


def _section_program(row: str, measured: Measurements, findings: Findings) -> None:
    program = PROGRAMS[row]
    note = partial(_compare, findings, row)
    _processes_of(measured, row, note)
    if (row, NATIVE) in measured:
        native = Estimate(measured[row, NATIVE].stats)
        here = "a program of the same kind, on two CPUs of a virtual machine"
        rough = (
            f"{here}; one latency for all faults, of which {native.cut:.0f} % reach beyond the next fault and are cut"
        )
        bound = f"{here}; first writes to private pages of files are among them, and all pages count as armed"
        _table_1(findings, row, native, here, rough)
        note("hit rate, native first writes", "%", program.hits, native.hit_rate, bound)
        note("fault overhead with MFOE, native first writes", "%", program.overhead_after, native.share_after, rough)
        note("speed-up, native first writes", "times", program.speed_up, native.speed_up, rough)
    if all((row, system) in measured for system in REPLAYS.values()):
        add_replay(findings, row, measured, "a core that waits for each access")


def add_replay(findings: Findings, row: str, measured: Measurements, core: str) -> None:
    """Table 5 by a program's replay. `core` says how the simulated core waits for its data."""
    program = PROGRAMS[row]
    note = partial(_compare, findings, row)
    kernel, engine = (measured[row, REPLAYS[system]] for system in ("kernel", "engine"))
    model = Estimate(kernel.stats)
    of_model = f"a smaller run; the model, on the replay's first writes without the engine, says {model.hit_rate:.1f} %"
    note("hit rate, replay", "%", program.hits, hit_rate(engine), of_model)
    of_model = (
        f"{fault_share(kernel):.1f} % with the kernel alone; the model says {model.share:.1f} and "
        f"{model.share_after:.1f} %. Without the engine's own steps, tens of cycles per page"
    )
    note("fault overhead with MFOE, replay", "%", program.overhead_after, fault_share(engine), of_model)
    elapsed = mfoe_averages.elapsed_speed_up(kernel, engine)
    of_model = f"in elapsed time of a smaller run; the model says {model.speed_up:.3f}"
    note("speed-up, replay", "times", program.speed_up, elapsed, of_model)
    of_core = f"value: {core}; up to one that hides what the program waits more for data"
    note("CPU time saved, replay", "%", None, cpu_time_saved(kernel, engine), of_core)


def _processes_of(measured: Measurements, row: str, note: Callable[..., None]) -> None:
    """A row for each time that a fault may take. Only one of them is a prediction."""
    program = PROGRAMS[row]
    handler, repeated = _by_latency(measured, row)
    of_handler = (
        f"{HANDLER_NS} ns per fault; value: by chance on {program.cores} hardware threads; brackets: those, bursts of "
        f"up to {BURSTS[-1]}, and chance on {_cores(1)} and on {_cores(FEW_CORES[-1])}. Longer bursts would hit less"
    )
    of_share = (
        f"{program.latency_ns} ns per fault on {program.cores} hardware threads, by chance and in bursts of up to "
        f"{BURSTS[-1]}"
    )
    quantities: tuple[tuple[str, str, float, Callable[[Estimate], float]], ...] = (
        ("hit rate", "%", program.hits, lambda one: one.hit_rate),
        ("fault overhead with MFOE", "%", program.overhead_after, lambda one: one.share_after),
        ("speed-up", "times", program.speed_up, lambda one: one.speed_up),
    )
    for quantity, unit, printed, figure in quantities:
        known, again = (
            Interval.from_values(map(figure, estimates), figure(estimates[0])) for estimates in (handler, repeated)
        )
        note(f"{quantity}, {AT_HANDLER}", unit, printed, known, of_handler)
        note(f"{quantity}, {mfoe_averages.REPEATED}", unit, None, again, of_share, mfoe_averages.NO_PREDICTION)


def _table_1(findings: Findings, row: str, native: Estimate, here: str, rough: str) -> None:
    """Rates of all cores and of one, and the share of time in faults."""
    program = PROGRAMS[row]
    of_core = f"{here}, {native.busy_cores:.2f} of them busy; the paper does not say how many threads fault"
    rate = native.faults_per_second / 1000
    for quantity, unit, printed, ours, reason in (
        ("first writes, native", "K/s", program.kfaults_per_second, rate, here),
        ("first writes per core, native", "K/s", None, rate / native.busy_cores, of_core),
        ("share of time in them, native", "%", program.overhead, native.share, rough),
    ):
        findings.comparisons.append(Comparison("Table 1", row, quantity, unit, printed, ours, reason, ranked=quantity))


def _section_rates(measured: Measurements, findings: Findings) -> None:
    """Table 1's rates of the rows that are recorded."""
    rates = {}
    for row, program in PROGRAMS.items():
        if (row, NATIVE) in measured:
            native = Estimate(measured[row, NATIVE].stats)
            paper, ours = program.kfaults_per_second, native.faults_per_second / 1000
            rates[row] = mfoe_rates.Rate(paper, paper / program.cores), mfoe_rates.Rate(ours, ours / native.busy_cores)
    mfoe_rates.add(findings, rates)


def _section_data(measured: Measurements, findings: Findings) -> None:
    """What the programs wait for the pages that were zeroed elsewhere."""
    waits, gains = [], []
    for row in PROGRAMS:
        if not all((row, system) in measured for system in REPLAYS.values()):
            continue
        kernel, engine = (measured[row, REPLAYS[system]] for system in ("kernel", "engine"))
        pages = engine.stats["layer.native.fault_engine.hits"]
        waits.append(waits_per_hit(kernel, engine))
        gains.append((kernel.stats["cycles.fault"] - engine.stats["cycles.fault"]) / pages)
    if waits:
        findings.notes.append(
            f"In replays the programs save {min(gains):,.0f} to {max(gains):,.0f} cycles in the kernel per page that "
            f"hits. They wait {min(waits):,.0f} to {max(waits):,.0f} cycles more for data (whole run ÷ such pages). "
            "The kernel's zeroing leaves a page in the core's caches, the background thread's leaves it in the "
            "shared cache or in memory, and ready frames take room there. The core model waits for each line, but "
            "lets the kernel zero ten at once; processors hide some of the waits. The paper's model, and so ours, "
            "ignores them."
        )


def faults_per_second(measurement: Measurement) -> float:
    """Pages that functions got, in thousands, whoever mapped them."""
    pages = measurement.stats["fault.minor.count"] + measurement.stats.get("layer.native.fault_engine.hits", 0)
    return pages / (measurement.stats["elapsed_cycles"] / GHZ / 1e9) / 1000


def _section_functions(measured: Measurements, findings: Findings) -> None:
    def run_at(system: str, rate: int, memory: str) -> Measurement:
        return measured["functions", system, f"{rate} per second, {memory}"]

    kinds = [(system, memory) for memory in (OPEN, CONFINED) for system in ("kernel", "engine")]
    rates = {
        (str(rate), f"{system}, {memory}"): faults_per_second(run_at(system, rate, memory))
        for rate in RATES
        for system, memory in kinds
    }
    title = "Minor faults per second, by functions that arrive per second"
    findings.series.append(Series.from_values("Fig 1", title, "K/s", rates))
    latencies = {
        (str(rate), f"{system}, {memory}"): _milliseconds(run_at(system, rate, memory))
        for rate in RATES
        for system, memory in kinds
    }
    title = "Mean time from arrival to exit, by functions that arrive per second"
    findings.series.append(Series.from_values("Fig 1", title, "ms", latencies))
    for memory in (OPEN, CONFINED):
        curve = {rate: rates[str(rate), f"kernel, {memory}"] for rate in RATES}
        findings.notes.append(
            f"Fig 1, {memory}: at twice the machine's capacity of {CAPACITY:.0f} functions per second the rate of "
            f"minor faults is {100 * curve[RATES[-1]] / max(curve.values()):.0f} % of its peak. The paper sees a drop "
            "there, and explains it by waiting in a queue; its framework's queue is not modelled. Its limit of 128 "
            "MB is for each container, as in `mfoe-variants`. Below capacity, the rate is that of the arrivals by "
            "construction. So there is "
            "no verdict."
        )
    findings.notes.append(
        f"A function is {FUNCTION_PAGES} pages of new memory in {FUNCTION_MS} ms. Rates cover the whole run, "
        f"including the end of the functions that arrived last; {SECONDS:g} s of random arrivals, one seed. Beyond "
        "capacity, times grow with the length of the run."
    )


REPRODUCTION = Reproduction(
    name="mfoe-programs",
    title="The minor-fault offload engine: programs",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="xeon-e-2136",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
