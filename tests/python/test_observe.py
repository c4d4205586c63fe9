"""`pagelab observe` on programs whose memory is known, and on what cannot be observed.

Tolerances: bytes that the kernel tells, 5 %; used memory, 10 %, as an interval ends a little after its look; sampled
faults, 5 %; the share of faults in the CPU time, the interval that the page prints, and two points below it.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from conftest import COMMAND, Pagelab, assert_fails

from pagelab import UsageError
from pagelab.confidence.wilson import share_interval
from pagelab.host.contiguity import ProcessEndedError
from pagelab.observe import events, processes
from pagelab.observe.budget import COUNTED_SWITCH_SECONDS, SAMPLED_SWITCH_SECONDS
from pagelab.observe.events import EventsRefusedError
from pagelab.observe.observation import Settings, observe
from pagelab.observe.targets import Processes
from pagelab.observe.time_shares import RETURN_SECONDS

SOURCE = Path(__file__).with_name("observed.c")
MIB = 1 << 20
Document: TypeAlias = dict[str, Any]
Observe: TypeAlias = Callable[..., tuple[Document, subprocess.CompletedProcess[str]]]


def _events_allowed() -> bool:
    try:
        return events.access().kernel
    except EventsRefusedError:
        return False


needs_events = pytest.mark.skipif(not _events_allowed(), reason="the kernel refuses performance events")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("observed") / "observed"
    options = ["-O1", "-g", "-Wall", "-Werror", "-fno-omit-frame-pointer"]
    subprocess.run(["gcc", *options, "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def observed(pagelab: Pagelab, program: Path, tmp_path: Path) -> Observe:
    """Observes a mode of the program for so many seconds. The bound is wide, as the programs are short."""

    def run(mode: str, seconds: float, *options: str) -> tuple[Document, subprocess.CompletedProcess[str]]:
        arguments = ("observe", "-i", "0.3", "--budget", "40%", *options, "--json", "seen.json", "--")
        process = pagelab(*arguments, program, mode, str(seconds))
        assert process.returncode == 0, process.stderr
        return json.loads((tmp_path / "seen.json").read_text()), process

    return run


@pytest.fixture
def running(program: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a mode of the program beside the test."""
    started = []

    def start(mode: str, seconds: float) -> subprocess.Popen[str]:
        process = subprocess.Popen([program, mode, str(seconds)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def begun(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """An observation of a process that has begun."""
    time.sleep(0.3)
    command = [*COMMAND, "observe", "-t", "60", str(process.pid)]
    observing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert observing.stderr
    assert observing.stderr.readline().startswith(f"observing process {process.pid} (observed) for 60 s")
    return observing


def region(document: Document) -> Document:
    """The memory with the most bytes."""
    return document["memory"][0]  # type: ignore[no-any-return]


def projection(document: Document, change: str) -> Document:
    """What a change of the largest region could save."""
    begin = region(document)["begin"]
    (match,) = [one for one in document["projections"] if (one["change"], one["begin"]) == (change, begin)]
    return match  # type: ignore[no-any-return]


def sampled_pages(document: Document) -> dict[int, int]:
    """The pages of the sample by the bytes of the page that the kernel allocated, without sizes that have none."""
    return {int(size): count for size, count in region(document)["layout"]["sampled_pages"].items() if count}


def used(document: Document) -> list[int]:
    """The used memory of the largest region in each interval."""
    return [look["used"] for look in region(document)["looks"].values() if look["used"] is not None]


def middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def test_dense_and_hot_memory_is_a_candidate(observed: Observe) -> None:
    document, process = observed("hot", 2)
    largest = region(document)
    assert largest["end"] - largest["begin"] == 64 * MIB
    assert max(look["resident"] for look in largest["looks"].values()) == 64 * MIB
    assert middle(used(document)) == pytest.approx(64 * MIB, rel=0.1)
    assert largest["traits"] == ["dense and hot"]
    assert largest["layout"]["extents"] == largest["layout"]["dense_extents"] == 32
    assert largest["growth_at_most"] == 0
    # Each page was touched once, and nothing was given back.
    assert projection(document, "populate")["faults_spared"]["low"] == pytest.approx(64 * MIB / 4096, rel=0.05)
    assert projection(document, "keep memory")["faults_spared"]["low"] == 0
    if largest["layout"]["contiguity"]:
        assert set(sampled_pages(document)) == {4096}
    assert document["verdict"]["kind"] == largest["verdict"] == "worth a recording"
    assert "walks may cost time" in document["verdict"]["reason"]
    assert f"pagelab advise --windows every=1G,length=10M -- {process.args[-3]}" in process.stderr


def test_sparse_memory_would_grow(observed: Observe) -> None:
    document, process = observed("sparse", 1.2)
    largest = region(document)
    assert largest["traits"] == ["sparse"]
    assert [largest["layout"][name] for name in ("extents", "pages", "dense_extents")] == [512, 4096, 0]
    assert largest["growth_at_most"] == 1008 * MIB
    # A page in each 256 KiB.
    growths = {size: projection(document, f"pages of {size}")["growth_at_most"] for size in ("64 KiB", "256 KiB")}
    assert growths == {"64 KiB": 4096 * (60 << 10), "256 KiB": 1008 * MIB}
    assert "huge pages would add up to 1008 MiB" in process.stderr


def test_a_stream_uses_what_it_has_passed_in_an_interval(observed: Observe) -> None:
    document, _ = observed("streaming", 2.5)
    assert "dense and hot" not in region(document)["traits"]
    # Without the first interval, in which all of it is written.
    pairs = [
        (look["used"], look["interval_seconds"] * 32 * MIB)
        for look in document["looks"]
        if look["used"] is not None and look["seconds"] > 1
    ]
    assert len(pairs) >= 2
    # The stream's, and the code that runs. A late look still ends the interval that it began in. A stream that had no
    # CPU for a while makes up for it in the next interval.
    for seen, expected in pairs:
        assert seen == pytest.approx(expected, rel=0.5, abs=2 * MIB)
    seen, expected = (sum(column) for column in zip(*pairs, strict=True))
    assert seen == pytest.approx(expected, rel=0.2)


def test_a_working_set_that_doubles_is_seen(observed: Observe) -> None:
    document, process = observed("doubling", 2.4)
    looks = document["looks"]
    early = [look["used"] for look in looks if look["used"] is not None and 0.4 < look["seconds"] < 1.1]
    late = [look["used"] for look in looks if look["used"] is not None and look["seconds"] > 1.7]
    assert early
    assert late
    assert middle(early) == pytest.approx(16 * MIB, rel=0.1)
    assert middle(late) == pytest.approx(32 * MIB, rel=0.1)
    curve = [one["used"] for one in document["working_set"]]
    assert curve == [look["used"] for look in looks if look["used"] is not None]
    place = f"{region(document)['begin']:#x}"
    (row,) = re.findall(rf"{place} +32 MiB +([░▒▓█]+)$", process.stderr, re.MULTILINE)
    # Half of it at first, if a look fell into that time, and then all. On a busy machine the first interval has less.
    assert re.fullmatch("[░▒▓█]?[▒▓]*█+", row)


def test_cold_huge_pages_are_seen(observed: Observe) -> None:
    document, process = observed("cold_huge", 3)
    largest = region(document)
    if max(look["huge"] for look in largest["looks"].values()) < 64 * MIB:
        pytest.skip("the kernel gave no huge pages")
    assert middle(used(document)) == pytest.approx(8 * MIB, rel=0.1)
    assert largest["cold_huge_at_least"] == pytest.approx(56 * MIB, rel=0.05)
    assert largest["traits"] == ["cold huge pages"]
    if largest["layout"]["contiguity"]:
        assert set(sampled_pages(document)) == {2 * MIB}
    assert "of its huge pages were not used in the median interval" in " ".join(process.stderr.split())


@needs_events
def test_faults_at_a_known_rate_are_counted_and_placed(observed: Observe) -> None:
    document, process = observed("rate", 2)
    faults = int(process.stdout)
    # The rest are those of its start.
    assert faults <= document["faults"]["count"] <= faults + 500
    placed = sum(one["faults"] for one in document["memory"] if one["anonymous"])
    assert placed == pytest.approx(faults, rel=0.05)
    # They are on 1,024 pages.
    spared = projection(document, "keep memory")["faults_spared"]
    assert spared["low"] <= faults - 1024 <= 1.15 * spared["high"]
    assert spared["low"] >= 0.75 * faults
    assert projection(document, "populate")["faults_spared"]["low"] == 1024
    code = document["faults"]["code"][0]
    assert code["stack"][0]["function"] == "touch_fresh"
    assert code["faults"] == pytest.approx(faults, rel=0.05)
    assert "main" in [frame["function"] for frame in code["stack"]]


@needs_events
def test_the_time_of_faults_is_measured(observed: Observe) -> None:
    document, process = observed("share", 2.5)
    truth, faults = float(process.stdout), document["faults"]
    activity = document["time"]["activities"]["page faults"]
    # What the program sees includes the returns from its faults, which samples do not.
    returns = RETURN_SECONDS * faults["count"] / document["cpu_seconds"]
    assert activity["low"] - 0.02 <= truth <= activity["high"]
    # On a busy machine, the program has less CPU time, and sampling may have paused to keep the bound.
    widest = share_interval(document["time"]["samples"] // 2, document["time"]["samples"])
    paused = 1 - document["time"]["sampled_part"]
    assert activity["high"] - activity["low"] <= returns + widest[1] - widest[0] + paused + 1e-9
    assert faults["seconds"]["share"] == pytest.approx(activity["share"] * document["cpu_seconds"])
    assert document["verdict"]["kind"] == "worth a recording"
    assert any("--start-at touch_fresh" in line for line in document["verdict"]["commands"])
    assert re.search(r"page faults \(\d+ waited for a device\) take [\d.]+% of the CPU time", process.stderr)


@needs_events
def test_children_that_come_and_go_are_counted(pagelab: Pagelab, program: Path, tmp_path: Path) -> None:
    script = f"{program} rate 0.4; {program} rate 0.4; exec {program} rate 0.4"
    process = pagelab("observe", "--json", "seen.json", "--", "sh", "-c", script)
    assert process.returncode == 0, process.stderr
    document = json.loads((tmp_path / "seen.json").read_text())
    faults = sum(map(int, process.stdout.split()))
    assert faults <= document["faults"]["count"] <= faults + 2000
    assert document["ended"]


def test_forty_thousand_mappings_have_a_bounded_cost(observed: Observe) -> None:
    document, process = observed("many", 2.5)
    assert document["looks"][0]["mappings"] > 40_000
    assert len(document["memory"]) < 10
    # About 15 µs per mapping, on a busy machine.
    assert document["cost"]["first_look_seconds"] < 3
    cost = document["cost"]
    rest = cost["own_seconds"] + cost["in_program_seconds_estimated"] - cost["first_look_seconds"]
    assert rest <= max(1.5 * cost["budget"] * document["cpu_seconds"], 0.3)
    assert "the first look, which is always made" in process.stderr or cost["share"] <= cost["budget"]


def test_a_small_budget_is_kept(pagelab: Pagelab, running: Callable[..., subprocess.Popen[str]]) -> None:
    process = running("hot", 20)
    time.sleep(0.3)
    done = pagelab("observe", "-t", "4", "--budget", "1%", "-i", "0.1", "--json", "-", str(process.pid))
    document = json.loads(done.stdout)
    cost = document["cost"]
    spent = cost["own_seconds"] + cost["in_program_seconds_estimated"] - cost["first_look_seconds"]
    # What was expected of a look and what it took may differ.
    assert spent <= 0.01 * document["cpu_seconds"] + 0.03
    assert document["seconds"] == pytest.approx(4, abs=0.5)
    assert not document["ended"]


def test_used_memory_can_be_left_alone(observed: Observe) -> None:
    document, process = observed("hot", 0.8, "--no-referenced")
    assert used(document) == []
    assert "Which memory was used: --no-referenced" in process.stderr


def test_an_interrupt_prints_what_is_known(running: Callable[..., subprocess.Popen[str]]) -> None:
    process = running("hot", 20)
    with begun(process) as observing:
        time.sleep(1)
        observing.send_signal(signal.SIGINT)
        text, errors = observing.communicate(timeout=30)
    assert observing.returncode == 0, errors
    assert "(interrupted)" in text
    assert "64 MiB" in text
    # Commands to be copied stay on a line.
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith("    pagelab "))
    assert process.poll() is None


def test_a_process_that_ends_is_observed_until_then(running: Callable[..., subprocess.Popen[str]]) -> None:
    process = running("hot", 20)
    with begun(process) as observing:
        time.sleep(0.5)
        process.kill()
        text, errors = observing.communicate(timeout=30)
    assert observing.returncode == 0, errors
    assert "(it has ended)" in text


def test_a_program_that_is_shorter_than_a_look(pagelab: Pagelab) -> None:
    done = pagelab("observe", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "everything ended before it could be looked at" in done.stderr
    assert "the program ended with status 3" in done.stderr


def test_a_long_observation_is_divided_into_files(
    running: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = running("hot", 60)
    options = ("-t", "60", "--rotate", "1", "--keep", "2", "--json", "seen.json", "--samples", "seen.parquet")
    command = [*COMMAND, "observe", *options, str(process.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as observing:
        assert observing.stdout
        lines = [observing.stdout.readline() for _ in range(4)]
        observing.send_signal(signal.SIGINT)
        observing.communicate(timeout=30)
    assert ["part 1: " in lines[0], "part 4: " in lines[3]] == [True, True]
    documents = sorted(tmp_path.glob("seen-*.json"))
    assert len(documents) == len(list(tmp_path.glob("seen-*.parquet"))) == 2
    assert documents[0].name >= "seen-0003.json"
    assert 0.8 <= json.loads(documents[0].read_text())["seconds"] <= 3


def test_parts_need_files_and_a_running_process(pagelab: Pagelab) -> None:
    assert_fails(pagelab("observe", "--rotate", "5", "1"), 2, "--rotate writes files")
    assert_fails(pagelab("observe", "--keep", "5", "1"), 2, "--keep is for --rotate")
    assert_fails(pagelab("observe", "--rotate", "5", "--json", "a.json", "--", "true"), 2, "--rotate is for running")
    late = ("--rotate", "5", "--json", "a.json", "--try", "worth", "1")
    assert_fails(pagelab("observe", *late), 2, "--rotate and --try do not go together")


def test_what_is_not_there_cannot_be_observed(pagelab: Pagelab) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert_fails(pagelab("observe", str(ended.pid)), 2, f"there is no process {ended.pid}")
    assert_fails(pagelab("observe"), 2, "name what to observe")
    assert_fails(pagelab("observe", str(ended.pid), "--seconds", "5"), 2, f"there is no process {ended.pid}")
    assert_fails(pagelab("observe", "4711", "--no-such-option"), 2, "--no-such-option")
    assert_fails(pagelab("observe", "4711", "no-such-word"), 2, "this is not the number of a process: no-such-word")
    assert_fails(pagelab("observe", "--cgroup", "no-such-group.service"), 2, "no-such-group.service")
    assert_fails(pagelab("observe", "--", "no-such-program"), 2, "no-such-program")
    assert_fails(pagelab("observe", "--budget", "2", "--", "no-such-program"), 2, "no-such-program")
    for budget in ("0", "much", "200%"):
        assert_fails(pagelab("observe", "--budget", budget, "1"), 2, "--budget takes a percentage")


def test_a_process_that_nobody_waited_for_has_ended() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        # It stays in /proc until it is waited for.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessEndedError, match=f"process {child} has ended"):
            processes.identify(child)
    finally:
        os.waitpid(child, 0)


def test_a_kernel_thread_has_no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    fields = ["S", "0", *["0"] * 4, str(0x0020_8040), *["0"] * 15]
    (tmp_path / "2" / "stat").write_text(f"2 (kthreadd) {' '.join(fields)}\n")
    monkeypatch.setattr(processes, "PROC", tmp_path)
    with pytest.raises(UsageError, match=r"process 2 \(kthreadd\) is a kernel thread"):
        processes.ensure_observable(2)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_the_process_of_somebody_else_is_refused() -> None:
    target = os.getpid()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            processes.ensure_observable(target)
        except UsageError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as message:
        text = message.read()
    assert f"process {target} " in text
    assert "belongs to user root" in text
    assert "CAP_SYS_PTRACE" in text


def test_without_events_the_rest_is_observed(
    monkeypatch: pytest.MonkeyPatch, running: Callable[..., subprocess.Popen[str]]
) -> None:
    from pagelab.observe.conclusions import conclude
    from pagelab.observe.page import page

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(events, "_open", refuse)
    process = running("rate", 3)
    observation = observe(Processes([process.pid]), Settings(1.5, 0.3, 0.5, True))
    text = page(conclude(observation, None))
    # Lines break where the numbers before let them.
    words = " ".join(text.split())
    assert "the kernel refuses performance events (kernel.perf_event_paranoid is" in words
    assert "Faults and CPU time are those of /proc/PID/stat" in words
    assert 1.5 * 5000 * 0.8 <= observation.totals.faults <= 2.5 * 5000
    assert observation.totals.cpu_seconds > 0.1


def test_switches_of_context_are_a_part_of_the_cost(running: Callable[..., subprocess.Popen[str]]) -> None:
    from pagelab.observe.conclusions import conclude
    from pagelab.observe.page import page

    process = running("switching", 6)
    observation = observe(Processes([process.pid]), Settings(4.0, 0.5, 0.02, True))
    if observation.events_refused or not observation.kernel_seen:
        pytest.skip("this user may not count what the kernel does")
    switches = observation.totals.switches
    assert switches > 1_000
    least, most = (
        switches * cost for cost in (COUNTED_SWITCH_SECONDS, COUNTED_SWITCH_SECONDS + SAMPLED_SWITCH_SECONDS)
    )
    assert least <= observation.budget.switches < most
    assert observation.budget.in_program >= observation.budget.switches
    text = " ".join(page(conclude(observation, None)).split())
    assert "the program switches context" in text
    assert re.search(r"always made, took [\d.]+%, switches of context [\d.]+%\.", text)
    assert "counts are those of /proc/PID/stat" in text
    given_up = re.search(r"from second ([\d.]+) on: the program switches", text)
    assert given_up
    counted = [cpu for at, _, cpu in observation.rates if at <= float(given_up[1])]
    # CPU time is counted after that, too.
    assert observation.totals.cpu_seconds > counted[-1] + 0.1


def test_nothing_is_left_open() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 # names are what is compared
    target = Processes([os.getpid()])
    observe(target, Settings(0.3, 0.1, 0.5, True))
    target.close()
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
