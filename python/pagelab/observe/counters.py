"""Hardware events of the observed processes, counted by `perf stat`: walk cycles and TLB misses, where there are."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagelab.run_time import counters

_DEVICES = Path("/sys/bus/event_source/devices")
_CORES = ("cpu", "cpu_core", "armv8_pmuv3")


@dataclass
class HardwareCounts:
    """The counts, or why there are none."""

    counts: Mapping[str, int]
    missing: str | None

    @property
    def walk_share(self) -> float | None:
        """Walk cycles as a share of all cycles; a walk may overlap other work."""
        cycles = self.counts.get("cycles_user")
        walks = counters.translation(self.counts).get("walk_cycles")
        return walks / cycles if walks is not None and cycles else None

    @property
    def misses(self) -> float | None:
        """Misses of the last-level TLB for data."""
        return counters.translation(self.counts).get("tlb_misses")


def refusal() -> str | None:
    """Why this machine counts no hardware events; none if it may."""
    if not any((_DEVICES / name).is_dir() for name in _CORES):
        return "the processor, or the virtual machine, has no hardware counters"
    return None


@contextmanager
def counting(pids: Sequence[int]) -> Iterator[HardwareCounts]:
    """Counts until the end of the block; then the result is complete."""
    result = HardwareCounts({}, refusal())
    if result.missing:
        yield result
        return
    known = counters.find(_vendor())
    result.missing = known.missing
    if not known.events:
        yield result
        return
    command = [*known.command(Path("/dev/stderr"))[:-1], "--pid", ",".join(map(str, pids))]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    ) as perf:
        try:
            yield result
        finally:
            if perf.poll() is None:
                perf.send_signal(signal.SIGINT)
            _, text = perf.communicate()
            result.counts = known.read(text)
            if not result.counts:
                result.missing = "perf counted nothing"


def _vendor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("vendor_id"):
            return line.rpartition(":")[2].strip()
    return ""
