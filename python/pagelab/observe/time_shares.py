"""Where the CPU time of the observed program goes: its own code, faults and other work of the kernel, from samples.

Deviations: a timer that expires while a fault returns, with interrupts disabled, is taken in the program's code. So the
    upper ends of the intervals of faults include the time of returns (`RETURN_SECONDS` per fault, at most).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pagelab.confidence.wilson import share_interval
from pagelab.observe.kernel_code import FAULT, OTHER, KernelSymbols
from pagelab.observe.observation import Observation
from pagelab.observe.sampling import CLOCK_NANOSECONDS

PROGRAM = "the program's own code"
AVOIDABLE = "in faults, without clearing and copying"
RETURN_SECONDS = 350e-9
"""Per fault, that samples do not see, at most: estimated, twice what a program that measures its own faults showed on
Sapphire Rapids in a virtual machine with Linux 6.18 (150 to 210 ns, six runs)"""
_WHOLE = 0.9
_CHANGED_LITTLE = ("clearing pages", "copying pages")


@dataclass(frozen=True)
class Share:
    """A share of the CPU time with its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class TimeShares:
    """The shares, or why there are none."""

    samples: int
    activities: Mapping[str, Share]
    """Of the program's own code and of each activity of the kernel"""
    parts: Mapping[str, Share]
    """Of what the kernel did in them: compaction, clearing and so on"""
    missing: str | None
    coverage: float = 1.0
    """Which part of the CPU time was sampled"""
    returns: float = 0.0
    """The share of the CPU time in returns from faults, at most"""

    @property
    def faults(self) -> Share | None:
        """None if it cannot be measured here."""
        if self.missing:
            return None
        return self.activities.get(FAULT) or _with_returns(_share(0, self.samples, self.coverage), self.returns)

    @property
    def avoidable(self) -> Share | None:
        """Faults without clearing and copying pages, which larger pages do not save."""
        return None if self.missing else self.parts[AVOIDABLE]


def time_shares(observation: Observation) -> TimeShares:
    """The shares, from the samples of an observation."""
    samples = observation.clock.total()
    symbols = KernelSymbols() if observation.kernel_seen and samples else None
    missing = _missing(observation, samples, symbols)
    activities: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    known: dict[tuple[int, ...], tuple[str, str]] = {}
    for (_, kernel, _), count in observation.clock.items():
        if not kernel:
            activities[PROGRAM] += count
        elif symbols:
            if kernel not in known:
                known[kernel] = symbols.classify(kernel)
            activity, part = known[kernel]
            activities[activity] += count
            parts[part] += count if part != OTHER else 0
            parts[AVOIDABLE] += activity == FAULT and part not in _CHANGED_LITTLE and count
    covered = _coverage(samples, observation.totals.cpu_seconds)
    returns = _returns(observation)
    shares = {name: _share(count, samples, covered) for name, count in activities.most_common()}
    if FAULT in shares:
        shares[FAULT] = _with_returns(shares[FAULT], returns)
    if PROGRAM in shares:
        own = shares[PROGRAM]
        shares[PROGRAM] = Share(own.share, max(own.low - returns, 0.0), own.high)
    within = {AVOIDABLE: _with_returns(_share(parts.pop(AVOIDABLE, 0), samples, covered), returns)}
    within.update((name, _share(count, samples, covered)) for name, count in parts.most_common() if name != OTHER)
    return TimeShares(samples, shares, within, missing, covered, returns)


def _missing(observation: Observation, samples: int, symbols: KernelSymbols | None) -> str | None:
    if observation.events_refused:
        return observation.events_refused
    if not observation.kernel_seen:
        return "samples of kernel code need kernel.perf_event_paranoid of at most 1, CAP_PERFMON or root"
    if not samples:
        return "the program used so little CPU time that no sample was taken"
    if symbols is not None and not symbols.known:
        return "/proc/kallsyms hides the kernel's functions: grant CAP_SYSLOG, or run as root"
    return None


def _coverage(samples: int, cpu_seconds: float) -> float:
    """The part of the CPU time that samples stand for: sampling pauses to keep the bound on cost."""
    if cpu_seconds <= 0:
        return 1.0
    part = samples * CLOCK_NANOSECONDS / 1e9 / cpu_seconds
    # Some samples come late, or at an end.
    return 1.0 if part >= _WHOLE else part


def _returns(observation: Observation) -> float:
    """The share of the CPU time in returns from faults, at most."""
    totals = observation.totals
    return min(totals.faults * RETURN_SECONDS / totals.cpu_seconds, 1.0) if totals.cpu_seconds > 0 else 0.0


def _with_returns(share: Share, returns: float) -> Share:
    return Share(share.share, share.low, min(share.high + returns, 1.0))


def _share(count: int, samples: int, covered: float) -> Share:
    """A share of the CPU time; what was done in a time that was not sampled may be all this, or nothing of it."""
    low, high = share_interval(count, samples)
    return Share(count / samples if samples else 0.0, low * covered, high * covered + 1 - covered)
