"""How long a study takes: the costs of its runs, the speed of this machine, and the remaining time."""

import os
import threading
import time
from collections.abc import Callable, Sequence

import pagelab
from pagelab_studies.study import Cost, Reproduction, Run

# Allowed scales: the length of windows relative to the nominal length, the largest first.
SCALES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
# Measures this machine's speed. Its replay took PILOT_SECONDS of processor time, the median of five, on the machine on
# which all costs were measured: a virtual machine with two CPUs of an AMD EPYC and 32 MiB of L3.
PILOT = "gups:size=256MiB,updates=1M"
PILOT_SECONDS = 0.44
# A study's own measured speed counts as much as the pilot's once it covers this many seconds.
TRUSTED_SECONDS = 20.0


def pilot() -> float:
    """Nominal seconds of work that a CPU of this machine does per second, from the duration of a short run."""
    started = time.monotonic()
    pagelab.run(PILOT, "radix")
    return PILOT_SECONDS / (time.monotonic() - started)


def seconds(cost: Cost, run: Run, scale: float) -> float:
    """Nominal seconds of a run at a scale."""
    return cost.seconds(run.warm_up, run.made(scale))


def minutes(reproduction: Reproduction, runs: Sequence[Run], scale: float, speed: float) -> float:
    """How long runs take on all CPUs of a machine of that speed."""
    each = [seconds(reproduction.cost(run), run, scale) for run in runs]
    # No run is spread over CPUs.
    return max(sum(each) / (os.cpu_count() or 1), max(each, default=0.0)) / speed / 60


def choose_scale(reproduction: Reproduction, runs: Sequence[Run], budget_minutes: float, speed: float) -> float:
    """The largest scale at which the runs fit the budget.

    Raises:
        UsageError: not even the smallest fits.
    """
    for scale in SCALES:
        needed = minutes(reproduction, runs, scale, speed)
        if needed <= budget_minutes:
            return scale
    raise pagelab.UsageError(
        f"{reproduction.name} needs at least {duration(needed * 60)} here: "
        f"increase the budget with --budget {needed + 1:.0f}"
    )


def default_scale(
    reproduction: Reproduction, runs: Sequence[Run], budget_minutes: float, speed: float
) -> tuple[float, float]:
    """The scale for the default budget, and how many minutes the runs need at it.

    The default budget is never a reason to refuse: if not even the smallest scale fits, the smallest is used.
    """
    needed = minutes(reproduction, runs, SCALES[-1], speed)
    if needed > budget_minutes:
        return SCALES[-1], needed
    scale = choose_scale(reproduction, runs, budget_minutes, speed)
    return scale, minutes(reproduction, runs, scale, speed)


class TimeLeft:
    """The remaining time of a study, from the costs of the remaining runs and the speed of the finished ones."""

    def __init__(
        self,
        reproduction: Reproduction,
        scale: float,
        speed: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reproduction, self._scale, self._clock = reproduction, scale, clock
        self._lock = threading.Lock()
        self._speed = speed * (os.cpu_count() or 1)
        self._began = clock()
        # Nominal seconds: of each whole run, and of its finished part.
        self._all: dict[Run, float] = {}
        self._done: dict[Run, float] = {}

    def planned(self, runs: Sequence[Run]) -> None:
        self._began = self._clock()
        self._all = {run: seconds(self._reproduction.cost(run), run, self._scale) for run in runs}

    def goes_on(self, run: Run, accesses: int) -> None:
        before = min(accesses, run.warm_up)
        spent = self._reproduction.cost(run).seconds(before, accesses - before)
        with self._lock:
            self._done[run] = min(spent, self._all[run])

    def ended(self, run: Run) -> None:
        with self._lock:
            self._done[run] = self._all[run]

    @property
    def seconds(self) -> float:
        """Seconds until the last run has ended."""
        with self._lock:
            done, passed = sum(self._done.values()), self._clock() - self._began
            # At first only the pilot's speed counts.
            speed = (self._speed * TRUSTED_SECONDS + done) / (TRUSTED_SECONDS + passed)
            return (sum(self._all.values()) - done) / speed


def duration(length: float) -> str:
    """Seconds in readable form."""
    if length < 100:
        return f"{length:.0f} s"
    whole = round(length / 60)
    return f"{whole} min" if whole < 100 else f"{whole // 60} h {whole % 60} min"
