"""`pagelab calibrate --major-faults`: stages of major faults from what perf records, settings, and what is refused."""

import os
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Pagelab, assert_fails

from pagelab import UsageError
from pagelab.cli.major_faults import _stages
from pagelab.hardware.names import FIRST_LINE
from pagelab.major_faults import MajorFaultError, measurement, places, recorder
from pagelab.major_faults import footprint as footprint_module
from pagelab.major_faults.events import TRACEPOINTS, Event, parse
from pagelab.major_faults.footprint import (
    Caches,
    Footprint,
    FootprintPass,
    Loss,
    NoFootprintError,
    caches,
    footprint,
)
from pagelab.major_faults.measurement import Device, Measured, Plan, TracepointPasses
from pagelab.major_faults.settings import settings, to_toml
from pagelab.major_faults.stages import STAGES, Spread, cut, spans

THREAD = "pagelab-77"
# Recorded with perf 6.1 on Linux 6.18 and cut: a fault that sleeps while another program runs, then one whose device
# answers before it can sleep. The interrupt of a network card comes between.
SLEEPING = """\
      pagelab-77    79 [000]   100.000001000:             exceptions:page_fault_user: address=0x7fd3 ip=0x7fd3 error_code=0x4
      pagelab-77    79 [000]   100.000003500:   filemap:mm_filemap_add_to_page_cache: dev 254:0 ino 9a4010 pfn=0x17d684 ofs=233852928 order=0
      pagelab-77    79 [000]   100.000004500:                  block:block_bio_queue: 254,0 R 141195304 + 8 [pagelab-77]
      pagelab-77    79 [000]   100.000006000:                   block:block_rq_issue: 254,0 R 4096 () 141195304 + 8 0x2,0,4 [pagelab-77]
      opt cgu.1   3066 [001]   100.000006500:                   block:block_rq_issue: 254,0 WS 4096 () 88 + 8 0x2,0,4 [opt cgu.1]
      pagelab-77    79 [000]   100.000009000:                     sched:sched_switch: prev_comm=pagelab-77 prev_pid=79 prev_prio=98 prev_state=D ==> next_comm=opt cgu.3 next_pid=3304 next_prio=120
      opt cgu.1   3066 [001]   100.000020000:                  irq:irq_handler_entry: irq=41 name=virtio3-rx
      opt cgu.1   3066 [001]   100.000080000:                  irq:irq_handler_entry: irq=36 name=virtio1-req.0
      opt cgu.1   3066 [001]   100.000084000:                block:block_rq_complete: 254,0 R () 141195304 + 8 0x2,0,4 [0]
      opt cgu.1   3066 [001]   100.000085500:                     sched:sched_waking: comm=pagelab-77 pid=79 prio=98 target_cpu=000
      opt cgu.3   3304 [000]   100.000095500:                     sched:sched_switch: prev_comm=opt cgu.3 prev_pid=3304 prev_prio=120 prev_state=R ==> next_comm=pagelab-77 next_pid=79 next_prio=98
"""  # noqa: E501
AWAKE = """\
      pagelab-77    79 [000]   100.000201000:             exceptions:page_fault_user: address=0x7fd3 ip=0x7fd3 error_code=0x4
      pagelab-77    79 [000]   100.000204000:   filemap:mm_filemap_add_to_page_cache: dev 254:0 ino 9a4010 pfn=0x17d685 ofs=22360064 order=0
      pagelab-77    79 [000]   100.000205000:                  block:block_bio_queue: 254,0 R 140749464 + 8 [pagelab-77]
      pagelab-77    79 [000]   100.000207000:                   block:block_rq_issue: 254,0 R 4096 () 140749464 + 8 0x2,0,4 [pagelab-77]
      pagelab-77    79 [000]   100.000257000:                  irq:irq_handler_entry: irq=36 name=virtio1-req.0
      pagelab-77    79 [000]   100.000262000:                block:block_rq_complete: 254,0 R () 140749464 + 8 0x2,0,4 [0]
"""  # noqa: E501
WITHOUT_REQUESTS = """\
      pagelab-77    79 [000]   100.000300500:             exceptions:page_fault_user: address=0x7fd3 ip=0x7fd3 error_code=0x4
      pagelab-77    79 [000]   100.000304500:   filemap:mm_filemap_add_to_page_cache: dev 253:0 ino c pfn=0x22f41a ofs=39038976 order=0
      pagelab-77    79 [000]   100.000306500:                  block:block_bio_queue: 253,0 R 354776 + 8 [pagelab-77]
      pagelab-77    79 [000]   100.000309500:               block:block_bio_complete: 253,0 R 354776 + 8 [0]
"""  # noqa: E501
SECONDS = 100_000_000_000
TOUCHES = [(SECONDS + 500, SECONDS + 98_500), (SECONDS + 200_500, SECONDS + 265_000)]


