"""The minor-fault offload engine with several threads: Fig 9b, latencies, and whether it scales better than the kernel.

`mfoe` has latencies by one thread, where the paper's micro-benchmark has several (5.2.1). Its hit rates rest on two
things that the paper leaves open or prints another figure of: when a late pass begins, and how fast the background
thread is. Both are varied here, alone and together. The slow thread has the speed of Table 4; the handler stays as it
is. The event model, whose thread has the same speed, is judged beside it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pagelab_studies.estimates import Estimate
from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import (
    BETWEEN,
    FREQUENT,
    GHZ,
    INTERVAL,
    NEIGHBOURS,
    RARE,
    SYSTEMS,
    TOUCH,
    hit_rate,
    neighbours,
    starved,
    whole_fault,
)
from pagelab_studies.mfoe import cost as cost_of_faults
from pagelab_studies.study import (
    Claim,
    Comparison,
    Cost,
    Findings,
    Measurement,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)

FAULTS = 1 << 13
"""Of each thread: a quarter of the paper's, over tens of periods of the background thread."""
MOST_ACCESSES = 1 << 22
"""Of all threads of a run; fewer faults where more would be made for them."""
_KEY = "system.layers.native.fault_engine"
LATE = {"at-once": (), "sleep": (f"{_KEY}.late_pass=sleep",)}
"""When a pass begins that is late. The presets have the first, because of the plot of Fig 9b; the text fits the second
better."""
USUAL, SLOW = "thread as the preset", "thread as in Table 4"
SPEEDS = {USUAL: (), SLOW: (f"{_KEY}.prepare_cycles=1428", f"{_KEY}.account_cycles=1806")}
"""Table 4 has 1,093,075 pages per second when tables are filled first, and 580,169 later: 2,745 and 5,171 cycles per
page at 3 GHz. The thread of the preset takes 1,317 and 1,937 (`mfoe`). The difference of the first is the
preparation's, and the rest of the second the accounting's."""
MODEL = "event model"
MODEL_COSTS = ("initial_fill=running", f"clock_ghz={GHZ:g}")
"""The model's presets are the figures of Table 4."""
FAULT_CYCLES = 3510
"""Of a whole fault under the kernel without other data, from the exception to the return: measured by `mfoe`."""
THREADS = (1, 4, 6, 8)
MOST = THREADS[-1]
FEWER = (1, 4)
"""Threads that eight are compared with."""
GAPS = (FREQUENT, 10_000, INTERVAL)
"""Instructions between a thread's faults where some faults miss; the last is the one that the paper prints."""
TEN = "8 threads of 10 cores"
"""Two cores more, for the thread that arms entries and for the background thread."""
LATENCY_THREADS = (1, 4, 8)
FORMS = ("kernel", "engine", "call")
_CPUS = 8
_RESTS_ON = (
    "even faults, one seed: the range is over the intervals between faults; threads that arm entries and fill tables "
    "share a core with a program if there is none left"
)
_LATENCIES = (
    "latencies of memory and of transfers between caches, which the paper does not print; each thread has pages of its "
    "own; the costs of the kernel's stages"
)


def runs() -> list[Run]:
    """All runs."""
    return [*_rates(), *_beside(), *_by_model(), *_latencies(), *_crowded()]


def cost(run: Run) -> Cost:
    """What an access takes, or an estimate all in all."""
    if not run.preset:
        return Cost(window=0.5e9)
    # Labels begin with the number of threads.
    return cost_of_faults(replace(run, label=run.label.split(", ")[-1]))


def rate_label(threads: int | str, gap: int, speed: str, late: str) -> str:
    """Of a run of threads that fault at a rate."""
    return f"{threads if isinstance(threads, str) else f'{threads} threads'}, {gap} instructions, {speed}, {late}"


def _rates() -> Iterator[Run]:
    for late, begins in LATE.items():
        for speed, costs in SPEEDS.items():
            for threads in (*THREADS, TEN):
                count = MOST if isinstance(threads, str) else threads
                cores = ("machine.cores=10",) if threads == TEN else ()
                for gap in GAPS:
                    yield _run(
                        rate_label(threads, gap, speed, late),
                        f"stride:size={4096 * FAULTS},stride=4KiB,write=1,threads={count},gap={gap}@0-{count - 1}",
                        "engine",
                        FAULTS * count,
                        (*begins, *costs, *cores),
                    )


