"""Fig 10 of the minor-fault offload engine's paper: hit rate and gain by the width of the tables and by the interval.

Both are estimates of the event model. `mfoe` gives it fault processes at the rates of Table 1, `mfoe_variants` the
faults of replayed programs. An interval is judged only if a source lasts for more than `PASSES` of it: in shorter ones,
the frames that are ready at the start decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagelab_studies.interval import Interval, all_hold
from pagelab_studies.study import Claim, Comparison, Findings, Series

PROGRAMS = ("GCC compiler", "FaaS", "Parsec-dedup", "Splash2X-radix")
"""The four programs that the text of section 5.3 names."""
RINGS = (128, 256, 512, 1024)
PERIODS_US = (2000, 8000, 32_000)
PASSES = 10
"""Passes of the background thread for which a source must last at least."""
SATURATED = 99.9
"""Hit rate in per cent from which on neither width nor interval can improve anything."""


@dataclass(frozen=True)
class Sample:
    """What the model estimates for one source of faults, in per cent."""

    hit_rate: float
    gain: float
    """How much faster the program is."""
    seconds: float
    """How long the source lasts."""

    @classmethod
    def from_speed_up(cls, hit_rate: float, speed_up: float, seconds: float) -> "Sample":
        return cls(hit_rate, 100 * (speed_up - 1), seconds)


Samples = Mapping[tuple[str, int, int], Sequence[Sample]]
"""By program, width and interval in microseconds: estimates for the same sources in the same order, the usual first."""


def add(findings: Findings, samples: Samples, faults: str, rests_on: str) -> None:
    """Adds tables, comparisons and claims. `faults` names the sources of the faults."""
    for figure, title, quantity in (("Fig 10a", "Hit rate", _hit_rate), ("Fig 10b", "Gain", _gain)):
        cells = {
            (f"{program}, {ring} frames", f"{period / 1000:g} ms"): Interval.from_values(
                map(quantity, known), quantity(known[0])
            )
            for (program, ring, period), known in samples.items()
        }
        findings.series.append(Series.within(figure, f"{title} by width and interval, {faults}", "%", cells))
    findings.claims += _claims(samples, faults, rests_on)
    _radix(findings, samples, faults, rests_on)


RADIX = "Splash2X-radix"
RADIX_RISE = 21.0
"""What the paper says that its hit rate rises by, in per cent, without saying of what."""


def _radix(findings: Findings, samples: Samples, faults: str, rests_on: str) -> None:
    """The statements on radix: how little wider tables help, and that more frequent passes help more."""
    narrow, wide = (samples[RADIX, ring, PERIODS_US[0]] for ring in (RINGS[0], RINGS[-1]))
    rises = _rises_of(samples, RADIX, RINGS[0], RINGS[-1])
    relative = [100 * (after.hit_rate / before.hit_rate - 1) for before, after in zip(narrow, wide, strict=True)]
    for values, unit, beyond in (
        (rises, "points", "beyond that"),
        (relative, "%", "as an increase of that"),
    ):
        rise = Interval.from_values(values, values[0])
        quantity = f"hit rate with {RINGS[-1]} frames {beyond} with {RINGS[0]}, at 2 ms, {faults}"
        reason = "the paper says 21 %, which may be points or a part of the hit rate"
        row = Comparison("§5.3", RADIX, quantity, unit, RADIX_RISE, rise.value, reason, interval=rise, neutral=0.0)
        findings.comparisons.append(row)
    periods = _judged(samples, RADIX)
    shortest, longest = periods[0], periods[-1]
    ends = [(samples[RADIX, ring, longest], samples[RADIX, ring, shortest]) for ring in RINGS]
    more = [
        often.hit_rate - seldom.hit_rate - rise
        for of_ring in ends
        for seldom, often, rise in zip(*of_ring, rises, strict=True)
    ]
    beyond_rise = Interval.from_values(more, more[0])
    text = (
        f"radix gains more hits from passes every {shortest / 1000:g} instead of {longest / 1000:g} ms than from "
        f"{RINGS[-1]} instead of {RINGS[0]} frames at {shortest / 1000:g} ms ({faults})"
    )
    detail = f"{beyond_rise} points more, over the widths; frames alone gain {Interval.from_values(rises, rises[0])}"
    findings.claims.append(Claim("§5.3", text, beyond_rise.above(0), detail, rests_on, "order"))


def _judged(samples: Samples, program: str) -> list[int]:
    """The intervals of which a program's source has enough passes."""
    seconds = min(sample.seconds for sample in samples[program, RINGS[0], PERIODS_US[0]])
    return [period for period in PERIODS_US if period * 1e-6 * PASSES < seconds]