def events(*texts: str) -> list[Event]:
    return parse("".join(texts).splitlines(), THREAD)


def spread(nanoseconds: float, count: int = 10_000) -> Spread:
    return Spread(nanoseconds, nanoseconds - 100, nanoseconds + 100, (nanoseconds - 50, nanoseconds + 50), count)


def device(slept: int = 9800, irq: str = "36 virtio1-req.0", event_ns: float = 500, **stages: float) -> Device:
    """A device that was never measured."""
    every = {"bio": 1500.0, "block layer": 2500.0, "switch": 3500.0, "device": 70_000.0, "interrupt": 4500.0}
    every |= {"completion": 1500.0, "wakeup": 6500.0, "kernel": 30_000.0} | stages
    return Device(
        name="vda",
        file_system="ext4",
        cpu=0,
        real_time=True,
        irq=irq,
        stages={name: spread(value) for name, value in every.items() if value},
        plain=spread(100_000),
        direct=None,
        steps=[TracepointPasses("", (100_000,), ())],
        faults=10_000,
        slept=slept,
        awake=10_000 - slept,
        incomplete=0,
        event_ns=event_ns,
        instructions=None,
    )


def measured(drive: Device) -> Measured:
    return Measured("Linux 6.18.1", "Imaginary", 2.0, 5, drive, None, "not asked for")


def test_what_perf_prints_becomes_events() -> None:
    kinds = [event.kind for event in events(SLEEPING)]
    assert kinds == ["fault", "cached", "queued", "issued", "issued", "away", "interrupt", "interrupt",
                     "completed", "waking", "back"]  # fmt: skip
    assert events(SLEEPING)[2] == Event("queued", SECONDS + 4500, sector="141195304")
    assert events(SLEEPING)[7] == Event("interrupt", SECONDS + 80_000, irq="36 virtio1-req.0")
    assert not parse(SLEEPING.splitlines()[:3], "another"), "faults and reads of other threads are left out"
    with pytest.raises(MajorFaultError, match=r"perf script printed 'what'; expected NAME TID \[CPU\]"):
        parse(["what"], THREAD)


def test_every_stage_is_the_time_between_its_events() -> None:
    recorded = cut(events(SLEEPING, AWAKE), TOUCHES)
    assert (len(recorded.faults), recorded.incomplete, recorded.irq) == (2, 0, "36 virtio1-req.0")
    sleeping, awake = recorded.faults
    assert (sleeping.slept, sleeping.awake, awake.slept, awake.awake) == (True, False, False, True)
    # The events of SLEEPING, subtracted by hand.
    assert {stage.name: stage.span(sleeping) for stage in STAGES} == {
        "exception": 500,
        "handler": 2500,
        "bio": 1000,
        "block layer": 1500,
        "switch": 3000,
        "device": 74_000,
        "interrupt": 4000,
        "completion": 1500,
        "wakeup": 10_000,
        "return": 3000,
        "return awake": None,
        "kernel": 98_000 - 74_000,
        "whole": 98_000,
    }
    assert {stage.name: span for stage in STAGES if (span := stage.span(awake)) is not None} == {
        "exception": 500,
        "handler": 3000,
        "bio": 1000,
        "block layer": 2000,
        "device": 50_000,
        "interrupt": 5000,
        "return awake": 3000,
        "kernel": 64_500 - 50_000,
        "whole": 64_500,
    }


def test_stages_of_a_sleeping_fault_sum_to_the_whole() -> None:
    fault = cut(events(SLEEPING), TOUCHES[:1]).faults[0]
    path = ("exception", "handler", "bio", "block layer", "device", "interrupt", "completion", "wakeup", "return")
    assert sum(stage.span(fault) or 0 for stage in STAGES if stage.name in path) == 98_000