def _beside() -> Iterator[Run]:
    """A core beside others that fault more often, with a slow thread."""
    for late, begins in LATE.items():
        for run in neighbours():
            spec = run.spec.replace("128MiB", str(4096 * FAULTS))
            settings = (*run.settings, *begins, *SPEEDS[SLOW])
            label = f"{run.label}, {late}"
            yield replace(run, spec=spec, accesses=FAULTS, least_accesses=FAULTS, settings=settings, label=label)


def model_label(threads: int, gap: int, late: str) -> str:
    """Of an estimate of the event model."""
    return f"{threads} threads, {gap} instructions, {late}"


def _by_model() -> Iterator[Run]:
    for late in LATE:
        for threads in THREADS:
            for gap in GAPS:
                apart_ns = (gap + FAULT_CYCLES) / GHZ
                rate, seconds = threads * 1e9 / apart_ns, FAULTS * apart_ns / 1e9
                latency = round(FAULT_CYCLES / GHZ)
                yield Run(
                    MODEL,
                    f"even:rate={rate:.0f},cores={threads},seconds={seconds:.3f},latency_ns={latency}",
                    "engine",
                    "",
                    1,
                    label=model_label(threads, gap, late),
                    estimate=(*MODEL_COSTS, f"late_pass={late}"),
                    least_accesses=1,
                    in_parts=False,
                )


def latency_label(threads: int, between: str) -> str:
    """Of a run in which all faults hit."""
    return f"{threads} threads, {between} between"


def _latencies() -> Iterator[Run]:
    for threads in LATENCY_THREADS:
        for between, size in BETWEEN.items():
            per_fault = size // 64 + 1
            faults = min(FAULTS, MOST_ACCESSES // per_fault // threads)
            gap = max(RARE // per_fault, 1)
            spec = f"seq:size={4096 * faults},step=4096,passes=1,write=1,gap={gap},between={size},threads={threads}"
            for system in FORMS:
                accesses = threads * faults * per_fault
                yield _run(latency_label(threads, between), f"{spec}@0-{threads - 1}", system, accesses)


def _crowded() -> Iterator[Run]:
    """Frequent faults under the kernel, to compare with those of the engine."""
    for threads in LATENCY_THREADS:
        spec = f"stride:size={4096 * FAULTS},stride=4KiB,write=1,threads={threads},gap={FREQUENT}@0-{threads - 1}"
        for system in ("kernel", "engine"):
            yield _run(f"{threads} threads, {FREQUENT} instructions", spec, system, FAULTS * threads)


def _run(label: str, spec: str, system: str, accesses: int, settings: tuple[str, ...] = ()) -> Run:
    preset = SYSTEMS[system]
    return Run(
        TOUCH, spec, system, preset, accesses, settings=settings, label=label, least_accesses=accesses, in_parts=False
    )


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_hit_rates, _starvation, _by_threads, _scaling))
    findings.notes += [
        f"{SLOW}: the thread alone takes as many cycles per page as the paper's; the handler is as in the preset. "
        f"{MODEL}: the thread has the same speed, and no thread shares a core.",
        f"With {MOST} threads on {_CPUS} CPUs the background thread shares a CPU with a program. Rows of "
        f"{TEN} show the same with a core for it.",
        "The paper measures its hits on a simulated machine of eight cores, and does not say how many of them fault.",
    ]
    return findings


def _hit_rates(measured: Measurements, findings: Findings) -> None:
    cells: dict[tuple[str, str], float] = {}
    speeds: dict[tuple[str, str], float] = {}
    for late in LATE:
        for speed in SPEEDS:
            rates = {
                (threads, gap): hit_rate(measured[TOUCH, "engine", rate_label(threads, gap, speed, late)])
                for threads in (*THREADS, TEN)
                for gap in GAPS
            }
            for (threads, gap), rate in rates.items():
                row = threads if isinstance(threads, str) else f"{threads} threads"
                cells[f"{row}, {speed}, {late}", f"{gap}"] = rate
            for fewer in FEWER:
                findings.claims.append(_order(rates, fewer, f"{speed}, {late}"))
            one = measured[TOUCH, "engine", rate_label(1, INTERVAL, speed, late)].stats
            for name in ("replaced", "first_filled"):
                filled = one[f"layer.native.fault_engine.{name}"], one[f"layer.native.fault_engine.{name}.cycles"]
                speeds[f"{speed}, {late}", name] = GHZ * 1e6 * filled[0] / filled[1]
        by_model: dict[tuple[int | str, int], float] = {
            (threads, gap): Estimate(measured[MODEL, "engine", model_label(threads, gap, late)].stats).hit_rate
            for threads in THREADS
            for gap in GAPS
        }
        cells |= {(f"{threads} threads, {MODEL}, {late}", f"{gap}"): rate for (threads, gap), rate in by_model.items()}
        for fewer in FEWER:
            findings.claims.append(_order(by_model, fewer, f"{MODEL}, {late}"))
    title = "Hit rate, by instructions between a thread's faults"
    findings.series.append(Series.from_values("Fig 9b", title, "%", cells))
    findings.series.append(Series.from_values("Table 4", "Pages of the background thread", "K pages/s", speeds))


