"""The minor-fault offload engine in replays, and the model of it that runs on the times of faults alone."""

from dataclasses import dataclass

import pytest
from conftest import Pagelab, assert_fails

import pagelab
from pagelab import fault_models

GHZ = 3.0
"""Clock of the machine `gem5-timing`."""
PERIOD_US = 2000
BOUND = 0.02
"""Hit rates of both may differ by so much: the model knows neither caches nor when entries are armed."""


@dataclass(frozen=True)
class Replay:
    """What an engine did about a program's first touches, and what the kernel's faults alone would have cost."""

    stats: dict[str, int]
    baseline: dict[str, int]

    def engine(self, name: str) -> int:
        return self.stats[f"layer.native.fault_engine.{name}"]

    @property
    def faults(self) -> int:
        return self.engine("hits") + self.engine("misses")

    @property
    def hit_rate(self) -> float:
        return self.engine("hits") / self.faults


def replay(threads: int, gap: int, entries: int) -> Replay:
    """Threads that store to a page of their own every so many instructions."""
    spec = f"stride:size=32MiB,stride=4KiB,write=1,threads={threads},gap={gap}@0-{threads - 1}"
    settings = f"mfoe@linux-4.9{{system.layers.native.fault_engine.entries={entries}}}"
    results = pagelab.run(spec, systems=["radix@linux-4.9", settings], machine="gem5-timing")
    baseline, engine = (dict(result.stats) for result in results.systems)
    return Replay(engine, baseline)


def estimate(of: Replay, threads: int, entries: int) -> float:
    """The hit rate that the model finds for faults as they come, and as long as they take, without the engine."""
    seconds = of.baseline["elapsed_cycles"] / GHZ / 1e9
    latency_ns = of.baseline["fault.cycles"] / of.baseline["fault.minor.count"] / GHZ
    process = (
        f"even:rate={round(of.faults / seconds)},cores={threads},seconds={seconds:.6f},latency_ns={round(latency_ns)}"
    )
    per_second = GHZ * 1e9
    parameters = {
        "ring_entries": entries,
        "period_us": PERIOD_US,
        "late_pass": "sleep",
        "clock_ghz": GHZ,
        "hit_cycles": of.engine("mapped.cycles") / of.engine("hits"),
        "miss_penalty_cycles": of.engine("refused.cycles") / max(1, of.engine("misses")),
        "refill_pages_per_second": round(per_second * of.engine("replaced") / of.engine("replaced.cycles")),
        "fill_pages_per_second": round(per_second * of.engine("first_filled") / of.engine("first_filled.cycles")),
    }
    (only,) = fault_models.mfoe(process, set=parameters).estimates
    return only.hit_rate


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("gap", "entries"), [(21_000, 256), (8_000, 256), (8_000, 128)])
def test_engine_and_model_agree_on_the_same_faults(threads: int, gap: int, entries: int) -> None:
    of = replay(threads, gap, entries)
    assert of.faults > 0.99 * threads * 8192
    modelled = estimate(of, threads, entries)
    assert of.hit_rate == pytest.approx(modelled, abs=BOUND)
    assert 0.1 < modelled < 0.95, "rings and period decide"


def test_the_stages_of_both_add_up() -> None:
    of = replay(1, 8_000, 256)
    for stats in (of.baseline, of.stats):
        stages = [stats[name] for name in stats if name.startswith("fault.stage.")]
        assert sum(stages) == stats["fault.cycles"]
    steps = sum(of.engine(f"step.{step}.cycles") for step in ("header", "entry", "lock", "take", "map"))
    assert steps == of.engine("mapped.cycles") + of.engine("refused.cycles")


def test_engines_are_listed_and_refused_where_they_cannot_be(pagelab: Pagelab) -> None:
    listed = pagelab("list", "fault-engines")
    assert listed.returncode == 0
    assert "mfoe" in listed.stdout
    run = ("run", "seq:size=1MiB,passes=1", "-s")
    assert_fails(pagelab(*run, "mfoe{system.layers.native.fault_engine.entries=0}"), 2, "entries", "1 to 65535")
    engine = 'system.layers.native.fault_engine={"kind":"mfoe"}'
    assert_fails(pagelab(*run, "hashed-compact", "--set", engine), 2, "fault_engine", "a slot of a hashed table")