def test_a_device_without_requests_and_interrupts_completes_the_read_itself() -> None:
    recorded = cut(events(WITHOUT_REQUESTS), [(SECONDS + 300_000, SECONDS + 312_500)])
    assert recorded.irq == ""
    spans = {stage.name: span for stage in STAGES if (span := stage.span(recorded.faults[0])) is not None}
    assert spans == {"exception": 500, "handler": 4000, "bio": 2000, "device": 3000, "return awake": 3000,
                     "kernel": 9500, "whole": 12_500}  # fmt: skip


@pytest.mark.parametrize("gone", ["page_fault_user", "block_bio_queue", "rq_complete", "irq=36", "prev_comm=pagelab"])
def test_faults_with_gaps_are_left_out(gone: str) -> None:
    text = "".join(line for line in SLEEPING.splitlines(keepends=True) if gone not in line)
    recorded = cut(events(text, AWAKE), TOUCHES)
    assert (len(recorded.faults), recorded.incomplete) == (1, 1)


def test_a_wake_up_that_comes_before_the_sleep_is_neither() -> None:
    text = SLEEPING.replace("100.000009000", "100.000086000")
    fault = cut(events(text), TOUCHES[:1]).faults[0]
    assert not fault.slept
    assert not fault.awake
    spans_of = {stage.name: stage.span(fault) for stage in STAGES}
    assert [spans_of[name] for name in ("switch", "wakeup", "return", "kernel")] == [None] * 4
    assert spans_of["completion"] == 1500


def test_medians_are_over_all_runs_and_of_each() -> None:
    one, both = cut(events(SLEEPING), TOUCHES[:1]), cut(events(SLEEPING, AWAKE), TOUCHES)
    whole = spans([one, both])["whole"]
    assert (whole.median, whole.lower, whole.upper, whole.count) == (98_000, 64_500, 98_000, 3)
    assert whole.runs == (98_000, (98_000 + 64_500) / 2)
    assert spans([one, both])["wakeup"].count == 2


def test_settings_are_medians_less_what_recording_costs() -> None:
    result = measured(device())
    text = to_toml(result, settings(result), FIRST_LINE)
    assert text.startswith(FIRST_LINE)
    block_io = tomllib.loads(text)["kernel"]["block_io"]
    # Nanoseconds less 500 per stage, at two cycles per nanosecond.
    cycles = {"submit": 6000, "switch": 6000, "interrupt": 8000, "completion": 2000, "wakeup": 12_000}
    assert {key: costs["cycles"] for key, costs in block_io.items()} == cycles
    assert block_io["submit"]["instructions"] == round(6000 * 0.7)
    assert "# measured: from sched_waking to sched_switch back: wakeup 6,000 ns (quartiles 5,900 to 6,100" in text
    assert "# quartiles: 5,600 to 6,400 cycles\n[kernel.block_io.submit]" in text
    assert "# instructions: estimates: 0.7 per cycle" in text
    assert "Linux 6.18.1, Imaginary" in text
    assert "# vda (ext4): 5 runs, 10,000 faults followed on CPU 0, with real-time priority; 9,800 slept" in text


def test_instructions_are_in_proportion_where_they_are_counted() -> None:
    result = measured(replace(device(), instructions=15_000.0))
    text = to_toml(result, settings(result), FIRST_LINE)
    # 15,000 instructions in 60,000 cycles.
    assert tomllib.loads(text)["kernel"]["block_io"]["wakeup"]["instructions"] == 3000
    assert "# instructions: measured: 15,000 of the kernel per fault" in text


def test_what_is_not_seen_is_estimated_and_called_so() -> None:
    result = measured(device(slept=3, irq="", interrupt=0, switch=0))
    by_key = {setting.key: setting for setting in settings(result, 4000.0)}
    assert [by_key[key].ns for key in ("switch", "wakeup", "interrupt")] == [2000, 2000, 0]
    assert by_key["switch"].origin.startswith(
        "estimate: half of `pagelab calibrate`'s context-switch, since 3 of 10,000"
    )
    assert by_key["interrupt"].origin.startswith("none: no fault had the stage")
    assert not [line for line in to_toml(result, list(by_key.values()), FIRST_LINE).splitlines() if "None" in line]


