"""Percentiles of page faults, for every way in which one is served."""

import pytest

import pagelab as package

TOUCH = "stride:size=16MiB,stride=4KiB,write=1"
PERCENTILES = ("p50", "p90", "p95", "p99", "p999", "max")


def _stats(source: str, system: str, **options: object) -> dict[str, int]:
    return dict(package.run(source, system, **options).systems[0].stats)  # type: ignore[arg-type]


def _percentiles(stats: dict[str, int], name: str) -> list[int]:
    latencies = [stats[f"{name}.{percentile}"] for percentile in PERCENTILES]
    assert latencies == sorted(latencies), f"{name}: {latencies}"
    return latencies


def test_latencies_of_minor_faults_sum_to_their_cycles() -> None:
    stats = _stats(TOUCH, "radix@linux-4.9", set=["kernel.threads.kswapd=off"])
    assert stats["fault.minor.latency.cycles"] == stats["fault.cycles"]
    least, *_, most = _percentiles(stats, "fault.minor.latency")
    assert least < 1.5 * stats["fault.cycles"] / stats["fault.minor.count"]
    assert most <= stats["fault.cycles"]
    absent = [
        name for name in stats if name.startswith(("fault.ready.", "fault.major.latency", "fault.nested.latency"))
    ]
    assert not absent


def test_faults_with_a_ready_frame_are_told_apart() -> None:
    stats = _stats(
        f"{TOUCH},gap=40000", "mfoe-software@linux-4.9", machine="gem5-timing", set=["engine.sync_quantum_cycles=0"]
    )
    both = stats["fault.minor.latency.cycles"] + stats["fault.ready.latency.cycles"]
    assert both == stats["fault.cycles"]
    ready, minor = (_percentiles(stats, f"fault.{kind}.latency")[0] for kind in ("ready", "minor"))
    assert 0 < ready < minor, "a frame that is ready is neither allocated nor zeroed"


def test_an_engine_has_the_same_percentiles() -> None:
    stats = _stats(f"{TOUCH},gap=40000", "mfoe@linux-4.9", machine="gem5-timing")
    engine = "layer.native.fault_engine"
    for name in ("mapped", "refused"):
        _percentiles(stats, f"{engine}.{name}")
    assert stats[f"{engine}.mapped.max"] < stats["fault.minor.latency.p50"]
    assert f"{engine}.mapped.median" not in stats


def test_a_host_s_handlers_have_latencies_of_their_own() -> None:
    stats = _stats(TOUCH, "nested-radix-cold")
    assert stats["fault.nested.latency.cycles"] == stats["fault.nested.cycles"]
    _percentiles(stats, "fault.nested.latency")
    # A guest's fault includes those of the host that it causes.
    guests = stats["fault.minor.latency.cycles"]
    assert guests <= stats["fault.cycles"] < guests + stats["fault.nested.cycles"] + 1


def test_swap_has_latencies_without_costs_of_requests() -> None:
    swap = 'kernel.swap={"size_bytes":"64MiB","read_cycles":300000,"write_cycles":60000,"queue_depth":32}'
    stats = _stats("random:size=12MiB,accesses=20K,write=1", "radix", set=[swap, "kernel.cgroup_limit_bytes=8MiB"])
    assert stats["fault.major.count"] > 0
    assert _percentiles(stats, "fault.major.latency")[0] == pytest.approx(300_000, rel=0.2)
