"""Models that run on the times of page faults, rather than on accesses."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagelab import _engine
from pagelab.quantities import Count, count
from pagelab.replay.simulation import Overrides, Source, overrides

BOUNDS = {
    "nothing": "none: no fault misses",
    "start": "the start: most misses come before the rings are full for the first time",
    "ring": "the rings: most misses come between passes, so larger rings or a shorter period help",
    "refill": "refilling: most misses come during passes, so more or faster threads help",
}
"""What `Estimate.bound` means."""


@dataclass(frozen=True)
class Estimate:
    """The model's estimate for one set of parameters."""

    sweep: Mapping[str, str]
    """Parameters that the sweep sets"""
    config: Mapping[str, Any]
    timeline: Mapping[str, Any]
    """The basis of the faults' times and latencies"""
    outcome: Mapping[str, Any]

    @property
    def hit_rate(self) -> float:
        return float(self.outcome["hit_rate"])

    @property
    def speed_up(self) -> float:
        return float(self.outcome["speed_up"])

    @property
    def bound(self) -> str:
        """What limits the hit rate, a key of `BOUNDS`"""
        return str(self.outcome["bound"])


@dataclass(frozen=True)
class FaultStudy:
    """A model on one source of faults."""

    source: str
    info: Mapping[str, Any]
    """The source's description of itself"""
    estimates: Sequence[Estimate]
    json: str
    """The complete answer of the engine"""


def mfoe(
    faults: Source,
    *,
    set: Overrides = (),
    sweep: Mapping[str, Iterable[object]] | None = None,
    seed: Count | None = None,
) -> FaultStudy:
    """Estimates what the minor-fault offload engine would do for a program.

    Args:
        faults: A fault trace, text of perf or ftrace, or the spec of a fault process (`poisson:rate=365K,cores=12`).
        set: Parameters: `{"ring_entries": 512}` or `["ring_entries=512"]`. `available("fault-models")` lists them.
        sweep: Parameters with several values, each of which is combined with each of the others'.
        seed: Seed of a fault process; default: 1.

    Raises:
        UsageError: an unknown parameter or process, an impossible value, or faults without latencies.
        TraceError: a trace that cannot be read, or is damaged.
    """
    request = {
        "source": os.fspath(faults),
        "seed": 1 if seed is None else count("seed", seed),
        "settings": overrides(set),
        "sweep": [(name, [str(value) for value in values]) for name, values in (sweep or {}).items()],
    }
    answer = _engine.model_mfoe_json(json.dumps(request))
    study = json.loads(answer)
    runs = [Estimate(dict(run["sweep"]), run["config"], run["timeline"], run["outcome"]) for run in study["runs"]]
    return FaultStudy(study["source"], study["info"], runs, answer)


def fault_trace_info(path: Source) -> dict[str, Any]:
    """The description of a fault trace: program, machine, duration, the basis of its latencies; faults by kind and
    core.

    Raises:
        TraceError: there is none at `path`, or it is damaged.
    """
    info: dict[str, Any] = json.loads(_engine.fault_trace_info_json(os.fspath(path)))
    return info


def fault_trace_head(path: Source, rows: int = 10) -> list[dict[str, Any]]:
    """The first faults of a fault trace: time and latency in nanoseconds, core, address, kind.

    Raises:
        TraceError: there is none at `path`, or it is damaged.
        UsageError: `rows` is below 1.
    """
    wanted = count("rows", rows, least=1) or 1
    first: list[dict[str, Any]] = json.loads(_engine.fault_trace_head_json(os.fspath(path), wanted))
    return first