def test_a_driver_that_waits_for_the_device_does_not_tell_what_switching_costs() -> None:
    by_key = {setting.key: setting for setting in settings(measured(device(slept=5000)), 4000.0)}
    assert by_key["switch"].origin.startswith("estimate")
    assert by_key["wakeup"].origin.startswith("measured")


def test_a_device_in_memory_tells_the_kernels_part() -> None:
    memory = replace(device(irq="", device=3000.0, event_ns=1000), plain=spread(7000), direct=spread(4000))
    result = replace(measured(device()), memory=memory)
    reason = (
        "the kernel's part without interrupt and switch: 5,000 ns, a touch less the device's time; 3,000 ns more than a"
    )
    assert result.without_sleep.startswith(reason)
    assert reason in to_toml(result, settings(result), FIRST_LINE)
    # Its events' cost is the better one, and taken off the drive's stages.
    assert result.net("wakeup").median == 5500
    assert measured(device()).net("wakeup").median == 6000


def test_an_event_costs_what_all_add_by_their_number() -> None:
    steps = [
        TracepointPasses("", (7000, 9000), ()),
        TracepointPasses("", (9000, 8500), (6500, 6000)),
        TracepointPasses("last", (11_000, 13_000), (9000, 8000)),
    ]
    recorded = cut(events(WITHOUT_REQUESTS), [(SECONDS + 300_000, SECONDS + 312_500)])
    assert measurement._event_ns(recorded.faults, steps) == (11_000 - 7000) / 4
    sleeping, awake = cut(events(SLEEPING, AWAKE), TOUCHES).faults
    assert measurement._event_ns([sleeping], steps) == (8000 - 6000) / 4
    assert measurement._event_ns([awake], steps) == (8000 - 6000) / 2
    assert measurement._event_ns([awake], [steps[0], steps[2], steps[1]]) == 0


def test_the_device_is_told_from_the_kernel_with_fewer_tracepoints() -> None:
    around = [
        event for event in events(SLEEPING, AWAKE) if event.kind in ("queued", "issued", "interrupt", "completed")
    ]
    assert len(around) == 10
    assert not cut(around, TOUCHES).faults
    assert [fault.beside for fault in cut(around, TOUCHES, every=False).faults] == [24_000, 14_500]


@pytest.mark.parametrize(
    ("resident", "major", "message"),
    [
        (21, 2000, "the page cache still holds 21 pages of the file after it was asked to drop them"),
        (0, 1500, "2,000 pages were touched and 1,500 of the faults were major"),
    ],
)
def test_touches_that_are_no_major_faults_are_refused(resident: int, major: int, message: str) -> None:
    recorder.ensure_cold(2000, 20, 1990)
    with pytest.raises(MajorFaultError, match=message):
        recorder.ensure_cold(2000, resident, major)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(size=5000), "give a multiple of 4096, such as --size 256MiB"),
        (Plan(size=1 << 20, faults=257), "257 faults in a file of 256 pages: each page faults once, so give 1 to 256"),
        (Plan(runs=0), "0 runs: give at least 1"),
        (Plan(cpu=4095), "CPU 4095: programs may run on"),
    ],
)
def test_impossible_plans_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan.check()


def test_folders_without_a_drive_are_refused(pagelab: Pagelab, tmp_path: Path) -> None:
    assert_fails(pagelab("calibrate", "--major-faults", "--on", "none"), 1, "none: no folder; give one on the drive")
    assert_fails(
        pagelab("calibrate", "--major-faults", "--on", "/proc"), 1, "/proc: lies on proc without a block device"
    )
    assert_fails(pagelab("calibrate", "--on", "."), 2, "--on names the folder for the file of --major-faults")
    assert_fails(pagelab("calibrate", "--major-faults", "--fio", "a.json"), 2, "leave out --fio")
    assert_fails(pagelab("calibrate", "--major-faults", "--size", "lots"), 2, "--size: ")
    (tmp_path / "mine.toml").write_text("mine")
    assert_fails(pagelab("calibrate", "--major-faults", "-o", "mine.toml"), 2, "was not written by `pagelab calibrate`")
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_what_perf_lacks_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MajorFaultError, match="perf is not installed; on Debian it is in the package linux-perf"):
        recorder.find_perf()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MajorFaultError, match="by root alone; run this with sudo"):
        recorder.ensure_tracepoints()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(recorder, "_TRACEFS", (str(tmp_path / "tracing"),))
    with pytest.raises(MajorFaultError, match="mount -t tracefs none"):
        recorder.ensure_tracepoints()
    for tracepoint in TRACEPOINTS[1:]:
        (tmp_path / "tracing" / "events" / tracepoint.name.replace(":", "/")).mkdir(parents=True)
    with pytest.raises(MajorFaultError, match="no tracepoint exceptions:page_fault_user; it takes Linux"):
        recorder.ensure_tracepoints()


