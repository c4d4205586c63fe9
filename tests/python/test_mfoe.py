"""The minor-fault offload engine in replays, and the model of it that runs on the times of faults alone."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

import pagelab
from pagelab.faults import models

GHZ = 3.0
"""Clock of the machine `gem5-timing`."""
PERIOD_US = 2000
BOUND = 0.02
"""Hit rates of both may differ by so much: the model knows neither caches nor when entries are armed."""


BOUND_OF_BURSTS = 0.04
"""The first pages of a burst are the kernel's, as they are not armed yet."""


@dataclass(frozen=True)
class Replay:
    """What an engine did about a program's first touches, and the program's faults without it."""

    stats: dict[str, int]
    baseline: dict[str, int]
    trace: Path
    """Times and latencies of the latter."""

    def engine(self, name: str) -> int:
        return self.stats[f"layer.native.fault_engine.{name}"]

    @property
    def faults(self) -> int:
        return self.engine("hits") + self.engine("misses")

    @property
    def hit_rate(self) -> float:
        return self.engine("hits") / self.faults


def replay(
    folder: Path, entries: int, *sources: str, late_pass: str = "sleep", arrivals: str | tuple[str, ...] = ()
) -> Replay:
    trace = folder / "run.faults"
    baseline = pagelab.run(sources, "radix@linux-4.9", arrivals=arrivals, machine="gem5-timing", faults=trace)
    key = "system.layers.native.fault_engine"
    engine = f"mfoe@linux-4.9{{{key}.entries={entries},{key}.late_pass={late_pass}}}"
    with_it = pagelab.run(sources, engine, arrivals=arrivals, machine="gem5-timing")
    return Replay(dict(with_it.systems[0].stats), dict(baseline.systems[0].stats), trace)


def strides(threads: int, gap: int) -> str:
    """Threads that store to a page of their own every so many instructions."""
    return f"stride:size=32MiB,stride=4KiB,write=1,threads={threads},gap={gap}@0-{threads - 1}"


def estimate(replayed: Replay, entries: int, late_pass: str = "sleep") -> float:
    """The hit rate that the model finds for the faults as they came, and as long as they took, without the engine."""
    per_second = GHZ * 1e9
    parameters = {
        "ring_entries": entries,
        "period_us": PERIOD_US,
        "late_pass": late_pass,
        "clock_ghz": GHZ,
        "hit_cycles": replayed.engine("mapped.cycles") / replayed.engine("hits"),
        "miss_penalty_cycles": replayed.engine("refused.cycles") / max(1, replayed.engine("misses")),
        "refill_pages_per_second": round(per_second * replayed.engine("replaced") / replayed.engine("replaced.cycles")),
        "fill_pages_per_second": round(
            per_second * replayed.engine("first_filled") / replayed.engine("first_filled.cycles")
        ),
    }
    (only,) = models.mfoe(replayed.trace, set=parameters).estimates
    return only.hit_rate


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    ("gap", "entries", "late_pass"),
    [(21_000, 256, "sleep"), (8_000, 256, "sleep"), (8_000, 128, "sleep"), (21_000, 256, "at-once")],
)
def test_engine_and_model_agree_on_the_same_faults(
    tmp_path: Path, threads: int, gap: int, entries: int, late_pass: str
) -> None:
    replayed = replay(tmp_path, entries, strides(threads, gap), late_pass=late_pass)
    assert replayed.faults > 0.99 * threads * 8192
    modelled = estimate(replayed, entries, late_pass)
    assert replayed.hit_rate == pytest.approx(modelled, abs=BOUND)
    assert 0.1 < modelled < 0.95, "rings and period decide"


@pytest.mark.parametrize(("gap", "entries"), [(500, 256), (500, 64), (4000, 256)])
def test_engine_and_model_agree_on_bursts(tmp_path: Path, gap: int, entries: int) -> None:
    # Each process touches its 512 pages at once.
    burst = f"seq:size=2MiB,step=4096,passes=1,write=1,gap={gap}@0-3,per_second=400,count=100"
    replayed = replay(tmp_path, entries, arrivals=burst)
    assert replayed.faults > 0.9 * 100 * 512
    modelled = estimate(replayed, entries)
    assert replayed.hit_rate == pytest.approx(modelled, abs=BOUND_OF_BURSTS)
    assert 0.1 < modelled < 0.99


