"""Two figures of the minor-fault offload engine's paper under conditions closer to it than in `mfoe_programs`.

Fig 10: hit rate and gain by width and interval, for the four programs that the text names, by the event model on the
faults of their replays. Fig 1: functions in containers that have a limit of 128 MiB each (Table 2), beyond the
machine's capacity.
"""

from collections.abc import Iterator, Mapping
from statistics import fmean

from pagelab_studies import mfoe_figure_10, mfoe_programs
from pagelab_studies.estimates import Estimate
from pagelab_studies.interval import Interval
from pagelab_studies.mfoe import SYSTEMS
from pagelab_studies.mfoe_programs import (
    CAPACITY,
    CPUS,
    FUNCTION_PAGES,
    MODEL,
    PASSES,
    RECORDED_ACCESSES,
    RECORDINGS,
    REPLAYS,
    SECONDS,
    SWAP,
    faults_per_second,
    function_spec,
)
from pagelab_studies.study import (
    Claim,
    Comparison,
    Cost,
    Findings,
    Measurements,
    Reproduction,
    Run,
    Series,
    by_sections,
)

RATES = (50, 100, 150, 200, 400)
"""Functions per second; the machine serves a hundred."""
OVERLOADS = (200, 400)
"""At which a drop is looked for."""
CONTAINERS = "128 MiB per container"
SEEDS = (1, 2, 3)
_REPLAYED = (
    "one recording of each program, smaller than the paper's and on two threads; the event model with the paper's "
    "costs and full tables at the start"
)
_QUEUE = (
    f"{len(SEEDS)} seeds; a container per CPU, whose functions share its limit. Our drop comes from memory that "
    "functions share and swap; the paper explains its own by waiting in a queue, which is not modelled"
)


def cost(run: Run) -> Cost:
    """What an access takes, as in `mfoe_programs`."""
    return mfoe_programs.cost(run)


def runs() -> list[Run]:
    """All runs; the replays need recordings."""
    return [*_replays(), *_in_containers()]


def _configuration(ring: int, period_us: int) -> str:
    return f"{ring}_frames_{period_us}_us"


def _replays() -> Iterator[Run]:
    """Under the kernel alone; the model has the paper's costs, as in its Fig 10."""
    configurations = tuple(
        (_configuration(ring, period), (*MODEL, f"ring_entries={ring}", f"period_us={period}"))
        for ring in mfoe_figure_10.RINGS
        for period in mfoe_figure_10.PERIODS_US
    )
    for row in mfoe_figure_10.PROGRAMS:
        yield Run(
            row,
            f"{{programs}}/{RECORDINGS[row]}.trace@0,2,4,6,8",
            REPLAYS["kernel"],
            SYSTEMS["kernel"],
            RECORDED_ACCESSES,
            estimate=MODEL,
            more_estimates=configurations,
            least_accesses=RECORDED_ACCESSES,
            in_parts=False,
        )


def _in_containers() -> Iterator[Run]:
    """A container per CPU, with a limit of its own and a tenth of the functions."""
    function = function_spec()
    for rate in RATES:
        count = round(rate * SECONDS / CPUS)
        accesses = CPUS * count * FUNCTION_PAGES * PASSES
        pace = f"per_second={rate / CPUS:g},count={count},memory_limit=128MiB"
        for seed in SEEDS:
            yield Run(
                "functions",
                "",
                "kernel",
                SYSTEMS["kernel"],
                accesses,
                arrivals=tuple(f"{function}@{cpu},{pace}" for cpu in range(CPUS)),
                settings=(SWAP,),
                label=f"{rate} per second, {CONTAINERS}",
                least_accesses=accesses,
                in_parts=False,
                seed=seed,
            )


def evaluate(measured: Measurements) -> Findings:
    """What the runs say."""
    findings = by_sections(measured, (_configurations, _containers))
    findings.notes += [
        "All runs of the study were made, at full length.",
        "The functions that were recorded here fault less often than the paper's: at 2 ms all their faults hit from "
        "512 frames on, so that more frames cannot help.",
        "Up to the machine's capacity, the rate of faults is that of the functions times their pages, by construction. "
        "So there is no verdict on its rise.",
        "The paper explains the drop of Fig 1 by functions that wait in the framework's queue, and limits each "
        "container to 128 MiB. Here a container serves all functions of a CPU, which begin at once and share its "
        "memory. Beyond the capacity the containers are full and swap, and the rate drops: by another cause than the "
        "paper's.",
    ]
    return findings