def test_a_full_drive_is_said_and_nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places, "_fill", full)
    with (
        pytest.raises(MajorFaultError, match=r"no room for a file of 256 MiB .* give a smaller --size"),
        places.cold_file(tmp_path, 256 << 20),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_pages_begin_with_their_numbers_and_the_file_has_no_name(tmp_path: Path) -> None:
    with places.cold_file(tmp_path, 300 * places.PAGE) as path:
        assert not list(tmp_path.iterdir())
        content = path.read_bytes()
        numbers = [int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), places.PAGE)]
        assert numbers == list(range(300))
        assert len(set(content[8 :: places.PAGE])) > 50, "what follows is random, and cannot be compressed"


def test_a_device_in_memory_that_is_used_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(places, "_ZRAM", tmp_path / "none")
    assert "modprobe zram" in str(places.ram_disk_refusal(1 << 20))
    monkeypatch.setattr(places, "_ZRAM", tmp_path)
    (tmp_path / "disksize").write_text("4096\n")
    assert "is in use; free it" in str(places.ram_disk_refusal(1 << 20))
    (tmp_path / "disksize").write_text("0\n")
    assert "MiB of free memory" in str(places.ram_disk_refusal(1 << 50))


def test_a_device_in_memory_is_given_back_even_if_it_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "disksize").write_text("0\n")
    commands = []

    def fails(*command: str) -> None:
        commands.append(command[0])
        if command[0] == "mount":
            raise KeyboardInterrupt

    def reset(_: int) -> None:
        commands.append("reset")

    monkeypatch.setattr(places, "_ZRAM", tmp_path)
    monkeypatch.setattr(places, "_run", fails)
    monkeypatch.setattr(places, "_reset", reset)
    with pytest.raises(KeyboardInterrupt), places.ram_disk(1 << 20):
        pass
    assert commands == ["mkfs.ext4", "mount", "reset"]