def _order(rates: Mapping[tuple[int | str, int], float], fewer: int, under: str) -> Claim:
    """Whether eight threads hit less often than fewer, at every interval."""
    less = Interval.from_values(
        [rates[fewer, gap] - rates[MOST, gap] for gap in GAPS], rates[fewer, INTERVAL] - rates[MOST, INTERVAL]
    )
    text = f"eight threads hit less often than {'one' if fewer == 1 else 'four'}, at the same rate per thread ({under})"
    detail = f"{less} points less"
    if (TEN, INTERVAL) in rates:
        apart = Interval.from_values(
            [rates[fewer, gap] - rates[TEN, gap] for gap in GAPS], rates[fewer, INTERVAL] - rates[TEN, INTERVAL]
        )
        detail += f"; {apart} with a core for the background thread"
    return Claim("Fig 9b", text, less.above(0), detail, _RESTS_ON, "order")


def _starvation(measured: Measurements, findings: Findings) -> None:
    """§4.5, that a core can starve: whether it does with a thread as slow as the paper's, under both rules."""
    by_rule = {
        late: starved(
            measured[TOUCH, "engine", rate_label(1, INTERVAL, SLOW, late)],
            measured[TOUCH, "engine", f"{NEIGHBOURS}, {late}"],
        )
        for late in LATE
    }
    text = "a core can starve while the tables of others are filled: it hits less beside cores that fault more often"
    detail = "; ".join(f"{SLOW}, {late}: {measured_there}" for late, (_, measured_there) in by_rule.items())
    rests_on = (
        "even faults, one seed; the speed of the background thread: beside the preset's faster one, no core starves "
        "(`mfoe`, questions of our own)"
    )
    holds = Interval.from_values([lost for lost, _ in by_rule.values()]).above(0)
    findings.claims.append(Claim("§4.5", text, holds, detail, rests_on))


def means(measured: Measurements, threads: int) -> dict[str, dict[str, float]]:
    """Mean cycles of a fault by form and by other data between faults. The kernel's has two: the part that the paper
    times, and from the exception to the return.
    """
    return {
        form: {
            between: _MEANS[form](measured[TOUCH, _OF.get(form, form), latency_label(threads, between)])
            for between in BETWEEN
        }
        for form in _MEANS
    }


WHOLE = "kernel, whole fault"
_OF = {WHOLE: "kernel"}
_ENGINE = "layer.native.fault_engine"


def _handling(run: Measurement) -> float:
    return run.stats["fault.handling.cycles"] / run.stats["fault.minor.count"]


def _mean_of_hits(run: Measurement) -> float:
    return run.stats[f"{_ENGINE}.mapped.cycles"] / run.stats[f"{_ENGINE}.hits"]


def _mean_of_calls(run: Measurement) -> float:
    return run.stats[f"{_ENGINE}.ahead.mapped.cycles"] / run.stats[f"{_ENGINE}.ahead.mapped.count"]


_MEANS: dict[str, Callable[[Measurement], float]] = {
    "kernel": _handling,
    WHOLE: whole_fault,
    "engine": _mean_of_hits,
    "call": _mean_of_calls,
}


def _spread(values: Mapping[str, float]) -> Interval:
    return Interval.from_values(values.values(), values["0"])