def test_a_run_writes_its_faults_as_a_trace(pagelab: Pagelab, tmp_path: Path) -> None:
    run = ("run", strides(2, 8000), "-m", "gem5-timing", "--quiet", "--json", "run.json")
    done = pagelab(*run, "-s", "radix@linux-4.9", "--faults", "new/run.faults")
    assert done.returncode == 0, done.stderr
    stats = json.loads((tmp_path / "run.json").read_text())["results"][0]["stats"]
    info = models.fault_trace_info(tmp_path / "new" / "run.faults")
    # Both fault on the first page of code; who comes second finds it mapped.
    assert info["faults"] == stats["fault.minor.count"] + stats["fault.raced.count"] > 2 * 8192
    assert (info["cores"], info["threads"], info["processes"]) == (2, 2, 1)
    assert info["duration_ns"] == pytest.approx(stats["elapsed_cycles"] / GHZ, abs=1)
    busy = stats["cycles"] - stats["cycles.idle"] - stats["cycles.blocked"]
    assert info["cpu_time_ns"] == pytest.approx(busy / GHZ, abs=1)
    counts = info["counts"]
    assert counts["by_core"] == [8193, 8193]
    assert counts["writes"] == 2 * 8192
    assert counts["forbidden"] == counts["by_kernel"] == counts["unknown"] == 0
    modelled = pagelab("model", "mfoe", "new/run.faults", "--set", "faults=all", "--json", "model.json")
    assert modelled.returncode == 0, modelled.stderr
    (only,) = json.loads((tmp_path / "model.json").read_text())["runs"]
    share = stats["cycles.fault"] / busy
    assert only["outcome"]["overhead_before"] == pytest.approx(share, rel=0.01), "as the replay has it"

    # None of these is found out only when the run has ended.
    again = pagelab("run", "gups:size=1GiB", "-s", "radix", "--faults", "new/run.faults")
    assert_fails(again, 2, "run.faults: exists; name another output")
    assert_fails(
        pagelab(*run, "-s", "radix", "-s", "mfoe", "--faults", "two.faults"),
        2,
        "covers one system: name only one",
    )
    assert_fails(pagelab(*run, "-s", "radix", "--warm-up", "1K", "--faults", "two.faults"), 2, "omit the warm-up")
    small = ("run", "seq:size=64KiB,passes=1", "-s", "radix")
    assert_fails(pagelab(*small, "--faults", "two.faults", "--json", "two.faults"), 2, "name it two.json")
    assert_fails(pagelab(*small, "--faults", ""), 2, "--faults takes the name of a new file")
    assert not list(tmp_path.glob("two.faults*"))
    assert pagelab(*small, "--seed", "7", "--max-accesses", "500", "--faults", "two.faults").returncode == 0
    command = models.fault_trace_info(tmp_path / "two.faults")["command"]
    assert command[: 1 + len(small)] == ["pagelab", *small]
    assert command[-4:] == ["--seed", "7", "--max-accesses", "500"]


def test_the_stages_of_both_add_up(tmp_path: Path) -> None:
    replayed = replay(tmp_path, 256, strides(1, 8_000))
    for stats in (replayed.baseline, replayed.stats):
        stages = [stats[name] for name in stats if name.startswith("fault.stage.") and name.endswith(".cycles")]
        assert sum(stages) == stats["fault.cycles"]
    steps = sum(replayed.engine(f"step.{step}.cycles") for step in ("header", "entry", "lock", "take", "map"))
    assert steps == replayed.engine("mapped.cycles") + replayed.engine("refused.cycles")


def test_engines_are_listed_and_refused_where_they_cannot_be(pagelab: Pagelab) -> None:
    listed = pagelab("list", "fault-engines")
    assert listed.returncode == 0
    assert "mfoe" in listed.stdout
    run = ("run", "seq:size=1MiB,passes=1", "-s")
    assert_fails(pagelab(*run, "mfoe{system.layers.native.fault_engine.entries=0}"), 2, "entries", "1 to 65535")
    engine = 'system.layers.native.fault_engine={"kind":"mfoe"}'
    assert_fails(pagelab(*run, "hashed-compact", "--set", engine), 2, "fault_engine", "a slot of a hashed table")