def test_cpus_are_kept_busy_by_programs_that_end() -> None:
    def children() -> list[str]:
        listed = subprocess.run(
            ["ps", "-o", "cls=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
        )
        return [line for line in listed.stdout.splitlines() if "sched_setaffinity" in line]

    with recorder.busy_cpus():
        assert len(children()) == len(os.sched_getaffinity(0))
    assert not children()


def displaced(control: float, *more: float) -> FootprintPass:
    """A set as large as L1D takes so many cycles longer after its faults, half of L2 50 times as many, L2 100 times."""
    factors = (1, 50, 100)
    after = [[factor * cycles for cycles in more] for factor in factors]
    between = [[factor * control] * 3 for factor in factors]
    return FootprintPass((4.0, 14.0, 34.0), (512, 4096, 8192), after, between, filled=True)


CACHES = Caches(64, 32 << 10, 512 << 10, 32 << 20)


def test_lines_lost_are_the_cycles_more_over_what_a_line_takes_more() -> None:
    lost = footprint([displaced(40, 540, 1040, 2040), displaced(0, 1500)], CACHES)
    assert lost.latencies == (4, 14, 34)
    l1d, half, l2 = lost.losses
    assert [loss.bytes >> 10 for loss in lost.losses] == [32, 256, 512]
    # Less the control's 40: 500, 1000, 2000, and 1500 of the other run. A line of L1D takes 10 cycles more from L2.
    assert (l1d.cycles.median, l1d.cycles.lower, l1d.cycles.upper) == (1000, 500, 1500)
    assert (l1d.lost.median, l1d.lost.lower, l1d.lost.upper) == (100, 50, 150)
    assert (l1d.lines, l1d.lost.count, l1d.lost.runs) == (512, 4, (100, 150))
    # One takes 30 more from L3.
    assert l1d.least == pytest.approx(1000 / 30)
    # One of L2 takes 20 more from L3.
    assert (half.cycles.median, half.lost.median, half.lines, half.least) == (50_000, 2500, 4096, None)
    assert (l2.cycles.median, l2.lost.median, l2.lines) == (100_000, 5000, 8192)


def test_no_more_lines_are_lost_than_there_are_and_no_fewer_than_none() -> None:
    losses = footprint([displaced(40, 30, 1_000_000, 10_000)], CACHES)
    assert (losses.l1d.lost.lower, losses.l1d.lost.median, losses.l1d.lost.upper) == (0, 512, 512)
    assert (losses.l1d.cycles.lower, losses.l1d.cycles.median) == (-10, 9960)
    assert (losses.half_l2.lost.median, losses.l2.lost.median) == (4096, 8192)


@pytest.mark.parametrize("latencies", [(4.0, 5.0, 34.0), (4.0, 14.0, 15.0), (14.0, 4.0, 34.0)])
def test_caches_that_cannot_be_told_apart_are_refused(latencies: tuple[float, float, float]) -> None:
    done = replace(displaced(0, 100), latencies=latencies)
    with pytest.raises(NoFootprintError, match="which cannot be distinguished"):
        footprint([done], CACHES)


def test_what_the_engine_cannot_time_leaves_the_footprint_out(tmp_path: Path) -> None:
    target = recorder.Target(tmp_path / "none", 10, min(os.sched_getaffinity(0)), THREAD)
    with pytest.raises(
        NoFootprintError, match="what faults push out of the caches cannot be measured here: No such file"
    ):
        footprint_module.displace(target, 1, CACHES)


def write_caches(cpu: Path, **sizes: str) -> None:
    """As the kernel shows them; the last letter of a name is its type."""
    for index, (name, size) in enumerate(sizes.items()):
        folder = cpu / "cache" / f"index{index}"
        folder.mkdir(parents=True, exist_ok=True)
        kind = {"d": "Data", "i": "Instruction", "u": "Unified"}[name[-1]]
        for file, text in (("level", name[1]), ("type", kind), ("size", size), ("coherency_line_size", "64")):
            (folder / file).write_text(f"{text}\n")


def test_sizes_of_caches_are_the_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(footprint_module, "_CPUS", tmp_path)
    write_caches(tmp_path / "cpu1", l1d="48K", l1i="64K", l2u="2M", l3u="36864K")
    assert caches(1) == Caches(64, 48 << 10, 2 << 20, 36 << 20)
    # L3 is no larger than needed: not four times L2, but half of L3.
    write_caches(tmp_path / "cpu2", l1d="32K", l1i="32K", l2u="1M", l3u="4M")
    assert caches(2).latencies_of == [16 << 10, 256 << 10, 2 << 20]
    assert caches(1).latencies_of == [24 << 10, 512 << 10, 8 << 20]
    with pytest.raises(NoFootprintError, match="cpu7/cache does not tell the length of a line, the size of L1D, the"):
        caches(7)
    write_caches(tmp_path / "cpu3", l1d="32K", l1i="32K", l2u="4M")
    with pytest.raises(NoFootprintError, match=r"cpu3/cache does not tell the size of L3$"):
        caches(3)
    write_caches(tmp_path / "cpu4", l1d="32K", l2u="128K", l3u="8M")
    with pytest.raises(NoFootprintError, match="have 32, 128 and 8192 KiB; each must be several times as large"):
        caches(4)
    write_caches(tmp_path / "cpu5", l1d="what", l2u="512K", l3u="8M")
    with pytest.raises(NoFootprintError, match=r"the size of L1D$"):
        caches(5)


def pushed_out() -> Footprint:
    def spread(median: float) -> Spread:
        return Spread(median, median - 10, median + 10, (median - 1, median + 1), 10_000)

    l1d = Loss("L1D", 32 << 10, 512, spread(3000), spread(300.4), 100.0)
    half = Loss("half L2", 256 << 10, 4096, spread(40_000), spread(1999.6), None)
    l2 = Loss("L2", 512 << 10, 8192, spread(30_000), spread(1500), None)
    return Footprint((4.0, 14.0, 34.0), l1d, half, l2, filled=True)


def test_lines_are_written_before_the_tables_of_block_io() -> None:
    result = measured(replace(device(), footprint=pushed_out()))
    text = to_toml(result, settings(result), FIRST_LINE)
    block_io = tomllib.loads(text)["kernel"]["block_io"]
    assert list(block_io) == ["lines", "submit", "switch", "interrupt", "completion", "wakeup"]
    assert block_io["lines"] == 2000
    assert "# cache lines of its own that the kernel touches per request\n" in text
    assert "half its size, 256 KiB: 2,000 of 4,096 (quartiles 1,990 to 2,010 of 10,000; medians of runs 1,999" in text
    assert "reading 32 KiB (L1D) again after a fault: 3,000 cycles (quartiles 2,990 to 3,010 of 10,000" in text
    assert "more; 300 of 512 lines lost (290 – 310); 100 if all came from L3\n" in text
    assert "# cycles per line: 4.0 from L1D, 14.0 from L2, 34.0 from L3\n[kernel.block_io]\nlines = 2000\n" in text


def test_what_a_device_in_memory_pushes_out_is_told_beside() -> None:
    memory = replace(device(irq=""), name="zram0", footprint=pushed_out())
    result = replace(measured(replace(device(), footprint=pushed_out())), memory=memory)
    text = to_toml(result, settings(result), FIRST_LINE)
    assert "# zram0, in memory: reading 256 KiB (half L2) again after a fault: 40,000 cycles (quartiles" in text
    assert text.index("# zram0, in memory: reading") < text.index("[kernel.block_io]\nlines = 2000\n")


def test_without_a_footprint_there_is_no_key_and_the_reason_is_written() -> None:
    result = measured(replace(device(), no_footprint="not asked for"))
    text = to_toml(result, settings(result), FIRST_LINE)
    assert "lines" not in tomllib.loads(text)["kernel"]["block_io"]
    assert "# lines: none: not asked for\n" in text


def test_the_table_shows_what_reloading_takes() -> None:
    drive = replace(device(), footprint=pushed_out())
    table = _stages(drive, measured(drive))
    rows = list(zip(*(list(column.cells) for column in table.columns), strict=True))
    # 3,000 cycles at two per nanosecond.
    assert rows[-3] == ("reload L1D", "1,500", "1,495 – 1,505", "1,500 – 1,500", "3,000", "10,000",
                        "32 KiB: 300 of 512 lines lost (290 – 310); 100 if all came from L3")  # fmt: skip
    assert [row[0] for row in rows[-2:]] == ["reload half L2", "reload L2"]
    assert rows[-2][-1] == "256 KiB: 2,000 of 4,096 lines lost (1,990 – 2,010)"


def _can_measure(folder: Path) -> bool:
    try:
        places.place(folder)
        with recorder.scratch() as data:
            recorder.Recorder(data)
    except MajorFaultError:
        return False
    return shutil.which("perf") is not None


@pytest.mark.slow
def test_major_faults_are_measured_here(pagelab: Pagelab, tmp_path: Path) -> None:
    if not _can_measure(tmp_path):
        pytest.skip("major faults cannot be measured here: it takes root, perf, tracepoints and a drive")
    before = _mounts()
    done = pagelab("calibrate", "--major-faults", "--on", tmp_path, "--size", "16MiB", "--faults", "300", "--runs", "1",
                   "-o", "io.toml")  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "io.toml").read_text()
    block_io = tomllib.loads(text)["kernel"]["block_io"]
    # Where the caches are unknown, or cannot be told apart, there are no lines.
    lines = block_io.pop("lines", None)
    assert lines is not None or "# lines: none: " in text
    assert list(block_io) == ["submit", "switch", "interrupt", "completion", "wakeup"]
    assert all(costs.keys() == {"instructions", "cycles"} for costs in block_io.values())
    assert block_io["submit"]["cycles"] > 100
    for name in ("handler", "device", "kernel", "and sched:sched_switch"):
        assert f"\n{name} " in done.stdout
    assert _mounts() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["io.toml"]


def _mounts() -> list[str]:
    mounts = subprocess.run(["mount"], capture_output=True, text=True, check=True).stdout
    return [line for line in mounts.splitlines() if "zram" in line]
