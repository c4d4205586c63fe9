"""The cost of observing, and the bound that it keeps.

Parameters: the bound, as a share of the CPU time of what is observed.
Deviations: this process's own CPU time is measured. What samples and cleared accessed bits take in the observed program
    is estimated.
"""

import time
from dataclasses import dataclass, field

FAULT_SAMPLE_SECONDS = 2e-6
CLOCK_SAMPLE_SECONDS = 4e-6
"""In the observed program, for a sample with its call chain. Estimates"""
SAMPLED_SWITCH_SECONDS, COUNTED_SWITCH_SECONDS = 5e-6, 2e-6
"""In the kernel, for a switch of context of a thread: its events are switched, too, those that sample and those that
count. Estimates, of runs that docs/observe.md describes"""
_SAMPLING_PART = 0.5
"""Of the bound; the rest is for looks at the memory"""
_UNCOUNTED_SECONDS = 0.005
"""What samples may take of a program that has hardly run yet"""
_LEAST_SECONDS = 0.5
"""CPU time of the program that tells how often it switches context"""


@dataclass
class Budget:
    """What was spent, and what may be."""

    share: float
    first_look: float = 0.0
    """CPU seconds of the first look, which is always made"""
    sampling: float = 0.0
    """CPU seconds that samples took, here and in the program"""
    in_program: float = 0.0
    """CPU seconds that observing took in the program, estimated"""
    switches: float = 0.0
    """That part of it which switches of context take"""
    monitor: float = 0.0
    """CPU seconds of DAMON's thread"""
    _begin: float = field(default_factory=time.process_time)
    _end: float | None = None

    @property
    def own(self) -> float:
        """CPU seconds of this process since it began to observe."""
        return (time.process_time() if self._end is None else self._end) - self._begin

    @property
    def spent(self) -> float:
        return self.own + self.in_program + self.monitor

    def close(self) -> None:
        self._end = time.process_time()

    def allows(self, seconds: float, program_seconds: float) -> bool:
        """Whether so many more CPU seconds keep to the bound, after so many of the program."""
        return self.spent - self.first_look + seconds <= self.share * program_seconds

    def allows_switches(self, program_seconds: float) -> bool:
        """Whether switches of context have taken no more than their part of the bound, once that can be told."""
        return program_seconds < _LEAST_SECONDS or self.switches <= self.share * _SAMPLING_PART * program_seconds

    def allows_sampling(self, program_seconds: float) -> bool:
        """Whether samples have taken no more than their part of the bound."""
        return self.sampling <= self.share * _SAMPLING_PART * program_seconds + _UNCOUNTED_SECONDS
