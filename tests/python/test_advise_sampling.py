"""Advice on samples: what is known of a whole program and what is estimated, and how far estimates may be off."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import Pagelab, needs_recorder

from pagelab import _engine, record, save_sample, trace_info
from pagelab.advice import Subject, can_be_sampled
from pagelab.advice.estimate import Estimate
from pagelab.advice.gains import Bar
from pagelab.capture.length import Length
from pagelab.replay import default_sample
from pagelab.replay.default_sample import LEAST_ACCESSES, windows_of
from pagelab.report.figures import whole_profile
from pagelab.results.results import SystemResult
from pagelab.results.windows import FEW_WINDOWS


@pytest.fixture(scope="module")
def chase(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("chase") / "chase"
    subprocess.run(["cc", "-O2", "-o", program, Path(__file__).parent / "chase.c"], check=True)
    return program


def _result(windows: list[dict[str, int]], program: dict[str, int]) -> SystemResult:
    names = {name for window in windows for name in window}
    stats = {name: sum(window.get(name, 0) for window in windows) for name in names}
    stats |= {f"program.{name}": value for name, value in program.items()}
    return cast("SystemResult", SimpleNamespace(stats=stats, windows=tuple(windows)))


def _window(cycles: int, *, translation: int = 0, fault: int = 0) -> dict[str, int]:
    return {"instructions": 100, "cycles": cycles, "cycles.translation": translation, "cycles.fault": fault}


def test_time_of_faults_is_known_outside_of_windows_and_other_time_is_estimated() -> None:
    windows = [_window(300, translation=50, fault=100), _window(100, translation=10)]
    result = _result(windows, {"cycles.fault": 5000, "cycles.kernel": 70, "fault.minor.count": 9})
    estimate = Estimate.from_result(result, Length(2000))
    # Ten times as many instructions as the windows have: 300 cycles of these are of no fault.
    assert estimate.times == 10
    assert estimate.busy == 10 * 300 + 5000 + 70
    assert estimate.translation == 10 * 60
    assert estimate.fault == 5000
    assert estimate.paging == 5600


def test_what_was_replayed_as_a_whole_is_taken_as_it_is() -> None:
    stats = {"instructions": 100, "cycles": 1000, "cycles.idle": 100, "cycles.fault": 300, "cycles.translation": 50}
    estimate = Estimate.from_result(cast("SystemResult", SimpleNamespace(stats=stats, windows=())), Length(100))
    assert (estimate.busy, estimate.fault, estimate.translation, estimate.times) == (900, 300, 50, 1)
    assert estimate.half_width([], 0.5) == 0


def test_intervals_hold_what_windows_differ_by() -> None:
    def half_width(cycles: list[int], saved: list[int]) -> float:
        windows = [_window(cycles_here) for cycles_here in cycles]
        estimate = Estimate.from_result(_result(windows, {"fault.minor.count": 0}), Length(100 * len(cycles)))
        return estimate.half_width(saved, sum(saved) / sum(cycles))

    # All windows save a tenth of their time: that is certain.
    assert half_width([100, 200, 300, 400], [10, 20, 30, 40]) == pytest.approx(0)
    # The residuals are −5, 5, −5, 5 of 400 cycles; Student's t of three degrees of freedom is 3.182.
    wanted = 3.182 * (100 * 4 / 3) ** 0.5 / 400
    assert half_width([100] * 4, [5, 15, 5, 15]) == pytest.approx(wanted, rel=1e-3)
    assert half_width([100], [5]) == 0


def test_ranges_hold_the_interval_of_the_sample() -> None:
    plain, wider = Bar.of_gains([0.2, 0.1]), Bar.of_gains([0.2, 0.1], [0.05, 0.02])
    assert wider.low < plain.low < plain.high < wider.high
    assert wider.low == Bar.of_gains([0.08]).low
    assert wider.high == Bar.of_gains([0.25]).high
    # No more than all of the time can be saved.
    assert Bar.of_gains([0.99], [0.5]).high <= 1


def test_a_profile_of_windows_becomes_one_of_the_program() -> None:
    row = {"walks": 3, "translation_cycles": 30, "faults": 1, "fault_cycles": 100, "file": "a"}
    other: dict[str, Any] = {"walks": 0, "translation_cycles": 0, "faults": 0, "fault_cycles": 0}
    touched = other | {"skipped_faults": 7, "skipped_fault_cycles": 700, "file": "b"}
    table = {"rows": [row, touched], "others": 0, "others_cost": other}
    rows = whole_profile({"regions": table, "granularity_bytes": 4096}, 10)["regions"]["rows"]
    # The most expensive first: 700 cycles, then 10 times 30 and 100.
    assert [row["file"] for row in rows] == ["b", "a"]
    assert rows[0] == {"walks": 0, "translation_cycles": 0, "faults": 7, "fault_cycles": 700, "file": "b"}
    assert rows[1] == {"walks": 30, "translation_cycles": 300, "faults": 1, "fault_cycles": 100, "file": "a"}


def test_long_recordings_are_sampled_and_short_ones_are_not() -> None:
    def subject(accesses: int, **values: Any) -> Subject:
        return Subject("a", "a", accesses=accesses, recorded_instructions=2 * accesses, **values)

    assert can_be_sampled(subject(LEAST_ACCESSES))
    assert not can_be_sampled(subject(LEAST_ACCESSES - 1))
    assert not can_be_sampled(subject(LEAST_ACCESSES, is_whole=False))
    assert not can_be_sampled(subject(LEAST_ACCESSES), max_accesses=1000)
    assert not can_be_sampled(Subject("gups", "gups"))


@pytest.mark.parametrize("instructions", [10**7, 10**8, 10**9, 10**11])
def test_windows_are_a_small_part_of_a_hundred_periods(instructions: int) -> None:
    every, length, warm = (int(part.partition("=")[2]) for part in windows_of(instructions).split(","))
    assert every == instructions // 100
    assert length == warm
    assert 20_000 <= length <= every / 4
    assert every / 1000 <= length <= max(every / 50, 20_000)


@needs_recorder
def test_programs_that_use_other_memory_all_the_time_get_fewer_windows(
    tmp_path: Path, chase: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "chase.trace"
    record([chase, "16", "100000"], trace)
    instructions = trace_info(trace)["meta"]["accesses"]["instructions"]
    by_share = {}
    for share in (2.0, 0.001):
        monkeypatch.setattr(default_sample, "_LARGE_SHARE", share)
        output = tmp_path / f"{share}.trace"
        default_sample.save_default_sample(trace, output, instructions, None)
        info = trace_info(output)
        by_share[share] = (info["meta"]["stretches"]["windows"], info["accesses"])
    (many, large), (few, small) = by_share[2.0], by_share[0.001]
    assert few >= FEW_WINDOWS
    assert many >= 3 * few
    assert small < large


def test_samples_reach_as_far_back_as_the_largest_cache(tmp_path: Path) -> None:
    """Of a cache of 32 MiB, as far as any sample does."""
    reaches = []
    for name, reach in (("all", None), ("large", 32 << 20), ("small", 1 << 20)):
        sample = "every=1M,length=1K,warm=1K"
        reaches.append(
            save_sample("gups:size=64MiB,updates=500K", tmp_path / f"{name}.trace", sample=sample, reach=reach).accesses
        )
    assert reaches[0] == reaches[1] > 2 * reaches[2]
    cache = json.loads(_engine.machine_json("kabylake-7700hq"))["cache"]
    assert default_sample._largest_cache(cache) == 6 << 20


@needs_recorder
def test_a_sample_is_advised_as_the_whole_recording_is(tmp_path: Path, pagelab: Pagelab) -> None:
    (tmp_path / "walks.c").write_text(
        """
        #include <stdlib.h>
        int main(void) {
            size_t bytes = 24 << 20;
            volatile char *at = malloc(bytes);
            unsigned long state = 1, sum = 0;
            for (size_t i = 0; i < bytes; i += 4096)
                at[i] = 1;
            for (long i = 0; i < 5200000; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                sum += at[(state >> 20) % (i % 8 ? 65536 : bytes)];
                at[i % 4096]++;
            }
            return sum & 1;
        }
        """
    )
    subprocess.run(["gcc", "-O1", "-o", tmp_path / "walks", tmp_path / "walks.c"], check=True)
    recorded = pagelab("record", "-q", "-o", "w.trace", "--", "./walks")
    assert recorded.returncode in (0, 1), recorded.stderr
    documents = []
    for name, options in (("sampled", []), ("whole", ["--whole"])):
        done = pagelab("advise", "-q", "--no-nested", *options, "--json", f"{name}.json", "w.trace")
        assert done.returncode == 0, done.stderr
        assert ("sampled windows" in done.stdout) == (name == "sampled")
        assert "GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in done.stdout
        assert "MADV_HUGEPAGE" not in done.stdout
        documents.append(json.loads((tmp_path / f"{name}.json").read_text()))
    sampled, whole = documents
    assert (sampled["sampled"], whole["sampled"]) == (True, False)
    assert sampled["windows"] >= 30
    assert sampled["program_seconds"] == pytest.approx(whole["program_seconds"], rel=0.1)
    assert sampled["faults"]["count"] == whole["faults"]["count"]
    ranges = [
        next(remedy["saved"] for remedy in document["remedies"] if remedy["name"] == "huge") for document in documents
    ]
    # The sample's range holds that of the whole, nearly.
    assert ranges[0]["low"] <= ranges[1]["low"] + 0.02
    assert ranges[0]["high"] >= ranges[1]["high"] - 0.02
    assert ranges[0]["high"] - ranges[0]["low"] < 2 * (ranges[1]["high"] - ranges[1]["low"]) + 0.05
    assert {remedy["name"]: remedy["worth_it"] for remedy in sampled["remedies"]} == {
        remedy["name"]: remedy["worth_it"] for remedy in whole["remedies"]
    }