def _by_threads(measured: Measurements, findings: Findings) -> None:
    """§5.2.1: latencies of hits, and how many times as long the kernel takes."""
    cells: dict[tuple[str, str], Interval] = {}
    over = "without other data, and with 4 to 256 KiB of it read between faults"
    for threads in LATENCY_THREADS:
        known = means(measured, threads)
        row = f"{threads} threads"
        runs_of = {between: measured[TOUCH, "engine", latency_label(threads, between)] for between in BETWEEN}
        figures = {
            "hit, mean": (36.0, _spread(known["engine"])),
            "hit, standard deviation": (
                42.0,
                _spread({label: run.stats[f"{_ENGINE}.mapped.deviation"] / 100 for label, run in runs_of.items()}),
            ),
            "hit, 95th percentile": (
                125.0,
                _spread({label: float(run.stats[f"{_ENGINE}.mapped.p95"]) for label, run in runs_of.items()}),
            ),
        }
        cells |= {(row, name): one for name, (_, one) in figures.items()}
        cells |= {(row, f"{form}, mean"): _spread(values) for form, values in known.items() if form != "engine"}
        if threads > 1:
            findings.comparisons += [
                Comparison("§5.2.1", row, name, "cycles", paper, one.value, over, interval=one)
                for name, (paper, one) in figures.items()
            ]
        for slow, fast in (("kernel", "engine"), ("call", "engine"), ("kernel", "call")):
            ratio = _spread({label: known[slow][label] / known[fast][label] for label in BETWEEN})
            text = f"{_WORDS[fast]} is faster than {_WORDS[slow]} ({row})"
            detail = f"{ratio.value:.1f} times ({ratio.low:.1f} to {ratio.high:.1f})"
            findings.claims.append(Claim("§5.2", text, ratio.above(1), detail, _LATENCIES))
    findings.series.append(Series.within("§5.2.1", "Latencies by number of threads", "cycles", cells))


_WORDS = {"kernel": "the kernel", "engine": "the walker", "call": "a call ahead of the store"}


def _scaling(measured: Measurements, findings: Findings) -> None:
    """§4.9: how a fault's latency grows with the threads, under the kernel and with the engine."""
    first, last = LATENCY_THREADS[0], LATENCY_THREADS[-1]
    known = {threads: means(measured, threads) for threads in LATENCY_THREADS}
    rises = {
        form: {label: known[last][form][label] - known[first][form][label] for label in BETWEEN}
        for form in ("kernel", WHOLE, "engine", "call")
    }
    more = _spread({label: rises[WHOLE][label] - rises["engine"][label] for label in BETWEEN})
    detail = (
        f"from {first} to {last} threads the kernel's fault takes {_spread(rises[WHOLE])} cycles more, the engine's "
        f"{_spread(rises['engine'])}; the difference is {more}"
    )
    text = (
        "with more threads a fault of the kernel becomes slower by more cycles than one of the engine (rare faults, "
        "tables apart)"
    )
    findings.claims.append(Claim("§4.9", text, more.above(0), detail, _LATENCIES))
    cells: dict[tuple[str, str], float] = {}
    for threads in LATENCY_THREADS:
        kernel, engine = (
            measured[TOUCH, system, f"{threads} threads, {FREQUENT} instructions"] for system in ("kernel", "engine")
        )
        row = f"{threads} threads"
        cells[row, "kernel, cycles per fault"] = whole_fault(kernel)
        cells[row, "engine, cycles per hit"] = _mean_of_hits(engine)
        cells[row, "engine, hit rate"] = hit_rate(engine)
        for name, run in (("kernel", kernel), ("engine", engine)):
            faults = FAULTS * threads
            cells[row, f"{name}, K faults/s"] = GHZ * 1e6 * faults / run.stats["elapsed_cycles"]
    title = f"Faults in every {FREQUENT} instructions of a thread"
    findings.series.append(Series.from_values("§4.9", title, "cycles, %, K faults/s", cells))
    by_kernel, by_engine = (
        cells[f"{last} threads", f"{name}, K faults/s"] / cells[f"{first} threads", f"{name}, K faults/s"]
        for name in ("kernel", "engine")
    )
    text = (
        f"with {last} threads the engine has more times the faults of one thread than the kernel has (frequent faults)"
    )
    detail = f"{by_engine:.2f} times with the engine, {by_kernel:.2f} times under the kernel"
    # The paper's statement is about waiting for locks.
    findings.claims.append(Claim("§4.9", text, by_engine > by_kernel, detail, _RESTS_ON, ours=True))


REPRODUCTION = Reproduction(
    name="mfoe-threads",
    title="The minor-fault offload engine: several threads",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="gem5-timing",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
