"""Fig 10 of the minor-fault offload engine's paper: hit rate and gain by the width of the tables and by the interval.

Both are estimates of the event model. `mfoe` gives it fault processes at the rates of Table 1, `mfoe_programs` the
faults of replayed programs.
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
SATURATED = 99.9
"""Hit rate in per cent from which on neither width nor interval can improve anything."""


@dataclass(frozen=True)
class Sample:
    """What the model estimates for one source of faults, in per cent."""

    hit_rate: float
    gain: float
    """How much faster the program is."""

    @classmethod
    def from_speed_up(cls, hit_rate: float, speed_up: float) -> "Sample":
        return cls(hit_rate, 100 * (speed_up - 1))


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
    rises = _rises_of(samples, "Splash2X-radix", RINGS[0], RINGS[-1])
    gains = Interval.from_values(rises, rises[0])
    findings.comparisons.append(
        Comparison(
            "§5.3",
            "Splash2X-radix",
            f"hit rate with {RINGS[-1]} frames beyond that with {RINGS[0]}, at 2 ms, {faults}",
            "points",
            21,
            gains.value,
            "the paper says 21 %",
            interval=gains,
            neutral=0.0,
        )
    )


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
    wider = [
        [samples[program, ring, period][n] for ring in RINGS]
        for program in programs
        for period in PERIODS_US
        for n in range(number)
    ]
    more_often = [
        [samples[program, ring, period][n] for period in reversed(PERIODS_US)]
        for program in programs
        for ring in RINGS
        for n in range(number)
    ]
    claims = []
    for text, rows in (("rises with the width of the tables", wider), ("falls with the refresh interval", more_often)):
        for figure, what, quantity in (("Fig 10a", "the hit rate", _hit_rate), ("Fig 10b", "the gain", _gain)):
            ends = [quantity(row[-1]) - quantity(row[0]) for row in rows]
            detail = f"{len(rows)} rows; from end to end {min(ends):.1f} to {max(ends):.1f} points"
            holds = all(_rises([quantity(sample) for sample in row], row[0].hit_rate) for row in rows)
            claims.append(Claim(figure, f"{what} {text} ({faults})", holds, detail, rests_on, "order"))
    longest = [
        sample.gain
        for (program, _, period), known in samples.items()
        if program in programs and period == PERIODS_US[-1]
        for sample in known
    ]
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
    text = f"from 512 to 1024 frames at 2 ms, FaaS gains more hits than the three others ({faults})"
    findings.claims.append(Claim("§5.3", text, ahead, detail, rests_on, "order"))


def _rises(values: Sequence[float], hit_rate: float) -> bool:
    """Whether values never fall, and rise unless nearly all faults hit from the start."""
    never_falls = all(before <= after for before, after in pairwise(values))
    return never_falls and (values[-1] > values[0] or hit_rate > SATURATED)