def _hit_rate(sample: Sample) -> float:
    return sample.hit_rate


def _gain(sample: Sample) -> float:
    return sample.gain


def _rises_of(samples: Samples, program: str, low: int, high: int) -> list[float]:
    """Points of hit rate that a program gains from a width to a larger one, at the shortest interval."""
    pairs = zip(samples[program, low, PERIODS_US[0]], samples[program, high, PERIODS_US[0]], strict=True)
    return [after.hit_rate - before.hit_rate for before, after in pairs]


def _claims(samples: Samples, faults: str, rests_on: str) -> list[Claim]:
    """Of all programs, and of each."""
    claims = _of_programs(PROGRAMS, samples, faults, rests_on)
    for program in PROGRAMS:
        claims += _of_programs((program,), samples, f"{program}, {faults}", rests_on)
    return claims


def _of_programs(programs: Sequence[str], samples: Samples, faults: str, rests_on: str) -> list[Claim]:
    number = len(next(iter(samples.values())))
    judged = {program: _judged(samples, program) for program in programs}
    wider = [
        [samples[program, ring, period][n] for ring in RINGS]
        for program, periods in judged.items()
        for period in periods
        for n in range(number)
    ]
    more_often = [
        [samples[program, ring, period][n] for period in reversed(periods)]
        for program, periods in judged.items()
        if len(periods) > 1
        for ring in RINGS
        for n in range(number)
    ]
    claims = []
    for text, rows in (("rises with the width of the tables", wider), ("falls with the refresh interval", more_often)):
        if not rows:
            continue
        for figure, what, quantity in (("Fig 10a", "the hit rate", _hit_rate), ("Fig 10b", "the gain", _gain)):
            ends = [quantity(row[-1]) - quantity(row[0]) for row in rows]
            detail = f"{len(rows)} rows; from end to end {min(ends):.1f} to {max(ends):.1f} points"
            holds = all(_rises([quantity(sample) for sample in row], row[0].hit_rate) for row in rows)
            claims.append(Claim(figure, f"{what} {text} ({faults})", holds, detail, rests_on, "order"))
    long_enough = [program for program, periods in judged.items() if PERIODS_US[-1] in periods]
    longest = [
        sample.gain for program in long_enough for ring in RINGS for sample in samples[program, ring, PERIODS_US[-1]]
    ]
    # One of several programs has a statement of its own.
    if len(long_enough) > 1 or long_enough == list(programs):
        detail = f"{len(longest)} estimates, gains of {min(longest):.2f} to {max(longest):.2f} %"
        text = f"no loss even at 32 ms ({faults})"
        claims.append(Claim("§5.3", text, min(longest) >= 0, detail, rests_on))
    return claims


def add_faas(findings: Findings, samples: Samples, faults: str, rests_on: str) -> None:
    """The statement on FaaS, which says something only of faults that come as in each program."""
    last = {name: _rises_of(samples, name, RINGS[-2], RINGS[-1]) for name in PROGRAMS}
    detail = ", ".join(f"{name} {Interval.from_values(rises, rises[0])} points" for name, rises in last.items())
    # Processes of the same kind are compared.
    ahead = all_hold(
        Interval.from_values([a - b for a, b in zip(last["FaaS"], rises, strict=True)]).above(0)
        for name, rises in last.items()
        if name != "FaaS"
    )
    # More frames can show nothing where all faults hit already.
    if min(sample.hit_rate for sample in samples["FaaS", RINGS[-2], PERIODS_US[0]]) >= 100:
        ahead = None
    text = f"from 512 to 1024 frames at 2 ms, FaaS gains more hits than the three others ({faults})"
    findings.claims.append(Claim("§5.3", text, ahead, detail, rests_on, "order"))


def _rises(values: Sequence[float], hit_rate: float) -> bool:
    """Whether values never fall, and rise unless nearly all faults hit from the start."""
    never_falls = all(before <= after for before, after in pairwise(values))
    return never_falls and (values[-1] > values[0] or hit_rate > SATURATED)