def _configurations(measured: Measurements, findings: Findings) -> None:
    samples, durations = {}, {}
    for row in mfoe_figure_10.PROGRAMS:
        stats = measured[row, REPLAYS["kernel"]].stats
        for ring in mfoe_figure_10.RINGS:
            for period in mfoe_figure_10.PERIODS_US:
                estimate = Estimate(stats, _configuration(ring, period))
                sample = mfoe_figure_10.Sample.from_speed_up(estimate.hit_rate, estimate.speed_up, estimate.seconds)
                samples[row, ring, period] = [sample]
                durations[row] = sample.seconds
    lasting = ", ".join(f"{row} {1000 * seconds:.0f} ms" for row, seconds in durations.items())
    fit = f"an interval is judged if more than {mfoe_figure_10.PASSES} of it fit into the recording: {lasting}"
    rests_on = f"{_REPLAYED}; {fit}"
    mfoe_figure_10.add(findings, samples, "faults of replays", rests_on)
    mfoe_figure_10.add_faas(findings, samples, "faults of replays", rests_on)
    findings.notes.append(
        f"Recordings last so long, in simulated time: {lasting}. Where few intervals fit into a recording, the frames "
        "that are ready at its start are most of the hits. The tables show these intervals, too; the verdicts leave "
        "them out."
    )


def _containers(measured: Measurements, findings: Findings) -> None:
    rates = {
        rate: {
            seed: faults_per_second(run)
            for seed, run in measured.seeds("functions", "kernel", f"{rate} per second, {CONTAINERS}").items()
        }
        for rate in RATES
    }
    cells = {
        (str(rate), "kernel"): Interval.from_values(by_seed.values(), fmean(by_seed.values()))
        for rate, by_seed in rates.items()
    }
    title = f"Minor faults per second, by functions that arrive per second, {CONTAINERS}"
    findings.series.append(Series.within("Fig 1", title, "K/s", cells))
    _peak(rates, findings)
    for rate in OVERLOADS:
        last = rates[rate]
        until = [by_seed for lower, by_seed in rates.items() if lower <= rate]
        drops = [100 * (1 - last[seed] / max(by_seed[seed] for by_seed in until)) for seed in last]
        drop = Interval.from_values(drops, fmean(drops))
        detail = f"at {rate} functions per second, of a capacity of {CAPACITY:.0f}, {drop} % below the peak"
        times = f"{rate / CAPACITY:.0f} times the load"
        text = f"the rate of minor faults drops beyond the machine's capacity ({CONTAINERS}, {times})"
        findings.claims.append(Claim("Fig 1", text, drop.above(0), detail, _QUEUE, ours=True))


PEAK = 110.0
"""Thousand faults per second, at the paper's highest rate of faults: 20 functions per second (§1)."""


def _peak(rates: Mapping[int, Mapping[int, float]], findings: Findings) -> None:
    """The highest rate of faults."""
    peaks = [max(by_seed[seed] for by_seed in rates.values()) for seed in SEEDS]
    peak = Interval.from_values(peaks, fmean(peaks))
    per_core = Interval(*(one / CPUS for one in (peak.low, peak.value, peak.high)))
    inputs = "pages per function and capacity are inputs here"
    of_pages, of_core = f"functions of {FUNCTION_PAGES} pages; ours are shorter", f"by {CPUS} CPUs"
    for quantity, paper, ours, reason, unjudged in (
        ("minor faults per second at the peak", PEAK, peak, of_pages, inputs),
        ("minor faults per second and core at the peak", None, per_core, of_core, ""),
    ):
        figure = "Fig 1", "functions", quantity, "K/s", paper
        findings.comparisons.append(Comparison(*figure, ours.value, reason, ours, unjudged=unjudged))


REPRODUCTION = Reproduction(
    name="mfoe-variants",
    title="The minor-fault offload engine: widths and intervals, containers",
    paper="Chandrahas Tirumalasetty et al., ACM TACO 2022",
    machine="xeon-e-2136",
    runs=runs,
    evaluate=evaluate,
    cost=cost,
)
