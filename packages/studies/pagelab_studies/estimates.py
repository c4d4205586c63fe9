"""The event model's estimates for a run's page faults, as statistics."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pagelab.faults import models

_PREFIX = "model."


def statistics(faults: str | Path, settings: Sequence[str], seed: int, name: str = "") -> dict[str, int]:
    """The estimate for a fault trace or a fault process, as whole numbers: `model.*`, or `model.NAME.*`.

    Raises:
        UsageError, TraceError: as `models.mfoe`.
    """
    (only,) = models.mfoe(faults, set=settings, seed=seed).estimates
    cores = only.outcome["cores"]
    values = {
        "faults": only.outcome["faults"],
        "hits": only.outcome["hits"],
        "cut": only.timeline["cut"],
        "duration_ns": round(only.timeline["duration_seconds"] * 1e9),
        "parallelism_ppm": round(only.timeline["parallelism"] * 1e6),
        "before_ns": round(sum(core["before_ps"] for core in cores) / 1000),
        "after_ns": round(sum(core["after_ps"] for core in cores) / 1000),
    }
    return {f"{_prefix(name)}{key}": value for key, value in values.items()}


def _prefix(name: str) -> str:
    return f"{_PREFIX}{name}." if name else _PREFIX


class Estimate:
    """Figures computed from these statistics."""

    def __init__(self, stats: Mapping[str, int], name: str = "") -> None:
        model = {
            key: stats[f"{_prefix(name)}{key}"]
            for key in ("faults", "hits", "duration_ns", "parallelism_ppm", "before_ns", "after_ns", "cut")
        }
        self.busy_cores = model["parallelism_ppm"] / 1e6
        """On the mean of the time."""
        self.seconds = model["duration_ns"] / 1e9
        """From the start of the trace to its end."""
        busy_ns = model["duration_ns"] * self.busy_cores
        self.hit_rate = 100 * model["hits"] / model["faults"]
        """Per cent of the faults."""
        self.faults_per_second = model["faults"] / model["duration_ns"] * 1e9
        self.share = 100 * model["before_ns"] / busy_ns
        """Per cent of the program's time on its cores that faults take without the engine."""
        self.share_after = 100 * model["after_ns"] / (busy_ns - model["before_ns"] + model["after_ns"])
        """The same with the engine, of the shorter time."""
        self.cut = 100 * model["cut"] / model["faults"]
        """Per cent of the faults whose latency, one number for all, reached beyond the next fault."""
        self.speed_up = busy_ns / (busy_ns - model["before_ns"] + model["after_ns"])
